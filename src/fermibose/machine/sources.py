"""Inputs where they are: rows are read, or computed, when a mini-batch needs them.

What fits into :data:`HELD` bytes is held in memory as it is used; anything larger stays where it
is. Either way a row is the same numbers, so the weights come out the same.
"""

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from fermibose import checks
from fermibose.errors import InputError
from fermibose.machine.cores import spread

# Bytes, as float32, up to which inputs and representations are held: what a training may take
# beside the data is 300 MB, of which torch has 220 (tests/machine/test_memory.py).
HELD = 1 << 26
ROWS = 256  # that are computed at once: enough for a GEMM to be fast, little to hold
TOUCHED = 1 << 23  # bytes of a mapped file in memory after which its pages are given back
AROUND = 1 << 16  # bytes that the system maps around one that is read


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
                yield torch.cat(spread(self.function, some.split(ROWS)))


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
            if isinstance(values, Tensor):
                values = values.detach().numpy()
            if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
                raise InputError(
                    f"values must be an array of numbers or a Dataset, got {checks.shown(values)}"
                )
            values = values.reshape(len(values), -1) if values.size else values
        self.values, self.touched = values, 0
        n = len(values)
        self.shape = n, (len(self._item(0)) if self.dataset else values.shape[1]) if n else 0
        if 0 in self.shape:
            raise InputError("x must have shape (samples, features), got nothing")
        self.pages = _pages(values)

    def rows(self, index: Tensor) -> Tensor:
        """The rows ``index``, read now."""
        if self.dataset:
            found = np.stack([self._item(int(number)) for number in index])
        else:
            found = self.values[index.numpy()]
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

    def _item(self, number: int) -> npt.NDArray[Any]:
        item = self.values[number]
        return np.asarray(item[0] if isinstance(item, (tuple, list)) else item).reshape(-1)

    def _read(self, found: npt.NDArray[Any]) -> Tensor:
        """Rows as they are used; the pages of a file they came from may go."""
        read = found if self.scaling is None else self.scaling(found)
        if self.divisor is None:
            read = read.astype(np.float32)
        else:  # as fermibose.data scales pixels: one division, in float32
            read = np.divide(read, np.float32(self.divisor), dtype=np.float32)
        self.touched += found.nbytes
        if self.pages is not None and self.touched > TOUCHED:
            self.pages.madvise(mmap.MADV_DONTNEED)
            self.touched = 0
        return torch.from_numpy(np.ascontiguousarray(read))


def _pages(values: Any) -> mmap.mmap | None:
    """The mapping of a file whose pages can be given back, to be read again when needed."""
    while isinstance(values, np.ndarray):
        found = getattr(values, "_mmap", None)
        # Not of a private mapping: what was written to it is nowhere else.
        if isinstance(found, mmap.mmap) and getattr(values, "mode", "c") != "c":
            return found if hasattr(found, "madvise") else None
        values = values.base
    return None
