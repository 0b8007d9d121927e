"""Solver. Oracles: an independent reference table (finite and zero temperature), exact symmetries
and limits, the equations' own residual, refinement of the grid."""

import importlib
import math

import numpy as np
import pytest
from scipy.special import erf
from threadpoolctl import threadpool_info, threadpool_limits

from fermibose.errors import FermiboseError, InputError
from fermibose.theory import (
    ConvergenceError,
    Overlaps,
    Problem,
    branches,
    disordered,
    replica,
    solve,
)
from fermibose.theory.channel import Axis, GaussianChannel, pair_table
from fermibose.theory.fixed_point import iterate
from fermibose.theory.replica import SaddleEquations, to_overlaps, to_vector, update

solve_module = importlib.import_module("fermibose.theory.solve")  # the package has a function of it
search_module = importlib.import_module("fermibose.theory.search")

# M, q, ε_g, accuracy, AT of an independent solver; M to 1e-5, ε_g to 1e-7. Its row at α = 5 is off
# by more than that: test_brute_force.py shows why, and compares it where it is right.
TABLE = [
    ({"alpha": 0.1}, 0.146116, 0.495478, 0.237391, 0.660988, 0.4485),
    ({"alpha": 0.5}, 0.491830, 0.729978, 0.146035, 0.875197, 0.6379),
    ({"alpha": 1.0}, 0.669449, 0.975706, 0.113422, 0.912365, 1.0131),
    ({"alpha": 2.0}, 0.914411, 1.451316, 0.090026, 0.935501, 1.5429),
    ({"delta": 0.2}, 0.791355, 0.927762, 0.009473, 0.999980, 0.112),
    ({"delta": 0.4}, 0.962791, 1.383216, 0.045255, 0.979650, 0.577),
    ({"delta": 0.8}, 0.662742, 1.993943, 0.280324, 0.721289, 6.27),
    ({"delta": 1.0}, 0.0, 1.738806, 0.365423, 0.5, 6.48),
    ({"delta": 1.5}, 0.0, 1.376479, 0.409960, 0.5, 4.64),
]


def refined(solution, *, coarseness):
    """The same solution on another grid."""
    saddle = SaddleEquations(solution.problem, coarseness=coarseness)
    fine = iterate(saddle, to_vector(solution.overlaps), tol=1e-9, max_iterations=30)
    assert fine.converged
    return to_overlaps(fine.x)


def test_one_thread_computes_and_what_was_before_comes_back(monkeypatch):
    """The number of threads changes how a GEMM rounds; numpy and scipy bring a BLAS each."""
    inside, explore = [], solve_module.explore

    def blas():
        return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]

    monkeypatch.setattr(
        solve_module, "explore", lambda *args: inside.append(blas()) or explore(*args)
    )
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas()
        solve(Problem(alpha=0.5, beta=5.0))
        assert blas() == before
    assert set(before) == {2}
    assert inside == [[1] * len(before)]


@pytest.mark.parametrize(("change", "M", "q", "loss", "accuracy", "at"), TABLE)
def test_reference_points(change, M, q, loss, accuracy, at):
    solution = solve(Problem(**change))
    assert solution.converged
    assert solution.residual <= 1e-10
    assert pytest.approx(M, abs=1e-5) == solution.M
    assert solution.q == pytest.approx(q, abs=4e-5)
    assert solution.generalization_loss == pytest.approx(loss, abs=2e-6)
    assert solution.accuracy == pytest.approx(accuracy, abs=3e-6)
    assert solution.at_eigenvalue == pytest.approx(at, rel=1.5e-3, abs=5e-4)
    assert solution.rs_stable == (at < 1)


