"""Saddle-point equations. Oracle: every average and every conjugate is a numerical derivative of
the free energy it comes from; the free energy itself against a direct double integral."""

import math

import numpy as np
import pytest
from scipy.special import erf

from fermibose.theory import Overlaps, Problem
from fermibose.theory.replica import SaddleEquations, free_energy, update

STATES = [
    (Problem(), Overlaps(1.0, 1.6, 6.0)),
    (Problem(rho=0.2, d_f=2.0, beta=15.0), Overlaps(0.4, 0.9, 3.0)),
    (Problem(rho=0.8, delta=0.9, m=1.4), Overlaps(0.3, 0.5, 4.0)),
    (Problem(activation=erf), Overlaps(0.7, 0.8, 5.0)),
    (Problem(activation="half_tanh", d_f=0.3), Overlaps(0.9, 1.4, 6.0)),
    (Problem(activation=lambda z: np.tanh(z + 0.4)), Overlaps(0.5, 0.9, 5.0)),
    (Problem(hinge=lambda x: np.log1p(np.exp(8 * x)) / 8), Overlaps(0.5, 0.9, 5.0)),
]


def gradient(problem, state, *, coarseness, h=1e-4):
    """∂f/∂M, ∂f/∂Q, ∂f/∂χ by central differences on one frozen lattice."""
    saddle = SaddleEquations(problem, coarseness=coarseness)
    saddle.evaluate(state)

    def f(M=0.0, Q=0.0, chi=0.0):
        moved = Overlaps(state.M + M, state.Q + Q, state.chi + chi)
        return free_energy(problem, moved, saddle.evaluate(moved)[0])

    slopes = [
        (8 * (f(**{n: h}) - f(**{n: -h})) - f(**{n: 2 * h}) + f(**{n: -2 * h})) / (12 * h)
        for n in ("M", "Q", "chi")
    ]
    return slopes, saddle.evaluate(state)


def from_conjugates(problem, state, conjugate):
    """The same derivatives by hand, in terms of the conjugates."""
    lam, beta, chi = problem.weight_decay, problem.beta, state.chi
    return [
        state.M / chi + conjugate.M,
        (lam - 1 / chi + conjugate.chi) / 2,
        (state.Q - state.M**2) / (2 * chi**2)
        + conjugate.Q / 2
        + (lam - 1 / chi + conjugate.chi) / (2 * beta),
    ]


@pytest.mark.parametrize(("problem", "state"), STATES)
def test_conjugates_are_derivatives_of_the_free_energy(problem, state):
    slopes, (_, conjugate) = gradient(problem, state, coarseness=0.6)
    np.testing.assert_allclose(slopes, from_conjugates(problem, state, conjugate), atol=1e-6)


def test_conjugates_are_derivatives_at_zero_temperature():
    """Where the proximal map does not jump, and (to the grid's precision) where it does."""
    smooth = Problem(beta=math.inf, delta=0.2), Overlaps(0.75, 0.6, 9.0)
    slopes, (_, conjugate) = gradient(*smooth, coarseness=0.4)
    np.testing.assert_allclose(slopes, from_conjugates(*smooth, conjugate), atol=1e-6)
    jumps = Problem(beta=math.inf), Overlaps(0.9, 1.4, 5.5)
    slopes, (_, conjugate) = gradient(*jumps, coarseness=0.5, h=1e-2)
    np.testing.assert_allclose(slopes, from_conjugates(*jumps, conjugate), atol=1e-4)


def test_a_stationary_point_is_a_fixed_point():
    """update() returns the state itself exactly where the gradient above vanishes."""
    problem, state = STATES[0]
    for _ in range(60):
        saddle = SaddleEquations(problem)
        _, conjugate = saddle.evaluate(state)
        new = update(problem, state, conjugate)
        state = Overlaps((state.M + new.M) / 2, (state.Q + new.Q) / 2, (state.chi + new.chi) / 2)
    slopes, _ = gradient(problem, state, coarseness=0.6)
    np.testing.assert_allclose(slopes, 0, atol=3e-6)


def test_stiffness_is_the_slope_of_the_update_of_m():
    problem, state, h = *STATES[0], 1e-4
    saddle = SaddleEquations(problem, coarseness=0.6)
    up, down = (saddle.evaluate(Overlaps(state.M + s, state.Q, state.chi))[1].M for s in (h, -h))
    slope = -state.chi * (up - down) / (2 * h)
    assert saddle.label_stiffness(state) == pytest.approx(1 - slope, abs=1e-5)


@pytest.mark.parametrize(("problem", "state"), [STATES[0], STATES[2], STATES[5]])
def test_free_energy_against_a_direct_double_integral(problem, state):
    """E F with both Gaussians by brute force: plain grids over v and u, all four label pairs."""
    s = problem.delta * math.sqrt(state.chi / problem.beta)
    width = problem.delta * math.sqrt(state.Q)
    v, u = np.linspace(-5, 5, 31), np.linspace(-14, 14, 141)
    pv, pu = np.exp(-(v**2) / 2), np.exp(-(u**2) / 2)
    pv, pu = pv / pv.sum(), pu / pu.sum()

    def mean_log(y1, y2):
        phi1 = problem.phi((y1 * problem.m * state.M + width * v)[:, None] + s * u)
        phi2 = problem.phi((y2 * problem.m * state.M + width * v)[:, None] + s * u)
        total = 0.0
        for a, wa in zip(phi1, pv, strict=True):
            for b, wb in zip(phi2, pv, strict=True):
                d2 = (a[:, None] - b) ** 2
                x = problem.d_f - d2
                H = d2 / 2 if y1 == y2 else (x + np.sqrt(x**2 + problem.softness)) / 4
                total += wa * wb * math.log(pu @ np.exp(-problem.beta * H) @ pu)
        return total

    labels = [(1, 1), (1, -1)] if problem.odd else [(1, 1), (-1, -1), (1, -1)]
    weights = {1: problem.rho / sum(a == b for a, b in labels), -1: 1 - problem.rho}
    brute = sum(weights[a * b] * mean_log(a, b) for a, b in labels)
    average, _ = SaddleEquations(problem, coarseness=0.6).evaluate(state)
    assert -problem.beta * average.F == pytest.approx(brute, rel=1e-3)
