"""Gaussian surrogates. Oracle: moments of many draws, against loops over the images."""

from dataclasses import replace

import numpy as np
import pytest

from fermibose.data import Dataset, surrogate
from fermibose.errors import InputError

DRAWS = 40_000


def small():
    """Twelve uneven images of five pixels in two classes, and labels of many test images."""
    rng = np.random.default_rng(1)
    mix = rng.standard_normal((5, 5)) / 4
    x = (rng.random((12, 5)) @ mix + 0.2).astype(np.float32)
    y = np.array([7, 7, 2, 7, 2, 7, 7, 2, 7, 7, 2, 7])
    labels = np.tile([2, 7], DRAWS // 2)
    return Dataset("small", x, y, np.zeros((DRAWS, 5), np.float32), labels, None)


def moments(data, label):
    own = [x.astype(float) for x, y in zip(data.x_train, data.y_train, strict=True) if y == label]
    mean = sum(own) / len(own)
    return mean, sum(np.outer(x - mean, x - mean) for x in own) / len(own)


@pytest.mark.parametrize("label", [2, 7])
def test_second_order_has_the_moments_of_every_class(label):
    data = small()
    mean, covariance = moments(data, label)
    drawn = surrogate(data, order=2, seed=3)
    x = drawn.x_test[drawn.y_test == label].astype(float)
    count, spread = len(x), np.sqrt(np.diag(covariance))
    assert np.all(np.abs(x.mean(0) - mean) < 4 * spread / np.sqrt(count))
    # The error of a covariance of Gaussian draws: √((S_ii S_jj + S_ij²)/n).
    error = np.sqrt((np.outer(spread, spread) ** 2 + covariance**2) / count)
    assert np.all(np.abs(np.cov(x.T) - covariance) < 4 * error)
    # Gaussian: kurtosis 3, to 4 errors √(24/n), along a direction of its own
    z = (x - mean) @ np.array([1.0, -2.0, 0.5, 0.3, 1.0])
    assert np.mean(z**4) / np.mean(z**2) ** 2 == pytest.approx(3, abs=4 * np.sqrt(24 / count))


def test_first_order_has_the_means_and_one_noise_for_all():
    data = small()
    apart = [x - moments(data, y)[0] for x, y in zip(data.x_train, data.y_train, strict=True)]
    noise = np.sqrt(np.mean(np.square(apart)))
    drawn = surrogate(data, order=1, seed=4)
    for label in (2, 7):
        x = drawn.x_test[drawn.y_test == label].astype(float)
        assert np.all(np.abs(x.mean(0) - moments(data, label)[0]) < 4 * noise / np.sqrt(len(x)))
        error = noise**2 * (1 + np.eye(5) * 0.5) / np.sqrt(len(x))
        assert np.all(np.abs(np.cov(x.T) - noise**2 * np.eye(5)) < 4 * error)


def test_labels_stay_and_the_seed_decides():
    data = small()
    a, b, c = (surrogate(data, order=2, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(a.x_train, b.x_train)
    assert np.abs(a.x_train - c.x_train).max() > 0.01
    np.testing.assert_array_equal(a.y_train, data.y_train)
    np.testing.assert_array_equal(a.y_test, data.y_test)
    assert a.x_train.dtype == np.float32
    assert a.name == "small, Gaussian of order 2"


def test_refusals():
    data = small()
    with pytest.raises(InputError, match="order must be 1 or 2, got 3"):
        surrogate(data, order=3)
    with pytest.raises(InputError, match="class 7 has test images but no training images"):
        surrogate(replace(data, y_train=np.full(12, 2)))
