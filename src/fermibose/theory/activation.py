"""The activation φ: those with a name, what any other must be like, and how steep it is."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fermibose.errors import InputError

Array: TypeAlias = NDArray[np.float64]
Function: TypeAlias = Callable[[Array], Array]

_REACH = 12.0  # where the steepest place is looked for, on both sides of 0
_NODES = 961  # of each look
_LOOKS = 4  # each 240 times as close as the one before
_STEP = 1e3  # a slope beyond which φ is a step on every grid


def _half_tanh(z: Array) -> Array:
    return (1 + np.tanh(z)) / 2


ACTIVATIONS: dict[str, Function] = {"tanh": np.tanh, "half_tanh": _half_tanh}


def check_function(name: str, function: Any) -> None:
    """Refuse what is not a hashable function from float arrays to finite ones of their shape."""
    if not callable(function):
        raise InputError(f"{name} must be a function of a NumPy array, got {function!r}")
    try:
        hash(function)
    except TypeError as error:
        raise InputError(
            f"{name} must be hashable, which {type(function).__name__} is not: "
            "wrap it in a function, def phi(z): return it(z)"
        ) from error
    _try(name, function)


@lru_cache(maxsize=256)
def _try(name: str, function: Callable[[Array], Any]) -> None:
    """One call on a small grid, once a function."""
    z = np.linspace(-3, 3, 15).reshape(3, 5)
    try:
        with np.errstate(all="ignore"):
            values = function(z.copy())
    except Exception as error:
        raise InputError(
            f"{name} {function!r} fails on a NumPy array ({type(error).__name__}: {error}): "
            "give a function such as numpy.tanh that takes the array as a whole"
        ) from error
    if not isinstance(values, np.ndarray) or values.shape != z.shape:
        raise InputError(f"{name} {function!r} must return an array of the shape of its argument")
    if values.dtype != np.float64:
        raise InputError(f"{name} {function!r} must return float64 numbers, not {values.dtype}")
    if not np.all(np.isfinite(values)):
        where = float(z[~np.isfinite(values)][0])
        raise InputError(f"{name} {function!r} must be finite everywhere, and is not at {where:g}")


@lru_cache(maxsize=64)
def steepness(phi: Function) -> float:
    """max |φ′|, between 1 and 1000: what the distances of nodes along z are divided by.

    φ(kz) is φ with every length divided by k. The steepest cell of a coarse look is looked at
    closer until it is no steeper than it seemed.
    """
    centre, reach, steepest = 0.0, _REACH, 0.0
    for _ in range(_LOOKS):
        z = centre + np.linspace(-reach, reach, _NODES)
        slopes = np.abs(np.diff(phi(z)) / np.diff(z))
        cell = int(slopes.argmax())
        before, steepest = steepest, max(steepest, float(slopes[cell]))
        if steepest < 1.001 * before:
            break
        centre, reach = float(z[cell] + z[cell + 1]) / 2, 4 * reach / (_NODES - 1)
    return min(max(1.0, steepest), _STEP)
