"""OpenML download and cache. Oracle: a fake fetch that serves known bytes the way OpenML does
(numbers as float64 or int64, labels as strings) and counts how often it is asked."""

import hashlib
import sys
import urllib.error
from dataclasses import replace
from http.client import IncompleteRead
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn.datasets

from fermibose import files
from fermibose.data import load_openml, openml
from fermibose.errors import FermiboseError, FileFormatError, InputError

TRAIN, TEST = 6, 4
PIXELS = np.random.default_rng(3).integers(0, 256, (TRAIN + TEST, 4), dtype=np.uint8)
LABELS = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3], np.uint8)
SHA256 = hashlib.sha256(
    bytes(PIXELS[:TRAIN]) + bytes(LABELS[:TRAIN]) + bytes(PIXELS[TRAIN:]) + bytes(LABELS[TRAIN:])
).hexdigest()


class FakeOpenML:
    def __init__(self):
        self.calls = []
        self.error = None
        self.data = PIXELS.astype(np.float64)
        self.target = np.array([str(label) for label in LABELS], dtype=object)

    def __call__(self, name, *, version, as_frame, cache):
        self.calls.append((name, version))
        if self.error:
            raise self.error
        return SimpleNamespace(data=self.data, target=self.target)


@pytest.fixture
def fake(monkeypatch):
    fake = FakeOpenML()
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fake)
    for name in ("mnist", "fashion-mnist"):
        source = replace(openml._SOURCES[name], sha256=SHA256, train=TRAIN, test=TEST, side=2)
        monkeypatch.setitem(openml._SOURCES, name, source)
    return fake


@pytest.fixture
def cached(fake, tmp_path):
    """A good cache file of mnist, already there."""
    load_openml("mnist")
    fake.calls.clear()
    return tmp_path / "cache" / "mnist.safetensors"


def assert_loaded(split):
    x_train, y_train, x_test, y_test = split
    scaled = (PIXELS / 255).astype(np.float32)
    np.testing.assert_array_equal(x_train, scaled[:TRAIN], strict=True)
    np.testing.assert_array_equal(x_test, scaled[TRAIN:], strict=True)
    np.testing.assert_array_equal(y_train, LABELS[:TRAIN].astype(np.int64), strict=True)
    np.testing.assert_array_equal(y_test, LABELS[TRAIN:].astype(np.int64), strict=True)


@pytest.mark.parametrize(
    ("name", "asked"), [("mnist", ("mnist_784", 1)), ("fashion-mnist", ("Fashion-MNIST", 1))]
)
def test_downloads_once_then_reads_the_cache(fake, name, asked):
    assert_loaded(load_openml(name))
    fake.error = urllib.error.URLError("no network")
    assert_loaded(load_openml(name))
    assert fake.calls == [asked]


def test_real_sources_are_the_full_sets():
    for source in openml._SOURCES.values():
        assert (source.train, source.test, source.side) == (60_000, 10_000, 28)


def test_integers_are_accepted_too(fake):
    fake.data = PIXELS.astype(np.int64)
    assert_loaded(load_openml("fashion-mnist"))


def test_cache_folder_can_be_chosen_and_holds_one_file(fake, tmp_path):
    load_openml("mnist", cache_folder=tmp_path / "here")
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["mnist.safetensors"]
    assert not (tmp_path / "cache").exists()


def flip(position):
    def damage(content):
        changed = bytearray(content)
        changed[position] ^= 1
        return bytes(changed)

    return damage


