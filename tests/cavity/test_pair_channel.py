"""The channel of one pair. Oracles: Gauss-Legendre panels in the unturned plane with the energy as
printed, finite differences of ln Z, the theory's separable channel."""

import math

import numpy as np
import pytest
from scipy.special import roots_legendre

from fermibose.cavity.channel import DivergenceError, PairChannel
from fermibose.theory import Problem
from fermibose.theory.channel import Axis, GaussianChannel, pair_table

SAME = np.array([True, True, True, False, False, False, False])
OMEGA = np.array(
    [(0.3, 0.9), (1.4, -0.2), (-2.0, -1.1), (0.31, 0.3), (0.8, -0.9), (1.9, 1.2), (-0.2, 0.5)]
)


def covariances(s, correlation=0.3):
    """One matrix per pair: different widths, correlated."""
    widths = s * np.linspace(0.8, 1.5, SAME.size)
    a = np.array([[1.0, correlation], [correlation, 0.8]])
    b = np.array([[0.9, -correlation], [-correlation, 1.2]])
    return np.stack([(a if i % 2 else b) * w**2 for i, w in enumerate(widths)])


def brute(problem, omega, V, same):
    """ln Z, mean and covariance of z, and ⟨H⟩ from 12-point panels, H as printed."""
    x, w = roots_legendre(12)
    edges = np.linspace(-14, 14, 117)
    half = (edges[1:] - edges[:-1])[:, None] / 2
    u = ((edges[1:] + edges[:-1])[:, None] / 2 + half * x).ravel()
    weight = (half * w).ravel()
    root = np.linalg.cholesky(V)
    z1 = omega[0] + root[0, 0] * u[:, None] + 0 * u
    z2 = omega[1] + root[1, 0] * u[:, None] + root[1, 1] * u
    d2 = (np.tanh(z1) - np.tanh(z2)) ** 2
    gap = problem.d_f - d2
    H = d2 / 2 if same else (gap + np.sqrt(gap**2 + problem.softness)) / 4
    g = np.outer(weight * np.exp(-(u**2) / 2), weight * np.exp(-(u**2) / 2)) / (2 * math.pi)
    g *= np.exp(-problem.beta * H)
    Z = g.sum()
    z = np.stack([z1, z2])
    mean = np.array([(g * c).sum() for c in z]) / Z
    second = np.array([[(g * a * b).sum() for a in z] for b in z]) / Z
    return math.log(Z), mean, second - np.outer(mean, mean), (g * H).sum() / Z


@pytest.mark.parametrize(
    ("problem", "s"),
    [
        (Problem(), 0.2),
        (Problem(beta=5.0), 0.8),
        (Problem(beta=150.0, d_f=2.0), 0.12),
        (Problem(beta=20.0, d_f=0.3, softness=0.05), 0.4),
    ],
    ids=["default", "warm", "cold", "soft"],
)
def test_moments_are_the_integrals(problem, s):
    V = covariances(s)
    found = PairChannel(problem).moments(OMEGA, V, SAME)
    for i, same in enumerate(SAME):
        log_z, mean, covariance, energy = brute(problem, OMEGA[i], V[i], same)
        inverse = np.linalg.inv(V[i])
        assert found.log_z[i] == pytest.approx(log_z, abs=1e-6)
        assert found.energy[i] == pytest.approx(energy, abs=1e-6)
        # In units of the field's width, as every error of the channel.
        np.testing.assert_allclose(s * found.f[i], s * inverse @ (mean - OMEGA[i]), atol=1e-6)
        expected = inverse @ covariance @ inverse - inverse
        np.testing.assert_allclose(s**2 * found.df[i], s**2 * expected, atol=2e-6)


@pytest.mark.parametrize(("beta", "s"), [(50.0, 0.25), (5.0, 0.8)])
def test_f_and_its_slope_are_derivatives_of_log_z(beta, s):
    channel, V, h = PairChannel(Problem(beta=beta)), covariances(s), 0.01 * s

    def shifted(name, e, k):
        up, down = (channel.moments(OMEGA + c * h * e, V, SAME) for c in (k, -k))
        return getattr(up, name) - getattr(down, name)

    def differences(name):
        """Eight-point central differences by ω₁ and ω₂."""
        weights = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}
        columns = [sum(c * shifted(name, e, k) for k, c in weights.items()) for e in np.eye(2)]
        return np.stack(columns, -1) / h

    found = channel.moments(OMEGA, V, SAME)
    np.testing.assert_allclose(s * found.f, s * differences("log_z"), atol=1e-6)
    np.testing.assert_allclose(s**2 * found.df, s**2 * differences("f"), atol=1e-6)


