"""Curves: solutions along a parameter by continuation, each point starting from the one before.

Also what curves and phase diagrams have in common: the values of a parameter, and a line that shows
where replica symmetry is stable.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fermibose.checks import number
from fermibose.compute import Interrupted, parallel_map
from fermibose.errors import InputError
from fermibose.plotting import COLOURS, figure
from fermibose.theory import problem
from fermibose.theory.continuation import continue_along
from fermibose.theory.fixed_point import ConvergenceError
from fermibose.theory.points import Point, Points, check_quantity, column, points_of
from fermibose.theory.problem import Array, Problem, check_problem
from fermibose.theory.solution import Solution

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# How axes are labelled
SYMBOLS = {name: f"${sign}$" if "_" in sign else sign for name, sign in problem.SYMBOLS.items()}

_PIECE = 30  # points continued one from another; fixed, so that results do not depend on workers
# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_LOOK = 5  # points after which all states are searched for again


@dataclass(frozen=True, repr=False)
class Curve(Points, Sequence[Solution]):
    """Solutions along one parameter; a sequence of them, with columns.

    Points that could not be solved are not among them, but in ``points`` and in its files.
    """

    parameter: str
    points: tuple[Point, ...]

    def __len__(self) -> int:
        return len(self.solutions)

    def __getitem__(self, index: Any) -> Any:
        return self.solutions[index]

    @property
    def solutions(self) -> tuple[Solution, ...]:
        """The points that were solved."""
        return tuple(p for p in self.points if isinstance(p, Solution))

    @property
    def summary(self) -> str:
        """Along what, how many points, and how far M and the accuracy go."""
        return f"along {self.parameter}: {super().summary}; {self.fixed}"

    @property
    def fixed(self) -> str:
        """The parameters that all points share, in one line."""
        return self.points[0].problem.told(self.parameter) if self.points else ""

    @property
    def values(self) -> Array:
        """The parameter's values."""
        return np.array([getattr(s.problem, self.parameter) for s in self.solutions])

    @property
    def critical(self) -> list[float]:
        """Where order begins or ends continuously, to linear order between two points."""
        M, stiffness = self.column("M"), np.abs(self.column("label_stiffness"))
        order = np.where(M > 0, stiffness, -stiffness)
        ends = np.flatnonzero(order[:-1] * order[1:] < 0)
        x = self.values
        found = [x[i] + (x[i + 1] - x[i]) * order[i] / (order[i] - order[i + 1]) for i in ends]
        return [float(at) for at in found]

    def column(self, name: str) -> Array:
        """One quantity along the curve, by its name on a solution."""
        check_quantity(name)
        return column(self.solutions, name)

    def draw(
        self,
        path: str | Path | None = None,
        *,
        quantities: Sequence[str] = ("generalization_loss", "accuracy"),
    ) -> "Figure":
        """One panel a quantity; the line is dotted where replica symmetry is unstable.

        Saved at ``path``, if there is one; the figure (``.axes`` are its panels) is returned.
        """
        size = (4.4 * len(quantities), 3.4)
        with figure(path, columns=len(quantities), size=size) as (fig, axes):
            for ax, name in zip(np.atleast_1d(axes).ravel(), quantities, strict=True):
                self.draw_panel(ax, name, name.replace("_", " "))
                for at in self.critical:
                    told = f"order ends, {SYMBOLS[self.parameter]} ≈ {at:.2g}"  # between two points
                    ax.axvline(at, color=COLOURS["published"], ls="--", lw=1, label=told)
                if ax.get_legend_handles_labels()[0]:
                    ax.legend(fontsize=8)
            fig.suptitle(self.fixed, fontsize=9)
        return fig

    def draw_panel(self, ax: Any, quantity: str, label: str) -> None:
        """One quantity, called ``label``, on a panel of a figure."""
        stable = self.column("rs_stable") > 0
        draw_stability(ax, self.values, self.column(quantity), stable)
        ax.set(xlabel=SYMBOLS[self.parameter] + missing(self.failures), ylabel=label)
        if ax.get_legend_handles_labels()[0]:
            ax.legend()


