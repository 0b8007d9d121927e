"""Inputs as the machine takes them: to scale, checked, as tensors, without the pixels never lit.

With first weights of variance 1/fan_in, the first pre-activations of an input x of d features have
variance |x|²/d. Where that is small the pairs exert little force, weight decay wins, and all
representations fall into one point. So what counts for the scale is not whether the inputs lie in
[0, 1], but their root mean square.
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeGuard, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from fermibose import checks
from fermibose.errors import InputError
from fermibose.machine.local_rule import LocalDense
from fermibose.machine.sources import HELD, Held, Source, Streamed

Scaling = Literal["auto", "none", "global", "standard", "per_feature"]
Floats: TypeAlias = npt.NDArray[np.float64]
Shape: TypeAlias = tuple[int, int, int]  # channels, rows, columns of an image
Sides: TypeAlias = tuple[int, int] | Shape  # the same, without channels if there is one
Examples: TypeAlias = tuple[Tensor, Tensor]  # inputs or representations (n, features), labels (n,)

ROUNDING = 1e-5  # by which a rescaling to [0, 1] may miss it
SPARE = 1000, 10  # outputs that are never too many, and outputs for each label that occurs
# Fraction of dead inputs from which the split pays for its copying; at the 22 % of the paper's
# digits it makes a local step 8 % cheaper (compare() in benchmarks/machine.py).
WORTHWHILE = 0.1
# Pictures have at least so many pixels (8 × 8, the smallest that are in use), and at least this
# fraction of them is exactly 0: digits have 49 to 81 %, columns of a table a stray 0 at their
# minimum.
PIXELS, BACKGROUND = 64, 0.2
# Root mean square that they have at least, once the largest entry is 1: below it the settings for
# pictures cost accuracy (dimmed() in benchmarks/tables.py): about 2 points of scikit-learn's digits
# at 0.29, 3 at 0.24, 12 at 0.15 (one seed). MNIST's have 0.33.
BRIGHTNESS = 0.25
PART = 1 << 21  # entries whose mean and spread are taken at once, 16 MB
NEARLY_ONE = 0.9  # from this maximum on pictures in [0, 1] are used to the bit as they are
SMALLEST = 1e-280  # entries below are 0: no gain overflows
CONSTANT = 64 * np.finfo(np.float64).eps  # span of a constant feature, per entry: only rounding


class RangeWarning(UserWarning):
    """Inputs are not in [0, 1], the range for which the settings are made."""


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


def image_shape_of(shape: Any) -> Shape:
    """(channels, rows, columns) of a shape given with or without channels."""
    sides = tuple(shape) if isinstance(shape, (tuple, list)) else ()
    if len(sides) not in (2, 3) or not all(checks.is_whole(side, 1) for side in sides):
        raise InputError(
            "image_shape must be (rows, columns) or (channels, rows, columns), like (28, 28), got "
            f"{checks.shown(shape)}"
        )
    channels, rows, columns = (1, *sides) if len(sides) == 2 else sides
    return int(channels), int(rows), int(columns)


def as_images(x: Tensor, shape: Shape) -> Tensor:
    """Inputs (B, …) as images (B, channels, rows, columns)."""
    features = x[0].numel()
    if features != math.prod(shape):
        raise InputError(
            f"inputs have {features} features, but images of shape {shape} have "
            f"{math.prod(shape)}; set image_shape"
        )
    return x.reshape(len(x), *shape)


def as_tensors(x: npt.ArrayLike, y: npt.ArrayLike) -> Examples:
    """Checked float32 inputs (samples, features) and int64 labels (samples,).

    Both are on the device of x, if that is a tensor; labels are checked on the CPU.
    """
    if _elsewhere(x):
        inputs = x.detach().to(torch.float32, copy=True)
    else:
        inputs = torch.tensor(np.ascontiguousarray(_as_array("x", x, np.float32)))
    if inputs.ndim != 2 or not inputs.numel():
        raise InputError(f"x must have shape (samples, features), got {tuple(inputs.shape)}")
    labels = _labels(y, len(inputs)).to(inputs.device)
    if not torch.isfinite(inputs).all():
        raise InputError("x contains NaN or infinity; remove or impute such values first")
    return inputs, labels


def _labels(y: npt.ArrayLike, samples: int) -> Tensor:
    labels = _as_array("y", y.cpu() if _elsewhere(y) else y)
    if labels.shape != (samples,) or labels.dtype.kind not in "iu" or labels.min() < 0:
        raise InputError(
            f"y must hold one whole number >= 0 for each of the {samples} samples, "
            f"got {labels.dtype} of shape {labels.shape}"
        )
    if int(labels.max()) >= 2**63:
        raise InputError(f"the labels go up to {labels.max()}: number the classes from 0")
    return torch.tensor(np.ascontiguousarray(labels, dtype=np.int64))


def as_source(x: Any, y: npt.ArrayLike | None) -> tuple[Source, Tensor]:
    """Inputs and labels (samples,), checked; what is large, or a Dataset, stays where it is.

    y: None takes the labels of a Dataset.
    """
    large = isinstance(x, np.ndarray) and x.ndim == 2 and 4 * x.size > HELD
    if isinstance(x, Dataset) or (large and x.dtype.kind in "biuf"):
        x = Streamed(x)
    if not isinstance(x, Streamed):
        if y is None:
            raise InputError("y is missing: give labels, or a Dataset of (input, label)")
        inputs, labels = as_tensors(x, y)
        return Held(inputs), labels
    labels = _labels(x.labels() if y is None else y, len(x))
    source = x.held() if 4 * math.prod(x.shape) <= HELD else x
    source.survey  # noqa: B018  # refuses what is not finite
    return source, labels


def _elsewhere(values: Any) -> TypeGuard[Tensor]:
    """Whether this is a tensor with numbers on another device than the CPU."""
    return isinstance(values, Tensor) and values.device.type not in ("cpu", "meta")


def within(low: float, high: float, bounds: tuple[float, float] = (0.0, 1.0)) -> bool:
    """Whether values from ``low`` to ``high`` lie in the bounds, but for rounding."""
    return low >= bounds[0] - ROUNDING and high <= bounds[1] + ROUNDING


def check_clipping(x: Tensor, bounds: tuple[float, float] = (0.0, 1.0)) -> None:
    """Refuse inputs whose noisy copies, clipped to the bounds, would be others without noise."""
    low, high = (float(value) for value in x.aminmax())
    if not within(low, high, bounds):
        raise InputError(
            f"noisy copies are clipped to [{bounds[0]:g}, {bounds[1]:g}], but the inputs range "
            f"from {low:g} to {high:g}: scale them, or give noise of your own"
        )


def training_examples(
    x: npt.ArrayLike, y: npt.ArrayLike, test: tuple[npt.ArrayLike, npt.ArrayLike] | None
) -> tuple[Tensor, Tensor, Examples | None]:
    """Checked inputs, labels and, if there are any, test examples, which must be as wide.

    Warns the caller's caller if the inputs do not lie in [0, 1]; they are used nevertheless.
    """
    inputs, labels = as_tensors(x, y)
    low, high = (float(value) for value in inputs.aminmax())
    _warn_of_range(low, high)
    if test is None:
        return inputs, labels, None
    examples = as_tensors(*test)
    _check_width(examples[0].shape[1], inputs.shape[1])
    return inputs, labels, examples


def training_sources(
    x: Any, y: npt.ArrayLike | None, test: tuple[Any, npt.ArrayLike | None] | None
) -> tuple[Source, Tensor, tuple[Source, Tensor] | None]:
    """The same of inputs that may be too large to be held."""
    source, labels = as_source(x, y)
    _warn_of_range(source.survey.low, source.survey.high)
    if test is None:
        return source, labels, None
    known, answers = as_source(*test)
    _check_width(known.shape[1], source.shape[1])
    return source, labels, (known.to(source.device), answers.to(source.device))


def _warn_of_range(low: float, high: float) -> None:
    if not within(low, high):
        warnings.warn(
            f"the inputs range from {low:g} to {high:g}, but the defaults (first weights, learning "
            "rate, weight decay) are made for [0, 1], and others cost accuracy: scale them (bytes "
            "by x / 255), or use FermiBoseClassifier, which does. If this range is meant, ignore "
            "fermibose.machine.RangeWarning",
            RangeWarning,
            stacklevel=4,
        )


def _check_width(found: int, inputs: int) -> None:
    if found != inputs:
        raise InputError(f"the test inputs have {found} features, but the training inputs {inputs}")


def _as_array(name: str, values: Any, dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """The values as an array in this machine's byte order, on the CPU, without a gradient."""
    if hasattr(values, "toarray"):
        raise InputError(f"{name} is sparse; give {name}.toarray()")
    try:
        if isinstance(values, Tensor):
            values = values.detach().cpu()
            values = values.float() if values.dtype == torch.bfloat16 else values
        if np.iscomplexobj(values):
            raise TypeError("complex numbers")
        return np.asarray(values, dtype=dtype)
    except (
        TypeError,
        ValueError,
        RuntimeError,
    ) as error:  # ragged, words, sparse, meta
        raise InputError(f"{name} is not an array of numbers ({error})") from error


