"""MNIST and Fashion-MNIST from OpenML: downloaded once, cached in one file, checked every time."""

import os
import sys
import warnings
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fermibose.data.idx import RawSplit, Split, content_digest
from fermibose.errors import FermiboseError, FileFormatError, InputError
from fermibose.files import replacing

# Of the 70,000 images and labels, in the order of the fields of RawSplit.
SHA256 = {
    "mnist": "06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
    "fashion-mnist": "ca3ab2a37f845e1b8ae23cab1b51749a3011ba3bf1d9016176d75cbaabac376f",
}


@dataclass(frozen=True)
class _Source:
    openml_name: str
    version: int  # pinned: other versions differ in order or content
    sha256: str  # of the true content
    train: int = 60_000  # the first images are the training set …
    test: int = 10_000  # … and the last the test set
    side: int = 28

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the fields of RawSplit."""
        image = (self.side, self.side)
        return [(self.train, *image), (self.train,), (self.test, *image), (self.test,)]


_SOURCES = {
    "mnist": _Source("mnist_784", 1, SHA256["mnist"]),
    "fashion-mnist": _Source("Fashion-MNIST", 1, SHA256["fashion-mnist"]),
}

_BY_HAND = "Download the four IDX files by hand and give their folder."

# No network, a connection cut off, a truncated file, OpenML's own refusal, a wrong md5.
_DOWNLOAD_FAILURES = (OSError, HTTPException, EOFError, ValueError)


def load_openml(name: str, *, cache_folder: str | os.PathLike[str] | None = None) -> Split:
    """Load ``(x_train, y_train, x_test, y_test)`` of "mnist" or "fashion-mnist".

    x: float32 (60000, 784) and (10000, 784) in [0, 1]; y: int64 (60000,) and (10000,).

    The first call downloads from OpenML; later ones read the file kept in ``cache_folder``
    (default: the environment variable FERMIBOSE_CACHE, else the user's cache folder). A damaged
    cache file is reported with a warning and downloaded again.
    """
    return read_openml(name, cache_folder=cache_folder).scaled()


def read_openml(name: str, *, cache_folder: str | os.PathLike[str] | None = None) -> RawSplit:
    """As ``load_openml``, in bytes."""
    if name not in _SOURCES:
        choices = " or ".join(f'"{choice}"' for choice in _SOURCES)
        raise InputError(f"{name!r} is not one of the data sets downloaded here: choose {choices}.")
    folder = default_cache_folder() if cache_folder is None else Path(cache_folder).expanduser()
    path = folder / f"{name}.safetensors"
    damage = ""
    if path.exists():
        try:
            return _read_cache(path, _SOURCES[name])
        except FileFormatError as error:
            damage = f"{error} "
            warnings.warn(f"{error} Downloading it again.", stacklevel=3)
    split = _download(name, damage)
    try:
        _write_cache(path, split)
    except OSError as error:
        # The data are good: losing the cache costs a download, no more.
        warnings.warn(
            f"{name} could not be kept in {path} ({error}); it will be downloaded again next "
            "time. Set FERMIBOSE_CACHE to a folder that can be written.",
            stacklevel=3,
        )
    return split


def default_cache_folder() -> Path:
    """FERMIBOSE_CACHE, else ``fermibose`` in the user's cache folder of this platform."""
    if own := os.environ.get("FERMIBOSE_CACHE"):
        return Path(own).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser() / "fermibose"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "fermibose" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "fermibose"
    return Path.home() / ".cache" / "fermibose"


def _download(name: str, damage: str) -> RawSplit:
    """Fetch, check and split; ``damage`` says what was wrong with the cache, if anything."""
    from sklearn.datasets import fetch_openml

    source = _SOURCES[name]
    try:
        with warnings.catch_warnings():
            # scikit-learn warns at each retry; the error below says it once, with the remedy.
            warnings.filterwarnings("ignore", message="A network error occurred")
            bunch = fetch_openml(
                source.openml_name, version=source.version, as_frame=False, cache=False
            )
    except _DOWNLOAD_FAILURES as error:
        reason = str(error) or type(error).__name__
        raise FermiboseError(
            f"{damage}{name} could not be downloaded from OpenML ({reason}). "
            "Try again with a network connection; or download the four IDX files "
            "(train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, "
            "t10k-labels-idx1-ubyte.gz) by hand into one folder and give that folder, or set the "
            f"environment variable FERMIBOSE_DATA to it or to its parent if it is named {name}."
        ) from error
    count = source.train + source.test
    images = _as_bytes(name, "pixels", bunch.data, (count, source.side**2))
    labels = _as_bytes(name, "labels", bunch.target, (count,))
    images = images.reshape(count, source.side, source.side)
    n = source.train
    split = RawSplit(images[:n], labels[:n], images[n:], labels[n:])
    found = content_digest(*split)
    if found != source.sha256:
        raise FileFormatError(
            f"what OpenML sent as {name} is not {name}: sha256 {found[:16]}… instead of "
            f"{source.sha256[:16]}…. {_BY_HAND}"
        )
    return split


def _as_bytes(
    name: str, what: str, values: NDArray[Any], shape: tuple[int, ...]
) -> NDArray[np.uint8]:
    """Numbers or strings of numbers to bytes, or an error if any does not fit."""
    complaint = f"OpenML sent unexpected {what} for {name}"
    values = np.asarray(values)
    if values.shape != shape:
        raise FileFormatError(f"{complaint}: shape {values.shape} instead of {shape}. {_BY_HAND}")
    try:
        # OpenML's labels are strings.
        numbers = values.astype(np.float64) if values.dtype.kind in "OSU" else values
    except ValueError as error:
        raise FileFormatError(f"{complaint}: {error}. {_BY_HAND}") from error
    with np.errstate(invalid="ignore"):  # what does not fit is found by the comparison
        result = numbers.astype(np.uint8)
    if not np.array_equal(result, numbers):
        raise FileFormatError(f"{complaint}: not whole numbers 0..255. {_BY_HAND}")
    return result


def _write_cache(path: Path, split: RawSplit) -> None:
    """Keep the split, with the digest that a later read must find."""
    from safetensors.numpy import save

    tensors = {field: np.ascontiguousarray(getattr(split, field)) for field in split._fields}
    with replacing(path) as draft:
        draft.write_bytes(save(tensors, metadata={"sha256": content_digest(*split)}))


def _read_cache(path: Path, source: _Source) -> RawSplit:
    """Read the cache file; FileFormatError if it is damaged or not what was written."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            stored = [file.get_slice(field) for field in RawSplit._fields]
            found_in = [(tuple(part.get_shape()), part.get_dtype()) for part in stored]
            if found_in != [(shape, "U8") for shape in source.shapes]:
                raise ValueError("unexpected array shapes")
            split = RawSplit(*(file.get_tensor(field) for field in RawSplit._fields))
            recorded = (file.metadata() or {}).get("sha256")
    except (SafetensorError, OSError, ValueError) as error:
        raise FileFormatError(f"The cached file {path} is damaged ({error}).") from error
    found = content_digest(*split)
    if not found == recorded == source.sha256:
        raise FileFormatError(f"The cached file {path} is damaged (its sha256 does not match).")
    return split
