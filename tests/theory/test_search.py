"""The search for states. Oracles: a second solver written here with nothing of the package, plain
steps from many starts; second differences of f; exact changes of units; limits of strong decay."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from fermibose.theory import Overlaps, Problem, branches, solve
from fermibose.theory.replica import SaddleEquations, distance, free_energy, stability_of

# The solver's starts of ordered and of medium weights lead to large or to unstable ones.
SMALL = Problem(alpha=10.0, delta=1.3, beta=4.0, d_f=0.2, weight_decay=0.005, m=0.5, rho=0.85)
TWO = Problem(alpha=3.05, delta=0.278, beta=29.3, d_f=0.785, weight_decay=0.0181, m=0.737,
              rho=0.915, softness=0.00017)  # fmt: skip
WIDE = Problem(alpha=3.23, delta=2.37, beta=33.2, d_f=0.835, weight_decay=0.172, m=1.64, rho=0.73)


def equations(problem, M, Q, V):
    """Updates of M, Q and V = q − Q from the printed equations in (z₁, z₂), and f."""
    s, width = problem.delta * math.sqrt(V), problem.delta * math.sqrt(Q)
    reach = problem.m * M + 5.5 * width
    h_z = min(s / 3, 0.1, 0.5 / math.sqrt(problem.beta))
    w = np.linspace(-reach, reach, 2 * math.ceil(reach / min(width / 3, max(0.03, s / 3))) + 1)
    z = np.arange(-reach - 6 * s, reach + 6 * s, h_z)
    d = (z - w[:, None]) / s
    G = np.where(np.abs(d) < 30, np.exp(-(d**2) / 2), 0.0) * h_z / (s * math.sqrt(2 * math.pi))
    G1, G2 = G * d / s, G * (d**2 - 1) / s**2
    d2 = (np.tanh(z)[:, None] - np.tanh(z)) ** 2
    x = problem.d_f - d2
    energies = [(d2 / 2, 1), ((x + np.sqrt(x**2 + problem.softness)) / 4, -1)]
    force = force2 = trace = log = 0.0
    for (H, sign), part in zip(energies, (problem.rho, 1 - problem.rho), strict=True):
        E = np.exp(-problem.beta * H)
        left = G @ E
        Z = left @ G.T
        f1, f2 = G1 @ E @ G.T / Z, left @ G1.T / Z
        hess = (G2 @ E @ G.T + left @ G2.T) / Z - f1**2 - f2**2
        p, q = (np.exp(-(((w - y * problem.m * M) / width) ** 2) / 2) for y in (1, sign))
        p, q = p / p.sum(), q / q.sum()
        force += part * p @ (f1 + sign * f2) @ q
        force2 += part * p @ (f1**2 + f2**2) @ q
        trace += part * p @ hess @ q
        log += part * p @ np.log(Z) @ q
    alpha, beta, d2 = problem.alpha, problem.beta, problem.delta**2
    G = beta * problem.weight_decay - alpha * d2 * trace
    f = problem.weight_decay * (Q + V) / 2 - (Q - M**2) / (2 * beta * V)
    f -= (math.log(2 * math.pi * math.e * V) / 2 + alpha * log) / beta
    if G <= 0:
        return 1.3 * M, 1.7 * Q, 1.3 * V, f
    M = abs(alpha * problem.m * force / G)
    return M, M**2 + alpha * d2 * force2 / G**2, 1 / G, f


def settle(problem, state, *, tol=1e-4, most=400):
    """Damped plain steps from a state with M > 0 and Q > 0 to where they end: q and f, or None.

    Growing directions are followed, so the end is no state that is unstable against M or Q.
    """
    M, Q, V = state
    for _ in range(most):
        M_new, Q_new, V_new, f = equations(problem, M, Q, V)
        Q_new = max(Q_new, 1e-6 * V)
        q = Q + V
        if max(abs(M_new - M) / math.sqrt(q), abs(Q_new - Q) / q, abs(V_new - V) / V) < tol:
            return q, f
        M, Q, V = (M + M_new) / 2, math.sqrt(Q * Q_new), math.sqrt(V * V_new)
        Q = max(Q, M**2 * (1 + 1e-9), 1e-6 * V)
    return None


@pytest.mark.parametrize(
    ("problem", "starts"),
    [
        (SMALL, [(0.01, 1e-3, 0.01), (0.1, 30.0, 8.0)]),
        (TWO, [(0.5, 0.5, 0.15), (1.9, 4.6, 0.6)]),
        (WIDE, [(0.02, 0.05, 0.004), (0.1, 0.9, 0.04)]),
    ],
    ids=["small", "two", "wide"],
)
def test_no_state_of_a_second_solver_is_lower(problem, starts):
    """Two ends of plain steps, far apart: the lower one is the solution, the other a rival."""
    ends = sorted((settle(problem, s) for s in starts), key=lambda end: end[1])
    assert ends[1][0] / ends[0][0] > 3 or ends[0][0] / ends[1][0] > 3
    solution = solve(problem)
    assert solution.q == pytest.approx(ends[0][0], rel=1e-2)
    assert solution.free_energy == pytest.approx(ends[0][1], rel=1e-3)
    metastable = [r for r in solution.rivals if r.stable]
    assert [r.q for r in metastable] == pytest.approx([ends[1][0]], rel=2e-2)
    assert all(r.free_energy > solution.free_energy for r in metastable)


@pytest.mark.parametrize(
    ("problem", "M"),
    [
        (Problem(beta=0.5, weight_decay=0.001, alpha=5.0, delta=1.0), 21.48),
        (Problem(beta=1.0, weight_decay=0.002, alpha=5.0, delta=2.0, m=2.0, rho=0.2), 11.81),
    ],
)
def test_hot_and_weakly_held_weights_are_reached(problem, M):
    """Of the size that decay and temperature allow; the second solver gives the solution back.

    That is itself good to 5e-6 here: so much changes when its ends are moved.
    """
    solution = solve(problem)
    assert pytest.approx(M, rel=1e-3) == solution.M
    V = solution.q - solution.Q
    new = equations(problem, solution.M, solution.Q, V)
    expected = (solution.M, solution.Q, V, solution.free_energy)
    assert new == pytest.approx(expected, rel=1e-5)
    assert solution.error < 3e-4


@pytest.mark.parametrize("decay", [1e2, 1e4, 1e6])
def test_strong_decay_leaves_the_gaussian_prior(decay):
    """1/βq = λ_w + αΔ² tr H''(0): pairs see weights near 0; H'' = 2ρ − 2(1−ρ)φ'(d_F) there."""
    problem = Problem(weight_decay=decay)
    solution = solve(problem)
    slope = (1 + 1 / math.sqrt(1 + problem.softness)) / 2
    curvature = problem.alpha * problem.delta**2 * (1 - slope)
    assert 1 / (problem.beta * solution.q) == pytest.approx(
        decay + curvature, abs=max(1 / decay, 1e-9 * decay)
    )
    assert solution.M == 0.0
    assert solution.residual <= 1e-10


