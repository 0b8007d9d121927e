"""Sampled instances. Oracles: the moments the data must have, counts, equal seeds."""

import math

import numpy as np
import pytest

from fermibose.cavity import Pairs, sample_instance
from fermibose.errors import InputError
from fermibose.theory import Problem


def test_patterns_have_the_mean_and_spread_of_their_cluster():
    problem = Problem(alpha=2.0, delta=0.7, m=1.5, rho=0.3)
    data = sample_instance(problem, 400, seed=3).train
    along = data.y[:, :, None] * data.x  # y x has mean m/N and spread Δ/√N
    error = problem.delta / math.sqrt(400) / math.sqrt(along.size)
    assert abs(along.mean() - problem.m / 400) < 4 * error
    assert along.std() == pytest.approx(
        problem.delta / math.sqrt(400), rel=4 / math.sqrt(along.size)
    )
    bosons = data.same.mean()
    assert abs(bosons - 0.3) < 4 * math.sqrt(0.3 * 0.7 / 800)
    assert abs(data.y[0].mean()) < 4 / math.sqrt(800)
    np.testing.assert_array_equal(data.same, data.y[0] == data.y[1])


def test_exact_counts_in_random_order():
    data = sample_instance(Problem(alpha=1.0, rho=0.3), 50, seed=1, counts="exact").train
    assert data.same.sum() == 15
    assert data.same[:15].sum() < 15


def test_a_seed_is_everything_and_test_pairs_are_new():
    one, again, other = (sample_instance(Problem(), 20, seed=s, test_pairs=7) for s in (5, 5, 6))
    np.testing.assert_array_equal(one.train.x, again.train.x)
    np.testing.assert_array_equal(one.test.x, again.test.x)
    assert np.abs(one.train.x - other.train.x).min() > 0
    assert len(one.train) == 50
    assert len(one.test) == 7
    assert np.abs(one.train.x[:, :7] - one.test.x).min() > 0
    first, second = (one.generator(p).standard_normal() for p in ("start", "walk"))
    assert first != second


def test_fields_and_their_covariance_are_the_sums():
    data = sample_instance(Problem(alpha=1.5), 6, seed=0).train
    rng = np.random.default_rng(0)
    w, v = rng.standard_normal(6), rng.random(6)
    for mu in range(len(data)):
        field, V = np.zeros(2), np.zeros((2, 2))
        for i in range(6):
            field += w[i] * data.x[:, mu, i]
            V += v[i] * np.outer(data.x[:, mu, i], data.x[:, mu, i])
        np.testing.assert_allclose(data.fields(w)[:, mu], field)
        np.testing.assert_allclose(data.field_covariance(v)[mu], V)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n": 0}, "n must be a whole number of at least 1"),
        ({"n": 2.5}, "n must be a whole number"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"counts": "some"}, "counts must be 'random' or 'exact'"),
        ({"problem": 3}, "needs a fermibose.theory.Problem"),
        ({"problem": Problem(alpha=0.01)}, "leaves no training pair at n = 10: use n >= 51"),
    ],
)
def test_impossible_instances_are_refused(arguments, says):
    arguments = {"problem": Problem(), "n": 10} | arguments
    with pytest.raises(InputError, match=says):
        sample_instance(**arguments)


def test_broken_pairs_are_refused():
    x, y = np.zeros((2, 3, 4)), np.ones((2, 3), int)
    with pytest.raises(InputError, match="NaN"):
        Pairs(x * np.nan, y)
    with pytest.raises(InputError, match="shape"):
        Pairs(x[0], y)
    with pytest.raises(InputError, match="-1 or 1"):
        Pairs(x, y * 2)
