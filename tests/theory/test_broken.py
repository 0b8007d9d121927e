"""One step of replica symmetry breaking. Oracles: a plain solver on a uniform grid in (z₁, z₂) that
averages forces instead of differentiating F₁, numerical derivatives of the free energy, the free
energy with two steps, limits that are symmetric, thermodynamics, the limit of low temperature,
ground states of instances."""

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from fermibose.cavity import ground_state, sample_instance
from fermibose.errors import InputError
from fermibose.theory import (
    BrokenSolution,
    Clusters,
    ConvergenceError,
    Overlaps,
    Problem,
    StableError,
    solve,
    solve_broken,
)
from fermibose.theory.broken import disordered_broken
from fermibose.theory.channel import GaussianChannel
from fermibose.theory.disjoint import PairMeasure, make_lattice
from fermibose.theory.fixed_point import iterate
from fermibose.theory.rsb import (
    ClusterEquations,
    cluster_averages,
    complexity,
    eigenvalues,
    free_energy,
    update,
)


@lru_cache
def broken(**change: float) -> BrokenSolution:
    return solve_broken(Problem(**change))


def plain_step(problem, clusters, *, h):
    """The equations once, the free energy and both eigenvalues, in the paper's variables.

    V₁ = q − q₁ and W = V₁ + x(q₁ − q₀); a cluster's force is ⟨f⟩ and its Hessian
    ⟨∇f⟩ + x(⟨f fᵀ⟩ − ⟨f⟩⟨f⟩ᵀ).
    """
    M, q0, q1, x, beta = clusters.M, clusters.q0, clusters.q1, clusters.x, problem.beta
    V1, delta, alpha = clusters.chi1 / beta, problem.delta, problem.alpha
    s, sigma, width = (delta * math.sqrt(v) for v in (V1, q1 - q0, q0))
    reach = problem.m * M + 6 * delta * math.sqrt(q1)
    w, z = np.arange(-reach, reach, h), np.arange(-reach - 5 * s, reach + 5 * s, h)

    def gauss(d, width):
        return np.exp(-((d / width) ** 2) / 2) * h / (width * math.sqrt(2 * math.pi))

    d = z - w[:, None]
    G = gauss(d, s)
    G1, G2 = G * d / s**2, G * (d**2 / s**2 - 1) / s**2
    K = gauss(w - w[:, None], sigma)
    d2 = (np.tanh(z)[:, None] - np.tanh(z)) ** 2
    gap = problem.d_f - d2
    energies = [(d2 / 2, 1), ((gap + np.sqrt(gap**2 + problem.softness)) / 4, -1)]
    sums = np.zeros(7)
    for (H, sign), part in zip(energies, (problem.rho, 1 - problem.rho), strict=True):
        E = np.exp(-beta * H)
        Z = G @ E @ G.T
        f1, f2 = G1 @ E @ G.T / Z, G @ E @ G1.T / Z
        h11, h22 = G2 @ E @ G.T / Z - f1**2, G @ E @ G2.T / Z - f2**2
        h12 = G1 @ E @ G1.T / Z - f1 * f2
        total = K @ Z**x @ K.T

        def mean(g, Z=Z, total=total):
            return K @ (Z**x * g) @ K.T / total

        c1, c2 = mean(f1), mean(f2)
        b11, b22, b12 = (
            mean(hess) + x * (mean(a * b) - mean(a) * mean(b))
            for hess, a, b in ((h11, f1, f1), (h22, f2, f2), (h12, f1, f2))
        )
        p, q = (gauss(w - y * problem.m * M, width) for y in (1, sign))
        sums += part * np.array([
            p @ g @ q
            for g in (
                c1 + sign * c2, c1**2 + c2**2, mean(f1**2 + f2**2), mean(h11 + h22),
                mean(h11**2 + 2 * h12**2 + h22**2), b11**2 + 2 * b12**2 + b22**2,
                np.log(total) / x,
            )
        ])  # fmt: skip
    force, force2, force2_in, trace, norm_in, norm, log_z = sums
    ad2 = alpha * delta**2
    new_V1 = 1 / (beta * problem.weight_decay - ad2 * trace)
    new_W = 1 / (1 / new_V1 - x * ad2 * (force2_in - force2))
    new_M = new_W * alpha * problem.m * force
    new_q0 = new_M**2 + new_W**2 * ad2 * force2
    state = (new_M, new_q0, new_q0 + (new_W - new_V1) / x, beta * new_V1)
    W = V1 + x * (q1 - q0)
    logs = (1 - 1 / x) * math.log(V1) + math.log(W) / x + (q0 - M**2) / W
    minus_beta_f = (1 + math.log(2 * math.pi) + logs - beta * problem.weight_decay * clusters.q) / 2
    minus_beta_f += alpha * log_z
    both = (ad2 * delta**2 * W**2 * norm, ad2 * delta**2 * V1**2 * norm_in)
    return state, -minus_beta_f / beta, both


