"""Phases: the solution on a grid of two parameters, and where along one of them a phase ends."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from fermibose.checks import choice, number
from fermibose.compute import Interrupted, parallel_map
from fermibose.errors import InputError
from fermibose.plotting import figure
from fermibose.theory.curves import (
    COLUMNS,
    SYMBOLS,
    along,
    at_value,
    attempt,
    check_parameter,
    check_quantity,
    draw_stability,
    missing,
    parameter_values,
    write_csv,
)
from fermibose.theory.fixed_point import ConvergenceError
from fermibose.theory.problem import Array, Problem, check_problem
from fermibose.theory.solution import Solution
from fermibose.theory.solve import disordered, solve

Kind = Literal["order", "at"]


@dataclass(frozen=True)
class PhaseDiagram:
    """Solutions on a grid; a point that did not converge is None and named in ``failures``."""

    x: str
    y: str
    x_values: Array  # (columns,)
    y_values: Array  # (rows,)
    solutions: tuple[tuple[Solution | None, ...], ...]  # rows of columns
    failures: tuple[str, ...]

    def map(self, name: str) -> Array:
        """One quantity as an array (rows, columns), NaN where there is no solution."""
        check_quantity(name)
        rows = [[np.nan if s is None else getattr(s, name) for s in row] for row in self.solutions]
        return np.array(rows, dtype=float)

    def save_csv(self, path: str | Path) -> None:
        """One row a point: both parameters and every quantity of a solution."""
        x, y = np.meshgrid(self.x_values, self.y_values)
        grid = {self.x: x.ravel(), self.y: y.ravel()}
        write_csv(path, grid | {name: self.map(name).ravel() for name in COLUMNS})

    def draw(self, path: str | Path, *, quantity: str = "accuracy") -> None:
        """A map of one quantity, with the lines where order and where replica symmetry end.

        A single row or column is drawn as the line it is.
        """
        check_quantity(quantity)
        with figure(path, size=(5.6, 4.0)) as (fig, ax):
            if min(self.x_values.size, self.y_values.size) == 1:
                self._draw_line(ax, quantity)
            else:
                self._draw_map(fig, ax, quantity)
            if ax.get_legend_handles_labels()[0]:
                fig.legend(loc="outside upper center", ncols=2)

    def _draw_line(self, ax: Any, quantity: str) -> None:
        axes = [(self.x, self.x_values), (self.y, self.y_values)]
        (along, values), (fixed, at) = axes if self.y_values.size == 1 else axes[::-1]
        stable = self.map("rs_stable").ravel() != 0
        draw_stability(ax, values, self.map(quantity).ravel(), stable, marker=".")
        ax.set_title(f"{SYMBOLS[fixed]} = {at[0]:g}", loc="left")
        ax.set(xlabel=SYMBOLS[along] + missing(self.failures), ylabel=quantity.replace("_", " "))

    def _draw_map(self, fig: Any, ax: Any, quantity: str) -> None:
        axes = (self.x_values, self.y_values)
        colours = ax.pcolormesh(*axes, self.map(quantity), shading="nearest", cmap="viridis")
        fig.colorbar(colours, label=quantity.replace("_", " "))
        # The stiffness vanishes on both sides of the transition.
        stiffness = np.abs(self.map("label_stiffness"))
        order = np.where(self.map("M") > 0, stiffness, -stiffness)
        at = np.log(np.clip(self.map("at_eigenvalue"), 1e-9, 1e9))
        for values, name, style in ((order, "M = 0", "-"), (at, "AT = 1", "--")):
            if np.nanmin(values) < 0 < np.nanmax(values):
                ax.contour(*axes, values, [0.0], colors="white", linestyles=style)
                ax.plot([], [], color="grey", linestyle=style, label=name)
        ax.set(xlabel=SYMBOLS[self.x] + missing(self.failures), ylabel=SYMBOLS[self.y])
        ax.grid(False)


def phase_diagram(
    problem: Problem,
    x: str,
    x_values: ArrayLike,
    y: str,
    y_values: ArrayLike,
    *,
    tol: float | None = None,
    workers: int | None = None,
    show: bool | None = None,
) -> PhaseDiagram:
    """Solve the problem on the grid x_values × y_values of two of its parameters.

    Every point is solved afresh, so that each is the solution of lowest free energy, not the
    continuation of a neighbour. Rows are shared by ``workers`` processes (default: one a core).
    A point that cannot be solved is None; ConvergenceError is raised if no point can be. Ctrl-C
    raises ``Interrupted``, a KeyboardInterrupt whose ``done`` is the diagram of the finished rows.
    """
    if tol is not None:
        number("tol", tol, above=0, below=1)
    if x == y:
        raise InputError(f"x and y must be two different parameters, got {x!r} twice")
    rows = [along(row, x, x_values) for row in along(problem, y, y_values)]
    columns, heights = parameter_values(x, x_values), parameter_values(y, y_values)
    try:
        points = parallel_map(
            lambda row: [attempt(point, tol=tol) for point in row],
            rows,
            workers=workers,
            show=show,
            text="phase diagram",
        )
    except Interrupted as stop:
        raise Interrupted(_diagram(x, columns, y, heights, stop.done)) from stop
    diagram = _diagram(x, columns, y, heights, points)
    if len(diagram.failures) == columns.size * heights.size:
        raise next(p for p in points[0] if isinstance(p, ConvergenceError))
    return diagram


def _diagram(
    x: str, columns: Array, y: str, heights: Array, points: list[list[Solution | ConvergenceError]]
) -> PhaseDiagram:
    """The diagram of the first rows, as many as there are points of."""
    failures = (str(p) for row in points for p in row if isinstance(p, ConvergenceError))
    rows = tuple(tuple(p if isinstance(p, Solution) else None for p in row) for row in points)
    return PhaseDiagram(x, y, columns, heights[: len(rows)], rows, tuple(failures))


def critical_point(
    problem: Problem,
    parameter: str,
    *,
    between: tuple[float, float],
    kind: Kind = "order",
    tol: float = 1e-5,
) -> float:
    """The value of ``parameter`` in the interval ``between`` at which a phase ends, to ``tol``.

    ``order``: the solution with M = 0 starts to grow a magnetisation, 1 + χαm² E[y·∇²F y] = 0: the
    continuous transition to M > 0 (α_c, Δ_c, ρ_c) within replica symmetry; where that is unstable
    use :func:`critical_point_broken`. ``at``: the de Almeida-Thouless eigenvalue of
    the solution of lowest free energy is 1; refused where it is infinite (zero temperature), for
    the weight of the jumps that make it so fades gradually.
    """
    check_problem(problem)
    check_parameter(parameter)
    number("tol", tol, above=0)
    ends = _check_interval(parameter, between)
    choice("kind", kind, get_args(Kind))
    last: list[Solution] = []

    def margin(value: float) -> float:
        there = at_value(problem, parameter, value)
        if kind == "order":
            return disordered(there).label_stiffness
        last[:] = [solve(there, last[0] if last else None)]
        if math.isinf(last[0].at_eigenvalue):
            raise InputError(
                f"the AT eigenvalue is infinite at {parameter} = {value:g}, and passes 1 nowhere: "
                "it grows with beta wherever forces jump at zero temperature; ask for a finite "
                "beta, or for another interval"
            )
        return 1 - last[0].at_eigenvalue

    low, high = (margin(value) for value in ends)
    if not low * high < 0:
        raise InputError(
            f"no transition of kind {kind!r} between {parameter} = {ends[0]:g} and "
            f"{ends[1]:g}: the margin is {low:.3g} and {high:.3g} there; widen the interval"
        )
    return float(brentq(margin, *ends, xtol=tol))


def _check_interval(parameter: str, between: Any) -> tuple[float, float]:
    """The two ends of an interval, which must be two different finite numbers."""
    ends = parameter_values(parameter, between)
    if ends.size != 2 or not np.all(np.isfinite(ends)) or ends[0] == ends[1]:
        raise InputError(
            f"between must be two different values of {parameter}, such as (0.5, 2), "
            f"got {between!r}"
        )
    return float(ends[0]), float(ends[1])
