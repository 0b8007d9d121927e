"""Refusals that all modules of single instances share: whole numbers, numbers."""

import math
from typing import Any

import numpy as np

from fermibose.errors import InputError


def whole(name: str, value: Any, *, least: int) -> int:
    """``value`` if it is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} must be an integer >= {least}, got {value!r}")
    return int(value)


def number(name: str, value: Any, *, above: float = -math.inf, below: float = math.inf) -> float:
    """``value`` if it is a finite number between the bounds, both excluded."""
    known = isinstance(value, int | float | np.integer | np.floating)
    if isinstance(value, bool) or not known or not math.isfinite(value):
        raise InputError(f"{name} must be a finite number, got {value!r}")
    if not above < value < below:
        bounds = [f"> {above:g}"] * (above > -math.inf) + [f"< {below:g}"] * (below < math.inf)
        raise InputError(f"{name} must be {' and '.join(bounds)}, got {value!r}")
    return float(value)