@pytest.mark.parametrize(
    "change", [{}, {"delta": 0.8}, {"delta": 1.0}, {"alpha": 0.3, "beta": 150.0}]
)
def test_a_plain_grid_leaves_the_solution_where_it_is(change):
    s = broken(**change)
    c = s.clusters
    state, f, both = plain_step(s.problem, c, h=0.022 if "beta" in change else 0.03)
    assert state == pytest.approx((c.M, c.q0, c.q1, c.chi1), abs=2e-5, rel=2e-5)
    assert f == pytest.approx(s.free_energy, abs=1e-7)
    assert tuple(s.eigenvalues) == pytest.approx(both, rel=2e-3)
    assert s.residual <= 1e-8
    assert s.converged


def test_the_default_point():
    """An independent solution of the same equations."""
    s = broken()
    assert s.x == pytest.approx(0.37, abs=0.01)
    assert s.clusters.x == s.x
    assert pytest.approx(1.01877, abs=1e-5) == s.M
    assert s.q == pytest.approx(1.68663, abs=2e-5)
    assert s.q1 == pytest.approx(1.5753, abs=3e-4)
    assert s.q0 == pytest.approx(1.553, abs=5e-4)
    assert s.free_energy == pytest.approx(0.0794511, abs=1e-7)
    assert s.free_energy > s.symmetric.free_energy  # broken symmetry raises f
    assert pytest.approx(s.x * s.q0 + (1 - s.x) * s.q1, rel=1e-12) == s.Q
    assert not s.stable


@pytest.mark.parametrize(
    ("change", "M", "x"),
    [
        ({"delta": 0.8}, 0.825, 0.157),
        ({"delta": 0.9}, 0.679, 0.142),
        ({"delta": 1.0}, 0.506, 0.133),
        ({"delta": 1.5}, 0.0, 0.137),
        ({"beta": 32.0}, 1.0729, 0.540),
        ({"alpha": 1.0, "beta": 100.0, "delta": 1.0}, 0.089, 0.338),
    ],
)
def test_where_the_parisi_parameter_is_small_or_the_gap_is(change, M, x):
    """Stationary in x, and above the symmetric free energy: f(x) beside the solution is lower."""
    s = broken(**change)
    assert pytest.approx(M, abs=2e-3) == s.M
    assert s.x == pytest.approx(x, abs=2e-3)
    assert abs(s.complexity) < 1e-7
    assert s.free_energy >= s.symmetric.free_energy
    beside = [solve_broken(s.problem, s, x=s.x * r).free_energy for r in (0.8, 1.25)]
    assert max(beside) < s.free_energy


def test_order_of_one_step_wins_where_the_symmetric_solution_has_none():
    """Δ = 1: the broken state of M = 0 is unstable, and has the higher free energy."""
    flat, ordered = disordered_broken(Problem(delta=1.0)), broken(delta=1.0)
    assert flat.M == ordered.symmetric.M == 0
    assert flat.label_stiffness < 0
    assert ordered.free_energy < flat.free_energy
    assert ordered.accuracy > 0.63


def broken_energy(problem, clusters, lattice):
    return free_energy(problem, clusters, cluster_averages(problem, clusters, lattice))


