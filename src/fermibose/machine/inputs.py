"""Inputs as the machine takes them: checked, in float32, where they are.

Rows are read, or computed, when a mini-batch needs them. What fits into :data:`HELD` bytes is held
in memory as it is used; anything larger stays where it is. Either way a row is the same numbers, so
the weights come out the same.
"""

import math
import mmap
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from fermibose import checks
from fermibose.errors import InputError
from fermibose.machine.cores import on_threads

Shape: TypeAlias = tuple[int, int, int]  # channels, rows, columns of an image
Sides: TypeAlias = tuple[int, int] | Shape  # the same, without channels if there is one
Examples: TypeAlias = tuple[Tensor, Tensor]  # inputs or representations (n, features), labels (n,)

ROUNDING = 1e-5  # by which a rescaling to [0, 1] may miss it
# Outputs that are never too many, for they cost little, and outputs for each label that occurs: a
# few numbers may be missing, most of them are not.
SPARE = 1000, 10
# Bytes, as float32, up to which inputs and representations are held: what a training may take
# beside the data is 300 MB, of which torch has 220 (tests/machine/test_memory.py).
HELD = 1 << 26
ROWS = 256  # that are computed at once: enough for a GEMM to be fast, little to hold
TOUCHED = 1 << 23  # bytes of a mapped file after which its pages are given back: little beside HELD
AROUND = 1 << 16  # bytes that the system maps around one that is read


class RangeWarning(UserWarning):
    """Inputs are not in [0, 1], the range for which the settings are made."""


@dataclass(frozen=True)
class Survey:
    """What inputs are like as a whole."""

    low: float
    high: float
    mean_square: float
    lit: Tensor  # (features,): whether one is ever other than 0


class Source(ABC):
    """Inputs or representations, (n, features), in float32."""

    shape: tuple[int, int]
    device: torch.device  # where its rows are

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def rows(self, index: Tensor) -> Tensor:
        """The rows ``index``, (B, features)."""

    @abstractmethod
    def blocks(self) -> Iterator[Tensor]:
        """All rows in order, some at a time."""

    def map(self, function: Callable[[Tensor], Tensor], features: int) -> "Source":
        """``function`` of blocks of rows, which has so many features: held, if that is small."""
        derived = Derived(self, function, features)
        return derived.held() if 4 * len(self) * features <= HELD else derived

    def to(self, device: torch.device) -> "Source":
        """The same, on that device."""
        if device == self.device:
            return self
        moved = self.map(lambda rows: rows.to(device), self.shape[1])
        moved.device = device
        return moved

    def held(self) -> "Held":
        """The same, in memory."""
        return Held(torch.cat(list(self.blocks())))

    @cached_property
    def survey(self) -> Survey:
        """Found in one pass; NaN and infinity are refused."""
        low, high, squares = np.inf, -np.inf, 0.0
        lit = torch.zeros(self.shape[1], dtype=torch.bool, device=self.device)
        for block in self.blocks():
            least, most = (float(value) for value in block.aminmax())
            if not np.isfinite(least) or not np.isfinite(most):  # NaN is passed on
                raise InputError("x contains NaN or infinity; remove or impute such values first")
            low, high = min(low, least), max(high, most)
            squares += float(block.square().mean()) * len(block)
            lit |= (block != 0).any(0)
        return Survey(low, high, squares / len(self), lit)


class Held(Source):
    """A tensor in memory."""

    def __init__(self, values: Tensor) -> None:
        self.values, self.device = values, values.device
        self.shape = (values.shape[0], values.shape[1])

    def rows(self, index: Tensor) -> Tensor:
        """The rows ``index``."""
        return self.values.index_select(0, index)

    def blocks(self) -> Iterator[Tensor]:
        """All at once: there it is."""
        yield self.values

    def held(self) -> "Held":
        """It is."""
        return self


class Derived(Source):
    """What a function makes of the rows of another source, computed each time."""

    def __init__(self, origin: Source, function: Callable[[Tensor], Tensor], features: int) -> None:
        self.origin, self.function = origin, function
        self.shape, self.device = (len(origin), features), origin.device

    def rows(self, index: Tensor) -> Tensor:
        """The function of the rows ``index``."""
        return self.function(self.origin.rows(index))

    def blocks(self) -> Iterator[Tensor]:
        """Of as many rows of the origin as it gives, in pieces that several cores share."""
        for block in self.origin.blocks():
            for some in block.split(4 * ROWS):
                yield torch.cat(on_threads(self.function, some.split(ROWS)))


