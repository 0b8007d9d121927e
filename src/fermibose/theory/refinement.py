"""A saddle point found roughly, or known of a neighbouring problem, brought to the fine grid."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fermibose.theory.fixed_point import ConvergenceError, FixedPoint, History, iterate
from fermibose.theory.problem import Array, Problem
from fermibose.theory.replica import free_energy
from fermibose.theory.saddle import SaddlePoint, distance, label_stiffness, to_overlaps, to_vector
from fermibose.theory.search import LOST, ROUGH, Found, cold, too_cold
from fermibose.theory.solution import Solution
from fermibose.theory.stability import resolved_at

_SECOND = 1.5  # coarseness of the grid that comes first and estimates the numerical error
_ENOUGH = 1e-7  # residual at which the fine grid takes over: below any error it estimates
_NEAR = 7  # iterations in which a neighbour's solution must lead to this one
_FAR, _CLOSE = (
    0.1,
    1e-3,
)  # residuals beyond which it is no neighbour's, and below which one step does
_SURE = 2.0  # grids agree on the weight that floating point loses to a few per cent
_MOVE = 1e-4  # length of the differences that estimate a Jacobian
_NOTHING = 1e-7  # a mean weight that iterates to less than this iterates to 0
_SMALL = 1e-4  # one that may be on its way there
_CLOSE_RACE = -0.05  # label stiffness above which a state of M = 0 may become stable next door


def refine(problem: Problem, found: Sequence[Found], *, tol: float | None) -> Solution:
    """Finish the first of the saddle points found, and measure it."""
    chosen = found[0]
    overlaps, history = chosen.candidate.overlaps, chosen.history
    if not chosen.candidate.ordered:  # M = 0 is exact, and stays so
        overlaps, history = replace(overlaps, M=0.0), history.without(0)
    second, history = SaddlePoint(problem, coarseness=_SECOND), history.elsewhere()
    if second.lost(overlaps) > _SURE * LOST:
        raise cold(problem, overlaps)  # as it would be at the end, after hundreds of iterations
    rough = iterate(second, to_vector(overlaps), tol=_ENOUGH, max_iterations=12, history=history)
    solution = _finish(problem, rough, history, tol=tol)
    return replace(
        solution,
        iterations=chosen.iterations + solution.iterations,
        rivals=tuple(f.candidate for f in found[1:] if _differ(problem, f, chosen)),
    )


def _differ(problem: Problem, a: Found, b: Found) -> bool:
    """Whether two finds are two saddle points, up to M → −M and the coarse grid's precision."""
    one, other = (replace(f.candidate.overlaps, M=abs(f.candidate.overlaps.M)) for f in (a, b))
    return distance(problem, one, other) > 100 * ROUGH


def follow(problem: Problem, start: Solution, *, tol: float | None) -> Solution | None:
    """The solution next to one of a neighbouring problem, if it is near and nothing rivals it."""
    if any(rival.label_stiffness > _CLOSE_RACE for rival in start.rivals):
        return None
    ordered = start.candidate.ordered
    x = to_vector(start.overlaps if ordered else replace(start.overlaps, M=0.0))
    try:
        rough, history = _near(SaddlePoint(problem, coarseness=_SECOND), x, start)
        near = _finish(problem, rough, history, tol=tol, guess=start)
    except ConvergenceError:
        return None
    if near.candidate.ordered != ordered or not near.candidate.locally_stable:
        return None
    if not near.candidate.ordered and near.Q < 1e-6 and not near.rs_stable:
        return None  # weights without overlap start to freeze
    return replace(near, rivals=start.rivals)


def _near(second: SaddlePoint, x: Array, guess: Solution) -> tuple[FixedPoint, History]:
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
    enough = max(_ENOUGH, 0.05 * guess.error)
    rough = iterate(second, newton, tol=enough, max_iterations=_NEAR, history=history)
    if not rough.converged or bool(abs(rough.x[0]) < _SMALL) != bool(abs(x[0]) < _SMALL):
        raise far
    return rough, history


def _probe(saddle: SaddlePoint, x: Array, *, ordered: bool) -> History:
    """The Jacobian of the equations at a state, by differences; M stays 0 where there is no order.

    The move of χ comes last: for the others the channel need not be evaluated again.
    """
    moves = np.eye(x.size)[0 if ordered else 1 :] * _MOVE
    changes = [saddle(point)[0] - point for point in (x, *(x + moves))]
    effects = [change - changes[0] for change in changes[1:]]
    return History(depth=5, moves=list(moves), effects=effects, last=(x, changes[0]))


def _finish(
    problem: Problem,
    rough: FixedPoint,
    history: History,
    *,
    tol: float | None,
    guess: Solution | None = None,
) -> Solution:
    """From the solution on the second grid to the one on the fine grid, measured.

    What this step changes is the error estimate; a ``guess`` of the solution, next to one already
    known, also tells what it will be.
    """
    tol = (1e-8 if problem.zero_temperature else 1e-10) if tol is None else tol
    saddle, history = SaddlePoint(problem), history.elsewhere()
    shift = 0.0 if guess is None else to_vector(guess.overlaps) - to_vector(guess.second)
    most = 100 if guess is None else _NEAR
    point = iterate(saddle, rough.x + shift, tol=tol, max_iterations=most, history=history)
    if not point.converged and guess is None:
        again = iterate(saddle, point.x, tol=tol, max_iterations=300, settle=1e3 * tol)
        point = replace(again, iterations=point.iterations + again.iterations)
    solution = _measure(saddle, point, rough)
    if not point.converged:
        raise ConvergenceError(
            f"no solution to tol = {tol:g} at {problem}: the residual stays at "
            f"{point.residual:.1e}; try a larger tol, or a start from a nearby solution",
            solution,
        )
    return solution


def _measure(saddle: SaddlePoint, point: FixedPoint, second: FixedPoint) -> Solution:
    """Everything a solution carries, at the end of an iteration."""
    problem, x = saddle.problem, point.x.copy()
    # M → −M is an exact symmetry, and so is M = 0.
    x[0] = abs(x[0]) if abs(x[0]) > _NOTHING else 0.0
    overlaps = to_overlaps(x)
    average, conjugate = saddle.evaluate(overlaps)
    if too_cold(saddle, overlaps):
        raise cold(problem, overlaps)
    coarser = to_overlaps(second.x)
    coarser = replace(coarser, M=abs(coarser.M) if overlaps.M else 0.0)
    at, at_error = resolved_at(saddle, overlaps)
    return Solution(
        problem=problem,
        overlaps=overlaps,
        conjugates=conjugate,
        free_energy=free_energy(problem, overlaps, average),
        training_energy=saddle.energy(overlaps),
        mean_field_energy=average.F,
        at_eigenvalue=at,
        at_error=at_error,
        label_stiffness=label_stiffness(problem, overlaps, average),
        residual=point.residual,
        iterations=point.iterations,
        converged=point.converged,
        error=max(distance(problem, coarser, overlaps), second.residual),
        second=coarser,
    )
