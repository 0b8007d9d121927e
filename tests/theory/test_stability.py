"""Stability and critical points of the symmetric solution. Oracles: the second variation of the
1RSB free energy, where M vanishes, finite temperatures, finer lattices."""

import math

import numpy as np
import pytest

from fermibose.errors import InputError
from fermibose.theory import Overlaps, Problem, critical_point, solve
from fermibose.theory.disjoint import PairMeasure, averages, make_lattice
from fermibose.theory.replica import SaddleEquations, at_eigenvalue
from fermibose.theory.replica import free_energy as symmetric_energy
from fermibose.theory.rsb import Clusters, cluster_averages, free_energy


def broken_energy(problem, clusters, lattice):
    return free_energy(problem, clusters, cluster_averages(problem, clusters, lattice))


@pytest.mark.parametrize("x", [0.3, 0.7])
@pytest.mark.parametrize("change", [{}, {"alpha": 0.5}, {"delta": 0.3}])
def test_at_is_the_second_variation_of_the_broken_free_energy(x, change):
    """q₁ = Q + xη, q₀ = Q − (1−x)η at fixed q is the replicon direction:

    −βf = const + x(1−x) η² (1 − AT)/4V² + O(η³).
    """
    problem = Problem(**change)
    s = solve(problem)
    V = s.q - s.Q

    overlaps, c = Overlaps(s.M, s.Q, s.chi), problem.delta**2 * s.chi

    def curvature(eta):
        widest = problem.delta * math.sqrt(eta) / 2.2
        lattice = make_lattice(problem, overlaps, widest=widest, everywhere=True)
        measure = PairMeasure(problem, lattice.r, lattice.t, M=s.M, Q=s.Q)
        flat = symmetric_energy(problem, overlaps, averages(lattice.channel, measure, c=c))
        q1 = s.Q + x * eta
        chi1, y = problem.beta * (s.q - q1), problem.beta * x
        clusters = Clusters(s.M, s.Q - (1 - x) * eta, q1, chi1, y, problem.beta)
        rise = broken_energy(problem, clusters, lattice) - flat
        return 1 + 4 * V**2 * problem.beta * rise / (x * (1 - x) * eta**2)

    a, b, d = (curvature(eta * V) for eta in (0.02, 0.04, 0.08))
    at = (8 * a - 6 * b + d) / 3  # a parabola in η, at η = 0
    assert at == pytest.approx(s.at_eigenvalue, rel=1e-2, abs=4e-3)


@pytest.mark.parametrize(
    ("parameter", "between", "expected"),
    [
        ("alpha", (0.02, 0.08), 0.0366),
        ("delta", (0.85, 1.0), 0.9153),
        ("rho", (0.97, 0.995), 0.9813),
    ],
)
def test_order_ends_where_m_vanishes(parameter, between, expected):
    """The margin of M = 0, against where the ordered solution's M² extrapolates to 0."""
    critical = critical_point(Problem(), parameter, between=between)
    assert critical == pytest.approx(expected, abs=1e-3)
    side = 1 if parameter == "alpha" else -1
    near = [critical * (1 + side * e) for e in (0.004, 0.008)]
    if parameter == "rho":
        near = [critical - e for e in (0.0003, 0.0006)]
    m2 = [solve(Problem(**{parameter: v})).M ** 2 for v in near]
    assert min(m2) > 0
    root = near[0] - m2[0] * (near[1] - near[0]) / (m2[1] - m2[0])
    assert critical == pytest.approx(root, abs=1e-3)


@pytest.mark.parametrize(
    ("parameter", "between", "expected", "tol"),
    [("alpha", (0.5, 2.0), 0.98, 5e-3), ("beta", (20.0, 50.0), 30.0, 0.6)],
)
def test_the_end_of_replica_symmetry(parameter, between, expected, tol):
    critical = critical_point(Problem(), parameter, between=between, kind="at")
    assert critical == pytest.approx(expected, abs=tol)
    assert solve(Problem(**{parameter: critical})).at_eigenvalue == pytest.approx(1, abs=1e-3)


