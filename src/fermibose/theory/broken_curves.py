"""Curves and critical points with one step of replica symmetry breaking."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from fermibose.checks import choice, number
from fermibose.compute import Interrupted, progress_bar
from fermibose.errors import InputError
from fermibose.plotting import COLOURS, figure
from fermibose.theory.broken import (
    BROKEN_QUANTITIES,
    BrokenSolution,
    StableError,
    disordered_broken,
    solve_broken,
)
from fermibose.theory.curves import (
    SYMBOLS,
    at_value,
    check_parameter,
    missing,
    parameter_values,
)
from fermibose.theory.fixed_point import ConvergenceError
from fermibose.theory.points import Failure, Points, column
from fermibose.theory.problem import Array, Problem, check_disjoint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARISI = {"x": "x", "y": "y = βx"}  # along which the complexity is a curve


@dataclass(frozen=True, repr=False)
class BrokenCurve(Points, Sequence[BrokenSolution]):
    """Broken solutions along one parameter; a sequence of them, with columns.

    Points not solved, or with nothing to break, are not among them, but in ``points`` and files.
    """

    parameter: str
    points: tuple[BrokenSolution | Failure, ...]

    def __len__(self) -> int:
        return len(self.solutions)

    def __getitem__(self, index: Any) -> Any:
        return self.solutions[index]

    @property
    def solutions(self) -> tuple[BrokenSolution, ...]:
        """The points that were solved."""
        return tuple(p for p in self.points if isinstance(p, BrokenSolution))

    @property
    def summary(self) -> str:
        """Along what, how many points, and how far M and the accuracy go."""
        return f"along {self.parameter}, one step of breaking: {super().summary}"

    @property
    def values(self) -> Array:
        """The parameter's values."""
        return np.array(
            [getattr(s if self.parameter in PARISI else s.problem, self.parameter) for s in self]
        )

    def column(self, name: str) -> Array:
        """One quantity along the curve, by its name on a solution."""
        choice("the quantity", name, BROKEN_QUANTITIES)
        return column(self.solutions, name)

    def draw(
        self, path: str | Path | None = None, *, quantities: Sequence[str] = ("M", "accuracy")
    ) -> "Figure":
        """One panel a quantity, dotted where one step is not enough; grey: replica symmetry."""
        size = (4.4 * len(quantities), 3.4)
        with figure(path, columns=len(quantities), size=size) as (fig, axes):
            for ax, name in zip(np.atleast_1d(axes).ravel(), quantities, strict=True):
                self._draw_panel(ax, name)
        return fig

    def _draw_panel(self, ax: Any, name: str) -> None:
        values, stable = self.column(name), self.column("stable") > 0
        if hasattr(self[0].symmetric, name) and self.parameter not in PARISI:
            flat = [getattr(s.symmetric, name) for s in self]
            ax.plot(self.values, flat, color=COLOURS["published"], label="replica symmetry")
        black = COLOURS["theory"]
        ax.plot(self.values, np.where(stable, values, np.nan), color=black)
        ax.plot(self.values, values, color=black, ls=":", label="one step of breaking")
        symbol = (SYMBOLS | PARISI)[self.parameter]
        ax.set(xlabel=symbol + missing(self.failures), ylabel=name.replace("_", " "))
        ax.legend()


def trace_broken(
    problem: Problem,
    parameter: str,
    values: ArrayLike,
    *,
    tol: float = 1e-8,
    show: bool | None = None,
) -> BrokenCurve:
    """Solve with one step of breaking at each value of a parameter, each point from the one before.

    ``parameter``: a number of the problem; or ``"x"`` or ``"y"``, the Parisi parameter of one
    problem, along which ``free_energy`` and ``complexity`` are the curves f(x) and Σ(x). A point
    that cannot be solved, or has nothing to break, is left out and named in ``failures``; if all
    are, the first error is raised. Ctrl-C raises ``Interrupted`` with the curve so far in ``done``.
    """
    check_disjoint(problem)
    number("tol", tol, above=0, below=1)
    if parameter not in PARISI:
        check_parameter(parameter)
    wanted = [float(v) for v in parameter_values(parameter, values)]
    problems = [problem if parameter in PARISI else at_value(problem, parameter, v) for v in wanted]
    points: list[BrokenSolution | Failure] = []
    errors: list[ConvergenceError | StableError] = []
    start: BrokenSolution | None = None
    with progress_bar("solving", len(wanted), show=show) as advance:
        for there, value in zip(problems, wanted, strict=True):
            level: dict[str, Any] = {parameter: value} if parameter in PARISI else {}
            try:
                start = solve_broken(there, start, tol=tol, **level)
                points.append(start)
            except (ConvergenceError, StableError) as error:
                errors.append(error)
                points.append(Failure(there, str(error)))
                start = None
            except KeyboardInterrupt as stop:
                raise Interrupted(BrokenCurve(parameter, tuple(points))) from stop
            advance()
    if len(errors) == len(points):
        raise errors[0]
    return BrokenCurve(parameter, tuple(points))


def critical_point_broken(
    problem: Problem,
    parameter: str,
    *,
    between: tuple[float, float],
    tol: float = 1e-4,
) -> float:
    """The value of ``parameter`` in the interval ``between`` at which order ends, to ``tol``.

    As :func:`critical_point` of kind ``order``, with one step of symmetry breaking: the broken
    solution with M = 0 starts to grow a magnetisation, 1 + Xαm² E[y·∇²F₁ y] = 0.
    """
    check_disjoint(problem)
    check_parameter(parameter)
    number("tol", tol, above=0)
    ends = parameter_values(parameter, between)
    if ends.size != 2 or not np.all(np.isfinite(ends)) or ends[0] == ends[1]:
        raise InputError(
            f"between must be two different values of {parameter}, such as (0.5, 2), "
            f"got {between!r}"
        )
    last: list[BrokenSolution] = []

    def margin(value: float) -> float:
        there, start = at_value(problem, parameter, value), last[0] if last else None
        last[:] = [disordered_broken(there, start)]
        return last[0].label_stiffness

    low, high = (margin(float(value)) for value in ends)
    if not low * high < 0:
        raise InputError(
            f"order does not end between {parameter} = {ends[0]:g} and {ends[1]:g}: the label "
            f"stiffness of M = 0 is {low:.3g} and {high:.3g} there; widen the interval"
        )
    return float(brentq(margin, float(ends[0]), float(ends[1]), xtol=tol))
