"""From a problem to its solution: explore, choose a branch, refine it."""

import math

from fermibose.theory.checks import check_problem, check_start, check_tol
from fermibose.theory.fixed_point import ConvergenceError, FixedPoint
from fermibose.theory.problem import Problem
from fermibose.theory.refinement import follow, refine
from fermibose.theory.replica import Overlaps
from fermibose.theory.search import (
    MANNERS,
    PATIENT,
    ROUGH,
    Found,
    aligned,
    explore,
    failure,
    far,
    kicked,
    mixed,
    settle,
)
from fermibose.theory.solution import Solution
from fermibose.theory.threads import one_thread

_SHARPEST = 2e-3  # thermal width of the pre-activations that the largest table still resolves
_UNDECIDED = 1e-3  # label stiffness below 0 that grids may disagree on, beside a transition


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
    _check(problem, tol)
    check_start(start)
    _check_sharpness(problem)
    if isinstance(start, Solution):
        near = follow(problem, start, tol=tol)
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


def _check(problem: Problem, tol: float | None) -> None:
    check_problem(problem)
    if tol is not None:
        check_tol(tol)


def _check_sharpness(problem: Problem) -> None:
    """Refuse clusters whose thermal width s = Δ√(χ/β), with χ at most 1/λ_w, no table resolves."""
    s = problem.delta / math.sqrt(problem.weight_decay * problem.beta)
    if s * problem.steepness < _SHARPEST and not problem.zero_temperature:
        raise ConvergenceError(
            f"delta = {problem.delta:g} is too small for beta = {problem.beta:g}: pre-activations "
            f"spread by {s:.1g} at most, less than the grid resolves ({_SHARPEST:g}); use a larger "
            "delta (M changes by about 5 delta² there), or a smaller beta"
        )


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
    _check(problem, tol)
    flat = settle(problem, mixed(problem))
    if isinstance(flat, FixedPoint):
        raise failure(problem, [flat])
    return refine(problem, [flat], tol=tol)