def test_equations_are_derivatives_of_the_free_energy():
    """At a point that is no solution: ∂f in every direction, against the equations' residuals."""
    problem = Problem()
    point = {"M": 1.0, "q0": 1.50, "q1": 1.56, "chi1": 5.5, "y": 20.0, "beta": 50.0}
    lattice = make_lattice(
        problem, Overlaps(1.0, 1.56, 5.5), widest=0.03, coarseness=0.8, everywhere=True
    )

    def f(q=None, **moved):
        p = point | moved
        if q is not None:
            p["chi1"] = problem.beta * (q - p["q1"])
        return broken_energy(problem, Clusters(**p), lattice)

    def slope(name, h=1e-4, **fixed):
        up, down = (f(**{name: point[name] + s * h}, **fixed) for s in (1, -1))
        return (up - down) / (2 * h)

    clusters = Clusters(**point)
    average = cluster_averages(problem, clusters, lattice)
    ad2, beta, lam, y, X = problem.alpha * problem.delta**2, 50.0, 0.05, 20.0, clusters.X
    spread, q = clusters.q0 - clusters.M**2, clusters.q
    assert slope("M") == pytest.approx(
        clusters.M / X + problem.alpha * problem.m * average.outer.force, abs=1e-6
    )
    assert slope("q0", q=q) == pytest.approx(
        y / 2 * (ad2 * average.outer.force2 - spread / X**2), abs=1e-5
    )
    assert y**2 * slope("y", h=0.02, q=q) == pytest.approx(
        complexity(problem, clusters, average), abs=1e-6
    )
    new = update(problem, clusters, average)
    trace = problem.alpha * problem.delta / math.sqrt(clusters.q0) * average.outer.slope
    assert pytest.approx(lam + trace, rel=1e-12) == 1 / new.X
    variance = ad2 * (average.force2 - average.outer.force2)
    expected = (
        lam / beta
        - 1 / (beta * clusters.chi1)
        + spread / X**2
        + (1 / clusters.chi1 - 1 / X) / y
        - ad2 * average.force2
        + (trace + y * variance) / beta
    ) / 2
    assert slope("chi1", h=1e-3) == pytest.approx(expected, abs=1e-6)


@lru_cache
def cold(beta: float) -> BrokenSolution:
    """The default point at lower and lower temperature."""
    start = broken(beta=150.0) if beta == 300 else cold({600.0: 300.0, math.inf: 600.0}[beta])
    return solve_broken(Problem(beta=beta), start)


@pytest.mark.parametrize(
    ("start", "ys"),
    [(lambda: broken(delta=0.7), (5.7, 6.0, 6.3)), (lambda: cold(math.inf), (11.4, 12.0, 12.6))],
    ids=["finite", "zero"],
)
def test_the_complexity_is_the_slope_of_the_free_energy(start, ys):
    """Σ = y² df/dy of whole solutions, and y = dΣ/df_c of the clusters they select."""
    best = start()
    low, middle, high = (solve_broken(best.problem, best, y=y) for y in ys)
    assert middle.complexity > 0  # below the y that makes f stationary
    slope = (high.free_energy - low.free_energy) / (ys[2] - ys[0])
    assert middle.complexity == pytest.approx(ys[1] ** 2 * slope, rel=0.02)
    rise = high.cluster_free_energy - low.cluster_free_energy
    assert (high.complexity - low.complexity) / rise == pytest.approx(ys[1], rel=0.02)
    assert middle.y == ys[1]
    assert middle.x == ys[1] / best.problem.beta


def two_step_energy(problem, M, qs, ys, q, lattice):
    """f with two steps of breaking, overlaps q₀ < q₁ < q₂ and y₁ < y₂."""
    (q0, q1, q2), (y1, y2), beta = qs, ys, problem.beta
    chi, d2, axes = beta * (q - q2), problem.delta**2, (lattice.r, lattice.t)
    X1 = chi + y2 * (q2 - q1)
    X0 = X1 + y1 * (q1 - q0)
    F = lattice.channel.effective(d2 * chi).F
    for y, gap in ((y2, q2 - q1), (y1, q1 - q0)):
        F = GaussianChannel(F, y, at=axes, on=axes).effective(y * d2 * gap).F
    return (
        problem.weight_decay * q / 2
        - (q0 - M**2) / (2 * X0)
        - math.log(2 * math.pi * math.e * chi / beta) / (2 * beta)
        - math.log(X1 / chi) / (2 * y2)
        - math.log(X0 / X1) / (2 * y1)
        + problem.alpha * PairMeasure(problem, *axes, M=M, Q=q0).mean(F)
    )


