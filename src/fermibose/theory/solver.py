"""From a problem to its solution: explore, choose a branch, refine it, measure it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fermibose.errors import InputError
from fermibose.theory.fixed_point import ConvergenceError, FixedPoint, History, iterate
from fermibose.theory.problem import Array, Problem
from fermibose.theory.replica import Overlaps, free_energy
from fermibose.theory.saddle import SaddlePoint, distance, label_stiffness, to_overlaps, to_vector
from fermibose.theory.search import (
    MANNERS,
    PATIENT,
    ROUGH,
    Found,
    aligned,
    cold,
    explore,
    failure,
    far,
    kicked,
    mixed,
    settle,
    too_cold,
)
from fermibose.theory.solution import Solution
from fermibose.theory.stability import at_eigenvalue
from fermibose.theory.threads import one_thread

_SECOND = 1.5  # coarseness of the grid that comes first and estimates the numerical error
_ENOUGH = 1e-7  # residual at which the fine grid takes over: below any error it estimates
_NEAR = 7  # iterations in which a neighbour's solution must lead to this one
_FAR = 0.1  # residual beyond which it is no neighbour's
_MOVE = 1e-4  # length of the differences that estimate a Jacobian
_UNDECIDED = 1e-3  # label stiffness below 0 that grids may disagree on, beside a transition
_NOTHING = 1e-7  # a mean weight that iterates to less than this iterates to 0
_CLOSE_RACE = -0.05  # label stiffness above which a state of M = 0 may become stable next door


@one_thread
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
    if not isinstance(problem, Problem):
        raise InputError(f"solve needs a fermibose.theory.Problem, got {problem!r}")
    if isinstance(start, Solution):
        near = _follow(problem, start, tol=tol)
        if near is not None:
            return near
        rivals = [rival.overlaps for rival in start.rivals if rival.ordered]
        starts = [start.overlaps, *rivals, mixed(problem)]
    else:
        starts = [aligned(problem) if start is None else start, mixed(problem)]
    solution = refine(problem, explore(problem, starts), tol=tol)
    if not solution.candidate.locally_stable and solution.label_stiffness < -_UNDECIDED:
        raise ConvergenceError(
            f"no stable solution at {problem}: the one found has M = {solution.M:.1g} and label "
            f"stiffness {solution.label_stiffness:.3g} < 0, so it grows a magnetisation, but no "
            "solution with M > 0 was reached; solve a nearby problem and pass its solution as "
            "start, or use disordered() if M = 0 is what you want",
            solution,
        )
    return solution


@one_thread
def branches(problem: Problem, *, tol: float | None = None) -> tuple[Solution, Solution | None]:
    """The solution with M = 0 and, where there is one, the solution with M > 0.

    Compare their ``free_energy``; ``solve`` returns the lower one.
    """
    flat = disordered(problem, tol=tol)
    kicks = [(kicked(flat.overlaps, size), PATIENT) for size in (0.3, 0.05)]
    starts = [(aligned(problem), MANNERS), *kicks, (far(problem), MANNERS)]
    for begin, manners in starts:
        found = settle(problem, begin, manners=manners, tol=ROUGH / 100)
        if isinstance(found, Found) and found.candidate.ordered:
            return flat, refine(problem, [found], tol=tol)
    return flat, None


@one_thread
def disordered(problem: Problem, *, tol: float | None = None) -> Solution:
    """The solution with M = 0, whether or not it is stable."""
    flat = settle(problem, mixed(problem))
    if isinstance(flat, FixedPoint):
        raise failure(problem, [flat])
    return refine(problem, [flat], tol=tol)


def _follow(problem: Problem, start: Solution, *, tol: float | None) -> Solution | None:
    """The solution next to one of a neighbouring problem, if it is near and nothing rivals it."""
    if any(rival.label_stiffness > _CLOSE_RACE for rival in start.rivals):
        return None
    second = SaddlePoint(problem, coarseness=_SECOND)
    x, ordered = to_vector(start.overlaps), start.candidate.ordered
    if not ordered:
        x[0] = 0.0
    if second(x)[1] > _FAR:
        return None
    try:
        history = _probe(second, x, ordered=ordered)
        near = _finish(problem, second, x, history, tol=tol, guess=start)
    except ConvergenceError:
        return None
    if near.candidate.ordered != ordered or not near.candidate.locally_stable:
        return None
    if not near.candidate.ordered and near.Q < 1e-6 and not near.rs_stable:
        return None  # weights without overlap start to freeze
    return replace(near, rivals=start.rivals)


def _differ(problem: Problem, a: Found, b: Found) -> bool:
    """Whether two finds are two saddle points, up to M → −M and the coarse grid's precision."""
    one, other = (replace(f.candidate.overlaps, M=abs(f.candidate.overlaps.M)) for f in (a, b))
    return distance(problem, one, other) > 100 * ROUGH