@pytest.mark.parametrize(
    "problem",
    [Problem(), Problem(alpha=5.0), Problem(delta=0.2), Problem(rho=0.9, beta=20.0, d_f=2.5)],
    ids=str,
)
def test_the_equations_hold_on_an_unturned_grid(problem):
    """The saddle-point equations in (z₁, z₂) with uniform steps and ∇² ln Z, written out here."""
    solution = solve(problem)
    M, Q, V = solution.M, solution.Q, solution.q - solution.Q
    s, width = problem.delta * math.sqrt(V), problem.delta * math.sqrt(Q)
    h = min(0.02, s / 8, width / 4)
    reach = problem.m * M + 5.5 * width
    w, z = np.arange(-reach, reach, h), np.arange(-reach - 7 * s, reach + 7 * s, h)
    d = (z - w[:, None]) / s
    G = np.exp(-(d**2) / 2) * h / (s * math.sqrt(2 * math.pi))
    G1, G2 = G * d / s, G * (d**2 - 1) / s**2
    d2 = (np.tanh(z)[:, None] - np.tanh(z)) ** 2
    x = problem.d_f - d2
    energies = [(d2 / 2, 1), ((x + np.sqrt(x**2 + problem.softness)) / 4, -1)]
    force = force2 = trace = 0.0
    for (H, sign), share in zip(energies, (problem.rho, 1 - problem.rho), strict=True):
        E = np.exp(-problem.beta * H)
        Z = G @ E @ G.T
        f1, f2 = (G1 @ E @ G.T) / Z, (G @ E @ G1.T) / Z
        hess = (G2 @ E @ G.T + G @ E @ G2.T) / Z - f1**2 - f2**2
        p, q = (np.exp(-(((w - y * problem.m * M) / width) ** 2) / 2) for y in (1, sign))
        p, q = p / p.sum(), q / q.sum()
        force += share * p @ (f1 + sign * f2) @ q
        force2 += share * p @ (f1**2 + f2**2) @ q
        trace += share * p @ hess @ q
    V_new = 1 / (problem.beta * problem.weight_decay - problem.alpha * problem.delta**2 * trace)
    M_new = V_new * problem.alpha * problem.m * force
    Q_new = M_new**2 + V_new**2 * problem.alpha * problem.delta**2 * force2
    stiffness = solution.label_stiffness
    np.testing.assert_allclose([M_new, Q_new, V_new], [M, Q, V], atol=1e-5 * stiffness)


def test_the_default_point():
    solution = solve(Problem())
    expected = {"M": 1.018320, "q": 1.686238, "Q": 1.566735, "fermion_distance": 1.941525}
    for name, value in expected.items():
        assert getattr(solution, name) == pytest.approx(value, abs=3e-6)
    assert solution.free_energy == pytest.approx(0.0794456, abs=1e-7)
    assert solution.at_eigenvalue == pytest.approx(1.679, abs=1e-3)
    assert not solution.rs_stable
    assert solution.iterations <= 15
    assert solution.error < 1e-4


@pytest.mark.parametrize(
    ("d_f", "M", "q", "distance", "accuracy", "attacked", "area", "tol"),
    [
        (0.1, 0.327967, 0.275499, 0.460589, 0.894292, 0.598584, 0.584604, 1e-5),
        (0.5, 0.689415, 0.892260, 1.300991, 0.927814, 0.677136, 0.653082, 1e-5),
        (2.0, 1.5033, 3.3747, 2.55892, 0.949154, 0.737842, 0.707337, 1e-4),
        (4.0, 2.698, 9.686, 3.2188, 0.95854, 0.76851, 0.73541, 1e-3),
    ],
)
def test_reference_points_along_d_f(d_f, M, q, distance, accuracy, attacked, area, tol):
    solution = solve(Problem(d_f=d_f))
    assert pytest.approx(M, abs=tol) == solution.M
    assert solution.q == pytest.approx(q, abs=2 * tol)
    assert solution.fermion_distance == pytest.approx(distance, abs=tol)
    assert solution.accuracy == pytest.approx(accuracy, abs=tol / 2)
    assert solution.adversarial_accuracy(0.5) == pytest.approx(attacked, abs=tol / 2)
    assert solution.adversarial_area == pytest.approx(area, abs=tol / 2)


@pytest.mark.parametrize(
    ("rho", "M", "accuracy", "loss"),
    [
        (0.0, 1.071137, 0.951019, 0.049983),
        (0.3, 1.053957, 0.945042, 0.070196),
        (0.92, 0.364429, 0.900966, 0.072904),
        (0.98, 0.019481, 0.583184, 0.018123),
    ],
)
def test_reference_points_along_rho(rho, M, accuracy, loss):
    solution = solve(Problem(rho=rho))
    assert pytest.approx(M, abs=1e-5) == solution.M
    assert solution.accuracy == pytest.approx(accuracy, abs=1e-5)
    assert solution.generalization_loss == pytest.approx(loss, abs=2e-6)