@pytest.mark.parametrize("level", ["between", "inside"])
@pytest.mark.parametrize("delta", [0.7, 1.0])
def test_eigenvalues_are_the_second_variation_with_two_steps(delta, level):
    """A level that reigns from y_a to y_b, split in two at y between them by η:

    f = const − (y_b − y)(y − y_a)/(y_b − y_a) η² (1 − λ)/4X² + O(η³), X the level's response.
    """
    s = broken(delta=delta)
    problem, c = s.problem, s.clusters
    low, high = (0.0, c.y) if level == "between" else (c.y, problem.beta)
    X, middle = (c.X, c.q0) if level == "between" else (c.chi1, c.q1)
    y = low + 0.5 * (high - low)
    scale = (high - y) * (y - low) / (high - low) / (4 * X**2)

    def curvature(eta):
        widest = problem.delta * math.sqrt(eta) / 1.6
        lattice = make_lattice(problem, Overlaps(c.M, c.q1, c.chi1), widest=widest, everywhere=True)
        lower = middle - eta * (high - y) / (high - low)
        upper = middle + eta * (y - low) / (high - low)
        if level == "between":
            qs, ys = (lower, upper, c.q1), (y, c.y)
        else:
            qs, ys = (c.q0, lower, upper), (c.y, y)
        flat = broken_energy(problem, c, lattice)
        return 1 + (two_step_energy(problem, c.M, qs, ys, c.q, lattice) - flat) / (scale * eta**2)

    size = 0.04 * c.gap if level == "between" else 0.015 * (s.q - c.q1)
    a, b, d = (curvature(k * size) for k in (1, 2, 4))
    assert (8 * a - 6 * b + d) / 3 == pytest.approx(getattr(s.eigenvalues, level), rel=0.01)


@pytest.mark.parametrize("change", [{}, {"alpha": 0.5}, {"delta": 1.0}])
@pytest.mark.parametrize("x", [0.2, 0.8])
def test_without_spread_all_is_symmetric(change, x):
    """q₁ → q₀: the free energy, and both eigenvalues are AT."""
    problem = Problem(**change)
    s = solve(problem)

    def at(gap):
        clusters = Clusters(s.M, s.Q - gap, s.Q, s.chi, problem.beta * x, problem.beta)
        average = ClusterEquations(problem, clusters.y).evaluate(clusters)
        return np.array([free_energy(problem, clusters, average), *eigenvalues(problem, clusters)])

    f, *both = (8 * at(4e-4) - 6 * at(8e-4) + at(16e-4)) / 3  # a parabola, at gap 0
    assert f == pytest.approx(s.free_energy, abs=1e-7)
    assert both == pytest.approx([s.at_eigenvalue] * 2, rel=5e-3)


@pytest.mark.parametrize("change", [{}, {"delta": 0.8}])
def test_one_parisi_parameter_is_no_breaking(change):
    """At x = 1 the replicas of a cluster are all there are: f is symmetric, linearly in 1 − x."""
    one, two = (solve_broken(Problem(**change), x=x) for x in (0.998, 0.996))
    flat = one.symmetric.free_energy
    rise = one.free_energy - flat
    assert rise > 0
    assert (two.free_energy - flat) / rise == pytest.approx(2, rel=5e-3)


@pytest.mark.parametrize("change", [{}, {"delta": 1.0}])
def test_internal_energy_is_the_derivative_of_beta_f(change):
    s = broken(**change)
    h = 0.02 * s.problem.beta
    up, down = (
        solve_broken(replace(s.problem, beta=b), s)
        for b in (s.problem.beta + h, s.problem.beta - h)
    )
    slope = (up.problem.beta * up.free_energy - down.problem.beta * down.free_energy) / (2 * h)
    assert s.energy == pytest.approx(slope, abs=2e-5)


def test_low_temperatures_approach_zero_temperature():
    """Parabolas in T = 1/β through three temperatures; the energy is f in the limit."""
    betas = (150.0, 300.0, 600.0)
    found, zero = [broken(beta=150.0), cold(300.0), cold(600.0)], cold(math.inf)
    T = 1 / np.array(betas)

    def limit(name):
        return np.polyfit(T, [getattr(s, name) for s in found], 2)[-1]

    assert zero.x == 0
    assert zero.q == zero.q1
    assert pytest.approx(limit("M"), abs=1e-4) == zero.M
    for name, tol in (("q0", 5e-4), ("q1", 5e-4), ("q", 5e-4), ("y", 0.15)):
        assert getattr(zero, name) == pytest.approx(limit(name), abs=tol)
    assert zero.clusters.chi1 == pytest.approx(
        np.polyfit(T, [s.clusters.chi1 for s in found], 2)[-1], rel=2e-3
    )
    assert zero.free_energy == pytest.approx(limit("energy"), abs=1e-5)
    assert zero.energy == pytest.approx(zero.free_energy, abs=1e-5)
    between = np.polyfit(T, [s.eigenvalues.between for s in found], 2)[-1]
    assert zero.eigenvalues.between == pytest.approx(between, rel=0.01)
    assert math.isinf(zero.eigenvalues.inside)  # forces jump: inside a cluster it grows with β
    assert [s.eigenvalues.inside for s in found] == sorted(s.eigenvalues.inside for s in found)
    assert not zero.stable


