"""Refusals that all rooms of single instances share: whole numbers, numbers, free memory."""

import math
import os
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


def check_memory(what: str, need: float, remedy: str, free: float | None = None) -> None:
    """Refuse what takes more bytes than are free (or than ``free``), before it is allocated."""
    free = free_memory() if free is None else free
    if need > free:
        raise InputError(
            f"{what} in {need / 1e9:.2f} GB, more than the {free / 1e9:.2f} GB that may be used: "
            f"{remedy}"
        )


def free_memory() -> float:
    """Bytes that can be had without swapping; infinite where the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            table = dict(line.split(":", 1) for line in lines)
        return 1024.0 * int(table["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        pass
    try:  # all there is, where what is free is not known
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf
