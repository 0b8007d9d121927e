"""Zero temperature. Oracles: F by search on finer and finer squares and its mean by the plain
trapezoidal rule in (ω₁, ω₂), derivatives of the free energy, a clock."""

import importlib
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import erf

from fermibose.theory import Problem, solve
from fermibose.theory.replica import SaddleEquations, to_vector

moreau = importlib.import_module("fermibose.theory.moreau")


def shifted(z):
    return np.tanh(z + 0.3)


PROBLEMS = [
    Problem(beta=math.inf, alpha=10.0),
    Problem(beta=math.inf, activation=erf, d_f=2.0, softness=1e-3),
    Problem(beta=math.inf, activation="half_tanh", d_f=0.3, softness=0.1, rho=0.2),
    Problem(beta=math.inf, activation=shifted, rho=0.0, alpha=1.0, delta=0.7),
]


def mean_envelope(problem, overlaps, *, step):
    """E F, E|∇F|² and E H(z*): z* by search, with nothing of the package but φ."""
    c, width = problem.delta**2 * overlaps.chi, problem.delta * math.sqrt(overlaps.Q)
    mean, phi = problem.m * overlaps.M, problem.phi
    w = np.arange(-mean - 5.5 * width, mean + 5.5 * width, step)
    z = np.arange(w[0] - 4, w[-1] + 4, 0.06)

    def energy(a, b, same):
        d2 = (phi(a) - phi(b)) ** 2
        x = problem.d_f - d2
        return d2 / 2 if same else (x + np.sqrt(x**2 + problem.softness)) / 4

    total = np.zeros(3)
    for same, sign, part in ((True, 1, problem.rho), (False, -1, 1 - problem.rho)):
        if not part:
            continue
        table, cost = energy(z[:, None], z, same), (z - w[:, None]) ** 2 / (2 * c)
        first, second = np.empty((2, w.size, w.size))
        for i, row in enumerate(cost):
            along = row[:, None] + table
            j = along.argmin(0)
            k = (along.min(0) + cost).argmin(1)
            first[i], second[i] = z[j[k]], z[k]
        a, b, size = first, second, np.full(first.shape, 0.04)
        for _ in range(40):  # a step is halved where no neighbour is lower
            moves = [(a + p * size, b + q * size) for p in (-1, 0, 1) for q in (-1, 0, 1)]
            values = [
                energy(x, y, same) + ((x - w[:, None]) ** 2 + (y - w) ** 2) / (2 * c)
                for x, y in moves
            ]
            best = np.argmin(values, axis=0)
            a, b = (np.choose(best, [m[i] for m in moves]) for i in (0, 1))
            size = np.where(best == 4, size / 2, size)
        F = np.min(values, axis=0)
        force2 = ((a - w[:, None]) ** 2 + (b - w) ** 2) / c**2
        p, q = (np.exp(-(((w - y * mean) / width) ** 2) / 2) for y in (1, sign))
        p, q = p / p.sum(), q / q.sum()
        total += part * np.array([p @ x @ q for x in (F, force2, F - c / 2 * force2)])
    return total


@pytest.mark.parametrize("problem", PROBLEMS)
def test_free_energy_against_quadrature(problem):
    s = solve(problem)
    coarse, fine = (mean_envelope(problem, s.overlaps, step=step) for step in (0.1, 0.05))
    F = (4 * fine[0] - coarse[0]) / 3  # the kink at ω₁ = ω₂ lies on nodes, at both steps
    _, force2, H = fine
    f = problem.weight_decay * s.q / 2 - (s.Q - s.M**2) / (2 * s.chi) + problem.alpha * F
    assert s.mean_field_energy == pytest.approx(F, abs=1e-6)
    assert s.free_energy == pytest.approx(f, abs=1e-6 * problem.alpha)
    # These jump with the force, and the plain rule is not as good at that.
    assert pytest.approx(problem.alpha * problem.delta**2 * force2, rel=3e-3) == -s.conjugates.Q
    assert s.training_energy == pytest.approx(H, rel=3e-3)
    assert s.energy == pytest.approx(s.free_energy, abs=1e-6)  # there is no entropy to pay for


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(("name", "step"), [("weight_decay", 0.02), ("alpha", 0.02)])
def test_derivatives_of_the_free_energy(problem, name, step):
    """∂f/∂λ_w = q/2 and ∂f/∂α = E F."""
    value, s = getattr(problem, name), solve(problem)
    f = [solve(replace(problem, **{name: value * (1 + k * step)}), s).free_energy for k in (-1, 1)]
    expected = s.q / 2 if name == "weight_decay" else s.mean_field_energy
    assert (f[1] - f[0]) / (2 * step * value) == pytest.approx(expected, rel=4e-4)


def test_minima_are_kept_from_one_stiffness_to_the_next(monkeypatch):
    """They are the minima found afresh, and cost a few steps only."""
    problem = Problem(beta=math.inf, softness=1e-3)
    x = to_vector(solve(problem).overlaps)
    kept, fresh = SaddleEquations(problem), SaddleEquations(problem)
    kept(x)
    x[2] += 1e-5
    sizes = []
    derivatives = moreau.MoreauChannel._derivatives

    def counted(self, z_r, z_t, kind):
        sizes.append(z_r.size)
        return derivatives(self, z_r, z_t, kind)

    monkeypatch.setattr(moreau.MoreauChannel, "_derivatives", counted)
    again, warm = kept(x)[0], sum(sizes)
    sizes.clear()
    np.testing.assert_allclose(again, fresh(x)[0], atol=1e-9)
    assert warm < 0.7 * sum(sizes)


def test_narrow_fields_have_nodes_only_where_they_are():
    """Δ = 0.01: some thousand nodes instead of half a million; M as at a neighbour's Δ → 0."""
    saddle, s = SaddleEquations(Problem(beta=math.inf, delta=0.01)), None
    s = solve(saddle.problem)
    lattice = saddle.at(s.overlaps)[0].lattice
    assert lattice.r.nodes.size * lattice.t.nodes.size < 40_000
    wider = solve(Problem(beta=math.inf, delta=0.02))
    limit = s.M + (s.M - wider.M) / 3  # in powers of Δ²
    assert pytest.approx(solve(Problem(beta=math.inf, delta=0.005)).M, abs=2e-6) == (
        limit + (s.M - limit) / 4
    )
