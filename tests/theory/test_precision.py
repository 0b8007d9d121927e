"""The errors a solution states. Oracle: the equations written out in (z₁, z₂), with Gauss-Legendre
panels fitted to φ and the plain trapezoidal rule in ω, solved by Newton's method from the solution.
A finer lattice at zero temperature, whose averages test_zero_temperature.py holds to quadrature."""

import importlib
import math

import numpy as np
import pytest
from scipy.special import ndtr, roots_legendre

from fermibose.theory import ConvergenceError, Overlaps, Problem, Steps, solve
from fermibose.theory.disjoint import make_lattice
from fermibose.theory.replica import SaddleEquations, free_energy, to_overlaps, to_vector
from fermibose.theory.search import Found
from fermibose.theory.solution import Candidate, Stability

NAMES = ("M", "q", "Q", "chi", "free_energy", "training_energy", "energy", "accuracy",
         "at_eigenvalue")  # fmt: skip


def tanh3(z):
    return np.tanh(3 * z)


SOFT = Problem(activation=tanh3, alpha=1.44776, delta=0.712371, beta=0.635493, d_f=1.603848,
               weight_decay=0.001494218, m=1.052593, rho=0.0)  # fmt: skip


def line(problem, reach, s, rise):
    """Points and weights in z: eight to a panel, and panels as short as φ is steep."""
    z = np.linspace(-reach, reach, 100_001)
    density = np.abs(np.gradient(problem.phi(z), z)) / rise + 1.5 / s
    passed = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(z))])
    edges = np.interp(np.linspace(0, passed[-1], math.ceil(passed[-1]) + 1), passed, z)
    x, w = roots_legendre(8)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + x)).ravel(), (half * w).ravel()


def averages(problem, M, Q, chi):
    """E F, E[y·∇F], E|∇F|², E[v·∇F], E⟨H⟩ and E‖∇²F‖² of an odd φ."""
    beta, s = problem.beta, problem.delta * math.sqrt(chi / problem.beta)
    mean, width, steep = problem.m * M, problem.delta * math.sqrt(Q), problem.steepness
    reach = mean + 6.2 * width
    h = min(width / 3, max(s / 4, 0.02 / steep), max(1.2 * s**2 * steep, 0.012 / steep))
    w = np.arange(-reach, reach, h)
    end = reach + 7 * s + min(math.sqrt(problem.delta**2 * chi), 4 / steep)
    z, weight = line(problem, end, s, min(0.06, 0.5 / math.sqrt(beta)))
    d = (z - w[:, None]) / s
    G = np.exp(-(d**2) / 2) * weight / (s * math.sqrt(2 * math.pi))
    G1, G2 = G * d / s, G * (d**2 - 1) / s**2
    d2 = (problem.phi(z)[:, None] - problem.phi(z)) ** 2
    x = problem.d_f - d2
    total = np.zeros(6)
    hinge = (x + np.sqrt(x**2 + problem.softness)) / 4
    for H, sign, part in ((d2 / 2, 1, problem.rho), (hinge, -1, 1 - problem.rho)):
        E = np.exp(-beta * H)
        left, left1 = G @ E, G1 @ E
        Z = left @ G.T
        f1, f2 = left1 @ G.T / Z, left @ G1.T / Z
        h11, h22 = G2 @ E @ G.T / Z - f1**2, left @ G2.T / Z - f2**2
        h12 = left1 @ G1.T / Z - f1 * f2
        u, v = (w - mean) / width, (w - sign * mean) / width
        p, q = np.exp(-(u**2) / 2), np.exp(-(v**2) / 2)
        p, q = p / p.sum(), q / q.sum()
        slope = (p * u) @ f1 @ q + p @ f2 @ (q * v)
        means = [p @ g @ q for g in (-np.log(Z) / beta, -(f1 + sign * f2) / beta,
                                     (f1**2 + f2**2) / beta**2, G @ (E * H) @ G.T / Z,
                                     (h11**2 + 2 * h12**2 + h22**2) / beta**2)]  # fmt: skip
        total += part * np.array([*means[:3], -slope / beta, *means[3:]])
    return total


def truth(problem, s):
    """Every number of the solution near by."""

    def change(x):
        M, chi = x[0], math.exp(x[2])
        a = averages(problem, M, M**2 + x[1], chi)
        stiffness = problem.alpha * problem.delta / math.sqrt(M**2 + x[1]) * a[3]
        new = 1 / (problem.weight_decay + stiffness)
        return np.array([
            -new * problem.alpha * problem.m * a[1] - M,
            new**2 * problem.alpha * problem.delta**2 * a[2] - x[1],
            math.log(new) - x[2],
        ])  # fmt: skip

    x = np.array([s.M, s.Q - s.M**2, math.log(s.chi)])
    free = [0, 1, 2] if s.M else [1, 2]
    moves = 1e-4 * np.diag([max(abs(x[0]), 1e-3), x[1], 1.0])[free]
    here = change(x)
    J = np.array([(change(x + move) - here) / move.sum() for move in moves]).T[free]
    for _ in range(2):
        x[free] -= np.linalg.solve(J, here[free])
        here = change(x)
    M, Q, chi = x[0], x[0] ** 2 + x[1], math.exp(x[2])
    a, beta, q = averages(problem, M, Q, chi), problem.beta, Q + chi / problem.beta
    f = problem.weight_decay * q / 2 - x[1] / (2 * chi) + problem.alpha * a[0]
    return {
        "M": M, "q": q, "Q": Q, "chi": chi,
        "free_energy": f - math.log(2 * math.pi * math.e * chi / beta) / (2 * beta),
        "training_energy": a[4],
        "energy": problem.alpha * a[4] + problem.weight_decay * q / 2,
        "accuracy": float(ndtr(problem.m * M / math.sqrt(q) / problem.delta)),
        "at_eigenvalue": problem.alpha * problem.delta**4 * chi**2 * a[5],
    }  # fmt: skip