def test_critical_points_that_are_not_there():
    with pytest.raises(InputError, match="widen the interval"):
        critical_point(Problem(), "delta", between=(0.4, 0.6))
    with pytest.raises(InputError, match="not a parameter"):
        critical_point(Problem(), "gamma", between=(0.4, 0.6))
    for between in ((0.5,), (0.5, 0.5), (0.5, math.inf), (0.1, 0.2, 0.3)):
        with pytest.raises(InputError, match="two different values of delta, such as"):
            critical_point(Problem(), "delta", between=between)
    for tol in (0, math.nan, -1, "a"):
        with pytest.raises(InputError, match="tol must be a finite number > 0"):
            critical_point(Problem(), "delta", between=(0.85, 1.0), tol=tol)


def growth(problem):
    """What AT gains per unit of β near T = 0, from the jumps of the zero-temperature force."""
    s = solve(problem)
    ensemble, state = SaddleEquations(problem).at(s.overlaps)
    return problem.alpha * problem.delta**4 * s.chi**2 * ensemble.growth(state)


@pytest.mark.parametrize(
    ("change", "betas", "rel"),
    [
        ({}, (250.0, 500.0), 0.01),
        ({"alpha": 0.5}, (250.0, 500.0), 0.04),
        ({"delta": 0.8}, (200.0, 400.0), 0.03),
        ({"activation": lambda z: np.tanh(z + 0.3)}, (150.0, 300.0), 0.05),
    ],
)
def test_at_grows_with_beta_where_forces_jump(change, betas, rel):
    """At the rate the jumps say, measured at two finite temperatures; infinite in the limit."""
    one, two = (solve(Problem(beta=b, **change)).at_eigenvalue for b in betas)
    rate = growth(Problem(beta=math.inf, **change))
    assert (two - one) / (betas[1] - betas[0]) == pytest.approx(rate, rel=rel)
    assert math.isinf(solve(Problem(beta=math.inf, **change)).at_eigenvalue)


@pytest.mark.parametrize("delta", [0.3, 0.33, 0.35])
def test_rare_jumps_break_replica_symmetry_too(delta):
    """AT is below 1 at β = 200 and on its way beyond every bound."""
    at = [solve(Problem(beta=b, delta=delta)).at_eigenvalue for b in (200.0, 500.0, 1000.0)]
    assert at[0] < 1
    zero = Problem(beta=math.inf, delta=delta)
    assert (at[2] - at[1]) / 500 == pytest.approx(growth(zero), rel=0.2)
    assert not solve(zero).rs_stable


@pytest.mark.parametrize(
    ("change", "fineness"),
    [
        ({}, 4.0),
        ({"beta": 500.0}, 3.0),
        ({"delta": 0.35, "beta": 500.0}, 32.0),
        ({"delta": 0.2, "beta": math.inf}, 2.0),
    ],
)
def test_the_error_of_at_covers_its_error(change, fineness):
    """Against a finer lattice; the change on every second node is well above that."""
    s = solve(Problem(**change))
    finer = SaddleEquations(s.problem, fineness=fineness)
    exact, _ = at_eigenvalue(s.problem, *finer.at(s.overlaps))
    assert abs(s.at_eigenvalue - exact) < s.at_error < 0.02 * exact


@pytest.mark.parametrize("delta", [0.1, 0.2])
def test_without_jumps_at_has_a_limit(delta):
    """Linear extrapolation in 1/β of two finite temperatures."""
    one, two = (solve(Problem(beta=b, delta=delta)).at_eigenvalue for b in (400.0, 800.0))
    zero = solve(Problem(beta=math.inf, delta=delta))
    assert zero.at_eigenvalue == pytest.approx(2 * two - one, rel=2e-3)
    assert zero.rs_stable


def test_no_line_is_drawn_where_at_becomes_infinite():
    with pytest.raises(InputError, match=r"infinite at delta = 0\.5, and passes 1 nowhere"):
        critical_point(Problem(beta=math.inf), "delta", between=(0.1, 0.5), kind="at")