def test_no_instance_is_as_low_as_replica_symmetry_says():
    """Δ = 1, T = 0: minima of instances are upper bounds of their ground states, mean 0.14.

    The symmetric f is 0.071; with one step it is far above that, and still below every instance.
    """
    zero = Problem(delta=1.0, beta=math.inf)
    s = solve_broken(zero, broken(delta=1.0))
    assert s.M > 0.4
    assert s.symmetric.M == 0
    found = [
        ground_state(sample_instance(zero, 100, seed=k, counts="exact"), restarts=6).energy
        for k in range(4)
    ]
    assert s.symmetric.free_energy + 0.02 < s.free_energy < min(found)


@pytest.mark.parametrize("x", [0.0, 1.0, -1, math.nan, "a", True])
def test_parisi_parameters_that_are_none(x):
    with pytest.raises(InputError, match="x must be a finite number > 0 and < 1"):
        solve_broken(Problem(), x=x)
    if x != 1.0 or x is True:
        with pytest.raises(InputError, match="y must be a finite number > 0 and < 50"):
            solve_broken(Problem(), y=x)


@pytest.mark.parametrize("change", [{"alpha": 1.0}, {"beta": 32.0}])
def test_beside_the_line_of_at_one_step_is_nearly_enough(change):
    """Where AT − 1 is small both eigenvalues are above 1 by far less than AT is."""
    s = broken(**change)
    beyond = s.symmetric.at_eigenvalue - 1
    assert beyond < 0.06
    assert all(0 < value - 1 < 0.05 * beyond for value in s.eigenvalues)


def test_arguments_that_are_refused():
    with pytest.raises(InputError, match="not both"):
        solve_broken(Problem(), x=0.3, y=15.0)
    with pytest.raises(InputError, match="x vanishes at zero temperature: give y"):
        solve_broken(Problem(beta=math.inf), x=0.3)
    with pytest.raises(InputError, match="start must be a BrokenSolution or Clusters"):
        solve_broken(Problem(), solve(Problem()))
    good = broken().clusters
    for change, words in (
        ({"q1": 1.0}, "M² <= q0 < q1"),
        ({"q0": 0.5}, "M² <= q0 < q1"),
        ({"chi1": 0.0}, "chi1 and y above 0"),
        ({"y": math.nan}, "finite numbers"),
    ):
        with pytest.raises(InputError, match=words):
            solve_broken(Problem(), replace(good, **change))


def test_broken_symmetry_needs_an_unstable_point():
    with pytest.raises(StableError, match="replica symmetry is stable here"):
        solve_broken(Problem(alpha=0.5))
    with pytest.raises(StableError, match="replica symmetry is stable here"):
        solve_broken(Problem(alpha=0.5), broken())  # no clusters there


def test_a_start_saves_the_search():
    """From clusters, or from a neighbour's solution, to the solution found from above."""
    s = broken(delta=0.8)
    for start in (broken(delta=0.9), broken(delta=0.9).clusters):
        again = solve_broken(Problem(delta=0.8), start)
        assert pytest.approx(s.M, abs=1e-6) == again.M
        assert again.free_energy == pytest.approx(s.free_energy, abs=1e-10)
        assert again.iterations < s.iterations


def test_what_is_not_solved_says_so(monkeypatch):
    def brief(*args, **options):
        return iterate(*args, **(options | {"max_iterations": 3}))

    monkeypatch.setattr("fermibose.theory.broken_search.iterate", brief)
    with pytest.raises(ConvergenceError, match=r"y = beta x = .*: the residual stays at") as caught:
        solve_broken(Problem())
    assert isinstance(caught.value.state, Clusters)


def test_no_parisi_parameter_is_said_plainly(monkeypatch):
    monkeypatch.setattr("fermibose.theory.broken_search._LOWEST", 0.7)
    with pytest.raises(ConvergenceError, match="the complexity keeps its sign as far as y"):
        solve_broken(Problem())
