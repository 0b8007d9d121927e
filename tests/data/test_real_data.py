"""The real data. Oracle: the published files themselves, in the folder FERMIBOSE_DATA.

Skipped without that folder; the pinned digests in the other tests come from here.
"""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from fermibose.data import load_dataset, load_idx, load_mnist5k, paper_split, per_class
from fermibose.data.openml import SHA256

ROOT = Path(os.environ.get("FERMIBOSE_DATA") or "no-such-folder")  # before tests clear it
FOLDER = ROOT / "mnist" if (ROOT / "mnist").is_dir() else ROOT

needs_mnist = pytest.mark.skipif(
    not list(FOLDER.glob("train-images*")), reason="FERMIBOSE_DATA does not name MNIST"
)
needs_fashion = pytest.mark.skipif(
    not (ROOT / "fashion-mnist").is_dir(), reason="FERMIBOSE_DATA has no Fashion-MNIST"
)


def digest(x_train, y_train, x_test, y_test):
    pieces = []
    for x, y in ((x_train, y_train), (x_test, y_test)):
        pieces += [np.rint(x * 255).astype(np.uint8).tobytes(), y.astype(np.uint8).tobytes()]
    return hashlib.sha256(b"".join(pieces)).hexdigest()


@needs_mnist
def test_known_facts_about_mnist():
    x_train, y_train, x_test, y_test = load_idx(FOLDER)
    assert y_train[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert y_test[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    # The mean and deviation every MNIST tutorial normalises with.
    assert x_train.mean(dtype=np.float64) == pytest.approx(0.1307, abs=5e-5)
    assert x_train.std(dtype=np.float64) == pytest.approx(0.3081, abs=5e-5)
    assert digest(x_train, y_train, x_test, y_test) == SHA256["mnist"]


@needs_fashion
def test_known_facts_about_fashion_mnist():
    data = load_dataset("fashion-mnist", folder=ROOT)
    assert data.y_train[:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
    assert data.y_test[:10].tolist() == [9, 2, 1, 1, 6, 1, 4, 6, 5, 7]
    assert data.x_train.mean(dtype=np.float64) == pytest.approx(0.2860, abs=5e-5)
    assert data.x_train.std(dtype=np.float64) == pytest.approx(0.3530, abs=5e-5)
    assert digest(data.x_train, data.y_train, data.x_test, data.y_test) == SHA256["fashion-mnist"]


@needs_mnist
def test_bundled_sample_is_the_first_500_training_images_of_each_class():
    x, y, _, _ = load_idx(FOLDER)
    for got, wanted in zip(load_mnist5k(), per_class(x, y, 500), strict=True):
        np.testing.assert_array_equal(got, wanted, strict=True)


@needs_mnist
def test_training_images_are_the_same_bit_for_bit_and_test_images_are_not():
    bundled, published = paper_split(), paper_split(FOLDER)
    assert bundled[0].tobytes() == published[0].tobytes()
    assert bundled[1].tobytes() == published[1].tobytes()
    assert [array.shape for array in published] == [(1000, 784), (1000,), (4000, 784), (4000,)]
    ours, theirs = ({row.tobytes() for row in split[2]} for split in (bundled, published))
    assert not ours & theirs


@needs_mnist
def test_by_name_with_subsets_it_is_the_published_split():
    data = load_dataset("mnist", folder=FOLDER, train_per_class=100, test_per_class=400)
    for got, wanted in zip(
        (data.x_train, data.y_train, data.x_test, data.y_test), paper_split(FOLDER), strict=True
    ):
        np.testing.assert_array_equal(got, wanted, strict=True)
