"""Observables. Oracles: brute-force sums over a plain square, Monte Carlo of a real attack."""

import math
import tracemalloc

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import erf, ndtr

from fermibose.errors import InputError
from fermibose.theory import Problem, solution, solve
from fermibose.theory.solution import (
    accuracy,
    adversarial_accuracy,
    distances,
    generalization_loss,
    robustness_area,
)

CASES = [
    (Problem(), 1.0, 1.7),
    (Problem(rho=0.2, d_f=2.5, m=1.5, delta=0.9), 0.4, 2.0),
    (Problem(activation=erf, delta=0.2), 0.8, 0.9),
    (Problem(activation=lambda z: np.tanh(z + 0.5)), 0.6, 0.8),
]


@pytest.mark.parametrize(("problem", "M", "q"), CASES)
def test_losses_and_distances_are_gaussian_averages(problem, M, q):
    u = np.linspace(-9, 9, 1201)
    p = np.exp(-(u**2) / 2)
    p /= p.sum()

    def mean(function, y1, y2):
        z1, z2 = (y * problem.m * M + problem.delta * math.sqrt(q) * u for y in (y1, y2))
        d2 = (problem.phi(z1)[:, None] - problem.phi(z2)) ** 2
        return p @ function(d2) @ p

    def hinge(d2):
        x = problem.d_f - d2
        return (x + np.sqrt(x**2 + problem.softness)) / 4

    boson = (mean(lambda d2: d2, 1, 1) + mean(lambda d2: d2, -1, -1)) / 2
    assert distances(problem, M, q)[0] == pytest.approx(boson, abs=1e-10)
    assert distances(problem, M, q)[1] == pytest.approx(mean(lambda d2: d2, 1, -1), abs=1e-10)
    loss = problem.rho * boson / 2 + (1 - problem.rho) * mean(hinge, 1, -1)
    assert generalization_loss(problem, M, q) == pytest.approx(loss, abs=1e-7)
    assert generalization_loss(problem, -M, q) == pytest.approx(loss, abs=1e-7)


def panels(problem, mean, q):
    """Gauss-Legendre nodes and Gaussian weights of z, panels fine where tanh changes."""
    width = problem.delta * math.sqrt(q)
    edges = np.concatenate([np.linspace(-12, 12, 97), mean + width * np.linspace(-9, 9, 73)])
    edges = np.unique(edges[np.abs(edges - mean) <= 9 * width])
    x, weights = np.polynomial.legendre.leggauss(12)
    half = np.diff(edges)[:, None] / 2
    z = (edges[:-1, None] + half * (1 + x)).ravel()
    p = np.exp(-(((z - mean) / width) ** 2) / 2) / (width * math.sqrt(2 * math.pi))
    return z, (half * weights).ravel() * p


@pytest.mark.parametrize(
    ("problem", "M", "q", "tol"),
    [
        (Problem(), 1.0, 1.7, 1e-8),
        (Problem(delta=2.0), 1.0, 30.0, 1e-7),
        (Problem(delta=2.0), 1.0, 400.0, 1e-6),
        (Problem(delta=1.0), 1.0, 2e4, 1e-5),
    ],
)
def test_wide_fields_keep_their_accuracy_and_little_memory(problem, M, q, tol):
    (z1, p1), (z2, p2) = (panels(problem, y * problem.m * M, q) for y in (1, -1))
    boson = p1 @ problem.energies(z1[:, None], z1)[0] @ p1
    fermion = p1 @ problem.energies(z1[:, None], z2)[1] @ p2
    loss = problem.rho * boson + (1 - problem.rho) * fermion
    tracemalloc.start()
    assert generalization_loss(problem, M, q) == pytest.approx(loss, abs=tol)
    assert distances(problem, M, q)[0] == pytest.approx(2 * boson, abs=1e-7)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e8


@pytest.mark.parametrize("k", [3.0, 50.0])
def test_a_steep_activation_is_tanh_of_larger_weights(k):
    """φ(kz) with M and q is φ(z) with kM and k²q; at k = 50 a step of 0.03 is off by 1e-3."""
    steep, plain = Problem(activation=lambda z: np.tanh(k * z)), Problem()
    weights = (k * 1.0, k**2 * 1.7)
    loss = generalization_loss(plain, *weights)
    assert generalization_loss(steep, 1.0, 1.7) == pytest.approx(loss, abs=1e-10)
    assert distances(steep, 1.0, 1.7) == pytest.approx(distances(plain, *weights), abs=1e-10)


def test_the_loss_is_computed_once(monkeypatch):
    found = solve(Problem())
    calls = []
    monkeypatch.setattr(solution, "generalization_loss", lambda *_: calls.append(1) or 0.5)
    assert found.generalization_loss == found.generalization_loss == 0.5
    assert len(calls) == 1