def _alike(x: Array, y: Array) -> bool:
    """Whether both of two states have M > 0, or neither."""
    return bool(abs(x[0]) > _NOTHING * 1e3) == bool(abs(y[0]) > _NOTHING * 1e3)


def _probe(saddle: SaddlePoint, x: Array, *, ordered: bool) -> History:
    """The Jacobian of the equations at a state, by differences; M stays 0 where there is no order.

    The move of χ comes last: for the others the channel need not be evaluated again.
    """
    moves = np.eye(x.size)[0 if ordered else 1 :] * _MOVE
    changes = [saddle(point)[0] - point for point in (x, *(x + moves))]
    effects = [change - changes[0] for change in changes[1:]]
    return History(depth=5, moves=list(moves), effects=effects, last=(x, changes[0]))


def refine(problem: Problem, found: Sequence[Found], *, tol: float | None) -> Solution:
    """Finish the first of the saddle points found, and measure it."""
    chosen = found[0]
    overlaps, history = chosen.candidate.overlaps, chosen.history
    if not chosen.candidate.ordered:  # M = 0 is exact, and stays so
        overlaps, history = replace(overlaps, M=0.0), history.without(0)
    second = SaddlePoint(problem, coarseness=_SECOND)
    solution = _finish(problem, second, to_vector(overlaps), history.elsewhere(), tol=tol)
    return replace(
        solution,
        iterations=chosen.iterations + solution.iterations,
        rivals=tuple(f.candidate for f in found[1:] if _differ(problem, f, chosen)),
    )


def _finish(
    problem: Problem,
    second: SaddlePoint,
    x: Array,
    history: History,
    *,
    tol: float | None,
    guess: Solution | None = None,
) -> Solution:
    """Iterate on the second grid, then on the fine one; measure.

    What the step from one grid to the other changes is the error estimate. A ``guess`` of the
    solution that is no further from the second grid's than its error is a better start than that.
    """
    tol = (1e-8 if problem.zero_temperature else 1e-10) if tol is None else tol
    if not (0 < tol < 1):
        raise InputError(f"tol must be between 0 and 1, got {tol!r}")
    begin = x if history.last is None else history.propose()
    enough, most = (_ENOUGH, 12) if guess is None else (max(_ENOUGH, 0.05 * guess.error), _NEAR)
    rough = iterate(second, begin, tol=enough, max_iterations=most, history=history)
    if guess is not None and not (rough.converged and _alike(rough.x, x)):
        raise ConvergenceError(f"{guess.problem} has no solution near by", to_overlaps(rough.x))
    saddle, history = SaddlePoint(problem), history.elsewhere()
    moved = distance(problem, to_overlaps(rough.x), to_overlaps(x))
    begin = x if guess is not None and moved <= 3 * guess.error else rough.x
    most = 100 if guess is None else _NEAR
    point = iterate(saddle, begin, tol=tol, max_iterations=most, history=history)
    if not point.converged and guess is None:
        again = iterate(saddle, point.x, tol=tol, max_iterations=300, settle=1e3 * tol)
        point = replace(again, iterations=point.iterations + again.iterations)
    solution = _measure(problem, saddle, point, rough)
    if not point.converged:
        raise ConvergenceError(
            f"no solution to tol = {tol:g} at {problem}: the residual stays at "
            f"{point.residual:.1e}; try a larger tol, or a start from a nearby solution",
            solution,
        )
    return solution


def _measure(
    problem: Problem, saddle: SaddlePoint, point: FixedPoint, second: FixedPoint
) -> Solution:
    """Everything a solution carries, at the end of an iteration."""
    x = point.x.copy()
    # M → −M is an exact symmetry, and so is M = 0.
    x[0] = abs(x[0]) if abs(x[0]) > _NOTHING else 0.0
    overlaps = to_overlaps(x)
    average, conjugate = saddle.evaluate(overlaps)
    response, measure = saddle.response(overlaps), saddle.measure(overlaps)
    if too_cold(measure, response):
        raise cold(problem, overlaps)
    coarser = to_overlaps(second.x)
    coarser = replace(coarser, M=abs(coarser.M))
    return Solution(
        problem=problem,
        overlaps=overlaps,
        conjugates=conjugate,
        free_energy=free_energy(problem, overlaps, average),
        training_energy=measure.mean(response.energy),
        mean_field_energy=average.F,
        at_eigenvalue=at_eigenvalue(
            problem, overlaps, measure=measure, average=average, response=response
        ),
        label_stiffness=label_stiffness(problem, overlaps, average),
        residual=point.residual,
        iterations=point.iterations,
        converged=point.converged,
        error=max(distance(problem, coarser, overlaps), second.residual),
    )
