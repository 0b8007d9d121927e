"""AMP, sampling and ground states of all pairs. Oracles: closed forms, quadrature, finite
differences, each other, and the replica theory by plain iteration (all_pairs_reference)."""

import math

import numpy as np
import pytest
from all_pairs_reference import GAUSS, finite_temperature, pair_energy, zero_temperature
from all_pairs_reference import V as U

from fermibose.cavity import (
    Instance,
    Samples,
    amp,
    belief_propagation,
    ground_state,
    hmc,
    minima,
    sample_instance,
)
from fermibose.cavity.exhaustive import ExhaustiveAmp, SampleChannel
from fermibose.errors import InputError
from fermibose.theory import Problem


def everyone(samples, **options):
    return Problem(samples=samples, pairing="all", **options)


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


def test_a_field_may_be_moved_by_many_widths():
    """In h = z²/2 everything is Gaussian: here the mean moves by nine widths."""
    problem = everyone(1.0, beta=100.0)
    data = sample_instance(problem, 4, seed=0).train
    channel = SampleChannel(problem, data)
    h = (channel.step * (np.arange(channel.nodes) - channel.nodes // 2)) ** 2 / 2
    omega, V = np.array([3.0, -3.0, 0.1, 0.0]), np.array([0.09, 0.09, 0.05, 0.01])
    found = channel.tilt(omega, V, np.stack([h, h]), own=None)
    wide = 1 + problem.beta * V
    np.testing.assert_allclose(found.f, -problem.beta * omega / wide, atol=1e-8)
    np.testing.assert_allclose(found.df, -problem.beta / wide, rtol=1e-6)
    log_z = -problem.beta * omega**2 / (2 * wide) - np.log(wide) / 2
    np.testing.assert_allclose(found.log_z, log_z, atol=1e-8)


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


def test_a_potential_that_still_moves_has_not_converged():
    """Where no sample is, a wrong potential moves no weight, but it is mended in the sweep."""
    instance = sample_instance(everyone(1.5, beta=5.0), 10, seed=1)
    messages = ExhaustiveAmp(instance, np.random.default_rng(0).standard_normal(10))
    x = messages.start
    for _ in range(150):
        x = (x + messages.sweep(x)[0]) / 2
    assert messages.sweep(x)[1].change < 1e-8
    x[-3:] += 0.01  # at the last nodes
    assert messages.sweep(x)[1].change == pytest.approx(0.01, rel=1e-3)


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
    assert all(f.converged for f in found)
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


# Refusals


def wiggly(z):
    return np.tanh(z) + 0.1 * z


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
