"""Samples that meet in many pairs, and their energy. Oracles: counts, loops over all pairs, finite
differences, the disjoint model."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fermibose.cavity import Instance, Pairs, Samples, forces, ground_state, minima, sample_instance
from fermibose.cavity.ground import Landscape, _kinds
from fermibose.errors import InputError
from fermibose.theory import Problem


def everyone(samples, **options):
    return Problem(samples=samples, pairing="all", **options)


def energy_of_pair(problem, same, z1, z2):
    D = float(problem.phi(np.array(z1)) - problem.phi(np.array(z2)))
    gap = problem.d_f - D * D
    return D * D / 2 if same else (gap + math.sqrt(gap**2 + problem.softness)) / 4


# Samples


def test_classes_and_wrong_labels_have_their_fractions():
    problem = everyone(4.0, balance=0.3, mislabelled=0.1, delta=0.7, m=2.0)
    data = sample_instance(problem, 500, seed=2).train
    n = len(data)
    assert n == 2000
    assert abs((data.y == 1).mean() - 0.3) < 4 * math.sqrt(0.21 / n)
    wrong = data.taught != data.y
    for y in (1, -1):
        members = data.y == y
        assert abs(wrong[members].mean() - 0.1) < 4 * math.sqrt(0.09 / members.sum())
    # The pattern is that of the class, not of the label taught.
    mean = (data.y[wrong, None] * data.x[wrong]).sum(1)
    assert abs(mean.mean() - 2.0) < 4 * 0.7 / math.sqrt(wrong.sum())
    assert data.x.std() == pytest.approx(0.7 / math.sqrt(500), rel=0.01)


def test_exact_counts():
    data = sample_instance(
        everyone(2.0, balance=0.3, mislabelled=0.05), 200, seed=1, counts="exact"
    ).train
    assert (data.y == 1).sum() == 120
    wrong = data.taught != data.y
    assert wrong[data.y == 1].sum() == 6
    assert wrong[data.y == -1].sum() == 14
    assert (data.y[:120] == 1).sum() < 120  # in random order


def test_test_pairs_have_correct_labels_and_the_fraction_of_new_pairs():
    problem = everyone(1.0, balance=0.1, mislabelled=0.4)
    test = sample_instance(problem, 50, counts="exact", test_pairs=1000).test
    assert test.same.sum() == 820  # 0.1² + 0.9²
    sums = (test.y[:, :, None] * test.x).sum(2)
    assert abs(sums.mean() - 1) < 4 * 0.5 / math.sqrt(2000)


@pytest.mark.parametrize(("n", "k"), [(20, 1), (20, 10), (31, 2), (200, 7), (31, 14)])
def test_everyone_has_as_many_partners(n, k):
    problem = everyone(1.0)
    one, other = (sample_instance(problem, n, seed=3, partners=p).train for p in (k, None))
    np.testing.assert_array_equal(one.x, other.x)  # the same samples
    met = np.zeros((n, n), int)
    for i, j in one.meetings.T:
        met[i, j] += 1
        met[j, i] += 1
    assert met.max() == 1
    assert np.trace(met) == 0
    np.testing.assert_array_equal(met.sum(0), k)
    assert other.meetings is None


def test_partners_are_drawn_at_random():
    """Of 9 others each is met with probability 3/9."""
    met = np.zeros((10, 10))
    for seed in range(600):
        i, j = sample_instance(
            everyone(1.0), 10, seed=seed, partners=3, test_pairs=1
        ).train.meetings
        met[i, j] += 1
        met[j, i] += 1
    rate = met[~np.eye(10, dtype=bool)] / 600
    assert np.abs(rate - 1 / 3).max() < 4.5 * math.sqrt(2 / 9 / 600)


@pytest.mark.parametrize(
    ("problem", "options", "says"),
    [
        (everyone(1.0), {"partners": 0}, "partners must be a whole number of at least 1"),
        (everyone(1.0), {"partners": 6}, "may have up to 5 partners each, got 6"),
        (everyone(1.1), {"partners": 1}, r"odd number of samples \(11\) cannot have 1 partners"),
        (Problem(), {"partners": 1}, 'partners goes with pairing="all"'),
        (everyone(0.1), {}, "samples = 0.1 leaves no training pair at n = 10: use n >= 16"),
    ],
)
def test_impossible_partners_are_refused(problem, options, says):
    with pytest.raises(InputError, match=says):
        sample_instance(problem, 10, **options)


def test_an_instance_is_trained_as_its_problem_says():
    pairs, samples = sample_instance(Problem(), 10), sample_instance(everyone(1.0), 10)
    with pytest.raises(InputError, match="is not trained with Pairs"):
        replace(samples, train=pairs.train)
    with pytest.raises(InputError, match="is not trained with Samples"):
        replace(pairs, train=samples.train)
    x, y = np.zeros((3, 4)), np.array([1, -1, 1])
    with pytest.raises(InputError, match="two samples or more"):
        Samples(x[:1], y[:1], y[:1])
    with pytest.raises(InputError, match="shape"):
        Samples(x, y, y[:2])
    with pytest.raises(InputError, match="-1 or 1"):
        Samples(x, y, 2 * y)


# Energy and forces


def summed_energy(instance, w):
    """E of one weight vector with loops over the pairs."""
    problem, data = instance.problem, instance.train
    z, n = data.x @ w, len(data)
    if data.meetings is None:
        pairs, weight = [(i, j) for i in range(n) for j in range(i)], 1 / n
    else:
        pairs = list(data.meetings.T)
        weight = n / (2 * len(pairs))
    H = [energy_of_pair(problem, data.taught[i] == data.taught[j], z[i], z[j]) for i, j in pairs]
    return weight * sum(H) + problem.weight_decay / 2 * (w @ w), sum(H) / len(H)


def wiggly(z):
    return np.tanh(z) + 0.1 * z


@pytest.mark.parametrize("partners", [1, 3, None])
@pytest.mark.parametrize(
    "options",
    [{}, {"activation": "half_tanh", "d_f": 0.4}, {"activation": wiggly}, {"mislabelled": 0.2}],
)
def test_energy_is_the_sum_over_pairs_and_the_gradient_its_derivative(options, partners):
    instance = sample_instance(everyone(2.0, **options), 12, seed=0, partners=partners)
    landscape = Landscape(instance)
    w, move = np.random.default_rng(1).standard_normal((2, 12, 3))
    energy, gradient = landscape.energy_and_gradient(w)
    for k in range(3):
        total, mean = summed_energy(instance, w[:, k])
        assert energy[k] == pytest.approx(total, rel=1e-12)
        assert landscape.pair_energy(w)[k] == pytest.approx(mean, rel=1e-10)
    h = 1e-5
    up, down = (landscape.energy_and_gradient(w + s * h * move)[0] for s in (1, -1))
    np.testing.assert_allclose((gradient * move).sum(0), (up - down) / (2 * h), rtol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {}, {"d_f": 3.0, "balance": 0.3}, {"d_f": 6.0}, {"softness": 1.0}, {"softness": 1e-3},
        {"activation": "half_tanh", "d_f": 0.3},
    ],
)  # fmt: skip
def test_the_series_is_the_sum_over_all_pairs(options, monkeypatch):
    """Forces to 1e-5 of the largest, energies far better: errors of h change sign along D."""
    instance = sample_instance(everyone(10.0, **options), 200, seed=0)
    w = 2 * np.random.default_rng(1).standard_normal((200, 2)) + 0.8
    fast = Landscape(instance)
    assert fast._forces.series is not None
    energy, gradient = fast.energy_and_gradient(w)
    move = np.random.default_rng(2).standard_normal((200, 2))
    h = 1e-4
    up, down = (fast.energy_and_gradient(w + s * h * move)[0] for s in (1, -1))
    np.testing.assert_allclose((gradient * move).sum(0), (up - down) / (2 * h), rtol=1e-6)
    monkeypatch.setattr(forces, "_WORTH", 1e9)
    direct = Landscape(instance)
    assert direct._forces.series is None
    expected, slope = direct.energy_and_gradient(w)
    np.testing.assert_allclose(energy, expected, rtol=1e-7)
    np.testing.assert_allclose(gradient, slope, rtol=0, atol=1e-5 * np.abs(slope).max())


def test_a_series_that_would_not_converge_is_not_used():
    assert forces.fitted_series(Problem(softness=1e-6).pair_energy, 2.0) is None


def test_everybody_a_partner_is_all_pairs():
    """With n − 1 partners each the weight is 1/(n−1) instead of 1/n."""
    problem = everyone(1.0, weight_decay=1e-9)
    full = sample_instance(problem, 9, seed=4)
    pairs = np.array([(i, j) for i in range(9) for j in range(i)]).T
    listed = replace(full, train=replace(full.train, meetings=pairs))
    w = np.random.default_rng(0).standard_normal((9, 2))
    (one, g), (other, k) = (Landscape(i).energy_and_gradient(w) for i in (full, listed))
    np.testing.assert_allclose(9 / 8 * one, other)
    np.testing.assert_allclose(9 / 8 * g, k, atol=1e-9)


def test_one_partner_is_the_disjoint_model():
    instance = sample_instance(everyone(3.0, mislabelled=0.1), 10, seed=0, partners=1)
    data = instance.train
    pairs = Pairs(data.x[data.meetings], data.taught[data.meetings])
    disjoint = Instance(Problem(alpha=1.5), pairs, instance.test, 0)
    w = np.random.default_rng(0).standard_normal((10, 2))
    (one, g), (other, k) = (Landscape(i).energy_and_gradient(w) for i in (instance, disjoint))
    np.testing.assert_allclose(one, other)
    np.testing.assert_allclose(g, k)


# Minima


def test_all_pairs_remove_the_glass():
    problem = everyone(2.0, beta=math.inf)
    few, many = (
        minima(sample_instance(problem, 100, seed=0, partners=k), starts=8) for k in (1, None)
    )
    assert few.converged.all()
    assert many.converged.all()
    assert few.distinct == 8
    assert few.aligned < few.energy[0]
    assert few.excess == pytest.approx(few.energy.mean() / few.aligned)
    assert few.excess > 1.3
    assert many.distinct == 1
    assert many.excess == pytest.approx(1, abs=1e-6)
    assert many.accuracy.mean() > few.accuracy.mean() + 0.1
    best = ground_state(many.instance, restarts=1)
    assert many.energy == pytest.approx([best.energy] * 8)
    assert many.aligned == pytest.approx(best.energy)
    np.testing.assert_allclose(many.accuracy, best.accuracy, rtol=1e-4)


def test_minima_are_told_apart():
    """Mirror images are the same minimum only where φ is odd."""
    w = np.random.default_rng(0).standard_normal((2, 50))
    ends = np.stack([w[0], w[1], -w[0] * 1.001, w[1] + 1e-4, 1.1 * w[1]])
    np.testing.assert_array_equal(_kinds(ends, flips=True), [0, 1, 0, 1, 2])
    np.testing.assert_array_equal(_kinds(ends, flips=False), [0, 1, 2, 1, 3])