@pytest.mark.parametrize(
    ("alpha", "M", "q", "chi", "f", "loss"),
    [
        (0.5, 0.4042, 0.3825, 13.324, 0.01198, 0.14616),
        (1.5, 0.6932, 0.9200, 7.356, 0.03744, 0.10250),
        # q is 1.3810 in the table; the limit of finite temperatures is 1.3813 (test_brute_force.py)
        (2.5, 0.9159, None, 5.497, 0.06940, 0.08536),
    ],
)
def test_reference_points_at_zero_temperature(alpha, M, q, chi, f, loss):
    solution = solve(Problem(alpha=alpha, beta=math.inf))
    assert pytest.approx(M, abs=1e-4) == solution.M
    assert q is None or solution.q == pytest.approx(q, abs=5e-5)
    assert solution.q == solution.Q
    assert solution.chi == pytest.approx(chi, abs=1.5e-3)
    assert solution.free_energy == pytest.approx(f, abs=1e-5)
    assert solution.generalization_loss == pytest.approx(loss, abs=1e-5)
    assert math.isinf(solution.at_eigenvalue)  # the fermion force jumps
    assert not solution.rs_stable


@pytest.mark.parametrize(
    "problem",
    [
        Problem(delta=0.1),
        Problem(d_f=3.4),
        Problem(delta=0.1, d_f=3.4, beta=math.inf),
        Problem(delta=0.1, beta=math.inf),
        Problem(delta=0.15, alpha=7.0, m=1.8, weight_decay=0.01, d_f=2.5),
        Problem(delta=1.3, beta=230.0, alpha=3.8, weight_decay=0.1, d_f=1.9, rho=0.3),
        Problem(beta=1.0, alpha=0.05, rho=1.0),
        Problem(d_f=0.0, softness=1e-4),
        Problem(rho=1.0, beta=math.inf),
        Problem(m=0.0),
    ],
    ids=str,
)
def test_hard_points_are_reached_from_nothing(problem):
    """The plain equations, evaluated once more on a finer grid, give the solution back."""
    solution = solve(problem)
    assert solution.M >= 0
    assert solution.stable
    saddle = SaddleEquations(problem, coarseness=0.8)
    plain = update(problem, solution.overlaps, saddle.evaluate(solution.overlaps)[1])
    stiffness = max(1.0, solution.label_stiffness)
    assert abs(plain.M - solution.M) / stiffness < 3e-4 * max(1.0, solution.q)
    assert abs(plain.Q - solution.Q) / stiffness < 1e-3 * max(1.0, solution.q)


@pytest.mark.parametrize("activation", [erf, "half_tanh"])
def test_other_activations(activation):
    """(1+tanh)/2 halves D, so it is tanh with a rescaled energy; erf is checked by refinement."""
    if activation == "half_tanh":
        # H(D/2; d_F/4) = H(D; d_F)/4 for hinge and boson alike if a scales with the square.
        other = solve(Problem(activation="half_tanh", d_f=0.25, softness=0.01 / 16, beta=200.0,
                              weight_decay=0.0125))  # fmt: skip
        same = solve(Problem())
        assert pytest.approx(same.M, abs=5e-5) == other.M
        assert other.q == pytest.approx(same.q, abs=2e-4)
        assert other.accuracy == pytest.approx(same.accuracy, abs=2e-5)
        return
    problem = Problem(activation=activation)
    solution = solve(problem)
    assert pytest.approx(solution.M, abs=1e-5) == refined(solution, coarseness=0.5).M
    assert solution.M < solve(Problem()).M  # erf is steeper, so smaller weights do


@pytest.mark.parametrize(("k", "beta"), [(20.0, 50.0), (2.0, math.inf)])
def test_a_steep_activation_is_tanh_of_larger_weights(k, beta):
    """φ(kz) with decay λ_w is φ(z) with decay λ_w/k², and weights k times as large."""
    steep = solve(Problem(activation=lambda z: np.tanh(k * z), beta=beta))
    plain = solve(Problem(weight_decay=0.05 / k**2, beta=beta))
    assert steep.M * k == pytest.approx(plain.M, rel=1e-6)
    assert steep.q * k**2 == pytest.approx(plain.q, rel=1e-6)
    assert steep.generalization_loss == pytest.approx(plain.generalization_loss, abs=1e-7)
    assert steep.at_eigenvalue == pytest.approx(plain.at_eigenvalue, rel=1e-5)