@pytest.mark.parametrize("decay", [1e-4, 1e-6])
def test_weak_decay_converges_to_tolerance(decay):
    """q grows like 1/βλ_w: nothing else holds saturated weights."""
    solution = solve(Problem(weight_decay=decay))
    assert solution.residual <= 1e-10
    assert 0.9 < solution.q * 50 * decay < 1.6
    assert solution.M > 5


@pytest.mark.parametrize("k", [1e-3, 0.1, 300.0])
@pytest.mark.parametrize(
    "problem", [Problem(), Problem(rho=1.0), TWO], ids=["default", "Q0", "two"]
)
def test_the_unit_of_weights_is_free(problem, k):
    """(m, Δ, λ_w) → (km, kΔ, k²λ_w) divides the weights by k, and changes no step of the search."""
    one = solve(problem)
    two = solve(
        replace(
            problem,
            m=k * problem.m,
            delta=k * problem.delta,
            weight_decay=k**2 * problem.weight_decay,
        )
    )
    assert two.M * k == pytest.approx(one.M, rel=1e-8)
    assert two.q * k**2 == pytest.approx(one.q, rel=1e-8)
    assert two.at_eigenvalue == pytest.approx(one.at_eigenvalue, rel=1e-6)
    # f has ln χ in it, and χ is divided by k².
    shift = math.log(k) / problem.beta
    assert two.free_energy == pytest.approx(one.free_energy + shift, rel=1e-7)
    assert two.stability.state == pytest.approx(one.stability.state, rel=1e-4)
    assert len(two.rivals) == len(one.rivals)
    # Rounding decides the last ones: the fine grid takes two more at k = 300, where Q dies out.
    assert abs(two.iterations - one.iterations) <= 2


