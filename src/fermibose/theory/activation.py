"""The activation φ: those with a name, and how steep any of them is."""

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Function: TypeAlias = Callable[[Array], Array]

_REACH = 12.0  # where the steepest place is looked for, on both sides of 0
_NODES = 961  # of each look
_LOOKS = 4  # each 240 times as close as the one before
_STEP = 1e3  # a slope beyond which φ is a step on every grid


def _half_tanh(z: Array) -> Array:
    return (1 + np.tanh(z)) / 2


ACTIVATIONS: dict[str, Function] = {"tanh": np.tanh, "half_tanh": _half_tanh}


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