def test_an_activation_that_is_not_odd():
    """φ(z) and −φ(−z) are the same problem with the classes exchanged."""
    one = solve(Problem(activation=lambda z: np.tanh(z + 0.3)))
    two = solve(Problem(activation=lambda z: np.tanh(z - 0.3)))
    assert pytest.approx(two.M, abs=1e-8) == one.M
    assert one.free_energy == pytest.approx(two.free_energy, abs=1e-10)
    assert pytest.approx(solve(Problem()).M, abs=1e-2) != one.M


def test_scaling_m_and_delta_together_rescales_the_weights():
    """z depends on m w and Δ w only: (m, Δ, λ) → (2m, 2Δ, 4λ) halves the weights."""
    one = solve(Problem())
    two = solve(Problem(m=2.0, delta=1.0, weight_decay=0.2))
    assert pytest.approx(one.M / 2, abs=1e-6) == two.M
    assert two.q == pytest.approx(one.q / 4, abs=1e-6)
    assert two.accuracy == pytest.approx(one.accuracy, abs=1e-7)


def test_no_cluster_mean_no_order():
    solution = solve(Problem(m=0.0))
    assert solution.M == 0.0
    assert solution.accuracy == 0.5


def test_few_data_is_the_gaussian_prior():
    """α → 0: q = 1/βλ_w and M = 0."""
    solution = solve(Problem(alpha=1e-6))
    assert solution.q == pytest.approx(1 / (50 * 0.05), rel=1e-5)
    assert solution.M == 0.0


def test_bosons_only_collapse():
    """ρ = 1, T = 0: the best weights are 0."""
    solution = solve(Problem(rho=1.0, beta=math.inf))
    assert solution.q < 1e-6
    assert solution.free_energy == pytest.approx(0.0, abs=1e-6)


def test_a_temperature_below_floating_point_is_refused(monkeypatch):
    """Fields whose Z underflows are counted, and their weight is not accepted silently."""
    axis, table = Axis.uniform(3.0, 3.0), Axis.uniform(0.01, 4.0)
    energies = pair_table(Problem(), table, table)
    channel = GaussianChannel(energies, 5e3, at=(axis, axis), on=(table, table))
    lost = channel.lost(5.0)
    np.testing.assert_array_equal(lost[0, :, 0], [0, 1])  # bosons at r = 0, and at r = 3
    monkeypatch.setattr(replica, "_LOST", -1.0)
    with pytest.raises(InputError, match="use a smaller beta, or inf for its limit"):
        solve(Problem())


def test_a_hopeless_temperature_is_refused_without_trying_every_manner(monkeypatch):
    manners = []

    def counting(*args, **kwargs):
        manners.append(kwargs["damping"])
        return iterate(*args, **kwargs)

    monkeypatch.setattr(search_module, "iterate", counting)
    with pytest.raises(ConvergenceError, match="too large here"):
        solve(Problem(beta=2000.0))
    # One manner a start, and nothing after them: rounding would stop the others too.
    assert manners == [0.5] * len(search_module.all_starts(Problem(beta=2000.0)))


@pytest.mark.parametrize("beta", [1000.0, 2000.0])
def test_what_will_be_refused_is_not_refined(monkeypatch, beta):
    """The coarse grid sees the same weight lost: hundreds of iterations would end in it too."""

    def refining(*_, **__):
        pytest.fail("iterated in vain")

    monkeypatch.setattr(solve_module, "iterate", refining)
    with pytest.raises(ConvergenceError, match="too large here"):
        solve(Problem(beta=beta, delta=0.6))


def test_a_response_is_that_of_the_present_lattice():
    """A state met on a neighbour's lattice, left, and met again on its own."""
    saddle, fresh = SaddleEquations(Problem()), SaddleEquations(Problem())
    here = Overlaps(1.0, 1.5, 5.0)
    saddle.evaluate(Overlaps(1.05, 1.7, 5.2))
    before = saddle.at(here)[0].curvature(here)
    saddle.evaluate(Overlaps(3.0, 12.0, 5.0))
    after = saddle.at(here)[0].curvature(here)
    assert after == fresh.at(here)[0].curvature(here) != before


