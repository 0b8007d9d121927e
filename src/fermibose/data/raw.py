"""What all sources share: bytes from a file (gzip or not), pixels to [0, 1], digests of content."""

import gzip
import hashlib
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

# Of the 70,000 images and labels, in the order of the fields of RawSplit.
SHA256 = {
    "mnist": "06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
    "fashion-mnist": "ca3ab2a37f845e1b8ae23cab1b51749a3011ba3bf1d9016176d75cbaabac376f",
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
