"""Points: many problems, each solved or not, and what they are as a table.

Curves and phase diagrams are points in an order of their own; :func:`solve_many` takes any.
"""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fermibose.checks import number
from fermibose.compute import Interrupted, parallel_map
from fermibose.errors import InputError
from fermibose.files import replacing
from fermibose.summary import Summarised, table
from fermibose.theory.fixed_point import ConvergenceError
from fermibose.theory.problem import Array, Problem, check_problem
from fermibose.theory.solution import QUANTITIES, Overlaps, Solution
from fermibose.theory.solve import solve

if TYPE_CHECKING:
    from pandas import DataFrame

Attempt = Solution | ConvergenceError


_NOTHING = dict.fromkeys(("stable", "rs_stable"))  # truth values: no NaN where there is none


@dataclass(frozen=True)
class Failure:
    """A problem that could not be solved, and why."""

    problem: Problem
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """The row of a table: parameters, and the reason instead of quantities."""
        return self.problem.to_dict() | {"failure": self.reason}


Point = Solution | Failure


class Row(Protocol):
    """A solution or a failure."""

    def to_dict(self) -> dict[str, Any]:
        """Names and values."""


class Points(Summarised):
    """Solved and unsolved points, as a table and as a file."""

    points: Sequence[Row]

    @property
    def summary(self) -> str:
        """How many points, and how far M and the accuracy go."""
        columns, failed = self.to_dict(), len(self.failures)
        told = [f"{len(self.points)} points" + f", {failed} not solved" * bool(failed)]
        for name in ("M", "accuracy"):
            known = [v for v in columns.get(name, ()) if v == v]
            told += [f"{name} {min(known):.4g} … {max(known):.4g}"] if known else []
        return ", ".join(told)

    @property
    def failures(self) -> tuple[str, ...]:
        """Why points could not be solved, one reason each."""
        return tuple(point.reason for point in self.points if isinstance(point, Failure))

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns by name: every parameter and quantity, and why a point has none (``failure``).

        A quantity is NaN where there is no solution, a truth value None.
        """
        rows = [point.to_dict() for point in self.points]
        names: dict[str, None] = dict.fromkeys(name for row in rows for name in row)
        names.pop("failure", None)
        columns = {
            name: [row.get(name, _NOTHING.get(name, math.nan)) for row in rows] for name in names
        }
        return columns | {"failure": [row.get("failure", "") for row in rows]}

    def to_frame(self) -> "DataFrame":
        """The same as a pandas DataFrame, one row a point; truth values may be missing (NA)."""
        frame = table(self.to_dict())
        return frame.astype({name: "boolean" for name in _NOTHING if name in frame})

    def save_csv(self, path: str | Path) -> None:
        """The same as a CSV file with a header, whole or not at all."""
        columns = self.to_dict()
        with replacing(path) as draft, draft.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))


@dataclass(frozen=True, repr=False)
class Solutions(Points, Sequence[Point]):
    """What :func:`solve_many` found: a sequence with a Solution or a Failure for each problem."""

    points: tuple[Point, ...]

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: Any) -> Any:
        return self.points[index]

    def column(self, name: str) -> Array:
        """One quantity, NaN where there is no solution."""
        check_quantity(name)
        return column(self.points, name)


def solve_many(
    problems: Iterable[Problem],
    *,
    tol: float | None = None,
    workers: int | None = None,
    show: bool | None = None,
) -> Solutions:
    """Solve every problem afresh, shared by ``workers`` processes (default: one a core).

    A problem that cannot be solved is a :class:`Failure` in its place. Ctrl-C raises
    ``Interrupted``, a KeyboardInterrupt whose ``done`` are the solutions of the first problems.
    show: progress bar, see :func:`fermibose.compute.progress_bar`.
    """
    asked = list(problems)
    for problem in asked:
        check_problem(problem)
    if tol is not None:
        number("tol", tol, above=0, below=1)
    try:
        found = parallel_map(
            lambda problem: attempt(problem, tol=tol),
            asked,
            workers=workers,
            show=show,
            text="solving",
        )
    except Interrupted as stop:
        raise Interrupted(Solutions(points_of(asked, stop.done))) from stop
    return Solutions(points_of(asked, found))


def attempt(
    problem: Problem, start: Solution | Overlaps | None = None, *, tol: float | None = None
) -> Attempt:
    """``solve``, with a failure returned instead of raised."""
    try:
        return solve(problem, start, tol=tol)
    except ConvergenceError as error:
        return error


def points_of(problems: Iterable[Problem], attempts: Sequence[Attempt]) -> tuple[Point, ...]:
    """What became of the first problems, as many as were attempted."""
    return tuple(
        found if isinstance(found, Solution) else Failure(problem, str(found))
        for problem, found in zip(problems, attempts, strict=False)
    )


def column(points: Sequence[Row], name: str) -> Array:
    """One quantity of some points, NaN where there is no solution."""
    return np.array(
        [math.nan if isinstance(p, Failure) else getattr(p, name) for p in points], dtype=float
    )


def check_quantity(name: Any) -> None:
    """Refuse a name that is not a number of a solution."""
    if not isinstance(name, str) or name not in QUANTITIES:
        raise InputError(f"{name!r} is not a quantity: use one of {', '.join(QUANTITIES)}")
