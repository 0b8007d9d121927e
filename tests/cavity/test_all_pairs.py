"""Instances of all pairs. Oracles: loops over all pairs, quadrature, finite differences, sampling,
and the replica theory by plain iteration (all_pairs_reference)."""

import math
from dataclasses import replace

import numpy as np
import pytest
from all_pairs_reference import GAUSS, finite_temperature, pair_energy, zero_temperature
from all_pairs_reference import V as U

from fermibose.cavity import (
    Instance,
    Pairs,
    Samples,
    amp,
    belief_propagation,
    forces,
    ground_state,
    hmc,
    minima,
    sample_instance,
)
from fermibose.cavity.exhaustive import ExhaustiveAmp, SampleChannel
from fermibose.cavity.ground import Landscape
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


# The channel of a sample and a sweep


def test_densities_are_those_of_quadrature():
    problem = everyone(1.0, beta=30.0, balance=0.4, d_f=1.3)
    data = sample_instance(problem, 8, seed=5).train
    channel, n = SampleChannel(problem, data), len(data)
    rng = np.random.default_rng(0)
    omega, V = 0.8 * rng.standard_normal(n), 0.03 + 0.1 * rng.random(n)
    free = channel.tilt(omega, V, np.zeros((2, channel.nodes)), own=None)
    assert free.phi == pytest.approx([gauss(np.tanh, *a) for a in zip(omega, V, strict=True)])
    tilted = channel.tilt(omega, V, channel.potential(free), np.stack([free.phi, free.phi2]))

    def h(i, z):
        """Mean energy of sample i at z with all others, that feel nothing."""
        total = 0.0
        for j in set(range(n)) - {i}:
            same = data.taught[i] == data.taught[j]
            total += pair_energy(problem, same, z[:, None], omega[j] + math.sqrt(V[j]) * U) @ GAUSS
        return total / n

    for i in (0, 3):
        z = omega[i] + math.sqrt(V[i]) * np.linspace(-9, 9, 721)
        p = np.exp(-((z - omega[i]) ** 2) / (2 * V[i])) / math.sqrt(2 * math.pi * V[i])
        p *= np.exp(-problem.beta * h(i, z)) * (z[1] - z[0])
        Z = p.sum()
        mean = p @ z / Z
        assert tilted.log_z[i] == pytest.approx(math.log(Z), abs=1e-6)
        assert tilted.f[i] == pytest.approx((mean - omega[i]) / V[i], rel=1e-6)
        spread = p @ (z - mean) ** 2 / Z
        assert tilted.df[i] == pytest.approx((spread / V[i] - 1) / V[i], rel=1e-5)
        assert tilted.phi2[i] == pytest.approx(p @ np.tanh(z) ** 2 / Z, rel=1e-6)


def gauss(g, mean, variance):
    return float(g(mean + math.sqrt(variance) * U) @ GAUSS)


def test_a_sweep_is_the_printed_sum():
    """Onsager's term, A, B, AT and the messages, with loops over samples and weights."""
    problem = everyone(1.5, beta=10.0)
    instance = sample_instance(problem, 10, seed=1)
    x, n = instance.train.x, len(instance.train)
    messages = ExhaustiveAmp(instance, np.random.default_rng(0).standard_normal(10))
    first, _ = messages.sweep(messages.start)
    second, found = messages.sweep(first)
    m, v, f = first[:10], first[10:20], first[20 : 20 + n]
    own = first[20 + n : 20 + 3 * n].reshape(2, n)
    V = np.array([sum(v[k] * x[i, k] ** 2 for k in range(10)) for i in range(n)])
    omega = [sum(m[k] * x[i, k] for k in range(10)) - V[i] * f[i] for i in range(n)]
    potential = first[20 + 3 * n :].reshape(2, -1)
    tilted = messages.channel.tilt(np.array(omega), V, potential, own)
    for k in range(10):
        A = -sum(x[i, k] ** 2 * tilted.df[i] for i in range(n))
        B = sum(x[i, k] * tilted.f[i] for i in range(n)) + A * m[k]
        variance = 1 / (problem.beta * problem.weight_decay + A)
        assert second[10 + k] == pytest.approx(variance)
        assert second[k] == pytest.approx(variance * B)
    np.testing.assert_allclose(second[20 : 20 + n], tilted.f)
    np.testing.assert_allclose(second[20 + n : 20 + 2 * n], tilted.phi)
    assert found.at_eigenvalue == pytest.approx(sum((V * tilted.df) ** 2) / 10)
    assert found.change == pytest.approx(
        max(np.abs(second - first)[:20].max(), np.abs(second - first)[20 + 3 * n :].max())
    )


# Fixed points


@pytest.mark.parametrize(
    ("problem", "n"),
    [(everyone(2.0, beta=5.0), 100), (everyone(1.0, beta=30.0, balance=0.3, mislabelled=0.1), 150)],
)
def test_the_slope_of_the_free_energy_is_the_energy(problem, n):
    """d(βf)/dβ = (1/nN) Σ_{i<j}⟨H_ij⟩ + λ_w q/2, the weight of all pairs being (n−1)/2."""
    instance = sample_instance(problem, n, seed=1)
    beta, h = problem.beta, 1e-3 * problem.beta
    found = [amp(instance.at(b), tol=1e-10, max_iterations=900) for b in (beta - h, beta, beta + h)]
    assert all(f.converged for f in found)
    slope = ((beta + h) * found[2].free_energy - (beta - h) * found[0].free_energy) / (2 * h)
    load = (len(instance.train) - 1) / (2 * n)
    energy = load * found[1].training_loss + problem.weight_decay * found[1].q / 2
    assert slope == pytest.approx(energy, rel=1e-5)


