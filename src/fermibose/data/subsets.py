"""Subsets as the paper takes them: the first images of each class, in order of appearance."""

import operator
import os
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fermibose.data.bundled import load_mnist5k
from fermibose.data.idx import load_idx
from fermibose.data.raw import Split
from fermibose.errors import InputError

_X = TypeVar("_X", bound=np.generic)
_Y = TypeVar("_Y", bound=np.generic)

_TRAIN_PER_CLASS = 100
_TEST_PER_CLASS = 400


def per_class(
    x: NDArray[_X], y: NDArray[_Y], count: int, *, start: int = 0
) -> tuple[NDArray[_X], NDArray[_Y]]:
    """Take images ``start`` to ``start + count`` (not included) of each class.

    Images of a class are numbered in order of appearance. x: (n, ...); y: (n,). The result is
    sorted by class, then by appearance: (classes·count, ...) and (classes·count,), as copies.
    """
    x, y = np.asarray(x), np.asarray(y)
    count, start = _whole("count", count, least=1), _whole("start", start, least=0)
    if y.ndim != 1 or x.ndim == 0 or len(x) != len(y):
        raise InputError(
            f"x has shape {x.shape} and y {y.shape}: give one label per image, y of shape (n,)."
        )
    if len(y) == 0:
        raise InputError("x and y are empty: give at least one image of each class.")
    classes, available = np.unique(y, return_counts=True)
    if available.min() < start + count:
        worst = int(available.argmin())
        which = f" (the first {start} are left out, {count} taken)" if start else ""
        raise InputError(
            f"class {classes[worst]} has too few images: {start + count} are needed{which}, "
            f"{available[worst]} are there. Take fewer, or use a larger set."
        )
    rank = rank_in_class(y)
    chosen = np.flatnonzero((start <= rank) & (rank < start + count))
    chosen = chosen[np.argsort(y[chosen], kind="stable")]
    return x[chosen], y[chosen]


def rank_in_class(y: NDArray[Any]) -> NDArray[np.intp]:
    """For each label of y (n,): how many equal labels stand before it."""
    by_class = np.argsort(y, kind="stable")
    _, sizes = np.unique(y, return_counts=True)
    first = np.cumsum(sizes) - sizes  # where each class begins once sorted
    rank = np.empty(len(y), np.intp)
    rank[by_class] = np.arange(len(y)) - np.repeat(first, sizes)
    return rank


def paper_split(folder: str | os.PathLike[str] | None = None) -> Split:
    """Return the paper's ``(x_train, y_train, x_test, y_test)``: 1000 and 4000 images.

    x: float32 (n, 784) in [0, 1]; y: int64 (n,); sorted by class, then by appearance.

    With a folder of MNIST's IDX files, the published split: the first 100 images of each class
    of the training set, and the first 400 of each class of the test set. Without a folder, the
    bundled sample: the training images are the same, bit for bit; the test images are the
    *next* 400 of each class of the training set, so test accuracies differ a little.
    """
    if folder is None:
        x, y = load_mnist5k()
        train = per_class(x, y, _TRAIN_PER_CLASS)
        return *train, *per_class(x, y, _TEST_PER_CLASS, start=_TRAIN_PER_CLASS)
    x_train, y_train, x_test, y_test = load_idx(folder)
    train = per_class(x_train, y_train, _TRAIN_PER_CLASS)
    return *train, *per_class(x_test, y_test, _TEST_PER_CLASS)


def _whole(name: str, value: int, *, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}.")
    return number
