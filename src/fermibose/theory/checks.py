"""What the public functions refuse at the door: one check for each kind of argument."""

import math
from typing import Any

import numpy as np

from fermibose.errors import InputError
from fermibose.theory.problem import Array, Problem
from fermibose.theory.replica import Overlaps
from fermibose.theory.solution import Solution

SYMBOLS = {
    "alpha": "α",
    "delta": "Δ",
    "beta": "β",
    "d_f": "$d_F$",
    "weight_decay": "$λ_w$",
    "m": "m",
    "rho": "ρ",
    "softness": "a",
}  # the numbers of a problem, and how axes are labelled


def check_problem(problem: Any) -> None:
    """Refuse what is not a Problem."""
    if not isinstance(problem, Problem):
        raise InputError(f"the theory needs a fermibose.theory.Problem, got {problem!r}")


def check_start(start: Any) -> None:
    """Refuse a start that is neither a solution nor overlaps that weights can have."""
    if start is None or isinstance(start, Solution):
        return
    if not isinstance(start, Overlaps):
        raise InputError(f"start must be a Solution or Overlaps(M, Q, chi), got {start!r}")
    if not all(_is_finite(v) for v in (start.M, start.Q, start.chi)):
        raise InputError(f"the overlaps to start from must be finite numbers, got {start!r}")
    if start.Q < start.M**2:
        raise InputError(f"overlaps have Q >= M² (Q − M² is a variance), got {start!r}")
    if start.chi <= 0:
        raise InputError(f"the response chi to start from must be > 0, got {start!r}")


def check_tol(tol: Any, *, below: float = 1.0) -> None:
    """Refuse a tolerance that is not a number between 0 and ``below``."""
    if not _is_finite(tol) or not 0 < tol < below:
        allowed = "between 0 and 1" if below == 1 else "a positive number"
        raise InputError(f"tol must be {allowed}, got {tol!r}")


def check_workers(workers: Any) -> None:
    """Refuse a number of processes that is not a positive integer (or None: one a core)."""
    if workers is None:
        return
    if isinstance(workers, bool) or not isinstance(workers, int | np.integer) or workers < 1:
        raise InputError(f"workers must be at least 1, or None for one a core, got {workers!r}")


def check_parameter(parameter: Any) -> None:
    """Refuse a name that is not a number in Problem."""
    if not isinstance(parameter, str) or parameter not in SYMBOLS:
        raise InputError(f"{parameter!r} is not a parameter: use one of {', '.join(SYMBOLS)}")


def check_interval(parameter: str, between: Any) -> tuple[float, float]:
    """The two ends of an interval, which must be two different finite numbers."""
    ends = numbers(parameter, between)
    if ends.size != 2 or not np.all(np.isfinite(ends)) or ends[0] == ends[1]:
        raise InputError(
            f"between must be two different values of {parameter}, such as (0.5, 2), "
            f"got {between!r}"
        )
    return float(ends[0]), float(ends[1])


def numbers(parameter: str, values: Any) -> Array:
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


def _is_finite(value: Any) -> bool:
    """Whether a value is a real number."""
    kinds = int | float | np.floating | np.integer
    return isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)
