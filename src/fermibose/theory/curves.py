"""Curves: solutions along a parameter by continuation, each point starting from the one before."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fermibose.theory.checks import SYMBOLS, check_parameter, check_problem, check_tol, numbers
from fermibose.theory.drawing import axis_label, draw_line, draw_stability, missing, whole_figure
from fermibose.theory.fixed_point import ConvergenceError
from fermibose.theory.problem import Array, Problem
from fermibose.theory.quantities import COLUMNS, check_quantity, write_csv
from fermibose.theory.saddle import to_overlaps, to_vector
from fermibose.theory.solution import Solution
from fermibose.theory.solver import solve
from fermibose.theory.workers import spread

__all__ = ["COLUMNS", "SYMBOLS", "Curve", "draw_stability", "missing", "trace"]

_PIECE = 30  # points continued one from another; fixed, so that results do not depend on workers

_KNOWN = 5  # points that predict the next


@dataclass(frozen=True)
class Curve(Sequence[Solution]):
    """Solutions along one parameter; a sequence of them, with columns."""

    parameter: str
    solutions: tuple[Solution, ...]
    failures: tuple[str, ...] = ()  # points that could not be solved, and are not among them

    def __len__(self) -> int:
        return len(self.solutions)

    def __getitem__(self, index: Any) -> Any:
        return self.solutions[index]

    @property
    def values(self) -> Array:
        """The parameter's values."""
        return np.array([getattr(s.problem, self.parameter) for s in self.solutions])

    def column(self, name: str) -> Array:
        """One quantity along the curve, by its name on a solution."""
        check_quantity(name)
        return np.array([getattr(s, name) for s in self.solutions], dtype=float)

    def save_csv(self, path: str | Path) -> None:
        """Write the parameter and every quantity in COLUMNS, one row a point."""
        write_csv(path, {self.parameter: self.values} | {n: self.column(n) for n in COLUMNS})

    def draw(
        self, path: str | Path, *, quantities: Sequence[str] = ("generalization_loss", "accuracy")
    ) -> None:
        """One panel a quantity; the line is dotted where replica symmetry is unstable."""
        with whole_figure(path, columns=len(quantities), size=(4.4 * len(quantities), 3.4)) as (
            _,
            axes,
        ):
            for ax, name in zip(np.atleast_1d(axes).ravel(), quantities, strict=True):
                draw_line(ax, self, name)
                ax.set(xlabel=axis_label(self), ylabel=name.replace("_", " "))
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
    if no point can be.
    show: progress bar, see :func:`fermibose.progress.progress_bar`.
    """
    problems = along(problem, parameter, values)
    check_tol(tol)
    pieces = [problems[i : i + _PIECE] for i in range(0, len(problems), _PIECE)]
    done = spread(
        lambda piece: continue_along(piece, parameter, tol=tol), pieces, workers=workers, show=show
    )
    points = [p for piece in done for p in piece]
    failures = [p for p in points if isinstance(p, ConvergenceError)]
    if len(failures) == len(points):
        raise failures[0]
    solved = tuple(p for p in points if isinstance(p, Solution))
    return Curve(parameter, solved, tuple(str(f) for f in failures))


def along(problem: Problem, parameter: str, values: ArrayLike) -> list[Problem]:
    """The problem at each value of a parameter."""
    check_problem(problem)
    check_parameter(parameter)
    return [at_value(problem, parameter, float(v)) for v in numbers(parameter, values)]


def at_value(problem: Problem, parameter: str, value: float) -> Problem:
    """The problem with one parameter changed."""
    change: dict[str, Any] = {parameter: value}
    return replace(problem, **change)


def continue_along(
    problems: Sequence[Problem], parameter: str, *, tol: float | None = None
) -> list[Solution | ConvergenceError]:
    """Solve problems one from another; a failed point is returned as an error and seeds nothing."""
    points: list[Solution | ConvergenceError] = []
    for problem in problems:
        known = [p for p in points[-_KNOWN:] if isinstance(p, Solution)]
        follows = bool(points) and isinstance(points[-1], Solution)
        start = _predict(known, parameter, getattr(problem, parameter)) if follows else None
        points.append(attempt(problem, start, tol=tol))
    return points


def attempt(
    problem: Problem, start: Solution | None = None, *, tol: float | None = None
) -> Solution | ConvergenceError:
    """``solve``, with a failure returned instead of raised."""
    try:
        return solve(problem, start, tol=tol)
    except ConvergenceError as error:
        return error


def _predict(known: Sequence[Solution], parameter: str, value: float) -> Solution:
    """The last solution moved on, by a polynomial through the last ones.

    Its degree is where one more changes the prediction least.
    """
    last = known[-1]
    same = [s for s in known if s.candidate.ordered == last.candidate.ordered]
    at = np.array([*(getattr(s.problem, parameter) for s in same), value])
    if len(set(at)) < len(at) or not np.all(np.isfinite(at)):
        return last
    if at.min() > 0:
        at = np.log(at)  # most curves bend less against the logarithm
    states = np.array([to_vector(s.overlaps) for s in same])
    guesses = [_polynomial(at[-n - 1 : -1], states[-n:], at[-1]) for n in range(1, len(at))]
    changes = [float(np.abs(b - a).max()) for a, b in pairwise(guesses)]
    best = guesses[int(np.argmin(changes)) + 1] if changes else guesses[0]
    shift = states[-1] - to_vector(last.second)
    return replace(last, overlaps=to_overlaps(best), second=to_overlaps(best - shift))


def _polynomial(at: Array, states: Array, value: float) -> Array:
    """The polynomial through states at some values of a parameter, at another (Lagrange's form)."""
    weights = [
        math.prod((value - b) / (a - b) for j, b in enumerate(at) if j != i)
        for i, a in enumerate(at)
    ]
    combined: Array = np.tensordot(weights, states, axes=1)
    return combined
