"""Observables. Oracles: brute-force sums over a plain square, Monte Carlo of a real attack."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import erf

from fermibose.theory import Problem
from fermibose.theory.observables import (
    accuracy,
    adversarial_area,
    distances,
    generalization_loss,
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
        assert accuracy(problem, M, q, eps=eps) == pytest.approx(hits, abs=0.02)


@pytest.mark.parametrize(("problem", "M", "q"), CASES)
def test_area_is_the_integral_of_the_accuracy(problem, M, q):
    area, _ = quad(lambda e: accuracy(problem, M, q, eps=e), 0, 1, epsabs=1e-12)
    assert adversarial_area(problem, M, q) == pytest.approx(area, abs=1e-10)
    assert adversarial_area(problem, -M, q) == pytest.approx(area, abs=1e-10)


def test_accuracy_is_the_error_function():
    assert accuracy(Problem(), 1.0, 2.0) == pytest.approx(
        (1 + math.erf(1 / (0.5 * math.sqrt(2 * 2.0)))) / 2, abs=1e-14
    )
    assert accuracy(Problem(), 0.0, 2.0) == 0.5