def test_a_state_known_to_be_unstable_is_not_a_solution(monkeypatch):
    """Only M = 0 is found, and it is unstable: raised with the state, never returned."""
    flat = search_module.explore(Problem(), search_module.flat_starts(Problem()))
    monkeypatch.setattr(solve_module, "explore", lambda *_: flat[-1:])
    with pytest.raises(ConvergenceError, match="no stable solution") as caught:
        solve(Problem())
    assert caught.value.state.M == 0.0
    assert caught.value.state.label_stiffness < -1e-3


def test_clusters_too_sharp_for_the_search_are_refused():
    """At once; and the limit of sharp clusters is reached long before: M changes by Δ²."""
    with pytest.raises(ConvergenceError, match=r"delta = 0\.001 is too small for beta = 50"):
        solve(Problem(delta=1e-3))
    M = [solve(Problem(delta=delta)).M for delta in (0.04, 0.02)]
    assert M[0] > M[1] > 0.67


def test_branches_and_their_free_energies():
    ordered, flat = branches(Problem())
    assert flat.M == 0.0
    assert ordered.stable
    assert not flat.stable
    assert pytest.approx(1.018320, abs=3e-6) == ordered.M
    assert ordered.free_energy < flat.free_energy
    assert flat.label_stiffness < 0  # M = 0 is a saddle here
    assert disordered(Problem()).free_energy == pytest.approx(flat.free_energy, abs=1e-12)
    (flat,) = branches(Problem(delta=1.0))
    assert flat.stable
    assert flat.q == pytest.approx(1.738806, abs=1e-5)


def test_an_unstable_state_without_order_is_left():
    """Strong decay and small Δ: every start of the solver leads to M = 0 first."""
    problem = Problem(alpha=0.654, delta=0.135, beta=66.5, d_f=1.509, weight_decay=0.862, m=1.335,
                      rho=0.586, softness=0.025)  # fmt: skip
    solution = solve(problem)
    assert pytest.approx(0.488, abs=2e-3) == solution.M
    assert solution.free_energy < disordered(problem).free_energy
    assert disordered(problem).label_stiffness < 0


def test_the_lower_of_two_stable_branches_is_returned():
    """Nearly only bosons: an ordered state exists, but weights near 0 cost less."""
    problem = Problem(alpha=3.05, delta=0.278, beta=29.3, d_f=0.785, weight_decay=0.0181, m=0.737,
                      rho=0.996, softness=0.00017)  # fmt: skip
    flat, ordered, between = branches(problem)
    assert ordered.M > 1
    assert (flat.stable, ordered.stable, between.stable) == (True, True, False)
    assert 0 < between.M < ordered.M
    assert flat.free_energy < ordered.free_energy < between.free_energy
    assert solve(problem).M == 0.0


def test_a_start_of_ones_own_and_the_mirror_image():
    reference = solve(Problem())
    for start in (Overlaps(0.6, 1.0, 3.0), Overlaps(-0.6, 1.0, 3.0), reference):
        again = solve(Problem(), start)
        assert pytest.approx(reference.M, abs=1e-7) == again.M
        assert again.M > 0


def test_what_did_not_converge_is_an_error_that_carries_the_state(monkeypatch):
    """With too few iterations allowed on the fine grid, then on every grid."""

    def hurried(step, x, **options):
        few = 2 if options["tol"] < 1e-9 or everywhere else options["max_iterations"]
        return iterate(step, x, **(options | {"max_iterations": few}))

    monkeypatch.setattr(solve_module, "iterate", hurried)
    everywhere = False
    with pytest.raises(ConvergenceError, match="residual stays at") as caught:
        solve(Problem())
    assert isinstance(caught.value, FermiboseError)
    assert pytest.approx(1.0183, abs=1e-2) == caught.value.state.M
    assert not caught.value.state.converged
    assert caught.value.state.residual > 1e-10
    everywhere = True
    monkeypatch.setattr(search_module, "iterate", hurried)
    with pytest.raises(ConvergenceError, match="pass its solution as start") as caught:
        solve(Problem())
    assert isinstance(caught.value.state, Overlaps)


def test_the_error_estimate_covers_the_error():
    """Against the same equations on a grid four times as fine."""
    for problem in (Problem(), Problem(delta=0.8), Problem(alpha=0.3, softness=1e-3)):
        solution = solve(problem)
        exact = refined(solution, coarseness=0.4)
        error = max(abs(exact.M - solution.M), abs(exact.Q - solution.Q))
        assert error < solution.error < 1e-3