def drawn(seed):
    """A problem drawn over the parameters."""
    rng = np.random.default_rng(seed)

    def between(low, high):
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    return Problem(
        alpha=between(0.2, 5), delta=between(0.1, 0.9), beta=between(0.5, 25),
        d_f=between(0.1, 3), weight_decay=between(0.005, 0.3), m=float(rng.uniform(0.6, 1.5)),
        rho=float(rng.choice([0.0, 0.5])), softness=float(rng.choice([0.01, 0.1])),
        activation=[tanh3, "tanh", "half_tanh"][rng.integers(3)],
    )  # fmt: skip


@pytest.mark.parametrize("problem", [drawn(seed) for seed in range(8)])
def test_every_error_is_above_the_true_one(problem):
    s = solve(problem)
    exact = truth(problem, s)
    assert set(s.errors) == set(NAMES) == set(exact)
    for name in NAMES:
        # What two evaluations of the oracle differ by in their last digits is not counted.
        off = abs(getattr(s, name) - exact[name])
        assert off <= s.errors[name] + 1e-11 * abs(exact[name]), name
    assert s.error < 1e-2


def test_a_soft_direction_is_resolved_and_its_error_told():
    """q = 1052, M = 0.62 and 1 − J nearly singular along M: 1e-7 q of residual are 5 % of M."""
    s = solve(SOFT)
    exact = truth(SOFT, s)
    assert abs(s.label_stiffness) < 2e-3
    assert pytest.approx(exact["M"], abs=2e-3) == s.M
    for name in NAMES:
        assert abs(getattr(s, name) - exact[name]) <= s.errors[name] + 1e-11 * abs(exact[name])
    assert s.error == max(s.errors[k] / getattr(s, k) for k in ("M", "q", "Q", "chi"))
    assert s.errors["M"] / s.M > 100 * s.errors["q"] / s.q
    assert s.at_error == s.errors["at_eigenvalue"]


@pytest.mark.parametrize(
    "change",
    [{}, {"alpha": 10.0}, {"delta": 1.2}, {"activation": "half_tanh", "d_f": 0.23, "rho": 0.0},
     {"activation": tanh3, "delta": 0.06, "weight_decay": 0.1},
     {"activation": "half_tanh", "alpha": 4.509595, "delta": 0.775133, "d_f": 2.264458,
      "weight_decay": 0.076689, "m": 0.380592, "rho": 0.644281, "softness": 0.1}],
)  # fmt: skip
def test_errors_at_zero_temperature(change):
    s = solve(Problem(beta=math.inf, **change))
    fine, x = SaddleEquations(s.problem, coarseness=0.4), to_vector(s.overlaps)
    free = [0, 1, 2] if s.M else [1, 2]
    second = SaddleEquations(s.problem, coarseness=0.8)
    J = np.zeros((3, 3))
    for i in free:
        move = 1e-4 * np.eye(3)[i]
        J[:, i] = (second(x + move)[0] - move - second(x)[0]) / 1e-4
    for _ in range(2):
        x[free] -= np.linalg.solve(J[np.ix_(free, free)], (fine(x)[0] - x)[free])
    exact = to_overlaps(x)
    f = free_energy(s.problem, exact, fine.evaluate(exact)[0])
    assert abs(s.M - exact.M) <= s.errors["M"]
    assert abs(s.q - exact.Q) <= s.errors["q"] < 3e-2 * s.q
    assert abs(s.chi - exact.chi) <= s.errors["chi"]
    assert abs(s.free_energy - f) <= s.errors["free_energy"]
    assert abs(s.training_energy - fine.energy(exact)) <= s.errors["training_energy"]


def test_an_activation_that_no_grid_resolves_is_refused(monkeypatch):
    """700 fields over a width of 0.3, and a φ that rises within 0.001."""
    state = Overlaps(0.45, 0.4, 5.0)
    steep = Problem(beta=math.inf, activation=lambda z: np.tanh(1000 * z), rho=0.0)
    assert not make_lattice(steep, state).resolves
    assert make_lattice(Problem(beta=math.inf), state).resolves
    module = importlib.import_module("fermibose.theory.solve")
    found = Found(Candidate(state, state.Q, 0.1, 1.0, Stability(1.0, 1.0, 1.0)), 1, Steps(), False)
    monkeypatch.setattr(module, "explore", lambda *_: [found])
    with pytest.raises(ConvergenceError, match="no grid resolves the activation"):
        solve(steep)


@pytest.mark.parametrize(
    "problem",
    [
        Problem(rho=1.0),
        Problem(alpha=0.34, delta=0.64, beta=0.35, d_f=0.26, weight_decay=0.0012, m=0.45, rho=0.97,
                activation=tanh3),
    ],
)  # fmt: skip
def test_what_dies_out_is_0_and_has_no_relative_error(problem):
    """Q = 0 is exact where M = 0 and φ is odd; what an iteration has left of it is not stated."""
    s = solve(problem)
    assert (s.M, s.Q, s.errors["M"]) == (0.0, 0.0, 0.0)
    assert s.errors["Q"] < 1e-15 * s.q
    assert s.error < 1e-4
