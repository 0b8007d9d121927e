"""Diagrams by continuation. Oracles: every point solved alone; states known to be there; the table
that was not averaged beforehand; polynomials; the sensitivity at the state itself."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fermibose.compute import Interrupted
from fermibose.theory import Overlaps, Problem, disjoint, phase_diagram, solve
from fermibose.theory import points as points_module
from fermibose.theory.channel import (
    Axis,
    GaussianChannel,
    forget_tables,
    kept_average,
    kept_table,
    pair_table,
)
from fermibose.theory.continuation import _extrapolate, continue_along
from fermibose.theory.disjoint import _LADDER, LEAST_BLURRED, make_lattice
from fermibose.theory.precision import Sensitivity, View
from fermibose.theory.replica import SaddleEquations, to_vector
from fermibose.theory.search import apart, follow
from fermibose.theory.solution import Stability
from fermibose.theory.surfaces import _compare

# Two ordered states, of small and of large weights; they cross at weight_decay = 0.0206.
TWO = Problem(alpha=3.05, delta=0.278, beta=29.3, d_f=0.785, weight_decay=0.0181, m=0.737,
              rho=0.86, softness=0.00017)  # fmt: skip


def stable(solution):
    return [rival for rival in solution.rivals if rival.stable]


def test_across_a_first_order_transition_points_are_as_solved_alone():
    """From where only large weights are a state to where they are one still, but not the lowest."""
    decay, rho = np.linspace(0.015, 0.0222, 5), np.linspace(0.859, 0.861, 5)
    diagram = phase_diagram(TWO, "weight_decay", decay, "rho", rho, workers=1, show=False)
    assert not diagram.failures
    for point in diagram.points[1::4]:
        alone = solve(point.problem)
        for name in ("M", "q", "Q", "chi", "free_energy"):
            error = point.errors[name] + alone.errors[name]
            assert abs(getattr(point, name) - getattr(alone, name)) <= error
        for rival in stable(alone):
            assert min(apart(rival, other) for other in stable(point)) < 0.01
    assert diagram.coexistence[:, -1].all()
    assert not diagram.coexistence[:, 0].any()
    assert (diagram.jumps[0].sum(axis=1) == 1).all()
    assert not diagram.jumps[1].any()


def test_a_search_on_the_way_finds_what_following_cannot():
    """Large weights stay a state beyond the crossing; one search, and a look back from there."""
    values = np.linspace(0.0165, 0.0214, 10)
    line = [replace(TWO, weight_decay=value) for value in values]
    blind = continue_along(line, "weight_decay", tol=None, looks=[])
    assert min(s.q for s in blind) > 3
    found = continue_along(line, "weight_decay", tol=None, looks=[9])
    assert [s.q < 2 for s in found] == [value > 0.0206 for value in values]
    assert [len(stable(s)) for s in found] == [int(value > 0.018) for value in values]


def test_a_rival_of_another_kind_is_lost():
    """A state that its neighbour was not, or two that became one: all must be searched for."""
    there = solve(replace(TWO, weight_decay=0.0212))
    own, (rival,) = there.candidate, stable(there)
    (followed,) = follow(there.problem, [rival], known=[own])
    assert apart(followed, rival) < 0.01
    unstable = replace(rival, stability=Stability(-1.0, -1.0, -1.0))
    assert follow(there.problem, [unstable], known=[own]) is None
    assert follow(there.problem, [rival], known=[rival]) is None


def test_a_rival_that_becomes_the_lowest_is_the_solution():
    """From the solution on one side of a first-order transition to the other side, and back."""
    one, other = (solve(replace(TWO, weight_decay=value)) for value in (0.0200, 0.0212))
    assert one.q > 3 * other.q
    for start, end in ((one, other), (other, one)):
        there = solve(end.problem, start)
        assert there.q == pytest.approx(end.q, rel=1e-6)
        (rival,) = stable(there)
        assert apart(rival, start.candidate) < 0.2


def test_rivals_are_those_of_the_point_itself():
    """An unstable rival is followed, not carried over."""
    there = solve(Problem(alpha=2.6), solve(Problem()))
    (rival,), (alone,) = there.rivals, solve(Problem(alpha=2.6)).rivals
    assert rival.overlaps.chi == pytest.approx(alone.overlaps.chi, rel=2e-4)
    assert rival.q == pytest.approx(alone.q, rel=2e-4)


def test_neighbours_are_asked_until_all_know_the_lower_state():
    """A row of metastable states that nothing led out of, beside one point that knows both."""
    values = (0.0212, 0.0208, 0.0204, 0.0200)
    right = [solve(replace(TWO, weight_decay=value)) for value in values]
    assert [len(stable(s)) for s in right] == [1, 1, 1, 1]
    wrong = [right[0]]
    for there in right[1:]:
        small = next(state for state in (there.candidate, *stable(there)) if state.q < 2)
        wrong.append(replace(there, overlaps=small.overlaps, free_energy=small.free_energy,
                             stability=small.stability, rivals=()))  # fmt: skip
    for grid in ([wrong[::-1]], [[point] for point in wrong]):
        _compare(grid, tol=None)
        found = sorted((p for row in grid for p in row), key=lambda p: -p.problem.weight_decay)
        for point, expected in zip(found, right, strict=True):
            assert apart(point.candidate, expected.candidate) < 0.01
            assert len(stable(point)) == 1


def test_lines_run_where_tables_can_be_kept_and_ctrl_c_keeps_the_finished_ones(monkeypatch):
    """β changes the energy of a pair: columns are followed, and two of them are finished."""
    betas, alphas = np.linspace(30, 50, 5), np.linspace(1, 2, 5)

    def interrupted(problem, start=None, *, tol=None):
        if problem.beta == betas[2] and problem.alpha == alphas[3]:
            raise KeyboardInterrupt
        return solve(problem, start, tol=tol)

    whole = phase_diagram(Problem(), "beta", betas, "alpha", alphas, workers=1, show=False)
    monkeypatch.setattr(points_module, "solve", interrupted)
    with pytest.raises(Interrupted) as caught:
        phase_diagram(Problem(), "beta", betas, "alpha", alphas, workers=1, show=False)
    part = caught.value.done
    np.testing.assert_array_equal(part.x_values, betas[:2])
    np.testing.assert_array_equal(part.y_values, alphas)
    np.testing.assert_array_equal(part.map("M"), whole.map("M")[:, :2])
    for row, alpha in zip(whole.solutions, alphas, strict=True):
        for point, beta in zip(row, betas, strict=True):
            assert (point.problem.alpha, point.problem.beta) == (alpha, beta)
    alone = solve(Problem(alpha=alphas[4], beta=betas[1]))
    assert part.map("M")[4, 1] == pytest.approx(alone.M, abs=1e-8)


@pytest.mark.parametrize("activation", ["tanh", "half_tanh"])
@pytest.mark.parametrize("part", [LEAST_BLURRED, 1.0, 1.8 * _LADDER**2])
def test_a_table_averaged_beforehand_is_the_same_channel(activation, part):
    """At all stiffnesses that a lattice is used for, from the middle of one that has been kept."""
    problem, s = Problem(beta=20.0, activation=activation), 0.3
    folded = activation == "tanh"

    def axes(reach):
        r = Axis.uniform(0.04, reach)
        return r, r if folded else Axis.uniform(0.04, reach, folded=False)

    r = Axis.graded(0.15, 0.03, 4.0, width=8.0)
    t = r if folded else Axis.uniform(0.1, 4.0, folded=False)
    forget_tables()
    wider, _ = kept_average(problem, *axes(7.6), s)
    table, blur = kept_average(problem, *axes(7.0), s)
    assert table.weight.base is wider.weight.base is not None
    far = axes(9.0)
    plain, blurred = (
        GaussianChannel(pair_table(problem, *far), problem.beta, at=(r, t), on=far),
        GaussianChannel(table, problem.beta, at=(r, t), on=blur.on, variance=blur.variance),
    )
    c = part * s**2 * problem.beta
    for name in ("F", "r", "t", "force2"):
        one, other = (getattr(channel.effective(c), name) for channel in (plain, blurred))
        np.testing.assert_allclose(other, one, rtol=1e-8, atol=1e-9)
    for name in ("rr", "rt", "tt"):
        one, other = (getattr(channel.response(c), name) for channel in (plain, blurred))
        np.testing.assert_allclose(other, one, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(blurred.energy(c), plain.energy(c), rtol=1e-9, atol=1e-10)


def test_an_averaged_table_does_not_depend_on_those_before():
    """To the last bit, after one of another size and one of another width."""

    def averaged(reach, s):
        return kept_average(Problem(), *[Axis.uniform(0.04, reach)] * 2, s)[0]

    forget_tables()
    expected = averaged(5.0, 0.3)
    forget_tables()
    averaged(9.0, 0.3), averaged(5.0, 0.33)
    found = averaged(5.0, 0.3)
    np.testing.assert_array_equal(found.weight, expected.weight)
    np.testing.assert_array_equal(found.weighted, expected.weighted)


def test_large_lattices_average_beforehand(monkeypatch):
    """Wide Gaussians: fewer nodes than the table has, for those about as wide or wider."""
    problem, state = Problem(delta=1.2), Overlaps(0.0, 1.0, 4.0)
    lattice = make_lattice(problem, state)
    monkeypatch.setattr(disjoint, "_PAYS", math.inf)
    plain, averaged = (x.channel._table.weight for x in (make_lattice(problem, state), lattice))
    assert averaged.shape[-1] < 0.65 * plain.shape[-1]
    for part in (0.99, 1.01):
        near = replace(state, chi=part * LEAST_BLURRED * state.chi)
        assert lattice.covers(problem, near) == (part > 1)


def test_a_kept_table_serves_smaller_lattices():
    """The middle of a large one, folded or not, is the small one itself."""
    forget_tables()
    for folded in (True, False):
        for reach in (6.0, 3.0, 5.0):
            r = Axis.uniform(0.05, reach)
            t = r if folded else Axis.uniform(0.05, reach, folded=False)
            kept, H = kept_table(Problem(), r, t), pair_table(Problem(), r, t)
            np.testing.assert_allclose(kept.weighted / kept.weight, H, rtol=1e-12)


def test_predictions_are_polynomials_that_do_not_leap():
    at = np.array([1.0, 1.1, 1.2, 1.3, 1.4])
    curve = np.stack([1 + at**2, 0.5 * at, at - at**2], axis=1)
    np.testing.assert_allclose(_extrapolate(at, curve[:-1]), curve[-1], atol=1e-12)
    steep = np.array([[0.1, 0.1, 0.0], [0.1, 0.1, -1.0], [0.1, 0.1, -4.0]])
    np.testing.assert_array_equal(_extrapolate(at[:4], steep), steep[-1])


def test_a_sensitivity_is_used_again_only_where_it_holds():
    """What holds is within a few per cent of the sensitivity at the state itself."""
    for problem in (Problem(), Problem(delta=0.91), Problem(delta=1.2)):
        x = to_vector(solve(problem).overlaps)
        second = SaddleEquations(problem, coarseness=1.5)
        held = []
        for move in (1e-4, 1e-3, 1e-2, 1e-1):
            there = x + move * np.where(x == 0, 0, 1)
            near = Sensitivity.of(second, there, View.of(second, there))
            own = Sensitivity.of(second, x, View.of(second, x))
            held.append(near.holds(x, second.unit(x)))
            if held[-1]:
                scale = np.abs(own.inverse).max()
                np.testing.assert_allclose(near.inverse, own.inverse, atol=0.1 * scale)
        assert not held[-1]
        assert held == sorted(held, reverse=True)
    assert not near.holds(np.where(x == 0, 1.0, x), second.unit(x))
