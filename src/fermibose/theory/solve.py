"""From a problem to its solution: where to start, how to search, how to refine what was found.

Three grids, each a lattice that follows the state: a coarse one on which several starts are
iterated, a second one that the solution chosen there goes through, and the fine one on which it is
measured. What the last step changes is the numerical error that a solution states.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fermibose.checks import is_number, number
from fermibose.compute import threads
from fermibose.errors import InputError
from fermibose.theory.errors import measured
from fermibose.theory.fixed_point import ConvergenceError, FixedPoint, Steps, iterate
from fermibose.theory.problem import Array, Problem, check_problem
from fermibose.theory.replica import (
    SaddlePoint,
    cold,
    distance,
    to_overlaps,
    to_vector,
)
from fermibose.theory.solution import Candidate, Overlaps, Solution

_SHARPEST = 2e-3  # thermal width of the pre-activations that the largest table still resolves
_UNDECIDED = 1e-3  # label stiffness below 0 that grids may disagree on, beside a transition

# The search, on the coarse grid.
_COARSE = 2.2  # coarseness of the grid: good to 1e-4 in M (benchmarks/theory.py, measure)
_ROUGH = 1e-4  # residual at which a fine grid can take over
# How to iterate: residual at which acceleration begins, length of steps until then, iterations.
_Manner = tuple[float, float, int]
_MANNERS: tuple[_Manner, ...] = (
    (math.inf, 1.0, 60),
    (1e-2, 0.5, 150),
    (10 * _ROUGH, 0.5, 300),
    (10 * _ROUGH, 0.2, 500),
)
_PATIENT = _MANNERS[2:]  # plain steps for long: acceleration would find an unstable state again

# The refinement.
_SECOND = 1.5  # coarseness of the grid that comes first and estimates the numerical error
_HANDOVER = 1e-7  # residual at which the fine grid takes over: below any error it estimates
_SURE = 2.0  # grids agree on the weight that floating point loses to a few per cent

# From the solution of a neighbouring problem.
_NEAR = 7  # iterations in which it must lead to this one
_FAR = 0.1  # residual beyond which it is no neighbour's
_CLOSE = 1e-3  # residual below which one step does
_MOVE = 1e-4  # length of the differences that estimate a Jacobian
_SMALL = 1e-4  # a mean weight that may be on its way to 0
_CLOSE_RACE = -0.05  # label stiffness above which a state of M = 0 may become stable next door


@threads(1)
def solve(
    problem: Problem, start: Solution | Overlaps | None = None, *, tol: float | None = None
) -> Solution:
    """The replica-symmetric solution of lowest free energy among those found, with M >= 0.

    Two starts are iterated on a coarse grid, one that tells the clusters apart (or ``start``) and
    one that does not; a state of M = 0 that is unstable against M > 0 is left. The best goes to the
    fine grid until the undamped change of M, q, Q and χ is at most ``tol`` (1e-10; 1e-8 at zero
    temperature, where the jumps of the force limit what a grid can resolve). From the solution of a
    neighbouring problem as ``start``, its branch is followed while it is stable and unrivalled.

    Raises ConvergenceError, with the last state in ``.state``, if that is not reached or if all
    that was reached is a state of M = 0 known to be unstable.
    """
    _check(problem, tol)
    _check_start(start)
    _check_sharpness(problem)
    if isinstance(start, Solution):
        near = _follow(problem, start, tol=tol)
        if near is not None:
            return near
        rivals = [rival.overlaps for rival in start.rivals if rival.ordered]
        starts = [start.overlaps, *rivals, _mixed(problem)]
    else:
        starts = [_aligned(problem) if start is None else start, _mixed(problem)]
    solution = _refine(problem, _explore(problem, starts), tol=tol)
    if not solution.candidate.locally_stable and solution.label_stiffness < -_UNDECIDED:
        raise ConvergenceError(
            f"no stable solution at {problem}: the one found has M = {solution.M:.1g} and label "
            f"stiffness {solution.label_stiffness:.3g} < 0, so it grows a magnetisation, but no "
            "solution with M > 0 was reached; solve a nearby problem and pass its solution as "
            "start, or use disordered() if M = 0 is what you want",
            solution,
        )
    return solution


@threads(1)
def branches(problem: Problem, *, tol: float | None = None) -> tuple[Solution, Solution | None]:
    """The solution with M = 0 and, where there is one, the solution with M > 0.

    Compare their ``free_energy``; ``solve`` returns the lower one.
    """
    flat = disordered(problem, tol=tol)
    kicks = [(_kicked(flat.overlaps, size), _PATIENT) for size in (0.3, 0.05)]
    starts = [(_aligned(problem), _MANNERS), *kicks, (_far(problem), _MANNERS)]
    for begin, manners in starts:
        found = _search(problem, begin, manners=manners, tol=_ROUGH / 100)
        if isinstance(found, _Found) and found.candidate.ordered:
            return flat, _refine(problem, [found], tol=tol)
    return flat, None


@threads(1)
def disordered(problem: Problem, *, tol: float | None = None) -> Solution:
    """The solution with M = 0, whether or not it is stable."""
    _check(problem, tol)
    flat = _search(problem, _mixed(problem))
    if isinstance(flat, FixedPoint):
        raise _failure(problem, [flat])
    return _refine(problem, [flat], tol=tol)


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


def _check_sharpness(problem: Problem) -> None:
    """Refuse clusters whose thermal width s = Δ√(χ/β), with χ at most 1/λ_w, no table resolves."""
    s = problem.delta / math.sqrt(problem.weight_decay * problem.beta)
    if s * problem.steepness < _SHARPEST and not problem.zero_temperature:
        raise ConvergenceError(
            f"delta = {problem.delta:g} is too small for beta = {problem.beta:g}: pre-activations "
            f"spread by {s:.1g} at most, less than the grid resolves ({_SHARPEST:g}); use a larger "
            "delta (M changes by about 5 delta² there), or a smaller beta"
        )


def _aligned(problem: Problem) -> Overlaps:
    """A start with the clusters where the fermion pairs want them."""
    M = (0.45 + math.atanh(min(math.sqrt(problem.d_f) / 2, 0.9))) / max(problem.m, 0.3)
    M /= problem.steepness
    return Overlaps(M, M**2 + 0.5 / problem.steepness**2, 0.3 / problem.weight_decay)


def _mixed(problem: Problem) -> Overlaps:
    """A start that does not tell the clusters apart."""
    return Overlaps(0.0, 1 / problem.steepness**2, 0.3 / problem.weight_decay)


def _far(problem: Problem) -> Overlaps:
    """A start with well separated, sharp clusters."""
    M = 2 * _aligned(problem).M
    return Overlaps(M, M**2 + 0.1 / problem.steepness**2, 1 / problem.weight_decay)


def _kicked(overlaps: Overlaps, size: float) -> Overlaps:
    """A start off a state of M = 0, along the direction in which that may be unstable."""
    M = size * (math.sqrt(overlaps.Q) + 0.3)
    return Overlaps(M, overlaps.Q + M**2, overlaps.chi)


@dataclass(frozen=True)
class _Found:
    """A candidate and how it was reached."""

    candidate: Candidate
    iterations: int
    history: Steps


def _explore(problem: Problem, starts: Sequence[Overlaps]) -> list[_Found]:
    """Saddle points on the coarse grid, the stable one of lowest free energy first."""
    results = [_search(problem, start) for start in starts]
    flat = [r.candidate for r in results if isinstance(r, _Found) and not r.candidate.ordered]
    unstable = [c.overlaps for c in flat if not c.locally_stable]
    more = [(_kicked(o, size), _PATIENT) for o in unstable for size in (0.3, 0.05)]
    for start, manners in [*more, (_far(problem), _MANNERS)]:
        if any(isinstance(r, _Found) and r.candidate.ordered for r in results):
            break
        results.append(_search(problem, start, manners=manners, tol=_ROUGH / 100))
    found = [r for r in results if isinstance(r, _Found)]
    if not found:
        raise _failure(problem, [r for r in results if isinstance(r, FixedPoint)])
    return sorted(found, key=lambda f: (not f.candidate.locally_stable, f.candidate.free_energy))


def _search(
    problem: Problem,
    start: Overlaps,
    *,
    manners: Sequence[_Manner] = _MANNERS,
    tol: float = _ROUGH,
) -> _Found | FixedPoint:
    """A saddle point near a start on the coarse grid; the failed iteration if there is none."""
    count = 0
    for threshold, damping, most in manners:
        saddle, history = SaddlePoint(problem, coarseness=_COARSE), Steps()
        point = iterate(
            saddle,
            to_vector(start),
            tol=tol,
            max_iterations=most,
            history=history,
            accelerate_below=threshold,
            damping=damping,
        )
        count += point.iterations
        if point.converged:
            return _Found(saddle.candidate(to_overlaps(point.x)), count, history)
        if saddle.too_cold(to_overlaps(point.x)):
            break  # rounding stops the iteration, and will in every manner
    return point


def _failure(problem: Problem, points: Sequence[FixedPoint]) -> ConvergenceError:
    """The error to raise when no start leads anywhere."""
    best = min(points, key=lambda p: p.residual)
    if SaddlePoint(problem, coarseness=_COARSE).too_cold(to_overlaps(best.x)):
        return cold(problem, to_overlaps(best.x))
    return ConvergenceError(
        f"no saddle point found at {problem}: the best residual is {best.residual:.1e}; "
        "solve a nearby problem and pass its solution as start",
        to_overlaps(best.x),
    )


def _refine(problem: Problem, found: Sequence[_Found], *, tol: float | None) -> Solution:
    """Finish the first of the saddle points found, and measure it."""
    chosen = found[0]
    overlaps, history = chosen.candidate.overlaps, chosen.history
    if not chosen.candidate.ordered:  # M = 0 is exact, and stays so
        overlaps, history = replace(overlaps, M=0.0), history.without(0)
    second, history = SaddlePoint(problem, coarseness=_SECOND), history.elsewhere()
    if second.too_cold(overlaps, margin=_SURE):
        raise cold(problem, overlaps)  # as it would be at the end, after hundreds of iterations
    assert second.lattice is not None
    if not second.lattice.resolves:
        raise _unresolved(problem, overlaps)
    rough = iterate(second, to_vector(overlaps), tol=_HANDOVER, max_iterations=12, history=history)
    solution = _finish(second, rough, history, tol=tol)
    return replace(
        solution,
        iterations=chosen.iterations + solution.iterations,
        rivals=tuple(f.candidate for f in found[1:] if _differ(problem, f, chosen)),
    )


def _unresolved(problem: Problem, state: Overlaps | Solution) -> ConvergenceError:
    """The error to raise where nodes are too far apart for the activation."""
    return ConvergenceError(
        f"no grid resolves the activation at {problem}: its slope reaches {problem.steepness:.3g}, "
        "and the weights spread its argument too far for nodes that close; use a flatter "
        "activation, a larger weight_decay or a smaller delta",
        state,
    )


def _differ(problem: Problem, a: _Found, b: _Found) -> bool:
    """Whether two finds are two saddle points, up to M → −M and the coarse grid's precision."""
    one, other = (replace(f.candidate.overlaps, M=abs(f.candidate.overlaps.M)) for f in (a, b))
    return distance(problem, one, other) > 100 * _ROUGH


