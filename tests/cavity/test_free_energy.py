"""The free energy of an instance. Oracles: exact integration of a single pair, d(βf)/dβ = energy,
replica theory."""

import math

import numpy as np
import pytest
from scipy.special import roots_legendre

from fermibose.cavity import Instance, Pairs, amp, belief_propagation, sample_instance
from fermibose.theory import Problem, solve


def exact_free_energy(instance):
    """−ln ∫dw e^{−βE}/(βN) of one pair: a Gaussian integral over the weights times E e^{−βH}."""
    problem, x, n = instance.problem, instance.train.x[:, 0], instance.n
    prior = 1 / (problem.beta * problem.weight_decay)
    nodes, weights = roots_legendre(400)
    u, g = 9 * nodes, 9 * weights * np.exp(-((9 * nodes) ** 2) / 2) / math.sqrt(2 * math.pi)
    root = np.linalg.cholesky(prior * x @ x.T)
    z1 = root[0, 0] * u[:, None] + 0 * u
    z2 = root[1, 0] * u[:, None] + root[1, 1] * u
    d2 = (np.tanh(z1) - np.tanh(z2)) ** 2
    gap = problem.d_f - d2
    H = d2 / 2 if instance.train.same[0] else (gap + np.sqrt(gap**2 + problem.softness)) / 4
    log_z = n / 2 * math.log(2 * math.pi * prior) + math.log(g @ np.exp(-problem.beta * H) @ g)
    return -log_z / (problem.beta * n)


@pytest.mark.parametrize("same", [True, False])
def test_of_a_single_pair(same):
    """Exact by belief propagation; by AMP βNf is off by a term of order 1/N."""
    problem = Problem(beta=5.0, weight_decay=1.0)
    errors = []
    for n in (20, 80):
        off = []
        for seed in range(6):
            # Orthonormal patterns: the fields have the same law at every N.
            x = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, 2)))[0].T
            pairs = Pairs(x[:, None, :].copy(), np.array([[1], [1 if same else -1]]))
            instance = Instance(problem, pairs, pairs, 0)
            exact = exact_free_energy(instance)
            found = belief_propagation(instance, tol=1e-10)
            assert found.free_energy == pytest.approx(exact, abs=1e-8)
            off.append(n * abs(amp(instance, tol=1e-10).free_energy - exact))
        errors.append(np.mean(off))
    assert errors[0] > 1e-4
    assert errors[0] / errors[1] > 3.0  # four times as many weights


@pytest.mark.parametrize(("alpha", "beta", "n"), [(1.0, 5.0, 120), (0.5, 20.0, 200)])
def test_its_slope_is_the_energy(alpha, beta, n):
    """d(βf)/dβ = α⟨H⟩ + λ_w q/2 at a fixed point, where the Bethe functional is stationary."""
    instance = sample_instance(Problem(alpha=alpha, beta=beta), n, seed=1)
    h = 1e-3 * beta
    found = [
        amp(instance.at(b), tol=1e-10, max_iterations=2000) for b in (beta - h, beta, beta + h)
    ]
    assert all(f.converged for f in found)
    slope = ((beta + h) * found[2].free_energy - (beta - h) * found[0].free_energy) / (2 * h)
    here = found[1]
    energy = alpha * here.training_loss + instance.problem.weight_decay * here.q / 2
    assert slope == pytest.approx(energy, rel=1e-5)


def test_it_meets_the_theory():
    problem = Problem(alpha=1.0, beta=5.0)
    values = [
        amp(sample_instance(problem, 200, seed=seed, counts="exact")).free_energy
        for seed in range(8)
    ]
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    assert error < 4e-3
    assert abs(np.mean(values) - solve(problem).free_energy) < 3 * error