def trace(
    problem: Problem,
    parameter: str,
    values: ArrayLike,
    *,
    tol: float = 1e-8,
    workers: int | None = 1,
    show: bool | None = None,
) -> Curve:
    """Solve the problem at each value of a parameter, in the order given.

    Every point starts from the solution before it (pieces of 30 points start afresh, so that
    ``workers`` processes, None for one a core, can share them and still give the same numbers).
    A point that cannot be solved is left out and named in ``failures``; ConvergenceError is raised
    if no point can be. Ctrl-C raises ``Interrupted``, a KeyboardInterrupt whose ``done`` is the
    curve of the finished points (of other processes: of their finished pieces).
    show: progress bar, see :func:`fermibose.compute.progress_bar`.
    """
    problems = along(problem, parameter, values)
    number("tol", tol, above=0, below=1)
    pieces = [problems[i : i + _PIECE] for i in range(0, len(problems), _PIECE)]
    try:
        done = parallel_map(
            lambda piece: continue_along(
                piece, parameter, tol=tol, looks=[*range(0, len(piece), _LOOK), len(piece) - 1]
            ),
            pieces,
            workers=workers,
            show=show,
            text="solving",
        )
    except Interrupted as stop:
        begun = stop.__cause__.done if isinstance(stop.__cause__, Interrupted) else []
        finished = chain.from_iterable([*stop.done, begun])
        raise Interrupted(Curve(parameter, points_of(problems, list(finished)))) from stop
    found = list(chain.from_iterable(done))
    curve = Curve(parameter, points_of(problems, found))
    if not len(curve):
        raise next(point for point in found if isinstance(point, ConvergenceError))
    return curve


def along(problem: Problem, parameter: str, values: ArrayLike) -> list[Problem]:
    """The problem at each value of a parameter."""
    check_problem(problem)
    check_parameter(parameter)
    return [at_value(problem, parameter, float(v)) for v in parameter_values(parameter, values)]


def at_value(problem: Problem, parameter: str, value: float) -> Problem:
    """The problem with one parameter changed."""
    change: dict[str, Any] = {parameter: value}
    return replace(problem, **change)


def check_parameter(parameter: Any) -> None:
    """Refuse a name that is not a number in Problem."""
    if not isinstance(parameter, str) or parameter not in SYMBOLS:
        raise InputError(f"{parameter!r} is not a parameter: use one of {', '.join(SYMBOLS)}")


def parameter_values(parameter: str, values: Any) -> Array:
    """Values of a parameter as an array of at least one number."""
    try:
        array = np.atleast_1d(np.asarray(values, dtype=float))
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.ndim != 1 or not array.size:
        raise InputError(
            f"values of {parameter} must be a non-empty list of numbers, got {values!r}"
        )
    return array


def missing(failures: Sequence[str]) -> str:
    """A second line for the label of an axis that says what a figure does not show."""
    count = len(failures)
    return f"\n({count} point{'s' if count > 1 else ''} not solved, left out)" if count else ""


def draw_stability(ax: Any, x: Array, values: Array, stable: Any, **look: Any) -> None:
    """A line that is full where replica symmetry is stable, and dotted where it is not."""
    dotted = ~stable
    dotted[:-1] |= ~stable[1:]  # up to the neighbours, so that the line has no gap
    dotted[1:] |= ~stable[:-1]
    look = {"color": COLOURS["theory"]} | look
    if stable.any():
        ax.plot(x, np.where(stable, values, np.nan), **({"label": "theory"} | look))
    if dotted.any():
        look |= {"ls": ":", "label": "replica symmetry unstable"}
        ax.plot(x, np.where(dotted, values, np.nan), **look)
