"""Solves the saddle point of a problem: what the search found, refined, compared and chosen from.

Three grids, each a lattice that follows the state: a coarse one on which saddle points are searched
for, a second one that the solution chosen there goes through, and the fine one on which it is
measured. What the last step changes is the numerical error that a solution states. The equations
themselves are in ``replica``, their iteration is ``fixed_point``, the first look is ``search``.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from fermibose.checks import is_number, number
from fermibose.compute import on_one_thread
from fermibose.errors import InputError
from fermibose.theory.fixed_point import ConvergenceError, FixedPoint, Steps, iterate
from fermibose.theory.precision import Sensitivity, View, measured
from fermibose.theory.problem import Array, Problem, check_problem
from fermibose.theory.replica import (
    SaddleEquations,
    TemperatureError,
    cold,
    to_overlaps,
    to_vector,
)
from fermibose.theory.search import (
    COARSE,
    STRIDE,
    Found,
    all_starts,
    apart,
    explore,
    flat_starts,
    follow,
    many_starts,
    relax,
    same,
)
from fermibose.theory.solution import Candidate, Overlaps, Solution

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_UNDECIDED = 1e-3  # a stiffness below 0 that grids may disagree on, beside a transition
_EQUAL = 1e-3  # difference of free energies that the coarse grid cannot judge, relative
# The refinement.
_SECOND = 1.5  # coarseness of the grid that comes first and estimates the numerical error
_HANDOVER = 1e-7  # residual at which the fine grid takes over: below any error it estimates
# From the solution of a neighbouring problem.
_NEAR = 7  # iterations in which it must lead to this one
_FAR = 0.1  # residual beyond which it is no neighbour's
_CLOSE = 1e-3  # residual below which one step does
_SHORT = 0.1  # of M and √(Q − M²), that Newton's step may change them by
_MOVE = 1e-4  # relative length of the differences that estimate a Jacobian
_SMALL = 1e-4  # a mean weight, in units of √q, that may be on its way to 0

# Chosen by reason.
# Thermal width of clusters, in units of their mean, that a table resolves: of its 1100 nodes
# (``_TABLE`` of disjoint.py) about three are then within a width.
_SHARPEST = 3e-3
_SURE = 2.0  # grids agree on the weight that floating point loses to a few per cent


@on_one_thread
def solve(
    problem: Problem, start: Solution | Overlaps | None = None, *, tol: float | None = None
) -> Solution:
    """The stable replica-symmetric solution of lowest free energy among those found, with M >= 0.

    Starts with and without order and at every size of the weights, and ``start``, are iterated on a
    coarse grid, and unstable states left along the directions in which they are unstable. The best
    goes to the fine grid until the undamped change of M/√q, q, Q and χ (of q and χ, relative) is at
    most ``tol`` (1e-10; 1e-8 at zero temperature, where the jumps of the force limit what a grid
    can resolve). From the solution of a neighbouring problem as ``start``, its branch is followed
    with its rivals, and all is searched for again where one is lost, changes its stability or
    becomes the lowest. The other saddle points found are in ``rivals``.

    Raises ConvergenceError, with the last state in ``.state``, if that is not reached or if all
    that was reached is unstable.
    """
    _check(problem, tol)
    _check_start(start)
    check_sharpness(problem)
    solution = _follow(problem, start, tol=tol) if isinstance(start, Solution) else None
    if solution is None:
        starts = [*([start] if isinstance(start, Overlaps) else []), *all_starts(problem)]
        solution = _best(problem, explore(problem, starts), tol=tol)
    stability = solution.stability
    if min(stability.state, stability.freezing) < -_UNDECIDED:
        what, size = "M or q", stability.state
        if stability.freezing < 0:
            what, size = "Q", stability.freezing
        raise ConvergenceError(
            f"no stable solution at {problem}: the one found, of M = {solution.M:.3g} and q = "
            f"{solution.q:.3g}, is unstable against changes of {what} (stiffness {size:.3g}), and "
            "no stable one was reached; solve a nearby problem and pass its solution as start, or "
            "use branches() for every saddle point whether stable or not",
            solution,
        )
    return solution


@on_one_thread
def branches(problem: Problem, *, tol: float | None = None) -> tuple[Solution, ...]:
    """Every saddle point found, from many more starts than ``solve`` takes.

    The stable ones come first, in the order of their free energy, so the first is the solution;
    then the unstable ones, in the same order. ``stable`` tells which is which, ``stability``
    against what: M and q (``state``; a state of M = 0 grows a magnetisation where
    ``label_stiffness`` < 0) or Q (``freezing``), and ``rs_stable`` whether replica symmetry holds
    in it (AT).
    """
    _check(problem, tol)
    check_sharpness(problem)
    solutions: list[Solution] = []
    for found in (every := explore(problem, many_starts(problem))):
        try:
            solution = _refine(problem, found, every, tol=tol)
        except TemperatureError:
            raise
        except ConvergenceError:
            continue  # the coarse grid's alone
        if not any(same(problem, solution.candidate, s.candidate) for s in solutions):
            solutions.append(solution)
    if not solutions:
        return (solve(problem, tol=tol),)
    return tuple(sorted(solutions, key=lambda s: s.candidate.rank))


@on_one_thread
def disordered(problem: Problem, *, tol: float | None = None) -> Solution:
    """The solution with M = 0, whether or not it is stable against M > 0.

    Of several, the one of lowest free energy among those stable against changes of q and Q.
    """
    _check(problem, tol)

    def rank(found: Found) -> tuple[bool, float]:
        stability = found.candidate.stability
        return min(stability.size, stability.freezing) <= 0, found.candidate.free_energy

    flat = [f for f in explore(problem, flat_starts(problem)) if not f.candidate.ordered]
    return _refine(problem, min(flat, key=rank), flat, tol=tol)


@on_one_thread
def neighbour(problem: Problem, state: Solution) -> Solution | None:
    """The stable state that one of a neighbouring problem goes over into without a jump, if any."""
    near = _next_to(problem, state, tol=None)
    if near is not None and apart(near.candidate, state.candidate) < STRIDE:
        return near
    for found in relax(problem, state.candidate):
        if not found.candidate.stable or apart(found.candidate, state.candidate) > STRIDE:
            continue
        try:
            near = _refine(problem, found, [found], tol=None)
        except ConvergenceError:
            continue
        if near.stable and apart(near.candidate, state.candidate) < STRIDE:
            return near
    return None


@on_one_thread
def search_again(
    known: Solution, starts: Sequence[Overlaps] | None = None, *, tol: float | None = None
) -> Solution:
    """A solution after one more search: the same one, or a lower one.

    From all starts, all states found become its rivals; from a few, they join them.
    """
    problem = known.problem
    stable = [state for state in (known.candidate, *known.rivals) if state.stable]
    every = explore(problem, all_starts(problem) if starts is None else starts, known=stable)
    best = _best(problem, every, tol=tol, solved=known)
    if starts is None:
        return best
    others = [best.candidate, *best.rivals]
    kept = [r for r in known.rivals if not any(same(problem, r, other) for other in others)]
    return replace(best, rivals=(*best.rivals, *kept))


def jumped(one: Solution, other: Solution) -> bool:
    """Whether two solutions of neighbouring problems are states too far apart to be one."""
    return apart(one.candidate, other.candidate) > STRIDE


def _check(problem: Problem, tol: float | None) -> None:
    check_problem(problem)
    if tol is not None:
        number("tol", tol, above=0, below=1)


def _check_start(start: Any) -> None:
    """Refuse a start that is neither a solution nor overlaps that weights can have."""
    if start is None or isinstance(start, Solution):
        return
    if not isinstance(start, Overlaps):
        raise InputError(f"start must be a Solution or Overlaps(M, Q, chi), got {start!r}")
    if not all(is_number(v) for v in (start.M, start.Q, start.chi)):
        raise InputError(f"the overlaps to start from must be finite numbers, got {start!r}")
    if start.Q < start.M**2:
        raise InputError(f"overlaps have Q >= M² (Q − M² is a variance), got {start!r}")
    if start.chi <= 0:
        raise InputError(f"the response chi to start from must be > 0, got {start!r}")


def check_sharpness(problem: Problem) -> None:
    """Refuse clusters whose thermal width s = Δ√(χ/β), with χ about 1/λ_w, no table resolves.

    That is so where their mean mM is 1/``_SHARPEST`` times as much. M is that of Δ = 0; where it is
    0 a narrow field has a table as narrow as itself.
    """
    if problem.zero_temperature:
        return
    s = problem.delta / math.sqrt(problem.weight_decay * problem.beta)
    mean = problem.m * _sharp_order(problem)
    if s < _SHARPEST * mean:
        raise ConvergenceError(
            f"delta = {problem.delta:g} is too small for beta = {problem.beta:g}: clusters at "
            f"±{mean:.2g} spread by {s:.1g} at most, less than the grid resolves "
            f"({_SHARPEST * mean:.1g}); use a larger delta (M changes by about 5 delta² there), or "
            "a smaller beta"
        )


@lru_cache(maxsize=64)
def _sharp_order(problem: Problem) -> float:
    """M of clusters without spread: where λ_w M²/2 + α(1 − ρ)H(φ(mM) − φ(−mM)) is lowest."""
    if problem.m == 0:
        return 0.0
    z = np.concatenate([[0.0], np.geomspace(1e-4, 20, 400)]) / problem.steepness
    d2 = (problem.phi(z) - problem.phi(-z)) ** 2
    decay = problem.weight_decay * (z / problem.m) ** 2 / 2
    cost = decay + problem.load * (1 - problem.bosons) * problem.fermion_energy(d2)
    return float(z[int(np.argmin(cost))]) / problem.m


def _best(
    problem: Problem, every: Sequence[Found], *, tol: float | None, solved: Solution | None = None
) -> Solution:
    """The solution: the best of the saddle points found, or of those that may be as good.

    Free energies next to the lowest are compared on the fine grid. solved: one that has been there.
    """
    first = every[0].candidate
    alike = [f for f in every[1:] if _challenged(first, [f.candidate], problem)]
    solutions, failure = [], None
    for found in [every[0], *alike] if first.stable else every[:1]:
        if solved is not None and found.candidate == solved.candidate:
            solutions.append(replace(solved, rivals=_others(found, every)))
            continue
        try:
            solutions.append(_refine(problem, found, every, tol=tol))
        except ConvergenceError as error:
            failure = failure or error
    if failure is not None and not solutions:
        raise failure
    return min(solutions, key=lambda s: s.candidate.rank)


def _challenged(state: Candidate, others: Sequence[Candidate], problem: Problem) -> bool:
    """Whether another stable state is lower, or so little above that a coarse grid cannot judge."""
    least = state.free_energy + _EQUAL * max(abs(state.free_energy), 1 / problem.beta)
    return any(other.stable and other.free_energy < least for other in others)


def _refine(
    problem: Problem, found: Found, every: Sequence[Found], *, tol: float | None
) -> Solution:
    """Finish one of the saddle points found, and measure it; the others are its rivals."""
    overlaps, history = found.candidate.overlaps, found.history
    if overlaps.M == 0:  # exact, and stays so
        history = history.without(0)
    second, history = SaddleEquations(problem, coarseness=_SECOND), history.elsewhere()
    if second.too_cold(overlaps, margin=_SURE):
        raise cold(problem, overlaps)  # as it would be at the end, after hundreds of iterations
    if not second.at(overlaps)[0].resolves:
        raise _unresolved(problem, overlaps)
    rough, history, sensitivity = _newton(second, to_vector(overlaps)) or (
        iterate(
            second,
            to_vector(overlaps),
            tol=_HANDOVER,
            max_iterations=12,
            history=history,
            unit=second.unit,
        ),
        history,
        None,
    )
    solution = _finish(second, rough, history, sensitivity, tol=tol)
    return replace(
        solution,
        iterations=found.iterations + solution.iterations,
        rivals=_others(found, every),
    )


def _others(found: Found, every: Sequence[Found]) -> tuple[Candidate, ...]:
    return tuple(other.candidate for other in every if other is not found)


def _unresolved(problem: Problem, state: Overlaps | Solution) -> ConvergenceError:
    """The error to raise where nodes are too far apart for the activation."""
    return ConvergenceError(
        f"no grid resolves the activation at {problem}: its slope reaches {problem.steepness:.3g}, "
        "and its argument varies too far for nodes that close; use a flatter "
        "activation, a larger weight_decay or a smaller delta",
        state,
    )


def _follow(problem: Problem, start: Solution, *, tol: float | None) -> Solution | None:
    """The solution from one of a neighbouring problem: the one next to it, if it still is the one.

    That is: near, no rival lost or of another kind, and none as low on the grid they are known on.
    Else all is searched for, also from there; None if that ends in an unstable state.
    """
    near = _next_to(problem, start, tol=tol)
    known = [] if near is None else [near.candidate]
    rivals = None if near is None else follow(problem, start.rivals, known=known)
    if near is not None and rivals is not None and not _challenged(near.candidate, rivals, problem):
        return replace(near, rivals=tuple(rivals))
    starts = [state.overlaps for state in (start.candidate, *start.rivals) if state.stable]
    try:
        every = explore(problem, [*starts, *all_starts(problem)], known=known)
        best = _best(problem, every, tol=tol, solved=near)
    except ConvergenceError:
        return None
    return best if best.stable else None


def _next_to(problem: Problem, start: Solution, *, tol: float | None) -> Solution | None:
    """The stable solution next to one of a neighbouring problem, if it is near."""
    ordered = start.candidate.ordered
    x = to_vector(start.overlaps if ordered else replace(start.overlaps, M=0.0))
    try:
        second = SaddleEquations(problem, coarseness=_SECOND)
        rough, history, sensitivity = _near(second, x, start)
        near = _finish(second, rough, history, sensitivity, tol=tol, guess=start)
    except ConvergenceError:
        return None
    return near if near.candidate.ordered == ordered and near.stable else None


def _near(
    second: SaddleEquations, x: Array, guess: Solution
) -> tuple[FixedPoint, Steps, Sensitivity | None]:
    """The solution on the second grid near a state; ConvergenceError if it is not near."""
    far = ConvergenceError(f"no solution of {second.problem} near by", to_overlaps(x))
    residual = second(x)[1]
    if residual > _FAR:
        raise far
    if (close := _newton(second, x)) is not None:
        return close
    history = _probe(second, x)
    newton = history.propose(second.unit(x))
    enough = max(_HANDOVER, 0.05 * guess.error)
    rough = iterate(
        second, newton, tol=enough, max_iterations=_NEAR, history=history, unit=second.unit
    )
    least = _SMALL * second.unit(x)[0]
    if not rough.converged or bool(abs(rough.x[0]) < least) != bool(abs(x[0]) < least):
        raise far
    return rough, history, None


def _newton(second: SaddleEquations, x: Array) -> tuple[FixedPoint, Steps, Sensitivity] | None:
    """One step of Newton's method, where that does.

    It leaves an error of second order, far below what the grids differ by, unless M or Q − M² is
    about to vanish: there it may end on the wrong side.
    """
    residual = second(x)[1]
    if residual > _CLOSE or second.problem.zero_temperature:
        return None
    view = View.of(second, x)
    near = Sensitivity.of(second, x, view)
    move = near.inverse @ view.change
    if np.any(np.abs(move[:2]) > _SHORT * np.abs(x[:2])):
        return None
    return FixedPoint(x + move, residual**2, 2, True), near.steps(), near


def _probe(saddle: SaddleEquations, x: Array) -> Steps:
    """The Jacobian of the equations at a state, by differences; M stays 0 where there is no order.

    The move of χ comes last: for the others the channel need not be evaluated again.
    """
    moves = np.diag(saddle.unit(x))[0 if x[0] != 0 else 1 :] * _MOVE
    changes = [saddle(point)[0] - point for point in (x, *(x + moves))]
    effects = [change - changes[0] for change in changes[1:]]
    return Steps(depth=5, moves=list(moves), effects=effects, last=(x, changes[0]))


def _finish(
    second: SaddleEquations,
    rough: FixedPoint,
    history: Steps,
    sensitivity: Sensitivity | None,
    *,
    tol: float | None,
    guess: Solution | None = None,
) -> Solution:
    """From the solution on the second grid to the one on the fine grid, measured.

    A ``guess`` of the solution, next to one already known, also tells what this step will change.
    """
    problem = second.problem
    tol = (1e-8 if problem.zero_temperature else 1e-10) if tol is None else tol
    saddle, history = SaddleEquations(problem, before=second), history.elsewhere()
    shift = 0.0 if guess is None else to_vector(guess.overlaps) - to_vector(guess.second)
    most = 100 if guess is None else _NEAR
    unit = saddle.unit
    point = iterate(
        saddle, rough.x + shift, tol=tol, max_iterations=most, history=history, unit=unit
    )
    if not point.converged and guess is None:
        again = iterate(
            saddle, point.x, tol=tol, max_iterations=300, accelerate_below=1e3 * tol, unit=unit
        )
        point = replace(again, iterations=point.iterations + again.iterations)
    # At zero temperature errors fall like powers of the steps, and one grid may hit by chance.
    more = [SaddleEquations(problem, coarseness=COARSE)] if problem.zero_temperature else []
    solution = measured(saddle, point, [second, *more], sensitivity)
    if not point.converged:
        raise ConvergenceError(
            f"no solution to tol = {tol:g} at {problem}: the residual stays at "
            f"{point.residual:.1e}; try a larger tol, or a start from a nearby solution",
            solution,
        )
    if not solution.resolved:
        raise _unresolved(problem, solution)
    return solution