def test_two_samples_are_one_pair():
    """n = 2, orthogonal patterns: h_1 = ½⟨H(z, z_2)⟩_2. The pair itself, weak at a small β, is
    then integrated by mean field: exact to first order in β, ln Z off by (β/2)² Var H/2."""
    n, beta, decay = 40, 0.05, 5.0
    x = np.linalg.qr(np.random.default_rng(0).standard_normal((n, 2)))[0].T.copy()
    y = np.array([1, -1])
    samples = Samples(x, y, y)
    problem = everyone(0.05, beta=beta, weight_decay=decay)
    test = sample_instance(Problem(), n, test_pairs=5).test
    found = amp(Instance(problem, samples, test, 0), tol=1e-10)
    s = 1 / math.sqrt(beta * decay)

    H = GAUSS @ pair_energy(problem, False, s * U[:, None], s * U) @ GAUSS
    assert found.training_loss == pytest.approx(H, rel=0.02)
    prior = -math.log(2 * math.pi * s * s) / (2 * beta)
    assert n * (found.free_energy - prior) == pytest.approx(H / 2, rel=0.02)


def compare(rows, expected, names, errors=3.0):
    rows = np.array(rows)
    error = rows.std(0, ddof=1) / math.sqrt(len(rows))
    for k, name in enumerate(names):
        assert error[k] < 0.06 * abs(expected[name]) + 2e-3
        assert abs(rows[:, k].mean() - expected[name]) < errors * error[k], name


@pytest.mark.parametrize(
    ("problem", "n"),
    [
        (everyone(1.0), 300),
        (everyone(3.0, beta=20.0, delta=0.6, d_f=0.6), 150),
        (everyone(2.0, beta=20.0, balance=0.3, mislabelled=0.05), 200),
    ],
)
def test_amp_meets_the_replica_theory(problem, n):
    theory = finite_temperature(problem, step=0.03, reach=6.0, tol=1e-5)
    found = [amp(sample_instance(problem, n, seed=s, counts="exact"), tol=1e-5) for s in range(10)]
    assert all(f.converged for f in found)
    rows = [(abs(f.M), f.q, f.Q, f.training_loss, f.free_energy, f.at_eigenvalue) for f in found]
    compare(rows, theory, ("M", "q", "Q", "energy", "free_energy", "AT"))


@pytest.mark.parametrize(
    "problem",
    [everyone(1.0, beta=math.inf), everyone(3.0, beta=math.inf, mislabelled=0.05, d_f=0.7)],
)
def test_ground_states_meet_the_replica_theory(problem):
    theory = zero_temperature(problem, step=0.02, tol=1e-5)
    found = [
        ground_state(sample_instance(problem, 300, seed=s, counts="exact"), restarts=1)
        for s in range(16)
    ]
    rows = [(abs(f.M), f.q, f.training_loss, f.energy) for f in found]
    compare(rows, theory, ("M", "q", "energy", "free_energy"))


def test_sampling_meets_amp():
    """On one instance: what AMP leaves out is of order 1/N."""
    instance = sample_instance(everyone(2.0, beta=5.0), 80, seed=0)
    walk = hmc(instance, trajectories=250, warm_up=120)
    found = amp(instance)
    assert walk.converged
    assert abs(walk.M - abs(found.M)) < 4 * walk.errors["M"] + 1 / 80
    assert abs(walk.q - found.q) < 4 * walk.errors["q"] + 1 / 80
    assert walk.training_loss == pytest.approx(found.training_loss, rel=0.1)


def test_energy_of_new_pairs():
    instance = sample_instance(everyone(1.0, beta=10.0), 200, seed=0, test_pairs=1500)
    found = amp(instance)
    H = found.generalization_loss
    assert abs(found.test_loss - H) < 4 * 0.2 / math.sqrt(1500)


# Minima


def test_all_pairs_remove_the_glass():
    problem = everyone(2.0, beta=math.inf)
    few, many = (
        minima(sample_instance(problem, 100, seed=0, partners=k), starts=8) for k in (1, None)
    )
    assert few.converged.all()
    assert many.converged.all()
    assert few.distinct == 8
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
    from fermibose.cavity.ground import _kinds

    w = np.random.default_rng(0).standard_normal((2, 50))
    ends = np.stack([w[0], w[1], -w[0] * 1.001, w[1] + 1e-4, 1.1 * w[1]])
    np.testing.assert_array_equal(_kinds(ends, flips=True), [0, 1, 0, 1, 2])
    np.testing.assert_array_equal(_kinds(ends, flips=False), [0, 1, 2, 1, 3])


# Refusals


def test_what_no_algorithm_can_do_is_refused():
    full, few = (sample_instance(everyone(1.0), 10, partners=k) for k in (None, 2))
    with pytest.raises(InputError, match=r"amp\(\) is the algorithm for all pairs"):
        belief_propagation(full)
    with pytest.raises(InputError, match="with a few partners each, use hmc"):
        amp(few)
    with pytest.raises(InputError, match="starts must be a whole number"):
        minima(full, starts=0)
    sharp = sample_instance(everyone(1.0, activation=steep, beta=1e5), 10)
    with pytest.raises(InputError, match="use a smaller beta or steepness"):
        amp(sharp)


def steep(z):
    return np.tanh(20 * z)


def test_an_activation_that_never_saturates():
    """Fields far out are refused, others are integrated as with one that does."""
    instance = sample_instance(everyone(1.0, activation=wiggly, beta=5.0), 60, seed=0)
    found = amp(instance)
    assert found.converged
    walk = hmc(instance, trajectories=200, warm_up=100)
    assert abs(walk.q - found.q) < 4 * walk.errors["q"] + 2 / 60
    with pytest.raises(InputError, match="activation that does not saturate"):
        amp(instance, start=np.full(60, 100.0))
