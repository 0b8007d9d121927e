"""Data sets by name, as the command line asks for them."""

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fermibose.data.bundled import load_digits
from fermibose.data.idx import has_idx_files, read_idx_folder
from fermibose.data.openml import read_openml
from fermibose.data.raw import SHA256, Images, Labels, RawSplit, content_digest
from fermibose.data.subsets import paper_split, per_class, rank_in_class
from fermibose.errors import InputError

_BUNDLED = ("mnist5k", "digits")
_DOWNLOADED = ("mnist", "fashion-mnist")
NAMES = _BUNDLED + _DOWNLOADED
_MNIST_SIZES = (60_000, 10_000)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test images with their labels."""

    name: str
    x_train: Images  # (n, pixels), in [0, 1]
    y_train: Labels  # (n,)
    x_test: Images  # (m, pixels), in [0, 1]
    y_test: Labels  # (m,)
    image_shape: tuple[int, int] | None  # rows, columns; None if the rows of x are not images

    def first(
        self, *, train_per_class: int | None = None, test_per_class: int | None = None
    ) -> "Dataset":
        """Only the first so many images of each class, sorted by class (see ``per_class``)."""
        kept: dict[str, Any] = {}
        for part, count in (("train", train_per_class), ("test", test_per_class)):
            if count is not None:
                x, y = getattr(self, f"x_{part}"), getattr(self, f"y_{part}")
                try:
                    kept[f"x_{part}"], kept[f"y_{part}"] = per_class(x, y, count)
                except InputError as error:
                    raise InputError(f"{part}_per_class = {count}: {error}") from None
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
    train_per_class: int | None = None,
    test_per_class: int | None = None,
) -> Dataset:
    """Load a data set by name, or from a folder of IDX files if ``name`` is one.

    - "mnist5k": bundled, the split of ``paper_split()``, 1000 and 4000 images;
    - "digits": bundled, 1797 images of 8 × 8; of each class, every fifth image in order of
      appearance (the 5th, 10th, …) is for testing, the others for training;
    - "mnist", "fashion-mnist": from ``folder`` if given, an IDX folder or one with a subfolder
      named like the data set; else from FERMIBOSE_DATA, if that is such a folder; else from
      OpenML (cached).

    A folder called like a data set must be written with a separator: "./mnist".

    train_per_class, test_per_class: keep only the first so many images of each class, sorted by
    class (see ``per_class``). "mnist" with 100 and 400 is the published split of the paper.
    """
    text = os.fspath(name)
    if folder is not None and text not in _DOWNLOADED:
        raise InputError(
            f"a folder goes with {_listed(_DOWNLOADED)}, not with {text!r}: leave it out, or give "
            "the folder in place of the name."
        )
    if text in _BUNDLED:
        dataset = _digits() if text == "digits" else _mnist5k()
    elif text in _DOWNLOADED:
        dataset = _from_raw(text, _find_raw(text, folder))
    elif (path := Path(text).expanduser()).is_dir() and text:
        dataset = _from_raw(path.resolve().name, read_idx_folder(path))
    else:
        raise InputError(
            f"unknown data set {text!r}: choose {_listed(NAMES)}, or give an "
            "existing folder of IDX files."
        )
    return dataset.first(train_per_class=train_per_class, test_per_class=test_per_class)


def _mnist5k() -> Dataset:
    return Dataset("mnist5k", *paper_split(), image_shape=(28, 28))


def _digits() -> Dataset:
    x, y = load_digits()
    test = rank_in_class(y) % 5 == 4
    return Dataset("digits", x[~test], y[~test], x[test], y[test], image_shape=(8, 8))


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
