"""A second solver, written here with nothing of the package: the printed equations in (z₁, z₂) on
a plain uniform grid, solved by damped repetition. It settles what the reference rows cannot, whose
own grid error shows in their last digits, and where the phases end."""

import math

import numpy as np
import pytest

from fermibose.theory import Problem, critical_point, disordered, solve

ALPHA_5 = (1.419441, 2.765830, 1.7375)  # M, q, AT of the reference table at α = 5


def equations(problem, M, Q, V, *, h):
    """One step of the plain equations with steps h: M, Q, V = q − Q, and the AT eigenvalue."""
    s, width = problem.delta * math.sqrt(V), problem.delta * math.sqrt(Q)
    reach = problem.m * M + 5.5 * width
    w, z = np.arange(-reach, reach, h), np.arange(-reach - 5 * s, reach + 5 * s, h)
    d = (z - w[:, None]) / s
    G = np.where(np.abs(d) < 30, np.exp(-(d**2) / 2), 0.0) * h / (s * math.sqrt(2 * math.pi))
    G1, G2 = G * d / s, G * (d**2 - 1) / s**2
    d2 = (np.tanh(z)[:, None] - np.tanh(z)) ** 2
    x = problem.d_f - d2
    energies = [(d2 / 2, 1), ((x + np.sqrt(x**2 + problem.softness)) / 4, -1)]
    force = force2 = trace = norm = 0.0
    for (H, sign), part in zip(energies, (problem.rho, 1 - problem.rho), strict=True):
        E = np.exp(-problem.beta * H)
        left, left1 = G @ E, G1 @ E
        Z = left @ G.T
        f1, f2 = left1 @ G.T / Z, left @ G1.T / Z
        h11, h22 = G2 @ E @ G.T / Z - f1**2, left @ G2.T / Z - f2**2
        h12 = left1 @ G1.T / Z - f1 * f2
        p, q = (np.exp(-(((w - y * problem.m * M) / width) ** 2) / 2) for y in (1, sign))
        p, q = p / p.sum(), q / q.sum()
        force += part * p @ (f1 + sign * f2) @ q
        force2 += part * p @ (f1**2 + f2**2) @ q
        trace += part * p @ (h11 + h22) @ q
        norm += part * p @ (h11**2 + 2 * h12**2 + h22**2) @ q
    alpha, d2 = problem.alpha, problem.delta**2
    V_new = 1 / (problem.beta * problem.weight_decay - alpha * d2 * trace)
    M_new = V_new * alpha * problem.m * force
    return M_new, M_new**2 + V_new**2 * alpha * d2 * force2, V_new, alpha * d2**2 * V**2 * norm


def repeat(problem, state, *, h, tol):
    """Damped repetition until nothing changes: M, q, AT."""
    for _ in range(80):
        *new, at = equations(problem, *state, h=h)
        change = [b - a for a, b in zip(state, new, strict=True)]
        if max(map(abs, change)) < tol:
            return state[0], state[1] + state[2], at
        state = [a + 0.4 * c for a, c in zip(state, change, strict=True)]
    raise AssertionError(f"still changing by {change}")


def test_the_row_whose_last_digits_are_grid_error():
    """At α = 5 the reference row is what uniform steps of 0.03 give, and steps of 0.022 give ours.

    So its fifth digit of M, its fifth of q and its third of AT are its grid's, and it is compared
    up to there.
    """
    problem, ours = Problem(alpha=5.0), solve(Problem(alpha=5.0))
    M, q, at = ALPHA_5
    state = (ours.M, ours.Q, ours.q - ours.Q)
    coarse = repeat(problem, state, h=0.03, tol=1e-6)
    assert coarse[:2] == pytest.approx((M, q), abs=1e-5)
    assert coarse[2] == pytest.approx(at, abs=3e-4)
    *fine, fine_at = equations(problem, *state, h=0.022)
    assert fine == pytest.approx(state, abs=1e-6)
    assert ours.at_eigenvalue == pytest.approx(fine_at, abs=1e-4)
    assert abs(M - ours.M) > 1e-5
    assert abs(at - fine_at) > 1e-3
    assert (f"{ours.M:.4f}", f"{ours.q:.3f}") == (f"{M:.4f}", f"{q:.3f}")


def test_at_where_minima_compete_off_the_axes():
    """At d_F = 4 the lattice of the solution alone gives 2.630; the second solver has the truth."""
    problem, ours = Problem(d_f=4.0), solve(Problem(d_f=4.0))
    *_, at = equations(problem, ours.M, ours.Q, ours.q - ours.Q, h=0.022)
    assert ours.at_eigenvalue == pytest.approx(at, rel=5e-4)
    assert abs(ours.at_eigenvalue - at) < ours.at_error < 0.02 * at


def test_where_order_ends():
    """Δ_c from the second solver: where a small M neither grows nor shrinks, M' = M."""
    small, growth = 1e-3, []
    for delta in (0.914, 0.9165):
        problem = Problem(delta=delta)
        flat = disordered(problem)
        V = flat.q - flat.Q
        M, Q_new, V_new, _ = equations(problem, small, flat.Q + small**2, V, h=0.045)
        assert (Q_new, V_new) == pytest.approx((flat.Q, V), abs=1e-5)
        growth.append(M / small - 1)
    assert growth[0] > 0 > growth[1]
    root = 0.914 + 0.0025 * growth[0] / (growth[0] - growth[1])
    assert critical_point(Problem(), "delta", between=(0.9, 0.93)) == pytest.approx(root, abs=5e-5)


def test_zero_temperature_is_the_limit_of_the_finite_ones():
    """M, q, χ at T = 0 (proximal map) against β = 150 … 600 (Gaussian convolution), in powers of T.

    The reference row has q = 1.3810; the limit is 1.3813, as ours.
    """
    betas = np.array([150.0, 250.0, 400.0, 600.0])
    warm = [solve(Problem(beta=beta)) for beta in betas]
    zero = solve(Problem(beta=math.inf))
    for name, tol in (("M", 2e-5), ("q", 5e-5), ("chi", 3e-4)):
        values = [getattr(s, name) for s in warm]
        limit = np.polynomial.Polynomial.fit(1 / betas, values, 3)(0.0)
        assert getattr(zero, name) == pytest.approx(limit, abs=tol)
