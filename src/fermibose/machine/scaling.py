"""Inputs at the scale that the defaults are made for: pictures as a whole, tables by feature.

With first weights of variance 1/fan_in, the first pre-activations of an input x of d features have
variance |x|²/d. Where that is small the pairs exert little force, weight decay wins, and all
representations fall into one point. So what counts is not whether the inputs lie in [0, 1], but
their root mean square.
"""

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from fermibose import checks
from fermibose.machine.inputs import ROUNDING

Scaling = Literal["auto", "none", "global", "standard", "per_feature"]
Floats = npt.NDArray[np.float64]

# Pictures have at least so many pixels (8 × 8, the smallest that are in use), and at least this
# fraction of them is exactly 0: digits have 49 to 81 %, columns of a table a stray 0 at their
# minimum.
PIXELS, BACKGROUND = 64, 0.2
# Root mean square that they have then: below it the settings for pictures cost accuracy, 1.7 points
# of scikit-learn's digits at 0.26, 12 at 0.13 (dimmed() in benchmarks/tables.py). MNIST has 0.33.
BRIGHTNESS = 0.25
NEARLY_ONE = 0.9  # from this maximum on pictures in [0, 1] are used to the bit as they are
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


def rescaling(x: Floats, scaling: Any, *, bounded: bool = False) -> Rescaling:
    """The rescaling of the inputs x (samples, features) that ``scaling`` asks for.

    "global" divides by the largest absolute entry, "standard" takes each feature to mean 0 and
    standard deviation 1, "per_feature" from its minimum and maximum to [0, 1]. "auto" leaves
    pictures as they are, or divides them by their largest entry; anything else is a table: it
    becomes "standard", or "per_feature" if the inputs must be ``bounded`` by [0, 1].
    """
    checks.choice("scaling", scaling, get_args(Scaling))
    if scaling == "auto":
        scaling = _kind(x, table="per_feature" if bounded else "standard")
    if scaling == "none":
        return Rescaling("none")
    low, high = x.min(0), x.max(0)
    largest = np.maximum(np.maximum(-low, high), SMALLEST)
    if scaling == "global":
        return Rescaling("global", np.zeros_like(low), np.full_like(low, 1 / largest.max()))
    if scaling == "per_feature":
        offset, width = low, high - low
    else:
        unit = x / largest  # whose squares do not overflow
        offset, width = unit.mean(0) * largest, unit.std(0) * largest
    constant = high - low <= CONSTANT * largest  # carries no information: it becomes 0
    return Rescaling(scaling, np.where(constant, low, offset), 1 / np.where(constant, 1.0, width))


def _kind(x: Floats, *, table: str) -> str:
    """What "auto" does with these inputs."""
    highest = float(x.max())
    if x.shape[1] < PIXELS or x.min() < -ROUNDING or highest <= 0:
        return table
    unit = x / highest
    if (x == 0).mean() < BACKGROUND or np.sqrt((unit**2).mean()) < BRIGHTNESS:
        return table
    return "none" if NEARLY_ONE <= highest <= 1 + ROUNDING else "global"