def test_accuracy_under_a_real_attack():
    """Weights and patterns drawn at random; the attack moves x against its label along w/|w|."""
    rng = np.random.default_rng(0)
    N, P, M, q = 4000, 4000, 0.6, 0.9
    problem = Problem(delta=0.7, m=1.3)
    w = M + math.sqrt(q - M**2) * rng.standard_normal(N)
    y = rng.choice([-1, 1], P)
    M, q = w.mean(), (w**2).mean()
    z = y * problem.m * M + problem.delta * math.sqrt(q) * rng.standard_normal(P)
    for eps in (0.0, 0.3, 0.8):
        # |w| = √(Nq); the strength is scaled so that the push on z is ε√q.
        push = -y * eps * (w @ w) / math.sqrt(w @ w) / math.sqrt(N)
        hits = np.mean(np.sign(z + push) == y)
        assert adversarial_accuracy(problem, M, q, eps) == pytest.approx(hits, abs=0.02)


@pytest.mark.parametrize("p", [1.5, 2, 3, "inf"])
def test_accuracy_under_a_real_attack_of_any_norm(p):
    """The best point of the ℓ_p ball, found on the weights one by one, and its norm held to ε."""
    rng = np.random.default_rng(1)
    N, P, M, q, eps = 200_000, 20_000, 0.6, 0.9, 0.4
    problem = Problem(delta=0.7, m=1.3)
    w = M + math.sqrt(q - M**2) * rng.standard_normal(N)
    if p == "inf":
        move = eps / N * np.sign(w)
    else:
        move = np.sign(w) * np.abs(w) ** (1 / (p - 1))
        move *= eps * N ** (1 / p - 1) / (np.abs(move) ** p).sum() ** (1 / p)
    z = problem.m * M + problem.delta * math.sqrt(q) * rng.standard_normal(P)
    hits = np.mean(z - w @ move > 0)
    deviation = math.sqrt(hits * (1 - hits) / P)
    assert abs(adversarial_accuracy(problem, M, q, eps, p) - hits) < 3 * deviation + 1e-3


@pytest.mark.parametrize("p", [1.05, 1.5, 2, 3, 20, math.inf])
@pytest.mark.parametrize(("M", "q"), [(0.5, 1.0), (1.0, 1.0001), (0.0, 2.0), (3.0, 9.5)])
def test_the_reach_of_an_attack_is_a_moment_of_the_weights(p, M, q):
    """Against mpmath's integral of |w|^p*; where all weights are the same it is that weight."""
    dual, v = (1 if p == math.inf else p / (p - 1)), mpmath.mpf(q) - mpmath.mpf(M) ** 2
    ends = [M + k * mpmath.sqrt(v) for k in (-30, -8, -2, 0, 2, 8, 30)]
    density = lambda w: mpmath.exp(-((w - M) ** 2) / (2 * v)) / mpmath.sqrt(2 * mpmath.pi * v)  # noqa: E731
    moment = mpmath.quad(lambda w: abs(w) ** dual * density(w), sorted({*ends, mpmath.mpf(0)}))
    problem, eps = Problem(m=1.3, delta=0.7), 0.3
    kappa = problem.m * M - eps * float(moment ** (mpmath.mpf(1) / dual))
    expected = ndtr(kappa / (problem.delta * math.sqrt(q)))
    assert adversarial_accuracy(problem, M, q, eps, p) == pytest.approx(expected, rel=1e-9)
    assert adversarial_accuracy(problem, 1.2, 1.44, eps, p) == pytest.approx(ndtr(1 / 0.7))


@pytest.mark.parametrize("norm", [2, "inf", 3])
@pytest.mark.parametrize(("problem", "M", "q"), CASES)
def test_area_is_the_integral_of_the_accuracy(problem, M, q, norm):
    area, _ = quad(lambda e: adversarial_accuracy(problem, M, q, e, norm), 0, 1, epsabs=1e-12)
    assert robustness_area(problem, M, q, norm) == pytest.approx(area, abs=1e-10)
    assert robustness_area(problem, -M, q, norm) == pytest.approx(area, abs=1e-10)


@pytest.mark.parametrize("norm", [1, 0.5, "two", None, True, math.nan])
def test_norms_that_are_none_are_refused(norm):
    with pytest.raises(InputError, match='norm must be 2, "inf" or a number p > 1'):
        adversarial_accuracy(Problem(), 1.0, 2.0, 0.1, norm)


def test_attacks_of_many_strengths_and_of_none():
    solution = solve(Problem())
    strengths = np.array([[0.0, 0.3], [0.8, math.inf]])
    found = solution.adversarial_accuracy(strengths)
    assert found.shape == (2, 2)
    for one, eps in zip(found.ravel(), strengths.ravel(), strict=True):
        assert one == solution.adversarial_accuracy(float(eps))
    assert found[0, 0] == solution.accuracy
    assert found[1, 1] == 0
    assert solution.adversarial_accuracy([0.3])[0] == found[0, 1]
    for bad in (-0.1, math.nan, [0.1, -0.1], "a", None):
        with pytest.raises(InputError, match="eps of an attack must be a number >= 0"):
            solution.adversarial_accuracy(bad)


def test_accuracy_is_the_error_function():
    assert accuracy(Problem(), 1.0, 2.0) == pytest.approx(
        (1 + math.erf(1 / (0.5 * math.sqrt(2 * 2.0)))) / 2, abs=1e-14
    )
    assert accuracy(Problem(), 0.0, 2.0) == 0.5