def test_a_steep_activation_is_tanh_of_wider_fields():
    """φ(z) = tanh(kz) at (ω, V) is tanh at (kω, k²V), to which f and ∂f are k and k² times."""
    k = 20
    V = np.repeat([[[0.05, 0.01], [0.01, 0.06]]], 6, axis=0)
    omega = np.random.default_rng(0).normal(0, 0.3, (6, 2))
    same = np.arange(6) % 2 == 0
    steep = Problem(beta=10.0, activation=lambda z: np.tanh(k * z))
    found = PairChannel(steep).moments(omega, V, same)
    wide = PairChannel(Problem(beta=10.0)).moments(k * omega, k**2 * V, same)
    np.testing.assert_allclose(found.log_z, wide.log_z, atol=1e-7)
    np.testing.assert_allclose(found.energy, wide.energy, atol=1e-7)
    np.testing.assert_allclose(found.f / k, wide.f, atol=1e-7)
    np.testing.assert_allclose(found.df / k**2, wide.df, atol=1e-7)


def test_equal_widths_are_the_channel_of_the_theory():
    problem, s = Problem(), 0.21
    nodes = np.array([0.0, 0.4, 1.3])
    axis = Axis(nodes, np.ones(3), True)
    z = Axis.uniform(0.012, 8.0), Axis.uniform(0.012, 8.0)
    theory = GaussianChannel(pair_table(problem, *z), problem.beta, at=(axis, axis), on=z)
    pair, response = theory.effective(s**2 * problem.beta), theory.response(s**2 * problem.beta)
    r, t = (g.ravel() for g in np.meshgrid(nodes, nodes, indexing="ij"))
    omega = np.stack([t + r, t - r], -1) / math.sqrt(2)
    V = np.tile(np.eye(2) * s**2, (r.size, 1, 1))
    for kind in (0, 1):
        found = PairChannel(problem).moments(omega, V, np.full(r.size, kind == 0))
        turned = np.stack([found.f[:, 0] - found.f[:, 1], found.f[:, 0] + found.f[:, 1]])
        expected = -problem.beta * math.sqrt(2) * np.stack([pair.r[kind], pair.t[kind]])
        np.testing.assert_allclose(found.log_z, -problem.beta * pair.F[kind].ravel(), atol=1e-6)
        np.testing.assert_allclose(s * turned, s * expected.reshape(2, -1), atol=3e-6)
        energy = theory.energy(s**2 * problem.beta)[kind]
        np.testing.assert_allclose(found.energy, energy.ravel(), atol=1e-6)
        trace = -problem.beta * (response.rr + response.tt)[kind].ravel()
        found_trace = found.df[:, 0, 0] + found.df[:, 1, 1]
        np.testing.assert_allclose(s**2 * found_trace, s**2 * trace, atol=3e-6)


def test_without_tilt_the_energy_is_that_of_new_pairs():
    problem, V = Problem(), covariances(0.3)
    found = PairChannel(problem).moments(OMEGA, V, SAME, tilt=False)
    np.testing.assert_allclose(found.f, 0, atol=1e-6)
    rng = np.random.default_rng(0)
    for i, same in enumerate(SAME):
        z = rng.multivariate_normal(OMEGA[i], V[i], 200_000)
        d2 = (np.tanh(z[:, 0]) - np.tanh(z[:, 1])) ** 2
        gap = problem.d_f - d2
        H = d2 / 2 if same else (gap + np.sqrt(gap**2 + problem.softness)) / 4
        assert abs(found.energy[i] - H.mean()) < 4 * H.std() / math.sqrt(H.size)


def test_pairs_do_not_see_each_other():
    """Widths that differ a thousandfold are integrated on lattices of their own."""
    problem = Problem()
    V = covariances(0.2) * np.logspace(-4, 1, SAME.size)[:, None, None]
    together = PairChannel(problem).moments(OMEGA, V, SAME)
    for i in range(SAME.size):
        one = slice(i, i + 1)
        alone = PairChannel(problem).moments(OMEGA[one], V[one], SAME[one])
        assert together.log_z[i] == pytest.approx(alone.log_z[0], abs=1e-6)


@pytest.mark.parametrize("bad", [np.nan, 1e6])
def test_fields_of_a_diverging_iteration_are_refused(bad):
    with pytest.raises(DivergenceError):
        PairChannel(Problem()).moments(OMEGA * bad, covariances(0.2), SAME)
