"""Inputs to scale: pictures as they are, tables feature by feature.

With first weights of variance 1/fan_in, the first pre-activations of an input x of d features have
variance |x|²/d. Where that is small the pairs exert little force, weight decay wins, and all
representations fall into one point. So what counts for the scale is not whether the inputs lie in
[0, 1], but their root mean square.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from fermibose import checks
from fermibose.machine.inputs import ROUNDING

Scaling = Literal["auto", "none", "global", "standard", "per_feature"]
Floats: TypeAlias = npt.NDArray[np.float64]

# Pictures have at least so many pixels (8 × 8, the smallest that are in use), and at least this
# fraction of them is exactly 0: digits have 49 to 81 %, columns of a table a stray 0 at their
# minimum.
PIXELS, BACKGROUND = 64, 0.2
# Root mean square that they have at least, once the largest entry is 1: below it the settings for
# pictures cost accuracy (dimmed() in benchmarks/tables.py): about 2 points of scikit-learn's digits
# at 0.29, 3 at 0.24, 12 at 0.15 (one seed). MNIST's have 0.33.
BRIGHTNESS = 0.25
PART = 1 << 21  # entries whose mean and spread are taken at once, 16 MB
# From this maximum on pictures in [0, 1] are used to the bit as they are: a part of a set whose
# brightest pixel is missing is scaled like the whole.
NEARLY_ONE = 0.9
SMALLEST = 1e-280  # entries below are 0: no gain overflows
CONSTANT = 64 * np.finfo(np.float64).eps  # span of a constant feature, per entry: only rounding


class Rescaling(NamedTuple):
    """The map x → (x − offset)·gain of each feature; none, where the inputs are used as given."""

    kind: str
    offset: Floats | None = None
    gain: Floats | None = None

    def __call__(self, x: Floats) -> Floats:
        """The inputs x (samples, features) as the machine is trained on them."""
        return x if self.offset is None or self.gain is None else (x - self.offset) * self.gain

    @property
    def by_feature(self) -> bool:
        """Whether each feature has an offset and a gain of its own, so that 0 means nothing."""
        return self.kind in ("standard", "per_feature")


def rescaling(
    x: Floats, scaling: Any, *, bounded: bool = False, picture: bool = False
) -> Rescaling:
    """The rescaling of the inputs x (samples, features) that ``scaling`` asks for.

    "global" divides by the largest absolute entry, "standard" takes each feature to mean 0 and
    standard deviation 1, "per_feature" from its minimum and maximum to [0, 1]. "auto" leaves
    pictures as they are, or divides them by their largest entry; anything else is a table: it
    becomes "standard", or "per_feature" if the inputs must be ``bounded`` by [0, 1]. picture: they
    are known to be pictures, whatever they look like.
    """
    checks.choice("scaling", scaling, get_args(Scaling))
    if scaling == "auto":
        table = "per_feature" if bounded else "standard"
        scaling = _kind(x, table="global" if picture and x.min() >= -ROUNDING else table)
    if scaling == "none":
        return Rescaling("none")
    low, high = x.min(0).astype(np.float64), x.max(0).astype(np.float64)
    largest = np.maximum(np.maximum(-low, high), SMALLEST)
    if scaling == "global":
        return Rescaling("global", np.zeros_like(low), np.full_like(low, 1 / largest.max()))
    if scaling == "per_feature":
        offset, width = low, high - low
    else:  # in units of the largest entry, whose squares do not overflow
        mean = sum((part / largest).sum(0) for part in _parts(x)) / len(x)
        variance = sum(((part / largest - mean) ** 2).sum(0) for part in _parts(x)) / len(x)
        offset, width = mean * largest, np.sqrt(variance) * largest
    constant = high - low <= CONSTANT * largest  # carries no information: it becomes 0
    return Rescaling(scaling, np.where(constant, low, offset), 1 / np.where(constant, 1.0, width))


def _parts(x: Floats) -> Iterator[Floats]:
    """The rows of x in float64, some at a time."""
    step = max(1, PART // x.shape[1])
    for start in range(0, len(x), step):
        yield x[start : start + step].astype(np.float64, copy=False)


def _kind(x: Floats, *, table: str) -> str:
    """What "auto" does with these inputs."""
    highest = float(x.max())
    if x.shape[1] < PIXELS or x.min() < -ROUNDING or highest <= 0:
        return table
    dark = sum((part == 0).sum() for part in _parts(x)) / x.size
    square = sum(((part / highest) ** 2).sum() for part in _parts(x)) / x.size
    if dark < BACKGROUND or np.sqrt(square) < BRIGHTNESS:
        return table
    return "none" if NEARLY_ONE <= highest <= 1 + ROUNDING else "global"