def count_classes(y: Tensor) -> int:
    """K, one more than the largest label; labels that do not occur count as well.

    A small training set may lack classes. But an output costs a column of weights, so one stray
    label (a date, an identity number) would make a net that no memory holds.
    """
    classes, found = int(y.max()) + 1, len(y.unique())
    least, each = SPARE
    if classes > max(least, each * found):
        raise InputError(
            f"the labels go up to {classes - 1}, but only {found} different ones occur, and there "
            f"is an output for each number from 0: remove what is no label, or number the classes "
            "with np.unique(y, return_inverse=True)[1]"
        )
    return classes


def count_present_classes(y: Tensor) -> int:
    """As :func:`count_classes`, for models with a fit for each class: none may be missing."""
    classes = count_classes(y)
    missing = (torch.bincount(y) == 0).nonzero()
    if len(missing):
        raise InputError(
            f"there is no example of class {int(missing[0])}, which this model needs: add some, or "
            "number the classes that there are with np.unique(y, return_inverse=True)[1]"
        )
    return classes


@dataclass(frozen=True)
class SplitInputs:
    """A layer in two parts: one that learns from the live inputs, and the weights of dead ones.

    Dead inputs are 0 in every training sample; of the paper's 1000 digits 22 % of the pixels are
    never lit. Their weights feel no pair, and nothing feels them, so they need no GEMM, only their
    weight decay: the optimiser moves them with gradient 0, as it would anyway.
    """

    live: Tensor  # their positions among the inputs
    dead: Tensor
    learner: LocalDense
    resting: nn.Parameter  # (dead inputs, units)

    @classmethod
    @torch.no_grad()
    def of(cls, layer: LocalDense, x: Source) -> Self | None:
        """Split ``layer`` for the training inputs x (samples, inputs), if that is worthwhile."""
        lit = x.survey.lit
        live, dead = lit.nonzero()[:, 0], (~lit).nonzero()[:, 0]
        if len(dead) < WORTHWHILE * len(lit) or not len(live):
            return None
        units = layer.weight.shape[1]
        learner = LocalDense(len(live), units, activation=layer.activation.name).to(layer.weight)
        learner.weight.copy_(layer.weight[live])
        learner.bias = layer.bias
        resting = nn.Parameter(layer.weight[dead], requires_grad=False)
        resting.grad = torch.zeros_like(resting)
        return cls(live, dead, learner, resting)

    def parameters(self) -> Iterator[nn.Parameter]:
        """All that the optimiser moves."""
        yield from self.learner.parameters()
        yield self.resting

    @torch.no_grad()
    def join(self, layer: LocalDense) -> None:
        """Write both parts' weights into ``layer``."""
        layer.weight.index_copy_(0, self.live, self.learner.weight)
        layer.weight.index_copy_(0, self.dead, self.resting)
