"""IDX files written by hand with struct, and an environment without the user's own settings."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

NAMES = {
    "images_train": "train-images-idx3-ubyte",
    "labels_train": "train-labels-idx1-ubyte",
    "images_test": "t10k-images-idx3-ubyte",
    "labels_test": "t10k-labels-idx1-ubyte",
}


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FERMIBOSE_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("FERMIBOSE_CACHE", str(tmp_path / "cache"))


def pack(array: np.ndarray) -> bytes:
    """An IDX file by the book: 0, 0, 8 (unsigned byte), dimensions, big-endian sizes, bytes."""
    header = struct.pack(">BBBB", 0, 0, 8, array.ndim)
    return header + b"".join(struct.pack(">I", n) for n in array.shape) + bytes(array.ravel())


@pytest.fixture(scope="session")
def idx_bytes() -> Callable[[np.ndarray], bytes]:
    return pack


@pytest.fixture
def small() -> dict[str, np.ndarray]:
    """Six training and four test images of 2 × 3 pixels, every byte told apart."""
    return {
        "images_train": np.arange(36, dtype=np.uint8).reshape(6, 2, 3),
        "labels_train": np.array([1, 0, 1, 0, 0, 1], np.uint8),
        "images_test": np.arange(232, 256, dtype=np.uint8).reshape(4, 2, 3),
        "labels_test": np.array([0, 1, 1, 0], np.uint8),
    }


@pytest.fixture
def write_folder() -> Callable[[Path, dict[str, np.ndarray]], Path]:
    def write(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for field, array in arrays.items():
            (folder / NAMES[field]).write_bytes(pack(array))
        return folder

    return write
