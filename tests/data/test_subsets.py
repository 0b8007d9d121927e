"""Subsets per class. Oracle: a plain loop over the images with one counter per class."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermibose.data import load_mnist5k, paper_split, per_class, rank_in_class
from fermibose.errors import InputError


def by_hand(y, count, start):
    """Indices of images start … start+count−1 of each class: count as you go, then sort."""
    seen, chosen = Counter(), []
    for i, label in enumerate(y):
        if start <= seen[label] < start + count:
            chosen.append((label, i))
        seen[label] += 1
    return [i for _, i in sorted(chosen)]


labels = st.lists(st.sampled_from([0, 1, 2, 7]), min_size=1, max_size=40)


@given(labels, st.integers(1, 4), st.integers(0, 3))
def test_per_class_is_the_plain_loop(y, count, start):
    y = np.array(y)
    x = 10.0 * np.arange(len(y))[:, None] + np.arange(2)
    smallest, few = min((n, label) for label, n in Counter(y.tolist()).items())
    if smallest < start + count:
        with pytest.raises(InputError, match=rf"class {few} .*{start + count} .*{smallest} are"):
            per_class(x, y, count, start=start)
        return
    expected = by_hand(y.tolist(), count, start)
    x_few, y_few = per_class(x, y, count, start=start)
    np.testing.assert_array_equal(x_few, x[expected], strict=True)
    np.testing.assert_array_equal(y_few, y[expected], strict=True)


@given(labels)
def test_rank_counts_equal_labels_before(y):
    assert rank_in_class(np.array(y)).tolist() == [y[:i].count(label) for i, label in enumerate(y)]


def test_string_labels_and_images_of_any_shape():
    y = np.array(["b", "a", "b", "a"])
    x = np.arange(16).reshape(4, 2, 2)
    x_few, y_few = per_class(x, y, 1, start=1)
    assert y_few.tolist() == ["a", "b"]
    assert x_few.tolist() == [x[3].tolist(), x[2].tolist()]
    x_few[:] = -1
    assert x.min() == 0  # a copy


@pytest.mark.parametrize(
    ("x", "y", "count", "start", "says"),
    [
        (np.zeros((3, 2)), np.zeros(4), 1, 0, r"shape \(3, 2\) and y \(4,\)"),
        (np.zeros((3, 2)), np.zeros((3, 1)), 1, 0, r"y of shape \(n,\)"),
        (np.zeros(()), np.zeros(1), 1, 0, "one label per image"),
        (np.zeros((0, 2)), np.zeros(0), 1, 0, "empty"),
        (np.zeros((3, 2)), np.zeros(3), 0, 0, "count must be a whole number of at least 1, got 0"),
        (np.zeros((3, 2)), np.zeros(3), 1.5, 0, "count must be .* got 1.5"),
        (np.zeros((3, 2)), np.zeros(3), 1, -1, "start must be .* at least 0, got -1"),
    ],
)
def test_what_cannot_be_used_is_refused(x, y, count, start, says):
    with pytest.raises(InputError, match=says):
        per_class(x, y, count, start=start)


def test_bundled_paper_split_by_hand():
    x, y = load_mnist5k()
    x_train, y_train, x_test, y_test = paper_split()
    for got_x, got_y, count, start in ((x_train, y_train, 100, 0), (x_test, y_test, 400, 100)):
        rows = by_hand(y.tolist(), count, start)
        np.testing.assert_array_equal(got_x, x[rows], strict=True)
        np.testing.assert_array_equal(got_y, y[rows], strict=True)
    assert (len(x_train), len(x_test)) == (1000, 4000)


def test_paper_split_of_a_folder_by_hand(tmp_path, write_folder):
    rng = np.random.default_rng(1)
    arrays = {}
    for part, each in (("train", 103), ("test", 402)):
        labels = rng.permutation(np.repeat(np.arange(3, dtype=np.uint8), each))
        arrays["labels_" + part] = labels
        arrays["images_" + part] = rng.integers(0, 256, (len(labels), 2, 2), dtype=np.uint8)
    split = paper_split(write_folder(tmp_path, arrays))
    for part, count, (x, y) in (("train", 100, split[:2]), ("test", 400, split[2:])):
        rows = by_hand(arrays["labels_" + part].tolist(), count, 0)
        pixels = arrays["images_" + part][rows].reshape(-1, 4)
        np.testing.assert_array_equal(x, (pixels / 255).astype(np.float32), strict=True)
        np.testing.assert_array_equal(y, arrays["labels_" + part][rows])


def test_folder_with_too_few_images_for_the_paper(tmp_path, small, write_folder):
    with pytest.raises(InputError, match=r"class 0 .*100 .* 3 are there"):
        paper_split(write_folder(tmp_path, small))
