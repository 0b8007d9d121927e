"""From a problem to its solution: explore, choose a branch, refine it, measure it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fermibose.errors import InputError
from fermibose.theory.fixed_point import ConvergenceError, FixedPoint, History, iterate
from fermibose.theory.problem import Problem
from fermibose.theory.replica import Overlaps, free_energy
from fermibose.theory.saddle import SaddlePoint, distance, label_stiffness, to_overlaps, to_vector
from fermibose.theory.search import (
    COARSE,
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

_SECOND = 1.5  # coarseness of the grid that estimates the numerical error
_NEAR = 12  # iterations in which a neighbour's solution must lead to this one
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
        starts = [start.overlaps, *(rival.overlaps for rival in start.rivals), mixed(problem)]
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
    found = Found(start.candidate, 0, _probe(problem, start))
    try:
        near = refine(problem, [found], tol=tol, max_iterations=_NEAR)
    except ConvergenceError:
        return None
    if near.candidate.ordered != start.candidate.ordered or not near.candidate.locally_stable:
        return None
    if not near.candidate.ordered and near.Q < 1e-6 and not near.rs_stable:
        return None  # weights without overlap start to freeze
    return replace(near, rivals=start.rivals)


def _differ(problem: Problem, a: Found, b: Found) -> bool:
    """Whether two finds are two saddle points, up to M → −M and the coarse grid's precision."""
    one, other = (replace(f.candidate.overlaps, M=abs(f.candidate.overlaps.M)) for f in (a, b))
    return distance(problem, one, other) > 100 * ROUGH


def _probe(problem: Problem, start: Solution) -> History:
    """The Jacobian of the equations at a start, by differences on the coarse grid."""
    saddle, history = SaddlePoint(problem, coarseness=COARSE), History(depth=5)
    x = to_vector(start.overlaps)
    there = saddle(x)[0]
    for i in range(0 if start.candidate.ordered else 1, x.size):
        move = np.zeros_like(x)
        move[i] = 1e-3
        history.moves.append(move)
        history.effects.append(saddle(x + move)[0] - there - move)
    return history


def refine(
    problem: Problem, found: Sequence[Found], *, tol: float | None, max_iterations: int = 100
) -> Solution:
    """Finish the first of the saddle points found on the fine grid, and measure it."""
    tol = (1e-8 if problem.zero_temperature else 1e-10) if tol is None else tol
    if not (0 < tol < 1):
        raise InputError(f"tol must be between 0 and 1, got {tol!r}")
    chosen = found[0]
    overlaps, history = chosen.candidate.overlaps, chosen.history
    if not chosen.candidate.ordered:  # M = 0 is exact, and stays so
        overlaps, history = replace(overlaps, M=0.0), history.without(0)
    saddle, history = SaddlePoint(problem), history.elsewhere()
    x = to_vector(overlaps)
    point = iterate(saddle, x, tol=tol, max_iterations=max_iterations, history=history)
    if not point.converged and max_iterations > _NEAR:
        again = iterate(saddle, point.x, tol=tol, max_iterations=300, settle=1e3 * tol)
        point = replace(again, iterations=point.iterations + again.iterations)
    solution = replace(
        _measure(problem, saddle, point, history),
        iterations=chosen.iterations + point.iterations,
        rivals=tuple(f.candidate for f in found[1:] if _differ(problem, f, chosen)),
    )
    if not point.converged:
        raise ConvergenceError(
            f"no solution to tol = {tol:g} at {problem}: the residual stays at "
            f"{point.residual:.1e}; try a larger tol, or a start from a nearby solution",
            solution,
        )
    return solution


def _measure(
    problem: Problem, saddle: SaddlePoint, point: FixedPoint, history: History
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
    second = iterate(
        SaddlePoint(problem, coarseness=_SECOND),
        x,
        tol=1e-7,
        max_iterations=12,
        history=history.elsewhere(),
    )
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
        error=max(distance(problem, to_overlaps(second.x), overlaps), second.residual),
    )
