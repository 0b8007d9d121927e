"""What the public functions refuse at the door: one check for each kind of argument."""

import math
from typing import Any

import numpy as np

from fermibose.errors import InputError


def check_tol(tol: Any, *, below: float = 1.0) -> None:
    """Refuse a tolerance that is not a number between 0 and ``below``."""
    if not is_number(tol) or not 0 < tol < below:
        allowed = "between 0 and 1" if below == 1 else "a positive number"
        raise InputError(f"tol must be {allowed}, got {tol!r}")


def is_number(value: Any) -> bool:
    """Whether a value is a real number, and not NaN."""
    kinds = int | float | np.floating | np.integer
    return isinstance(value, kinds) and not isinstance(value, bool) and not math.isnan(value)
