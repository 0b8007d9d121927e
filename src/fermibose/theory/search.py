"""Saddle points on a coarse grid: where to start, how to iterate, what to do when that fails."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fermibose.theory.fixed_point import (
    ConvergenceError,
    FixedPoint,
    History,
    TemperatureError,
    iterate,
)
from fermibose.theory.problem import Problem
from fermibose.theory.replica import Overlaps, free_energy
from fermibose.theory.saddle import SaddlePoint, label_stiffness, to_overlaps, to_vector
from fermibose.theory.solution import Candidate

COARSE = 2.2  # coarseness of the grid
ROUGH = 1e-4  # residual at which a fine grid can take over

LOST = 1e-5  # weight of the field that floating point may lose

# How to iterate: residual at which acceleration begins, length of steps until then, iterations.
Manner = tuple[float, float, int]
MANNERS: tuple[Manner, ...] = (
    (math.inf, 1.0, 60),
    (1e-2, 0.5, 150),
    (10 * ROUGH, 0.5, 300),
    (10 * ROUGH, 0.2, 500),
)
PATIENT = MANNERS[2:]  # plain steps for long: acceleration would find an unstable state again


@dataclass(frozen=True)
class Found:
    """A candidate and how it was reached."""

    candidate: Candidate
    iterations: int
    history: History


def aligned(problem: Problem) -> Overlaps:
    """A start with the clusters where the fermion pairs want them."""
    M = (0.45 + math.atanh(min(math.sqrt(problem.d_f) / 2, 0.9))) / max(problem.m, 0.3)
    M /= problem.steepness
    return Overlaps(M, M**2 + 0.5 / problem.steepness**2, 0.3 / problem.weight_decay)


def mixed(problem: Problem) -> Overlaps:
    """A start that does not tell the clusters apart."""
    return Overlaps(0.0, 1 / problem.steepness**2, 0.3 / problem.weight_decay)


def far(problem: Problem) -> Overlaps:
    """A start with well separated, sharp clusters."""
    M = 2 * aligned(problem).M
    return Overlaps(M, M**2 + 0.1 / problem.steepness**2, 1 / problem.weight_decay)


def kicked(overlaps: Overlaps, size: float) -> Overlaps:
    """A start off a state of M = 0, along the direction in which that may be unstable."""
    M = size * (math.sqrt(overlaps.Q) + 0.3)
    return Overlaps(M, overlaps.Q + M**2, overlaps.chi)


def explore(problem: Problem, starts: Sequence[Overlaps]) -> list[Found]:
    """Saddle points on the coarse grid, the stable one of lowest free energy first."""
    results = [settle(problem, start) for start in starts]
    flat = [r.candidate for r in results if isinstance(r, Found) and not r.candidate.ordered]
    unstable = [c.overlaps for c in flat if not c.locally_stable]
    more = [(kicked(o, size), PATIENT) for o in unstable for size in (0.3, 0.05)]
    for start, manners in [*more, (far(problem), MANNERS)]:
        if any(isinstance(r, Found) and r.candidate.ordered for r in results):
            break
        results.append(settle(problem, start, manners=manners, tol=ROUGH / 100))
    found = [r for r in results if isinstance(r, Found)]
    if not found:
        raise failure(problem, [r for r in results if isinstance(r, FixedPoint)])
    return sorted(found, key=lambda f: (not f.candidate.locally_stable, f.candidate.free_energy))


def settle(
    problem: Problem,
    start: Overlaps,
    *,
    manners: Sequence[Manner] = MANNERS,
    tol: float = ROUGH,
) -> Found | FixedPoint:
    """A saddle point near a start on the coarse grid; the failed iteration if there is none."""
    count = 0
    for threshold, damping, most in manners:
        saddle, history = SaddlePoint(problem, coarseness=COARSE), History()
        point = iterate(
            saddle,
            to_vector(start),
            tol=tol,
            max_iterations=most,
            history=history,
            settle=threshold,
            damping=damping,
        )
        count += point.iterations
        if point.converged:
            overlaps = to_overlaps(point.x)
            average, _ = saddle.evaluate(overlaps)
            f = free_energy(problem, overlaps, average)
            stiffness = label_stiffness(problem, overlaps, average)
            return Found(Candidate(overlaps, f, stiffness), count, history)
        if too_cold(saddle, to_overlaps(point.x)):
            break  # rounding stops the iteration, and will in every manner
    return point


def too_cold(saddle: SaddlePoint, overlaps: Overlaps) -> bool:
    """Whether Z has left the range of floating point where a state's field has weight."""
    return saddle.lost(overlaps) > LOST


def cold(problem: Problem, state: Overlaps) -> TemperatureError:
    """The error to raise there."""
    return TemperatureError(
        f"beta = {problem.beta:g} is too large here: e^(-beta H) leaves the range of floating "
        "point where the field has weight; use a smaller beta, or math.inf for its limit",
        state,
    )


def failure(problem: Problem, points: Sequence[FixedPoint]) -> ConvergenceError:
    """The error to raise when no start leads anywhere."""
    best = min(points, key=lambda p: p.residual)
    if too_cold(SaddlePoint(problem, coarseness=COARSE), to_overlaps(best.x)):
        return cold(problem, to_overlaps(best.x))
    return ConvergenceError(
        f"no saddle point found at {problem}: the best residual is {best.residual:.1e}; "
        "solve a nearby problem and pass its solution as start",
        to_overlaps(best.x),
    )