def test_distances_have_no_unit():
    """Relative to q and χ: the same for weights of any size."""
    a, b = Overlaps(1.0, 1.5, 6.0), Overlaps(1.01, 1.52, 6.05)
    for k in (1e-3, 1.0, 1e3):
        scaled = [Overlaps(s.M * k, s.Q * k**2, s.chi * k**2) for s in (a, b)]
        problem = Problem(delta=0.5 / k)
        assert distance(problem, *scaled) == pytest.approx(distance(Problem(), a, b), rel=1e-12)


@pytest.mark.parametrize("problem", [Problem(), Problem(delta=1.0), TWO], ids=str)
def test_stability_is_the_curvature_of_f(problem):
    """Second differences of f in (M, q, χ) on a frozen lattice, for every saddle point."""
    for s in branches(problem)[:2]:
        saddle = SaddleEquations(problem)
        saddle.evaluate(s.overlaps)
        unit = np.array([math.sqrt(s.q), s.q, s.chi]) * 3e-3

        def f(x, s=s, saddle=saddle, unit=unit):
            M, q, chi = np.array([s.M, s.q, s.chi]) + x * unit
            state = Overlaps(float(M), float(q - chi / problem.beta), float(chi))
            return free_energy(problem, state, saddle.on_nodes(state)[0])

        e = np.eye(3)
        second = np.array([
            [(f(a + b) - f(a - b) - f(b - a) + f(-a - b)) / 4 for a in e] for b in e
        ]) / np.outer(unit, unit)  # fmt: skip
        assert second[2, 2] < 0 or not s.stable
        reduced = second[:2, :2] - np.outer(second[:2, 2], second[2, :2]) / second[2, 2]
        scale = np.sqrt([s.chi, 2 * s.q * s.chi])
        lowest = np.linalg.eigvalsh(reduced * np.outer(scale, scale))[0]
        assert s.stability.state == pytest.approx(lowest, rel=0.01, abs=2e-3)
        freezing = -second[2, 2] * 2 * s.chi**3 / s.q
        assert s.stability.freezing == pytest.approx(freezing, rel=0.01, abs=2e-3)


def test_stability_at_zero_temperature_is_the_limit():
    """Where forces jump second differences of f do not tell; finite temperatures do, in 1/β."""
    one, two, zero = (solve(Problem(beta=b)).stability for b in (150.0, 300.0, math.inf))
    for name in ("state", "size", "freezing"):
        limit = 2 * getattr(two, name) - getattr(one, name)
        assert getattr(zero, name) == pytest.approx(limit, rel=0.02)


def test_where_replicas_share_nothing_freezing_is_at():
    """Q = 0: f resists a growing Q by 1 − AT, on both sides of AT = 1."""
    seen = []
    for beta in (2.0, 8.0):
        saddle = SaddleEquations(
            Problem(rho=1.0, alpha=4.0, delta=1.0, beta=beta, weight_decay=0.01)
        )
        for s in branches(saddle.problem):
            if 1e-12 * s.q > s.Q:
                assert stability_of(saddle, s.overlaps).freezing == pytest.approx(
                    1 - s.at_eigenvalue, rel=5e-3, abs=5e-3
                )
                seen.append(s.rs_stable)
    assert True in seen
    assert False in seen


def at_rest(problem, V):
    """λ_w + αΔ² tr ∇²F − 1/βV, which is 0 in a state of M = Q = 0 and q = V; its f and its AT.

    ∇²F by the moments of z under N(z; 0, Δ²V) e^{−βH}.
    """
    beta, s2 = problem.beta, problem.delta**2 * V
    u = np.linspace(-1, 1, 601) * math.asinh(8 * math.sqrt(s2))  # close where φ is steep
    z, weight = np.sinh(u), np.cosh(u) * np.exp(-(np.sinh(u) ** 2) / (2 * s2))
    weight /= weight.sum()
    d2 = (np.tanh(z)[:, None] - np.tanh(z)) ** 2
    x = problem.d_f - d2
    hinge = (x + np.sqrt(x**2 + problem.softness)) / 4
    trace = norm = log = 0.0
    for H, part in ((d2 / 2, problem.rho), (hinge, 1 - problem.rho)):
        p = np.exp(-beta * H) * weight[:, None] * weight
        Z = p.sum()
        same = (1 / s2 - z**2 @ p.sum(1) / Z / s2**2) / beta
        cross = -(z @ p @ z) / Z / s2**2 / beta
        trace += part * 2 * same
        norm += part * 2 * (same**2 + cross**2)
        log += part * math.log(Z)
    gap = problem.weight_decay + problem.alpha * problem.delta**2 * trace - 1 / (beta * V)
    f = problem.weight_decay * V / 2 - problem.alpha * log / beta
    f -= math.log(2 * math.pi * math.e * V) / (2 * beta)
    return gap, f, problem.alpha * (problem.delta**2 * beta * V) ** 2 * norm