def _follow(problem: Problem, start: Solution, *, tol: float | None) -> Solution | None:
    """The solution next to one of a neighbouring problem, if it is near and nothing rivals it."""
    if any(rival.label_stiffness > _CLOSE_RACE for rival in start.rivals):
        return None
    ordered = start.candidate.ordered
    x = to_vector(start.overlaps if ordered else replace(start.overlaps, M=0.0))
    try:
        second = SaddlePoint(problem, coarseness=_SECOND)
        rough, history = _near(second, x, start)
        near = _finish(second, rough, history, tol=tol, guess=start)
    except ConvergenceError:
        return None
    if near.candidate.ordered != ordered or not near.candidate.locally_stable:
        return None
    if not near.candidate.ordered and near.Q < 1e-6 and not near.rs_stable:
        return None  # weights without overlap start to freeze
    return replace(near, rivals=start.rivals)


def _near(second: SaddlePoint, x: Array, guess: Solution) -> tuple[FixedPoint, Steps]:
    """The solution on the second grid near a state; ConvergenceError if it is not near."""
    far = ConvergenceError(f"no solution of {second.problem} near by", to_overlaps(x))
    residual = second(x)[1]
    if residual > _FAR:
        raise far
    history = _probe(second, x, ordered=x[0] != 0)
    newton = history.propose()
    if residual < _CLOSE and not second.problem.zero_temperature:
        # Newton's step leaves an error of second order, far below what the grids differ by.
        return FixedPoint(newton, residual**2, 2, True), history
    enough = max(_HANDOVER, 0.05 * guess.error)
    rough = iterate(second, newton, tol=enough, max_iterations=_NEAR, history=history)
    if not rough.converged or bool(abs(rough.x[0]) < _SMALL) != bool(abs(x[0]) < _SMALL):
        raise far
    return rough, history