class Streamed(Source):
    """Inputs that stay where they are: an array, a mapped file, or a Dataset of torch.

    values: an array (n, …) of numbers, for example ``numpy.load(path, mmap_mode="r")`` or
    :func:`fermibose.data.map_idx`; or a Dataset with a length, whose items are inputs or
    (input, label). divisor: by which they are divided, 255 for bytes. scaling: anything else that
    is done to rows, like a :class:`Rescaling`.
    """

    def __init__(
        self,
        values: Any,
        *,
        divisor: float | None = None,
        scaling: Callable[[Any], Any] | None = None,
    ) -> None:
        self.scaling, self.device = scaling, torch.device("cpu")
        self.divisor = None if divisor is None else checks.number("divisor", divisor, above=0)
        self.dataset = isinstance(values, Dataset)
        if isinstance(values, IterableDataset) or (self.dataset and not hasattr(values, "__len__")):
            raise InputError(
                "mini-batches are drawn at random, so a Dataset needs a length and an item for "
                "each number: give a map-style one, or arrays"
            )
        if not self.dataset:
            values = _numbers(values)
            if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
                raise InputError(
                    f"values must be an array of numbers or a Dataset, got {checks.shown(values)}"
                )
            values = values.reshape(len(values), -1) if values.size else values
        self.values, self.touched = values, 0
        n = len(values)
        if self.dataset and n:
            self.shape = n, self._input(0).size
        else:
            self.shape = values.shape if n else (0, 0)
        if 0 in self.shape:
            raise InputError("x must have shape (samples, features), got nothing")
        self.pages = _pages(values)

    def rows(self, index: Tensor) -> Tensor:
        """The rows ``index``, read now."""
        if self.dataset:
            found = np.stack([self._item(int(number)) for number in index])
        else:
            found = self.values.take(index.numpy(), axis=0)
            self.touched += len(index) * AROUND
        return self._read(found)

    def blocks(self) -> Iterator[Tensor]:
        """All rows in order."""
        step = max(1, min(4 * ROWS, TOUCHED // (4 * self.shape[1])))
        for start in range(0, len(self), step):
            if self.dataset:
                yield self.rows(torch.arange(start, min(start + step, len(self))))
            else:
                yield self._read(self.values[start : start + step])

    def labels(self) -> npt.NDArray[Any]:
        """The labels in the items of a Dataset, (n,)."""
        items = (self.values[number] for number in range(len(self))) if self.dataset else ()
        labels = [np.asarray(item[1]) for item in items if isinstance(item, (tuple, list))]
        if len(labels) != len(self):
            raise InputError("y is missing: give labels, or a Dataset of (input, label)")
        return np.array(labels)

    def _input(self, number: int) -> npt.NDArray[Any]:
        """What the Dataset has of an item, without its label."""
        item = self.values[number]
        return np.asarray(_numbers(item[0] if isinstance(item, (tuple, list)) else item))

    def _item(self, number: int) -> npt.NDArray[Any]:
        """The input of an item, flat; refused if it is not as many numbers as the first is."""
        given = self._input(number)
        if given.dtype.kind not in "biuf":
            raise InputError(
                f"item {number} of the Dataset holds {checks.shown(given)}, which are no numbers: "
                "let it give arrays or tensors of them"
            )
        if given.size != self.shape[1]:
            raise InputError(
                f"item {number} of the Dataset has {given.size} numbers, the first has "
                f"{self.shape[1]}: bring all to one shape"
            )
        return given.reshape(-1)

    def _read(self, found: npt.NDArray[Any]) -> Tensor:
        """Rows as they are used; the pages of a file they came from may go."""
        read = found if self.scaling is None else self.scaling(found)
        if self.divisor is None:
            read = read.astype(np.float32, copy=not read.flags.owndata)  # a part of the data
        else:  # as fermibose.data scales pixels: one division, in float32
            read = np.divide(read, np.float32(self.divisor), dtype=np.float32)
        self.touched += found.nbytes
        if self.pages is not None and self.touched > TOUCHED:
            self.pages.madvise(mmap.MADV_DONTNEED)
            self.touched = 0
        return torch.from_numpy(np.ascontiguousarray(read))


def _numbers(values: Any) -> Any:
    """A tensor as an array, which knows no bfloat16; anything else as it is."""
    if not isinstance(values, Tensor):
        return values
    values = values.detach().cpu()
    return (values.float() if values.dtype is torch.bfloat16 else values).numpy()


def _pages(values: Any) -> mmap.mmap | None:
    """The mapping of a file whose pages can be given back, to be read again when needed."""
    while isinstance(values, np.ndarray):
        found = getattr(values, "_mmap", None)
        # Not of a private mapping: what was written to it is nowhere else.
        if isinstance(found, mmap.mmap) and getattr(values, "mode", "c") != "c":
            return found if hasattr(found, "madvise") else None
        values = values.base
    return None


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
    features = math.prod(x.shape[1:])
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
    if classes < 2:
        raise InputError("all examples are of one class, and this model tells two or more apart")
    missing = (torch.bincount(y) == 0).nonzero()
    if len(missing):
        raise InputError(
            f"there is no example of class {int(missing[0])}, which this model needs: add some, or "
            "number the classes that there are with np.unique(y, return_inverse=True)[1]"
        )
    return classes