DAMAGES = {
    "a pixel or label": flip(-1),
    "first byte of the header's length": flip(0),
    "truncated": lambda content: content[:-10],
    "empty": lambda content: b"",
    "foreign": lambda content: b"<html>not this</html>" * 20,
    "shape": lambda content: content.replace(b"[6,2,2]", b"[6,4,1]"),
    "type": lambda content: content.replace(b'"U8"', b'"I8"'),
    "checksum": lambda content: content.replace(SHA256[:8].encode(), b"00000000"),
    "no checksum": lambda content: content.replace(b'"sha256"', b'"sha257"'),
    "field": lambda content: content.replace(b"labels_test", b"labels_tent"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_cache_is_reported_and_downloaded_again(fake, cached, kind):
    good = cached.read_bytes()
    cached.write_bytes(DAMAGES[kind](good))
    assert cached.read_bytes() != good
    with pytest.warns(UserWarning, match=r"mnist.safetensors is damaged .*again"):
        assert_loaded(load_openml("mnist"))
    assert fake.calls == [("mnist_784", 1)]
    assert cached.read_bytes() == good


def test_damaged_cache_without_network_says_both(fake, cached):
    cached.write_bytes(cached.read_bytes()[:-1])
    fake.error = urllib.error.URLError("no network")
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(FermiboseError, match=r"is damaged .*could not be downloaded .*no network"),
    ):
        load_openml("mnist")


def test_cache_of_other_content_is_not_mnist(fake, cached, monkeypatch):
    """A consistent file whose content is not MNIST: the digest it carries does not save it."""
    fake.target = fake.target[::-1]
    swapped = hashlib.sha256(
        bytes(PIXELS[:TRAIN]) + bytes(LABELS[:3:-1]) + bytes(PIXELS[TRAIN:]) + bytes(LABELS[3::-1])
    )
    other = replace(openml._SOURCES["fashion-mnist"], sha256=swapped.hexdigest())
    monkeypatch.setitem(openml._SOURCES, "fashion-mnist", other)
    load_openml("fashion-mnist")
    cached.write_bytes((cached.parent / "fashion-mnist.safetensors").read_bytes())
    fake.target = fake.target[::-1]
    with pytest.warns(UserWarning, match="does not match"):
        assert_loaded(load_openml("mnist"))


@pytest.mark.parametrize(
    "error",
    [
        urllib.error.URLError("no network"),
        urllib.error.HTTPError("address", 503, "unavailable", None, None),
        TimeoutError(),
        IncompleteRead(b""),
        EOFError("ended early"),
        ValueError("md5 checksum does not match"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_network_says_what_to_do(fake, error, tmp_path):
    fake.error = error
    with pytest.raises(FermiboseError) as caught:
        load_openml("fashion-mnist")
    for word in ("fashion-mnist could not be downloaded", "t10k-labels-idx1-ubyte.gz",
                 "FERMIBOSE_DATA", str(error) or type(error).__name__):  # fmt: skip
        assert word in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_retry_warnings_of_scikit_learn_stay_silent(fake, monkeypatch):
    import warnings

    def noisy(*args, **kwargs):
        warnings.warn("A network error occurred while downloading. Retrying...", stacklevel=1)
        return fake(*args, **kwargs)

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", noisy)
    assert_loaded(load_openml("mnist"))  # warnings are errors in these tests


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("data", PIXELS[:-1], r"pixels for fashion-mnist: shape \(9, 4\) instead of \(10, 4\)"),
        ("data", PIXELS + 0.5, "whole numbers"),
        ("data", np.full((10, 4), 256), "whole numbers"),
        ("data", PIXELS * np.nan, "whole numbers"),
        ("target", LABELS[:-1], r"labels for fashion-mnist: shape \(9,\)"),
        ("target", np.array(["shoe"] * 10, dtype=object), "shoe"),
        ("target", LABELS - 10.0, "whole numbers"),
    ],
)
def test_unexpected_content_is_refused_and_not_cached(fake, tmp_path, field, value, says):
    setattr(fake, field, value)
    with pytest.raises(FileFormatError, match=says):
        load_openml("fashion-mnist")
    assert not (tmp_path / "cache").exists()


def test_what_is_not_mnist_is_refused_and_not_cached(fake, tmp_path):
    fake.data = fake.data.copy()
    fake.data[0, 0] = 255 - fake.data[0, 0]
    with pytest.raises(FileFormatError, match=rf"is not mnist.*instead of {SHA256[:16]}"):
        load_openml("mnist")
    assert not (tmp_path / "cache").exists()


def test_cache_that_cannot_be_written_costs_only_a_warning(fake, tmp_path):
    (tmp_path / "cache").write_bytes(b"a file where the folder should be")
    with pytest.warns(UserWarning, match=r"could not be kept .*FERMIBOSE_CACHE"):
        assert_loaded(load_openml("mnist"))


def test_interrupted_write_leaves_the_old_file_and_no_litter(fake, cached, monkeypatch):
    old = b"old content"
    cached.write_bytes(old)

    def interrupted(draft, path):
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "replace", interrupted)
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(KeyboardInterrupt):
        load_openml("mnist")
    assert cached.read_bytes() == old
    assert list(cached.parent.iterdir()) == [cached]


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be replaced there")
def test_file_is_replaced_whole_under_a_reader(fake, cached):
    old = b"old content"
    cached.write_bytes(old)
    with cached.open("rb") as reader:
        with pytest.warns(UserWarning, match="damaged"):
            load_openml("mnist")
        assert reader.read() == old  # never half of the new file
    assert len(cached.read_bytes()) > len(old)


def test_unknown_name(fake):
    with pytest.raises(InputError, match=r"'cifar'.*\"mnist\" or \"fashion-mnist\""):
        load_openml("cifar")
    assert fake.calls == []


@pytest.mark.parametrize(
    ("platform", "settings", "folder"),
    [
        ("linux", {"FERMIBOSE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ("linux", {"XDG_CACHE_HOME": "/b"}, "/b/fermibose"),
        ("linux", {"FERMIBOSE_CACHE": ""}, "/home/me/.cache/fermibose"),
        ("darwin", {}, "/home/me/Library/Caches/fermibose"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/fermibose/cache"),
    ],
)
def test_where_the_cache_is(monkeypatch, platform, settings, folder):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    monkeypatch.delenv("FERMIBOSE_CACHE")
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert openml.default_cache_folder() == Path(folder)
