"""All pairs of the samples. Oracles: the equations on plain grids with every label and cluster
written out, derivatives of the free energy, the loss of new data, zero temperature from above."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fermibose.errors import InputError
from fermibose.theory import (
    Problem,
    branches,
    phase_diagram,
    population,
    solve,
    solve_broken,
    trace,
)


def everyone(**change):
    return Problem(pairing="all", **({"samples": 2.0} | change))


def energy(problem, a, b, z1, z2):
    """H of samples of labels a and b, written out."""
    d2 = (np.tanh(z1) - np.tanh(z2)) ** 2
    x = problem.d_f - d2
    return d2 / 2 if a == b else (x + np.sqrt(x**2 + problem.softness)) / 4


def plain_equations(problem, M, Q, chi, *, nodes=901, sweeps=400):
    """M, Q, χ, f, mean energy and AT that follow from a state: plain grids, damped densities.

    Every cluster y and label a has its own density; nothing is mirrored.
    """
    beta, delta, s = problem.beta, problem.delta, problem.delta * math.sqrt(chi / problem.beta)
    width = delta * math.sqrt(Q)
    reach = problem.m * M + 7 * width + 6 * s + 2
    v, z = np.linspace(-7, 7, 401), np.linspace(-reach, reach, nodes)
    pv, dz = np.exp(-(v**2) / 2) / math.sqrt(2 * math.pi) * (v[1] - v[0]), z[1] - z[0]
    right, wrong = 1 - problem.mislabelled, problem.mislabelled
    clusters = {1: problem.balance, -1: 1 - problem.balance}
    shares = {(y, a): clusters[y] * (right if a == y else wrong) for y in (1, -1) for a in (1, -1)}
    H = {(a, b): energy(problem, a, b, z[:, None], z) for a in (1, -1) for b in (1, -1)}
    fields = {y: y * problem.m * M + width * v for y in (1, -1)}
    kernel = {y: np.exp(-((z - w[:, None]) ** 2) / (2 * s**2)) / math.sqrt(2 * math.pi * s**2)
              for y, w in fields.items()}  # fmt: skip
    rho = {a: np.exp(-((z - a * problem.m * M) ** 2) / (2 * (width**2 + s**2))) for a in (1, -1)}
    total = {a: sum(shares[y, a] for y in (1, -1)) for a in (1, -1)}
    rho = {a: rho[a] * total[a] / (rho[a].sum() * dz) for a in (1, -1)}
    for _ in range(sweeps):
        h = {a: sum(H[a, b] @ rho[b] * dz for b in (1, -1)) for a in (1, -1)}
        new = {a: np.zeros_like(z) for a in (1, -1)}
        for (y, a), share in shares.items():
            tilted = kernel[y] * np.exp(-beta * h[a])
            new[a] += share * (pv / (tilted.sum(1) * dz)) @ tilted
        change = max(np.abs(new[a] - rho[a]).max() for a in (1, -1))
        rho = {a: (rho[a] + new[a]) / 2 for a in (1, -1)}
        if change < 1e-11:
            break
    log_z = force = force2 = slope = bend2 = 0.0
    for (y, a), share in shares.items():
        tilted = kernel[y] * np.exp(-beta * h[a]) * dz
        Z, away = tilted.sum(1), (z - fields[y][:, None]) / s**2
        f = (tilted * away).sum(1) / Z
        df = (tilted * away**2).sum(1) / Z - f**2 - 1 / s**2
        log_z += share * pv @ np.log(Z)
        force, force2 = force + share * y * pv @ f, force2 + share * pv @ f**2
        slope, bend2 = slope + share * pv @ df, bend2 + share * pv @ df**2
    pairs = sum(rho[a] @ H[a, b] @ rho[b] * dz**2 for a in (1, -1) for b in (1, -1))
    gamma, lam = problem.samples, problem.weight_decay
    G = beta * lam - gamma * delta**2 * slope
    new_M = gamma * problem.m * force / G
    new_Q = new_M**2 + gamma * delta**2 * force2 / G**2
    V, q = chi / beta, Q + chi / beta
    minus_beta_f = math.log(2 * math.pi * math.e * V) / 2 + (Q - M**2) / (2 * V)
    minus_beta_f += -beta * lam * q / 2 + gamma * (log_z + beta / 2 * pairs)
    at = gamma * delta**4 * V**2 * bend2
    return {"M": new_M, "Q": new_Q, "chi": beta / G, "free_energy": -minus_beta_f / beta,
            "training_energy": pairs, "at_eigenvalue": at}  # fmt: skip


CASES = [
    everyone(samples=1.0),
    everyone(samples=4.0, delta=0.8, d_f=0.6, beta=30.0),
    everyone(samples=0.4, d_f=2.0, beta=20.0, mislabelled=0.1),
    everyone(samples=3.0, balance=0.3, mislabelled=0.07, d_f=0.5),
    everyone(samples=2.0, delta=1.3, beta=40.0, m=1.4, weight_decay=0.02),
]


@pytest.mark.parametrize("problem", CASES)
def test_a_solution_solves_the_equations_on_plain_grids(problem):
    s = solve(problem)
    expected = plain_equations(problem, s.M, s.Q, s.chi)
    for name, value in expected.items():
        assert getattr(s, name) == pytest.approx(value, rel=3e-5, abs=1e-6), name
        # What is stated covers it, but for what the plain grids themselves miss.
        if name in s.errors and name not in ("M", "Q", "chi"):
            assert abs(getattr(s, name) - value) < s.errors[name] + 1e-6 * abs(value)


def slope(problem, name, step=1e-3):
    """df/dlog of a parameter, by central differences of whole solutions."""
    value = getattr(problem, name)
    up, down = (solve(replace(problem, **{name: value * (1 + sign * step)})) for sign in (1, -1))
    return (up.free_energy - down.free_energy) / (2 * step), up, down


@pytest.mark.parametrize("problem", [*CASES[1:4], everyone(samples=3.0, beta=math.inf)])
def test_derivatives_of_the_free_energy(problem):
    """d(βf)/dβ is the energy, ∂f/∂λ is q/2, ∂f/∂γ is half of what a pair adds."""
    s = solve(problem)
    assert slope(problem, "weight_decay")[0] == pytest.approx(
        problem.weight_decay * s.q / 2, abs=1e-6
    )
    assert slope(problem, "samples")[0] == pytest.approx(
        problem.samples * s.mean_field_energy / 2, abs=1e-6
    )
    if not problem.zero_temperature:
        change, _, _ = slope(problem, "beta")
        assert change + s.free_energy == pytest.approx(s.energy, abs=1e-6)
        assert s.energy == pytest.approx(
            problem.samples / 2 * s.training_energy + problem.weight_decay * s.q / 2, rel=1e-12
        )


@pytest.mark.parametrize("change", [{}, {"balance": 0.3}, {"mislabelled": 0.05, "d_f": 0.5}])
def test_zero_temperature_is_the_limit_of_low_ones(change):
    """Linear in T from β = 400 and 800 on."""
    zero = solve(everyone(beta=math.inf, **change))
    cold, colder = (solve(everyone(beta=beta, **change)) for beta in (400.0, 800.0))
    for name in ("M", "q", "chi", "accuracy", "at_eigenvalue"):
        limit = 2 * getattr(colder, name) - getattr(cold, name)
        assert getattr(zero, name) == pytest.approx(limit, rel=5e-3), name
    assert zero.q == zero.Q


def test_many_samples_are_the_loss_of_new_data():
    """γ → ∞ at fixed λ/γ: M, q and the energy of the population, by a power of 1/γ."""
    gaps = []
    for gamma in (100.0, 400.0):
        problem = everyone(samples=gamma, weight_decay=0.01 * gamma, beta=math.inf)
        s, limit = solve(problem), population(problem)
        assert abs(limit.q - limit.M**2) < 1e-6  # the best weights are all the same
        gaps.append([s.M - limit.M, s.q - limit.q, (s.free_energy - limit.energy) / gamma])
        assert s.accuracy == pytest.approx(limit.accuracy, abs=1 / gamma)
    ratio = np.abs(gaps[1]) / np.abs(gaps[0])
    assert (ratio < 0.3).all(), gaps
    assert np.abs(gaps[1]).max() < 0.02


def test_the_population_is_a_minimum_of_its_energy():
    problem = everyone(samples=3.0, delta=0.8)
    found = population(problem)

    def e(M, q):
        return 1.5 * loss(M, q) + problem.weight_decay * q / 2

    def loss(M, q):
        z = np.linspace(-8, 8, 801)
        p = np.exp(-(z**2) / 2)
        p /= p.sum()
        a, b = (y * M + problem.delta * math.sqrt(q) * z for y in (1, -1))
        same = p @ energy(problem, 1, 1, a[:, None], a) @ p
        other = p @ energy(problem, 1, -1, a[:, None], b) @ p
        return (same + other) / 2

    lowest = e(found.M, found.q)
    assert found.energy == pytest.approx(lowest, abs=1e-7)
    for M, q in ((1.01, 1.03), (0.99, 1.0), (1.0, 1.02), (1.02, 1.05)):
        assert e(found.M * M, max(found.q * q, (found.M * M) ** 2)) > lowest
    with pytest.raises(InputError, match="right labels"):
        population(everyone(mislabelled=0.1))
    with pytest.raises(InputError, match="nothing to learn"):
        population(everyone(m=0.0))


def test_all_pairs_remove_the_glass():
    """The same samples in disjoint pairs: lower accuracy, and replica symmetry breaks."""
    for gamma, beta in ((1.0, 50.0), (5.0, 50.0), (5.0, math.inf)):
        pairs = solve(Problem(alpha=gamma / 2, beta=beta))
        every = solve(everyone(samples=gamma, beta=beta))
        assert every.accuracy > pairs.accuracy + 0.01
        assert every.at_eigenvalue < 0.4 < pairs.at_eigenvalue


def test_few_samples_hardly_move_free_weights():
    """γ → 0: weights of the prior, q = 1/(βλ), M = 0 to first order in γ."""
    s = solve(everyone(samples=1e-4, beta=5.0))
    assert s.q == pytest.approx(1 / (5 * 0.05), rel=1e-3)
    assert s.M < 0.05
    assert s.entropy == pytest.approx(0.5 * math.log(2 * math.pi * math.e * s.q), rel=1e-3)


def test_samples_without_a_mean_are_learnt_by_heart():
    """m = 0, few cold samples: training pairs are told apart, new ones are not."""
    s = solve(everyone(samples=0.5, m=0.0, delta=1.0, beta=200.0))
    assert s.M == 0
    assert s.accuracy == 0.5
    assert s.training_energy < 0.2 * s.generalization_loss
    hot = solve(everyone(samples=0.5, m=0.0, delta=1.0, beta=0.05))
    assert hot.training_energy > 0.8 * hot.generalization_loss


def test_equal_classes_are_a_limit_of_unequal_ones():
    """Both labels written out, or one of them and its mirror image."""
    equal = solve(everyone(mislabelled=0.05))
    nearly = solve(everyone(mislabelled=0.05, balance=0.5 + 1e-9))
    for name in ("M", "q", "Q", "free_energy", "at_eigenvalue"):
        assert getattr(nearly, name) == pytest.approx(getattr(equal, name), rel=1e-7), name
    turned = [solve(everyone(balance=balance)).M for balance in (0.3, 0.7)]
    assert turned[0] == pytest.approx(turned[1], rel=1e-8)


def test_lengths_have_no_unit():
    """(m, Δ, λ) → (km, kΔ, k²λ) is M → M/k, and nothing else changes."""
    one, other = (
        solve(everyone(m=k, delta=0.5 * k, weight_decay=0.05 * k**2)) for k in (1.0, 20.0)
    )
    assert pytest.approx(one.M, rel=1e-8) == other.M * 20
    assert other.free_energy == pytest.approx(one.free_energy - math.log(1 / 20) / 50, rel=1e-7)


def test_curves_and_diagrams_along_samples():
    curve = trace(everyone(), "samples", [0.5, 1.0, 2.0])
    assert np.all(np.diff(curve.column("accuracy")) > 0)
    assert pytest.approx(solve(everyone(samples=1.0)).M, rel=1e-6) == curve[1].M
    diagram = phase_diagram(everyone(), "delta", [0.4, 0.8], "samples", [1.0, 3.0], workers=1)
    assert diagram.map("M")[1, 0] == pytest.approx(
        solve(everyone(samples=3.0, delta=0.4)).M, rel=1e-6
    )
    states = branches(everyone())
    assert states[0].M > 0
    assert any(state.M == 0 and not state.stable for state in states)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"alpha": 1.0, "pairing": "all"}, "alpha counts disjoint pairs"),
        ({"samples": 1.0}, "samples goes with all pairs"),
        ({"samples": 0.0, "pairing": "all"}, "samples must be a finite number > 0"),
        ({"pairing": "some"}, "pairing must be 'disjoint' or 'all'"),
        ({"pairing": "all", "rho": 0.3}, "rho is the fraction of bosons among disjoint pairs"),
        ({"pairing": "all", "mislabelled": 0.5}, "mislabelled must be .* >= 0 and < 0.5"),
        ({"pairing": "all", "balance": 1.0}, "balance must be a finite number > 0 and < 1"),
        ({"balance": 0.3}, "balance and mislabelled go with"),
        ({"pairing": "all", "balance": 0.3, "activation": np.exp}, "need an odd activation"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(given, word):
    with pytest.raises(InputError, match=word):
        Problem(**given)


def test_breaking_replica_symmetry_is_for_disjoint_pairs():
    with pytest.raises(InputError, match="disjoint pairs"):
        solve_broken(everyone())
