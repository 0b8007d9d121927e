"""The one validator: what an argument may be, and the refusal that names problem and remedy.

Each check returns the value it was given, as a plain Python number where it is one, or raises
:class:`fermibose.errors.InputError`. ``name`` is how the message calls the argument.
"""

import math
import os
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, TypeGuard

from fermibose.errors import InputError

LONG = 200  # characters of a value in a message


def is_whole(value: Any, least: int = -(2**63)) -> TypeGuard[int]:
    """Whether it is an integer (no bool, no float) of at least ``least`` that fits into int64."""
    return (
        isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) < 2**63
    )


def is_number(value: Any) -> bool:
    """Whether it is a finite real number (no bool) that fits into float64."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def whole(name: str, value: Any, *, least: int) -> int:
    """``value`` if it is an integer of at least ``least``."""
    if not is_whole(value, least):
        raise InputError(f"{name} must be a whole number of at least {least}, got {shown(value)}")
    return int(value)


def number(
    name: str,
    value: Any,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> float:
    """``value`` if it is a finite number within the bounds: least ≤, above <, < below, ≤ most."""
    if not (is_number(value) and least <= value <= most and above < value < below):
        bounds = [
            f"{sign} {bound:g}"
            for sign, bound in ((">=", least), (">", above), ("<", below), ("<=", most))
            if math.isfinite(bound)
        ]
        wanted = " ".join(["a finite number", " and ".join(bounds)]).strip()
        raise InputError(f"{name} must be {wanted}, got {shown(value)}")
    return float(value)


def choice(name: str, value: Any, choices: Iterable[Any]) -> Any:
    """``value`` if it is one of the choices."""
    choices = tuple(choices)
    if value not in choices:
        told = " or ".join(repr(c) for c in choices)
        raise InputError(f"{name} must be {told}, got {shown(value)}")
    return value


def flag(name: str, value: Any) -> bool:
    """``value`` if it is True or False, by Python or by NumPy."""
    if not isinstance(value, bool) and not _is_numpy_flag(value):
        raise InputError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def _is_numpy_flag(value: Any) -> bool:
    kind = getattr(value, "dtype", None)
    return getattr(kind, "kind", None) == "b" and getattr(value, "shape", None) == ()


def shown(value: Any) -> str:
    """The value as a message shows it: not all of it, if it is long."""
    text = repr(value)
    return text if len(text) <= LONG else f"{text[:LONG]} …"


def memory(what: str, need: float, remedy: str, free: float | None = None) -> None:
    """Refuse what takes more bytes than are free (or than ``free``). ``what`` ends with a verb."""
    free = free_memory() if free is None else free
    if need > free:
        raise InputError(
            f"{what} {need / 1e9:.3f} GB, more than the {free / 1e9:.3f} GB that may be used: "
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
