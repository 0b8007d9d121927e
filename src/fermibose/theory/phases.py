"""Phase diagrams: the solution on a grid of two parameters."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fermibose.checks import number
from fermibose.compute import Interrupted
from fermibose.errors import InputError
from fermibose.plotting import COLOURS, figure
from fermibose.theory.curves import (
    SYMBOLS,
    along,
    draw_stability,
    missing,
    parameter_values,
)
from fermibose.theory.fixed_point import ConvergenceError
from fermibose.theory.points import (
    Attempt,
    Point,
    Points,
    check_quantity,
    column,
    points_of,
)
from fermibose.theory.problem import Array, Problem
from fermibose.theory.search import apart
from fermibose.theory.solution import Candidate, Solution
from fermibose.theory.surfaces import solve_grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_JUMP = COLOURS["highlight"]  # a line across which the solution jumps
_FIRST_ORDER, _BOTH = "first-order jump", "two states coexist"
_ORDER_ENDS = "order ends (within RS)"


@dataclass(frozen=True, repr=False)
class PhaseDiagram(Points):
    """Solutions on a grid; a point that could not be solved is None among them."""

    x: str
    y: str
    x_values: Array  # (columns,)
    y_values: Array  # (rows,)
    points: tuple[Point, ...]  # row by row

    @property
    def summary(self) -> str:
        """Of what, how many points, and how far M and the accuracy go."""
        return f"{self.x} × {self.y}: {super().summary}; {self.fixed}"

    @property
    def fixed(self) -> str:
        """The parameters that all points share, in one line."""
        return self.points[0].problem.told(self.x, self.y) if self.points else ""

    @property
    def solutions(self) -> tuple[tuple[Solution | None, ...], ...]:
        """Rows of columns."""
        found = [p if isinstance(p, Solution) else None for p in self.points]
        width = self.x_values.size
        return tuple(tuple(found[i : i + width]) for i in range(0, len(found), width))

    def map(self, name: str) -> Array:
        """One quantity as an array (rows, columns), NaN where there is no solution."""
        check_quantity(name)
        return column(self.points, name).reshape(self.y_values.size, self.x_values.size)

    @property
    def coexistence(self) -> NDArray[np.bool_]:
        """Where another stable state was found beside the solution, shape (rows, columns)."""
        return np.array([[_metastable(s) != [] for s in row] for row in self.solutions])

    @property
    def jumps(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Between which neighbours the solution jumps from one state to another: first order.

        Along x, shape (rows, columns − 1), and along y, (rows − 1, columns). It does where the
        solution of one point is nearer to another stable state of the other one than to its
        solution; a jump between points neither of which has both states is not seen.
        """
        grid = self.solutions
        rows, columns = len(grid), self.x_values.size
        along_x = [[_jump(row[i], row[i + 1]) for i in range(columns - 1)] for row in grid]
        along_y = [
            [_jump(grid[j][i], grid[j + 1][i]) for i in range(columns)] for j in range(rows - 1)
        ]
        shapes = ((rows, columns - 1), (rows - 1, columns))
        one, other = (
            np.array(jumps, dtype=bool).reshape(shape)
            for jumps, shape in zip((along_x, along_y), shapes, strict=True)
        )
        return one, other

    def draw(self, path: str | Path | None = None, *, quantity: str = "accuracy") -> "Figure":
        """A map of one quantity, with lines where order and replica symmetry end and states jump.

        Hatched where two states coexist. A single row or column is drawn as the line it is.
        """
        check_quantity(quantity)
        with figure(path, size=(5.6, 4.4)) as (fig, ax):
            ax.set_title(self.fixed, fontsize=7.5)
            if min(self.x_values.size, self.y_values.size) == 1:
                self._draw_line(ax, quantity)
            else:
                self._draw_map(fig, ax, quantity)
            if ax.get_legend_handles_labels()[0]:
                fig.legend(loc="outside upper center", ncols=2)
        return fig

    def _draw_line(self, ax: Any, quantity: str) -> None:
        axes = [(self.x, self.x_values), (self.y, self.y_values)]
        (along, values), (fixed, at) = axes if self.y_values.size == 1 else axes[::-1]
        stable = self.map("rs_stable").ravel() != 0
        jumps_x, jumps_y = self.jumps
        draw_stability(ax, values, self.map(quantity).ravel(), stable, marker=".")
        jumps = (jumps_x if self.y_values.size == 1 else jumps_y).ravel()
        for i in np.flatnonzero(jumps):
            label = _FIRST_ORDER if i == np.flatnonzero(jumps)[0] else None
            ax.axvline((values[i] + values[i + 1]) / 2, color=_JUMP, ls="-.", label=label)
        ax.set_title(f"{SYMBOLS[fixed]} = {at[0]:g}, {self.fixed}", fontsize=7.5)
        ax.set(xlabel=SYMBOLS[along] + missing(self.failures), ylabel=quantity.replace("_", " "))

    def _draw_map(self, fig: Any, ax: Any, quantity: str) -> None:
        from matplotlib.patheffects import withStroke

        axes = (self.x_values, self.y_values)
        colours = ax.pcolormesh(*axes, self.map(quantity), shading="nearest", cmap="viridis")
        fig.colorbar(colours, label=quantity.replace("_", " "))
        along_x, along_y = self.jumps
        # The stiffness vanishes on both sides of a continuous transition, not of a jump.
        stiffness = np.abs(self.map("label_stiffness"))
        order = np.where(self.map("M") > 0, stiffness, -stiffness)
        order[:, 1:][along_x] = order[1:][along_y] = np.nan
        at = np.log(np.clip(self.map("at_eigenvalue"), 1e-9, 1e9))
        edge = [withStroke(linewidth=3.5, foreground="black")]  # white alone is lost in yellow
        for values, name, style in ((order, _ORDER_ENDS, "-"), (at, "AT = 1", "--")):
            if np.nanmin(values) < 0 < np.nanmax(values):
                lines = ax.contour(*axes, values, [0.0], colors="white", linestyles=style)
                lines.set(path_effects=edge)
                ax.plot([], [], color="white", linestyle=style, label=name, path_effects=edge)
        self._draw_jumps(ax, along_x, along_y)
        if self.coexistence.any():
            here = self.coexistence.astype(float)
            ax.contourf(*axes, here, [0.5, 1.5], colors="none", hatches=["///"])
            ax.fill_between([], [], facecolor="none", edgecolor="grey", hatch="///", label=_BOTH)
        ax.set(xlabel=SYMBOLS[self.x] + missing(self.failures), ylabel=SYMBOLS[self.y])
        ax.grid(False)

    def _draw_jumps(self, ax: Any, along_x: NDArray[np.bool_], along_y: NDArray[np.bool_]) -> None:
        """The sides of the cells across which the solution jumps."""
        x, y = _edges(self.x_values), _edges(self.y_values)
        upright = [([x[i + 1]] * 2, [y[j], y[j + 1]]) for j, i in np.argwhere(along_x)]
        level = [([x[i], x[i + 1]], [y[j + 1]] * 2) for j, i in np.argwhere(along_y)]
        for k, side in enumerate(upright + level):
            ax.plot(*side, color=_JUMP, lw=2.5, label=None if k else _FIRST_ORDER)


