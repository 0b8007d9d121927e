"""Images as stored, in bytes: IDX files, the format of MNIST, and what all sources share."""

import gzip
import hashlib
import math
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fermibose import checks
from fermibose.errors import FileFormatError, InputError

Bytes8: TypeAlias = NDArray[np.uint8]
Images: TypeAlias = NDArray[np.float32]
Labels: TypeAlias = NDArray[np.int64]
Split: TypeAlias = tuple[Images, Labels, Images, Labels]

_GZIP_MAGIC = b"\x1f\x8b"
_PIECE = 1 << 20  # bytes read at once
_DIMENSIONS = 64  # of a NumPy array, at most
# Bytes announced that are taken on trust, and beyond them how many for a byte of the file: the
# images of MNIST have 4.7, blank ones a thousand.
_TRUST, _RATIO = 1 << 26, 200

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


@contextmanager
def opened(path: Path) -> Iterator[BufferedIOBase]:
    """The content of a file to read from, decompressed if it (not its name) says gzip."""
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise InputError(f"{path} {what}: check the path.")
    with path.open("rb") as file:
        zipped = file.read(2) == _GZIP_MAGIC
        file.seek(0)
        if not zipped:
            yield file
            return
        try:
            with gzip.open(file) as content:
                yield content
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:  # cut off, checksum, bad blocks
            raise FileFormatError(
                f"{path} is a damaged gzip file ({error}): download or copy it again."
            ) from error


def read_at_most(content: BufferedIOBase, size: int) -> bytearray:
    """Up to ``size`` bytes; no memory is taken for what is announced but not there."""
    found = bytearray()
    while len(found) < size and (piece := content.read(min(_PIECE, size - len(found)))):
        found += piece
    return found


def read_idx(path: str | os.PathLike[str]) -> Bytes8:
    """Read one IDX file of unsigned bytes, gzip-compressed or not (detected by content).

    Returns a uint8 array of the shape in the header: (n, rows, columns) for images, (n,) for
    labels. The file must hold exactly what its header announces; more is not even decompressed.
    """
    path = Path(path).expanduser()
    with opened(path) as content:
        shape = _read_shape(path, content)
        expected = math.prod(shape)
        size = path.stat().st_size
        if expected > max(_TRUST, _RATIO * size):
            raise FileFormatError(
                f"{path} announces {_times(shape)} = {expected} bytes, but has only {size}: "
                "download or copy the file again, or unpack it with gunzip if it is meant."
            )
        checks.memory(
            f"what {path} announces takes",
            expected * (1 + np.dtype(np.float32).itemsize),  # as bytes, and scaled
            "download or copy it again, or use a smaller set.",
        )
        found = read_at_most(content, expected)
        if len(found) == expected and not content.read(1):
            return np.frombuffer(found, np.uint8).reshape(shape)
    problem, holds = "has trailing bytes", "more"
    if len(found) < expected:
        problem, holds = "is truncated", str(len(found))
    raise FileFormatError(
        f"{path} {problem}: its header announces {_times(shape)} = {expected} bytes, "
        f"it holds {holds}. Download or copy the file again."
    )


def map_idx(path: str | os.PathLike[str]) -> Bytes8:
    """The bytes of an IDX file, mapped into memory and not read: for files larger than that.

    The shape is that of :func:`read_idx`. A compressed file cannot be mapped.
    """
    path = Path(path).expanduser()
    with opened(path) as content:
        if isinstance(content, gzip.GzipFile):
            raise InputError(f"{path} is compressed: unpack it with gunzip, or use read_idx.")
        shape, start = _read_shape(path, content), content.tell()
    size = path.stat().st_size - start
    if size != math.prod(shape) or not size:
        raise FileFormatError(
            f"{path} announces {_times(shape)} = {math.prod(shape)} bytes, it holds {size}. "
            "Download or copy the file again."
        )
    return np.memmap(path, np.uint8, "r", offset=start, shape=shape)


def read_idx_shape(path: Path) -> tuple[int, ...]:
    """The shape in the header of an IDX file; the rest is not read."""
    with opened(path) as content:
        return _read_shape(path, content)


def _read_shape(path: Path, content: BufferedIOBase) -> tuple[int, ...]:
    """The header, up to the first byte of the data, checked."""
    # Magic: two zero bytes, the type of the elements, the number of dimensions.
    magic = bytes(read_at_most(content, 4))
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[3] == 0:
        raise FileFormatError(
            f"{path} is not an IDX file: it starts with {_describe_start(magic)} instead of "
            "00 00 08 and the number of dimensions. Download or copy the file again."
        )
    kind, dimensions = magic[2], magic[3]
    if kind != _UINT8:
        found = _OTHER_TYPES.get(kind, "unknown")
        raise FileFormatError(
            f"{path} holds elements of type 0x{kind:02x} ({found}); only unsigned bytes (0x08) "
            "are read. Convert the images to pixels 0..255 and write them as unsigned bytes."
        )
    sizes = read_at_most(content, 4 * dimensions)
    if len(sizes) < 4 * dimensions:
        raise FileFormatError(
            f"{path} is truncated: {4 + len(sizes)} bytes, its header alone has "
            f"{4 + 4 * dimensions}. Download or copy the file again."
        )
    shape = struct.unpack(f">{dimensions}I", sizes)
    if dimensions > _DIMENSIONS or math.prod(max(size, 1) for size in shape) >= 2**63:
        raise FileFormatError(
            f"{path} announces {_times(shape[:4])} … bytes in {dimensions} dimensions, which no "
            "array holds. Download or copy the file again."
        )
    return shape


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
    paths = [_path(folder, part, what) for what in ("images", "labels")]
    images, labels = (_shape_of(path, n) for path, n in zip(paths, (3, 1), strict=True))
    if images[0] != labels[0]:
        raise FileFormatError(
            f"{folder}: {_name(part, 'images')} holds {images[0]} images but "
            f"{_name(part, 'labels')} holds {labels[0]} labels. Take both from one data set."
        )
    if 0 in images:
        empty = "no images" if not images[0] else f"images of {_times(images[1:])} pixels"
        raise FileFormatError(
            f"{folder}: {_name(part, 'images')} holds {empty}. Download or copy it again."
        )
    return read_idx(paths[0]), read_idx(paths[1])


def _path(folder: Path, part: str, what: str) -> Path:
    path = _find(folder, part, what)
    if path is None:
        raise InputError(
            f"{folder} has no file {_name(part, what)} (or {_name(part, what)}.gz). "
            "Put the four IDX files of the data set there, or give the folder that has them."
        )
    return path


def _shape_of(path: Path, dimensions: int) -> tuple[int, ...]:
    """The shape of images (three dimensions) or labels (one), before any of them is read."""
    shape = read_idx_shape(path)
    if len(shape) != dimensions:
        raise FileFormatError(
            f"{path} has {len(shape)} dimension(s); {'images' if dimensions == 3 else 'labels'} "
            f"have {dimensions}. "
            "Check that images and labels are not exchanged, or download the file again."
        )
    return shape


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
