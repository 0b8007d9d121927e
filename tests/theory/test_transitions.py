"""Transitions along a parameter. Oracles: the equations solved backwards (λ_w as a function of χ
has its folds at the spinodals), ∂f/∂λ_w = q/2 on both sides of a crossing, branches one by one."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

from fermibose.errors import InputError
from fermibose.theory import (
    Overlaps,
    Problem,
    branches,
    critical_point,
    phase_diagram,
    solve,
    trace,
)
from fermibose.theory.replica import SaddleEquations

# Bosons press the weights together at large decay, and cannot at small decay; M = 0 throughout.
PRESSED = Problem(alpha=2.27, delta=0.96, beta=21.6, d_f=0.5, weight_decay=0.005, m=0.4, rho=0.937)
# Two ordered states, of small and of large weights.
TWO = Problem(alpha=3.05, delta=0.278, beta=29.3, d_f=0.785, weight_decay=0.0181, m=0.737,
              rho=0.86, softness=0.00017)  # fmt: skip


def states(problem):
    """The stable branches, in the order of q."""
    return sorted((s for s in branches(problem) if s.stable), key=lambda s: s.q)


def decay_of(problem, log_chi):
    """The λ_w at which a state of M = 0 and Q > 0 has the response χ."""
    saddle, chi = SaddleEquations(problem), float(np.exp(log_chi))

    def excess(log_q):
        Q = float(np.exp(log_q))
        return float(np.log(-(chi**2) * saddle.evaluate(Overlaps(0.0, Q, chi))[1].Q / Q))

    Q = float(np.exp(brentq(excess, np.log(0.05), np.log(80), xtol=1e-9)))
    return 1 / chi - saddle.evaluate(Overlaps(0.0, Q, chi))[1].chi


def test_a_spinodal_is_a_fold_of_the_equations_solved_backwards():
    """Large weights are a state up to the largest λ_w(χ) there is; small ones never end."""
    fold = minimize_scalar(
        lambda x: -decay_of(PRESSED, x), bounds=(np.log(4), np.log(9)), options={"xatol": 1e-3}
    )
    found = critical_point(PRESSED, "weight_decay", between=(0.01, 0.05), kind="spinodal", tol=2e-6)
    assert found == pytest.approx(-fold.fun, abs=4e-6)
    with pytest.raises(InputError, match=r"still one at 0\.001"):
        critical_point(PRESSED, "weight_decay", between=(0.05, 0.001), kind="spinodal")


def test_free_energies_cross_at_a_first_order_transition():
    """On both sides they part at the rate ∂f/∂λ_w = q/2; between its spinodals both are states."""
    found = critical_point(TWO, "weight_decay", between=(0.01, 0.03), kind="first", tol=1e-6)
    small, large = states(replace(TWO, weight_decay=found))
    assert small.q < 2 < large.q
    assert small.free_energy == pytest.approx(large.free_energy, abs=2e-6)
    for step in (-1e-4, 1e-4):
        a, b = states(replace(TWO, weight_decay=found + step))
        expected = ((a.q + small.q) - (b.q + large.q)) / 4 * step
        assert a.free_energy - b.free_energy == pytest.approx(expected, rel=0.02)
        assert solve(a.problem).q == pytest.approx((b if step < 0 else a).q, rel=1e-6)


def test_both_spinodals_by_exchanging_the_ends():
    """A hair before each both states are found, a hair beyond only the other."""
    ends = {}
    for name, between in (("large", (0.015, 0.03)), ("small", (0.03, 0.015))):
        ends[name] = critical_point(TWO, "weight_decay", between=between, kind="spinodal", tol=1e-5)
    assert ends["small"] < 0.0206 < ends["large"]
    for name, side in (("large", 1), ("small", -1)):
        before, beyond = (
            states(replace(TWO, weight_decay=ends[name] + side * step)) for step in (-1e-4, 1e-4)
        )
        assert len(before) == 2
        (left,) = beyond
        assert (left.q < 2) == (name == "large")


def test_what_changes_without_a_jump_is_no_first_order_transition():
    for between in ((0.95, 0.99), (0.85, 0.99)):
        problem = replace(TWO, weight_decay=0.03)
        with pytest.raises(InputError, match="without a jump"):
            critical_point(problem, "rho", between=between, kind="first")


def test_a_jump_is_not_taken_for_another_transition():
    """AT of the solution leaps across 1 with it, and is 1 nowhere."""
    values = [solve(replace(PRESSED, weight_decay=v)).at_eigenvalue for v in (0.011, 0.014)]
    if (values[0] - 1) * (values[1] - 1) < 0:
        with pytest.raises(InputError, match="the solution jumps"):
            critical_point(PRESSED, "weight_decay", between=(0.011, 0.014), kind="at")


def test_a_curve_changes_branches_where_they_cross():
    """From either end: every point is the state of lowest free energy, as solved alone."""
    values = np.linspace(0.014, 0.026, 13)
    up, down = trace(TWO, "weight_decay", values), trace(TWO, "weight_decay", values[::-1])
    alone = [solve(s.problem).q for s in up]
    assert max(alone) > 4
    assert min(alone) < 2
    np.testing.assert_allclose(up.column("q"), alone, rtol=1e-5)
    np.testing.assert_allclose(down.column("q")[::-1], alone, rtol=1e-5)
    assert up.values[np.argmax(np.abs(np.diff(up.column("q"))))] == pytest.approx(0.02)


def test_a_diagram_knows_where_states_coexist_and_jump(tmp_path):
    """Against the crossing and the spinodals of one of its rows."""
    values = [0.016, 0.019, 0.0215, 0.024]
    diagram = phase_diagram(
        TWO, "weight_decay", values, "rho", [0.86, 0.861], workers=1, show=False
    )
    np.testing.assert_array_equal(diagram.coexistence, [[False, True, True, False]] * 2)
    along_x, along_y = diagram.jumps
    np.testing.assert_array_equal(along_x, [[False, True, False]] * 2)
    assert along_y.shape == (1, 4)
    assert not along_y.any()
    diagram.draw(tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 5000