def _edges(values: Array) -> Array:
    """Sides of the cells around some values: half-way between them."""
    middle = (values[1:] + values[:-1]) / 2
    ends = 2 * values[[0, -1]] - middle[[0, -1]]
    return np.concatenate([ends[:1], middle, ends[1:]])


def _metastable(solution: Solution | None) -> list[Candidate]:
    """The stable states beside a solution."""
    return [] if solution is None else [r for r in solution.rivals if r.stable]


def _jump(one: Solution | None, other: Solution | None) -> bool:
    """Whether the solutions of two neighbours are different states, as far as both are known."""
    if one is None or other is None:
        return False
    a, b = one.candidate, other.candidate
    gap = apart(a, b)
    return any(apart(r, b) < gap for r in _metastable(one)) or any(
        apart(r, a) < gap for r in _metastable(other)
    )


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

    Each point is the solution of lowest free energy: states are followed from point to point, all
    of them, and searched for again where one is lost, at every tenth point, and where a neighbour
    has one more. Rows are shared by ``workers`` processes (default: one a core), or columns, where
    x changes the energy of a pair and y does not. A point that cannot be solved is None;
    ConvergenceError is raised if no point can be. Ctrl-C raises ``Interrupted``, a
    KeyboardInterrupt whose ``done`` is the diagram of the finished rows or columns.
    """
    if tol is not None:
        number("tol", tol, above=0, below=1)
    if x == y:
        raise InputError(f"x and y must be two different parameters, got {x!r} twice")
    rows = [along(row, x, x_values) for row in along(problem, y, y_values)]
    columns, heights = parameter_values(x, x_values), parameter_values(y, y_values)
    try:
        points = solve_grid(rows, x, y, tol=tol, workers=workers, show=show)
    except Interrupted as stop:
        raise Interrupted(_diagram(x, columns, y, heights, rows, stop.done)) from stop
    diagram = _diagram(x, columns, y, heights, rows, points)
    if len(diagram.failures) == columns.size * heights.size:
        raise next(p for p in points[0] if isinstance(p, ConvergenceError))
    return diagram


def _diagram(
    x: str,
    columns: Array,
    y: str,
    heights: Array,
    problems: list[list[Problem]],
    attempts: list[list[Attempt]],
) -> PhaseDiagram:
    """The diagram of the first rows and columns, as many as were attempted."""
    height, width = len(attempts), len(attempts[0]) if attempts else columns.size
    part = chain.from_iterable(row[:width] for row in problems[:height])
    points = points_of(part, list(chain.from_iterable(attempts)))
    return PhaseDiagram(x, y, columns[:width], heights[:height], points)
