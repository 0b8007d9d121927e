"""Data sets by name. Oracles: the loaders underneath (tested on their own), hand-packed IDX
folders, and hand-counted splits; the checksum is recomputed with hashlib."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from fermibose.data import Dataset, datasets, load_dataset, load_digits, load_idx, paper_split
from fermibose.data.idx import RawSplit
from fermibose.data.openml import SHA256
from fermibose.errors import FermiboseError, InputError


def arrays(data):
    return data.x_train, data.y_train, data.x_test, data.y_test


def check(data, expected):
    for got, wanted in zip(arrays(data), expected, strict=True):
        np.testing.assert_array_equal(got, wanted, strict=True)


@pytest.fixture
def no_download(monkeypatch):
    """OpenML, replaced by an error that says it was reached."""

    def reached(name):
        raise FermiboseError(f"OpenML was asked for {name}")

    monkeypatch.setattr(datasets, "read_openml", reached)


def test_mnist5k_is_the_paper_split():
    data = load_dataset("mnist5k")
    check(data, paper_split())
    assert (data.name, data.image_shape) == ("mnist5k", (28, 28))


def test_digits_every_fifth_of_each_class_is_for_testing():
    x, y = load_digits()
    seen, train, test = [0] * 10, [], []
    for i, label in enumerate(y):
        seen[label] += 1
        (test if seen[label] % 5 == 0 else train).append(i)
    data = load_dataset("digits")
    check(data, (x[train], y[train], x[test], y[test]))
    assert (data.name, data.image_shape) == ("digits", (8, 8))


def test_folder_by_path(tmp_path, small, write_folder):
    folder = write_folder(tmp_path / "my letters", small)
    data = load_dataset(folder)
    check(data, load_idx(folder))
    assert (data.name, data.image_shape) == ("my letters", (2, 3))
    check(load_dataset(str(folder)), load_idx(folder))


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_order_of_places(tmp_path, small, write_folder, monkeypatch, no_download, name):
    """The option wins over the environment, a subfolder over its folder, and all over OpenML."""

    def marked(folder, mark):
        return write_folder(folder, small | {"labels_test": np.full(4, mark, np.uint8)})

    with pytest.raises(FermiboseError, match=f"OpenML was asked for {name}"):
        load_dataset(name)
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.setenv("FERMIBOSE_DATA", str(root))
    with pytest.raises(FermiboseError, match="OpenML was asked"):
        load_dataset(name)
    marked(root, 1)
    data = load_dataset(name)
    assert (data.y_test.tolist(), data.name, data.image_shape) == ([1] * 4, name, (2, 3))
    marked(root / name, 2)
    assert load_dataset(name).y_test.tolist() == [2] * 4
    option = marked(tmp_path / "option", 3)
    assert load_dataset(name, folder=option).y_test.tolist() == [3] * 4
    marked(option / name, 4)
    assert load_dataset(name, folder=option).y_test.tolist() == [4] * 4


def test_incomplete_folder_is_an_error_not_a_download(tmp_path, small, monkeypatch, write_folder,
                                                      no_download):  # fmt: skip
    del small["labels_test"]
    monkeypatch.setenv("FERMIBOSE_DATA", str(write_folder(tmp_path, small)))
    with pytest.raises(InputError, match="t10k-labels-idx1-ubyte"):
        load_dataset("mnist")


def test_wrong_fermibose_data_is_an_error_not_a_download(tmp_path, monkeypatch, no_download):
    monkeypatch.setenv("FERMIBOSE_DATA", str(tmp_path / "typo"))
    with pytest.raises(InputError, match=r"FERMIBOSE_DATA is .*typo.* not a folder"):
        load_dataset("mnist")
    monkeypatch.setenv("FERMIBOSE_DATA", "")
    with pytest.raises(FermiboseError, match="OpenML was asked"):
        load_dataset("mnist")


def test_openml_is_used_as_it_comes(small, monkeypatch):
    monkeypatch.setattr(datasets, "read_openml", lambda name: RawSplit(**small))
    data = load_dataset("fashion-mnist")
    assert data.name == "fashion-mnist"
    check(data, RawSplit(**small).scaled())


def test_a_full_set_must_be_what_its_name_says(tmp_path, small, write_folder, monkeypatch):
    """With 6 and 4 images taken as the full size, and the digests of two small sets."""
    folder = write_folder(tmp_path / "a", small)
    other = write_folder(tmp_path / "b", small | {"labels_test": np.zeros(4, np.uint8)})
    fields = ("images_train", "labels_train", "images_test")
    kept = b"".join(bytes(small[field]) for field in fields)
    for name, labels in (("mnist", small["labels_test"]), ("fashion-mnist", bytes(4))):
        monkeypatch.setitem(SHA256, name, hashlib.sha256(kept + bytes(labels)).hexdigest())
    monkeypatch.setattr(datasets, "_MNIST_SIZES", (6, 4))
    check(load_dataset("mnist", folder=folder), load_idx(folder))
    check(load_dataset("fashion-mnist", folder=other), load_idx(other))
    with pytest.raises(InputError, match=r"'mnist' was asked for, but .* are others"):
        load_dataset("mnist", folder=other)
    with pytest.raises(InputError, match=r"'fashion-mnist' was asked for, but .* are others"):
        load_dataset("fashion-mnist", folder=folder)
    check(load_dataset(other), load_idx(other))  # by its path, whatever it is


@pytest.mark.parametrize("name", ["mnits", "", "no/such/folder"])
def test_unknown_name_lists_the_choices(name):
    with pytest.raises(InputError) as caught:
        load_dataset(name)
    for choice in (repr(name), '"mnist5k"', '"digits"', '"mnist"', '"fashion-mnist"', "folder"):
        assert choice in str(caught.value)


def test_folder_with_a_bundled_set_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"goes with \"mnist\", \"fashion-mnist\", not .*digits"):
        load_dataset("digits", folder=tmp_path)


def test_per_class_of_train_and_test(tmp_path, small, write_folder):
    folder = write_folder(tmp_path, small)
    x_train, _, x_test, _ = load_idx(folder)
    data = load_dataset(folder, train_per_class=2)
    # labels 1 0 1 0 0 1: the first two zeros are images 1 and 3, the first two ones 0 and 2
    check(data, (x_train[[1, 3, 0, 2]], np.array([0, 0, 1, 1]), x_test, np.array([0, 1, 1, 0])))
    data = load_dataset(folder, test_per_class=1)
    check(data, (x_train, np.array([1, 0, 1, 0, 0, 1]), x_test[[0, 1]], np.array([0, 1])))
    with pytest.raises(InputError, match="class 0 "):
        load_dataset(folder, test_per_class=3)


def test_checksum_by_hand_and_of_content_only(small):
    data = Dataset("a", *RawSplit(**small).scaled(), image_shape=(2, 3))
    whole = hashlib.sha256()
    for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test)):
        inner = hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest()
        whole.update((str(x.shape) + inner).encode())
    assert data.checksum == whole.hexdigest()[:16]
    assert Dataset("b", *arrays(data), image_shape=None).checksum == data.checksum
    for i in range(4):
        changed = [array.copy() for array in arrays(data)]
        changed[i].flat[-1] = 77
        assert Dataset("a", *changed, image_shape=(2, 3)).checksum != data.checksum
    wide = data.x_train.reshape(3, 12)
    reshaped = Dataset("a", wide, data.y_train, data.x_test, data.y_test, image_shape=(2, 3))
    assert reshaped.checksum != data.checksum


def test_checksums_that_published_results_carry():
    """Pinned: a change of order, scaling or split must be seen."""
    assert load_dataset("mnist5k").checksum == "d58c476654c3ca3c"
    assert load_dataset("digits").checksum == "16769ff44400068b"


def test_import_is_light():
    code = (
        "import sys, fermibose.data; "
        "print(sorted({'sklearn', 'mlxtend', 'torch', 'pandas', 'scipy'} & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
