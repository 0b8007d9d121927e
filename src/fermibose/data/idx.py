"""Images as stored, in bytes: IDX files, the format of MNIST, and what all sources share."""

import gzip
import hashlib
import math
import os
import struct
import zlib
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fermibose.errors import FileFormatError, InputError

Bytes8: TypeAlias = NDArray[np.uint8]
Images: TypeAlias = NDArray[np.float32]
Labels: TypeAlias = NDArray[np.int64]
Split: TypeAlias = tuple[Images, Labels, Images, Labels]

_GZIP_MAGIC = b"\x1f\x8b"

_UINT8 = 0x08
_OTHER_TYPES = {
    0x09: "int8",
    0x0B: "int16",
    0x0C: "int32",
    0x0D: "float32",
    0x0E: "float64",
}


class RawSplit(NamedTuple):
    """Training and test data as stored: one byte per pixel and per label."""

    images_train: Bytes8  # (n, rows, columns)
    labels_train: Bytes8  # (n,)
    images_test: Bytes8  # (m, rows, columns)
    labels_test: Bytes8  # (m,)

    @property
    def image_shape(self) -> tuple[int, int]:
        """Rows and columns of one image."""
        return self.images_train.shape[1], self.images_train.shape[2]

    def scaled(self) -> Split:
        """Images flattened to float32 in [0, 1], labels as int64."""
        return (
            scale_pixels(self.images_train),
            self.labels_train.astype(np.int64),
            scale_pixels(self.images_test),
            self.labels_test.astype(np.int64),
        )


def scale_pixels(pixels: Bytes8) -> Images:
    """Bytes (n, ...) to float32 (n, pixels) in [0, 1]: each byte divided by 255 in float32."""
    flat = pixels.reshape(len(pixels), int(np.prod(pixels.shape[1:])))
    # One division in float32, correctly rounded: the same bits whichever source the bytes are from.
    return np.divide(flat, np.float32(255), dtype=np.float32)


def content_digest(*arrays: NDArray[Any]) -> str:
    """The sha256 (hexadecimal) of the arrays' bytes, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def read_bytes(path: Path) -> bytes:
    """The bytes of a file, decompressed if its content (not its name) says gzip."""
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise InputError(f"{path} {what}: check the path.")
    content = path.read_bytes()
    if not content.startswith(_GZIP_MAGIC):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:  # truncated, wrong checksum, bad blocks
        raise FileFormatError(
            f"{path} is a damaged gzip file ({error}): download or copy it again."
        ) from error


def read_idx(path: str | os.PathLike[str]) -> Bytes8:
    """Read one IDX file of unsigned bytes, gzip-compressed or not (detected by content).

    Returns a uint8 array of the shape in the header: (n, rows, columns) for images, (n,) for
    labels. The file must hold exactly what its header announces.
    """
    path = Path(path).expanduser()
    content = read_bytes(path)
    # Magic: two zero bytes, the type of the elements, the number of dimensions.
    if len(content) < 4 or content[:2] != b"\0\0" or content[3] == 0:
        raise FileFormatError(
            f"{path} is not an IDX file: it starts with {_describe_start(content)} instead of "
            "00 00 08 and the number of dimensions. Download or copy the file again."
        )
    kind, dimensions = content[2], content[3]
    if kind != _UINT8:
        found = _OTHER_TYPES.get(kind, "unknown")
        raise FileFormatError(
            f"{path} holds elements of type 0x{kind:02x} ({found}); only unsigned bytes (0x08) "
            "are read. Convert the images to pixels 0..255 and write them as unsigned bytes."
        )
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise FileFormatError(
            f"{path} is truncated: {len(content)} bytes, its header alone has {start}. "
            "Download or copy the file again."
        )
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    expected, found_bytes = math.prod(shape), len(content) - start
    if found_bytes != expected:
        problem = "is truncated" if found_bytes < expected else "has trailing bytes"
        raise FileFormatError(
            f"{path} {problem}: its header announces {_times(shape)} = {expected} bytes, "
            f"it holds {found_bytes}. Download or copy the file again."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def load_idx(folder: str | os.PathLike[str]) -> Split:
    """Load ``(x_train, y_train, x_test, y_test)`` from a folder with the four MNIST files.

    The files are ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``,
    ``t10k-images-idx3-ubyte`` and ``t10k-labels-idx1-ubyte``; each may end in ``.gz``, and a dot
    before ``idx`` is accepted too. x: float32 (n, rows·columns) in [0, 1]; y: int64 (n,).
    """
    return read_idx_folder(folder).scaled()


def read_idx_folder(folder: str | os.PathLike[str]) -> RawSplit:
    """Read the four files of a folder as bytes and check that they belong together."""
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise InputError(f"{folder} {what}: give a folder with the four IDX files of the data set.")
    images_train, labels_train = _read_part(folder, "train")
    images_test, labels_test = _read_part(folder, "t10k")
    if images_train.shape[1:] != images_test.shape[1:]:
        raise FileFormatError(
            f"{folder}: training images have {_times(images_train.shape[1:])} pixels, test images "
            f"{_times(images_test.shape[1:])}. Take both from one data set."
        )
    return RawSplit(images_train, labels_train, images_test, labels_test)


def has_idx_files(folder: Path) -> bool:
    """Whether the folder holds at least one of the four usual files."""
    parts = [(part, what) for part in ("train", "t10k") for what in ("images", "labels")]
    return any(_find(folder, part, what) is not None for part, what in parts)


def _read_part(folder: Path, part: str) -> tuple[Bytes8, Bytes8]:
    """Images (n, rows, columns) and labels (n,) of the part ``train`` or ``t10k``."""
    images = _read_kind(folder, part, "images")
    labels = _read_kind(folder, part, "labels")
    if len(images) != len(labels):
        raise FileFormatError(
            f"{folder}: {_name(part, 'images')} holds {len(images)} images but "
            f"{_name(part, 'labels')} holds {len(labels)} labels. Take both from one data set."
        )
    if len(images) == 0:
        raise FileFormatError(
            f"{folder}: {_name(part, 'images')} holds no images. Download or copy it again."
        )
    return images, labels


def _read_kind(folder: Path, part: str, what: str) -> Bytes8:
    path = _find(folder, part, what)
    if path is None:
        raise InputError(
            f"{folder} has no file {_name(part, what)} (or {_name(part, what)}.gz). "
            "Put the four IDX files of the data set there, or give the folder that has them."
        )
    array = read_idx(path)
    expected = 3 if what == "images" else 1
    if array.ndim != expected:
        raise FileFormatError(
            f"{path} has {array.ndim} dimension(s); {what} have {expected}. "
            "Check that images and labels are not exchanged, or download the file again."
        )
    return array


def _find(folder: Path, part: str, what: str) -> Path | None:
    """The file under any of its usual names; not compressed first, as it loads faster."""
    name = _name(part, what)
    dotted = name.replace("-idx", ".idx")
    candidates = (folder / (stem + end) for end in ("", ".gz") for stem in (name, dotted))
    return next((path for path in candidates if path.is_file()), None)


def _name(part: str, what: str) -> str:
    return f"{part}-{what}-idx{3 if what == 'images' else 1}-ubyte"


def _times(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


def _describe_start(content: bytes) -> str:
    """The first bytes, and what they usually mean."""
    if not content:
        return "nothing (the file is empty)"
    meaning = ""
    if content.startswith(b"PK"):
        meaning = " (a zip archive: unpack it first)"
    elif content.lstrip().startswith(b"<"):
        meaning = " (a web page, not the data)"
    return content[:4].hex(" ") + meaning
