"""Agreement with the theory. Oracles: drawn samples, of which the true means are known, and for one
quantity the t test of scipy."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from fermibose_paper.instances import RARE, chance, two_sigma


def test_two_sigma_is_as_rare_for_few_instances_as_two_deviations_of_a_gaussian():
    drawn = np.random.default_rng(0).standard_normal((200_000, 3))
    off = np.abs(drawn.mean(1)) / (drawn.std(1, ddof=1) / 3**0.5)
    assert (off > two_sigma(3)).mean() == pytest.approx(0.0455, abs=0.002)
    assert pytest.approx(0.0455, abs=1e-5) == RARE
    assert two_sigma(10**6) == pytest.approx(2, abs=1e-4)


def test_the_chance_of_true_means_is_uniform_whatever_the_correlation():
    rng = np.random.default_rng(1)
    mixing, means = rng.standard_normal((3, 3)), np.array([5.0, -1.0, 0.2])
    found = [chance(means + rng.standard_normal((8, 3)) @ mixing, means) for _ in range(4000)]
    for level in (0.05, 0.3, 0.7):
        assert np.mean(np.array(found) < level) == pytest.approx(level, abs=0.025)


def test_one_quantity_is_students_test():
    values = np.random.default_rng(2).standard_normal(9) + 0.5
    assert chance(values[:, None], [0.0]) == pytest.approx(ttest_1samp(values, 0.0).pvalue)


def test_a_direction_that_hardly_varies_counts_more_than_one_that_does():
    rng = np.random.default_rng(3)
    common = rng.standard_normal(20)
    sample = np.stack([common, common + 0.01 * rng.standard_normal(20)], 1)
    along, across = chance(sample, [0.3, 0.3]), chance(sample, [0.3, 0.2])
    assert along > 0.02
    assert across < 1e-10


def test_nothing_is_said_of_few_instances_or_of_quantities_that_are_not_independent():
    rng = np.random.default_rng(4)
    assert chance(rng.standard_normal((4, 3)), [0.0] * 3) is None
    assert chance(rng.standard_normal((5, 3)), [0.0] * 3) is not None
    assert chance(np.repeat(rng.standard_normal((9, 1)), 2, axis=1), [0.0, 0.0]) is None
    assert chance([], [0.0]) is None
