"""Curves: solutions along a parameter by continuation, each point starting from the one before."""

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import joblib
import numpy as np
from numpy.typing import ArrayLike

from fermibose.errors import InputError
from fermibose.plotting import COLOURS, figure
from fermibose.progress import progress_bar
from fermibose.theory.checks import (
    SYMBOLS,
    check_parameter,
    check_problem,
    check_tol,
    check_workers,
    numbers,
)
from fermibose.theory.fixed_point import ConvergenceError
from fermibose.theory.problem import Array, Problem
from fermibose.theory.saddle import to_overlaps, to_vector
from fermibose.theory.solution import Solution
from fermibose.theory.solver import solve

__all__ = ["COLUMNS", "SYMBOLS", "Curve", "draw_stability", "missing", "trace"]

COLUMNS = (
    "M", "q", "Q", "chi", "free_energy", "generalization_loss", "accuracy", "fermion_distance",
    "boson_distance", "adversarial_area", "training_energy", "at_eigenvalue", "rs_stable",
    "residual", "iterations", "error", "at_error",
)  # fmt: skip
QUANTITIES = (*COLUMNS, "label_stiffness", "mean_field_energy")  # what maps and curves can show
_PIECE = 30  # points continued one from another; fixed, so that results do not depend on workers

_KNOWN = 5  # points that predict the next

Task = TypeVar("Task")
Result = TypeVar("Result")


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
        with figure(path, columns=len(quantities), size=(4.4 * len(quantities), 3.4)) as (_, axes):
            for ax, name in zip(np.atleast_1d(axes).ravel(), quantities, strict=True):
                draw_line(ax, self, name)
                ax.set(xlabel=axis_label(self), ylabel=name.replace("_", " "))
                if ax.get_legend_handles_labels()[0]:
                    ax.legend()


def axis_label(curve: Curve) -> str:
    """The parameter's symbol, and under it how many of its points are missing, if any."""
    return SYMBOLS[curve.parameter] + missing(curve.failures)


def missing(failures: Sequence[str]) -> str:
    """A second line for the label of an axis that says what a figure does not show."""
    count = len(failures)
    return f"\n({count} point{'s' if count > 1 else ''} not solved, left out)" if count else ""


def draw_line(ax: Any, curve: Curve, quantity: str, **look: Any) -> None:
    """A quantity along a curve: full where replica symmetry is stable, dotted where it is not."""
    draw_stability(ax, curve.values, curve.column(quantity), curve.column("rs_stable") > 0, **look)


def draw_stability(ax: Any, x: Array, values: Array, stable: Any, **look: Any) -> None:
    """The line itself, from arrays."""
    dotted = ~stable
    dotted[:-1] |= ~stable[1:]  # up to the neighbours, so that the line has no gap
    dotted[1:] |= ~stable[:-1]
    look = {"color": COLOURS["theory"]} | look
    if stable.any():
        ax.plot(x, np.where(stable, values, np.nan), **look)
    if dotted.any():
        look |= {"ls": ":", "label": "replica symmetry unstable"}
        ax.plot(x, np.where(dotted, values, np.nan), **look)


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


def check_quantity(name: str) -> None:
    """Refuse a name that is not a number of a solution."""
    if not isinstance(name, str) or name not in QUANTITIES:
        raise InputError(f"{name!r} is not a quantity: use one of {', '.join(QUANTITIES)}")


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


def spread(
    work: Callable[[Task], list[Result]],
    tasks: Sequence[Task],
    *,
    workers: int | None,
    show: bool | None,
    text: str = "solving",
) -> list[list[Result]]:
    """work(task) for every task, in order, over ``workers`` processes (None: one a core)."""
    check_workers(workers)
    workers = joblib.cpu_count() if workers is None else workers
    results: list[list[Result]] = []
    with progress_bar(text, len(tasks), show=show) as advance:
        for result in _results(work, tasks, min(workers, len(tasks))):
            results.append(result)
            advance()
    return results


def _results(
    work: Callable[[Task], list[Result]], tasks: Sequence[Task], workers: int
) -> Iterator[list[Result]]:
    if workers == 1:
        yield from (work(task) for task in tasks)
        return
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        pool = joblib.Parallel(n_jobs=workers, return_as="generator")
        yield from pool(joblib.delayed(work)(task) for task in tasks)


def write_csv(path: str | Path, columns: dict[str, Array]) -> None:
    """Columns of equal length as a CSV file with a header; missing folders are made."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(c.tolist() for c in columns.values()), strict=True))
