"""Whole solutions. Oracles: thermodynamic identities between solutions of neighbouring problems,
and the limit of low temperature against the zero-temperature solver."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fermibose.theory import Problem, solve

POINTS = [
    Problem(),
    Problem(beta=8.0, rho=0.3, d_f=2.0),
    Problem(alpha=0.6, delta=0.7),
    Problem(delta=1.1),
    Problem(alpha=1.0, beta=math.inf, delta=0.3),
]


def slope(problem, name, quantity, h=1e-3):
    up, down = (
        quantity(solve(replace(problem, **{name: getattr(problem, name) * (1 + s)})))
        for s in (h, -h)
    )
    return (up - down) / (2 * h * getattr(problem, name))


@pytest.mark.parametrize("problem", POINTS[:4], ids=str)
def test_internal_energy_is_the_derivative_of_beta_f(problem):
    s = solve(problem)
    measured = slope(problem, "beta", lambda x: x.problem.beta * x.free_energy)
    assert measured == pytest.approx(s.energy, abs=1e-4)


@pytest.mark.parametrize("problem", POINTS[:4], ids=str)
def test_entropy_is_the_derivative_of_f_by_the_temperature(problem):
    """−∂f/∂T = β² ∂f/∂β."""
    measured = problem.beta**2 * slope(problem, "beta", lambda x: x.free_energy)
    assert solve(problem).entropy == pytest.approx(measured, abs=2e-3)


def test_entropy_without_data_and_without_temperature():
    """Of the Gaussian prior of variance 1/βλ_w, ½ ln(2πe/βλ_w); and −∞ in the cold."""
    prior = math.log(2 * math.pi * math.e / (50 * 0.05)) / 2
    assert solve(Problem(alpha=1e-6)).entropy == pytest.approx(prior, abs=1e-4)
    assert solve(Problem(beta=math.inf)).entropy == -math.inf


@pytest.mark.parametrize("problem", POINTS, ids=str)
def test_one_more_pair_costs_the_mean_of_f(problem):
    s = solve(problem)
    measured = slope(problem, "alpha", lambda x: x.free_energy)
    assert measured == pytest.approx(s.mean_field_energy, abs=1e-4)


@pytest.mark.parametrize("problem", POINTS, ids=str)
def test_weight_decay_feels_half_of_q(problem):
    s = solve(problem)
    measured = slope(problem, "weight_decay", lambda x: x.free_energy)
    assert measured == pytest.approx(s.q / 2, abs=1e-4)


def test_low_temperature_tends_to_zero_temperature():
    """Cubic extrapolation in 1/β of four temperatures."""
    zero = solve(Problem(beta=math.inf))
    betas = np.array([60.0, 120.0, 240.0, 480.0])
    cold = [solve(Problem(beta=b)) for b in betas]
    for name in ("M", "q", "chi", "generalization_loss", "accuracy", "training_energy"):
        values = [getattr(s, name) for s in cold]
        limit = np.polyfit(1 / betas, values, 3)[-1]
        scale = 10 if name == "chi" else 1
        assert limit == pytest.approx(getattr(zero, name), abs=5e-4 * scale)
    # f also has an entropy of order ln β/β, which is known exactly for each state.
    energies = [s.free_energy + math.log(2 * math.pi * math.e * s.chi / s.problem.beta) /
                (2 * s.problem.beta) for s in cold]  # fmt: skip
    assert np.polyfit(1 / betas, energies, 3)[-1] == pytest.approx(zero.free_energy, abs=5e-4)


def test_zero_temperature_energy_is_the_free_energy():
    """T = 0: f = α⟨H⟩ + λ_w q/2."""
    s = solve(Problem(beta=math.inf))
    assert s.energy == pytest.approx(s.free_energy, abs=1e-4)


def test_training_costs_less_than_testing():
    for problem in POINTS:
        s = solve(problem)
        assert 0 < s.training_energy < s.generalization_loss