@pytest.mark.parametrize(
    "problem",
    [
        Problem(alpha=1.912725709258053, delta=1.4667876697990765, beta=1.1770069800923,
                d_f=2.9736955888778205, weight_decay=0.03733414109818377, m=0.4441683263321123,
                rho=0.7674157500070924),
        Problem(alpha=0.16287051642090059, delta=1.3763719082621482, beta=25.668869110099806,
                d_f=1.2651879556822905, weight_decay=0.23328838226844648, m=0.757706207747876,
                rho=0.4312267487774062),
        Problem(alpha=1.3367382228960103, delta=1.6101223901227653, beta=5.541329515181786,
                d_f=0.37926784770826727, weight_decay=0.013310872530065038,
                m=0.6197040851834824, rho=0.6686907585501733),
    ],
    ids=["warm", "cold", "critical"],
)  # fmt: skip
def test_beside_freezing_weights_are_still_found_at_rest(problem):
    """AT = 0.97, 0.99 and 0.99998: Q dies out by 1 − AT of itself a step, and χ follows it."""
    s = solve(problem)
    V = brentq(lambda v: at_rest(problem, v)[0], s.q / 2, 2 * s.q, xtol=1e-13, rtol=1e-13)
    _, f, at = at_rest(problem, V)
    assert s.M == 0.0
    assert s.Q <= s.errors["Q"] < 1e-4 * V
    assert abs(s.q - V) <= s.errors["q"] < 1e-4 * V
    assert abs(s.free_energy - f) <= s.errors["free_energy"] < 1e-5
    assert s.at_eigenvalue == pytest.approx(at, rel=1e-4)
    assert 0.97 < at < 1
    assert s.stable
    (lowest, *_) = branches(problem)
    assert lowest.q == pytest.approx(s.q, rel=1e-8)
    assert lowest.free_energy == pytest.approx(s.free_energy, rel=1e-10)


def test_an_unfrozen_state_does_not_win_by_its_free_energy():
    """Q = 0 has the lower f and AT > 1: it freezes, and f is largest along Q where it has."""
    problem = Problem(alpha=2.27, delta=0.96, beta=21.6, d_f=0.5, weight_decay=0.02, m=0.4,
                      rho=0.937)  # fmt: skip
    solution = solve(problem)
    (unfrozen,) = (r for r in solution.rivals if 1e-6 * r.q > r.overlaps.Q)
    assert unfrozen.free_energy < solution.free_energy
    assert unfrozen.stability.freezing < -0.5
    assert unfrozen.q == pytest.approx(solution.q, rel=0.2)
    assert 0.2 < solution.Q / solution.q < 0.6


def test_every_branch_is_a_saddle_point_of_the_free_energy():
    """∂f/∂λ_w = q/2 on each of them, by difference: f is stationary in all else."""
    step = 2e-4
    problem = replace(SMALL, weight_decay=0.007)
    here = branches(problem)
    assert [s.stable for s in here] == [True, True, False, False, False]
    assert [s.free_energy for s in here[:2]] == sorted(s.free_energy for s in here[:2])
    assert solve(problem).q == pytest.approx(here[0].q, rel=1e-8)
    sides = [branches(replace(problem, weight_decay=0.007 + d)) for d in (-step, step)]
    for s in here:
        low, high = (min(side, key=lambda b: abs(math.log(b.q / s.q))) for side in sides)
        slope = (high.free_energy - low.free_energy) / (2 * step)
        assert slope == pytest.approx(s.q / 2, rel=5e-3)