def _probe(saddle: SaddlePoint, x: Array, *, ordered: bool) -> Steps:
    """The Jacobian of the equations at a state, by differences; M stays 0 where there is no order.

    The move of χ comes last: for the others the channel need not be evaluated again.
    """
    moves = np.eye(x.size)[0 if ordered else 1 :] * _MOVE
    changes = [saddle(point)[0] - point for point in (x, *(x + moves))]
    effects = [change - changes[0] for change in changes[1:]]
    return Steps(depth=5, moves=list(moves), effects=effects, last=(x, changes[0]))


def _finish(
    second: SaddlePoint,
    rough: FixedPoint,
    history: Steps,
    *,
    tol: float | None,
    guess: Solution | None = None,
) -> Solution:
    """From the solution on the second grid to the one on the fine grid, measured.

    A ``guess`` of the solution, next to one already known, also tells what this step will change.
    """
    problem = second.problem
    tol = (1e-8 if problem.zero_temperature else 1e-10) if tol is None else tol
    saddle, history = SaddlePoint(problem), history.elsewhere()
    shift = 0.0 if guess is None else to_vector(guess.overlaps) - to_vector(guess.second)
    most = 100 if guess is None else _NEAR
    point = iterate(saddle, rough.x + shift, tol=tol, max_iterations=most, history=history)
    if not point.converged and guess is None:
        again = iterate(saddle, point.x, tol=tol, max_iterations=300, accelerate_below=1e3 * tol)
        point = replace(again, iterations=point.iterations + again.iterations)
    # At zero temperature errors fall like powers of the steps, and one grid may hit by chance.
    more = [SaddlePoint(problem, coarseness=_COARSE)] if problem.zero_temperature else []
    solution = measured(saddle, point, [second, *more])
    if not point.converged:
        raise ConvergenceError(
            f"no solution to tol = {tol:g} at {problem}: the residual stays at "
            f"{point.residual:.1e}; try a larger tol, or a start from a nearby solution",
            solution,
        )
    if not solution.resolved:
        raise _unresolved(problem, solution)
    return solution
