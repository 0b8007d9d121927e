"""The search for saddle points on a coarse grid: where to start, and where to go on from there.

A problem can have several: weights that bosons press together, weights as large as decay and
temperature let them be, ordered ones, and the unstable ones between them. Starts lie at all these
sizes, in units of the problem's own; from an unstable state the search goes on to its sides.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fermibose.theory.fixed_point import ConvergenceError, FixedPoint, Steps, iterate
from fermibose.theory.problem import Array, Problem
from fermibose.theory.replica import SaddleEquations, cold, distance, to_overlaps, to_vector
from fermibose.theory.solution import Candidate, Overlaps

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
COARSE = 2.2  # coarseness of the grid: good to 1e-4 in M (benchmarks/theory.py, measure)
ROUGH = 1e-4  # residual at which a fine grid can take over
_SAME = 100 * ROUGH  # distance up to which two finds are one
_TINY = 0.1  # M/√q that a rough iteration may have left of M = 0, or not yet gained
_UNSURE = 0.05  # stiffness that a rough state may have the wrong sign of
_SOFT = 0.2  # stiffness of a state whose neighbour's may be below 0
STRIDE = 0.2  # how far apart states of neighbouring problems may be
_MOST = 12  # searches from unstable states
# How to iterate: residual at which acceleration begins, length of steps until then, iterations.
_Manner = tuple[float, float, int]
_MANNERS: tuple[_Manner, ...] = (
    (0.5, 0.5, 60),
    (0.05, 0.5, 150),
    (10 * ROUGH, 0.5, 300),
    (10 * ROUGH, 0.2, 500),
)
_PATIENT = _MANNERS[2:]


@dataclass(frozen=True)
class Found:
    """A candidate and how it was reached."""

    candidate: Candidate
    iterations: int
    history: Steps
    cold: bool  # rounding shapes it: not to be relied upon


@dataclass(frozen=True)
class _Start:
    """Where an iteration begins, and how patient it is."""

    overlaps: Overlaps
    patient: bool = False  # plain steps for long: acceleration would find an unstable state again
    to_order: bool = False  # from M = 0 to any M > 0: in vain where one is known


def explore(
    problem: Problem, starts: Iterable[Overlaps], *, known: Iterable[Candidate] = ()
) -> list[Found]:
    """The saddle points that the starts and their unstable finds lead to, the solution first.

    Stable ones come before unstable ones, and both in the order of their free energy. ``known``:
    stable ones, which are among them and are not searched for again.
    """
    found = [Found(candidate, 0, Steps(), cold=False) for candidate in known]
    failed: list[FixedPoint] = []
    queue = deque(_Start(overlaps) for overlaps in starts)
    left = len(queue) + _MOST
    while queue and left:
        start = queue.popleft()
        if start.to_order and any(f.candidate.ordered for f in found):
            continue
        left -= 1
        ends = [f.candidate for f in found if _holds(f.candidate, flat=start.overlaps.M == 0)]
        result = _search(problem, start, ends)
        if isinstance(result, FixedPoint):
            failed.append(result)
        elif isinstance(result, Found) and not any(
            same(problem, result.candidate, f.candidate) for f in found
        ):
            found.append(result)
            queue += [] if result.cold else _kicks(problem, result.candidate)
    if not found:
        raise _failure(problem, failed)
    return sorted(found, key=lambda f: f.candidate.rank)


def _holds(candidate: Candidate, *, flat: bool) -> bool:
    """Whether iterations end where they come near; flat ones know of no M."""
    stability = candidate.stability
    within = candidate.overlaps.M == 0 and min(stability.size, stability.freezing) > 0
    return candidate.stable or (flat and within)


def same(problem: Problem, a: Candidate, b: Candidate) -> bool:
    """Whether two candidates are one saddle point, to the coarse grid's precision."""
    return a.ordered == b.ordered and distance(problem, a.overlaps, b.overlaps) < _SAME


def apart(a: Candidate, b: Candidate) -> float:
    """How much two states differ, of problems that need not be the same: in ln q, M/√q and Q/q."""
    one, other = (
        np.array([math.log(c.q), abs(c.overlaps.M) / math.sqrt(c.q), c.overlaps.Q / c.q])
        for c in (a, b)
    )
    return float(np.abs(one - other).max())


def follow(
    problem: Problem, states: Sequence[Candidate], *, known: Sequence[Candidate]
) -> list[Candidate] | None:
    """Saddle points of a neighbouring problem beside one that is known.

    None if one of them is lost or changes its kind.
    """
    followed: list[Candidate] = []
    for state in states:
        found = _search(problem, _Start(state.overlaps))
        if not isinstance(found, Found) or found.cold:
            return None
        new = found.candidate
        if _kind(new) != _kind(state):
            return None
        if new.stable and apart(new, state) > STRIDE:
            return None
        if any(same(problem, new, other) for other in (*known, *followed)):
            return None
        followed.append(new)
    return followed


def _kind(state: Candidate) -> tuple[bool, bool, bool]:
    """What a saddle point keeps from one problem to the next, if nothing branches off from it."""
    return state.ordered, state.stable, state.stability.freezing > 0


def relax(problem: Problem, state: Candidate) -> list[Found]:
    """Where plain steps lead from a state of a neighbouring problem, also if M or Q may grow."""
    at, q = state.overlaps, state.q
    starts = [at]
    if at.M == 0 and state.label_stiffness < _SOFT:
        starts += [Overlaps(0.05 * math.sqrt(q), at.Q + 0.0025 * q, at.chi)]
    if _SAME * q > at.Q and state.stability.freezing < _SOFT:
        starts += [replace(at, Q=at.Q + 0.05 * q, chi=0.95 * at.chi)]
    results = [_search(problem, _Start(start, patient=True)) for start in starts]
    return [r for r in results if isinstance(r, Found)]


def all_starts(problem: Problem) -> list[Overlaps]:
    """Ordered and not, at the sizes at which a problem can have saddle points."""
    M = 0.45 + math.atanh(min(math.sqrt(problem.d_f) / 2, 0.9))  # where fermions want the clusters
    M /= max(problem.m, 0.3 * problem.delta) * problem.steepness
    M, chi = min(M, math.sqrt(_worthwhile(problem))), 1 / problem.weight_decay
    starts = [Overlaps(M, M**2 + _natural(problem) / 8, 0.3 * chi)]
    if (q := _free(problem)) > _natural(problem):
        starts += [Overlaps(0.5 * math.sqrt(q), 0.6 * q, 0.4 * chi)]
    return starts + flat_starts(problem)


def flat_starts(problem: Problem) -> list[Overlaps]:
    """Starts that do not tell the clusters apart, and never will: M = 0 stays."""
    chi = 1 / problem.weight_decay
    starts = [Overlaps(0.0, _natural(problem) / 4, 0.3 * chi)]
    if (q := _free(problem)) > _natural(problem):
        starts += [Overlaps(0.0, 0.5 * q, 0.5 * chi)]
    between = math.sqrt(_natural(problem) * _worthwhile(problem))
    if between > 2 * _natural(problem) and problem.pairing == "disjoint":
        starts += [Overlaps(0.0, between, 0.2 * chi)]
    if (stiff := problem.weight_decay + _curvature(problem)) > 0:
        starts += [Overlaps(0.0, 1e-6 / (stiff * problem.beta), 1 / stiff)]
    return starts


def many_starts(problem: Problem) -> list[Overlaps]:
    """Starts at every size, for whoever wants every saddle point."""
    natural = _natural(problem)
    largest = 10 * max(natural, _free(problem))
    sizes = [Q for k in range(-2, 9, 2) if (Q := natural * 10.0**k) <= largest]
    responses = [part / problem.weight_decay for part in (1e-3, 0.03, 1.0)]
    more = [Overlaps(0.0, 0.0, chi) for chi in responses]
    for Q in sizes:
        more += [Overlaps(M, Q, chi) for chi in responses for M in (0.0, math.sqrt(Q / 2))]
    return [*all_starts(problem), *more]


def _natural(problem: Problem) -> float:
    """q of weights for which the noise of a cluster fills the slope of φ, if that is worthwhile."""
    return min(1 / (problem.delta * problem.steepness) ** 2, _worthwhile(problem))


def _free(problem: Problem) -> float:
    """q of weights that nothing but decay holds."""
    return 1 / (problem.beta * problem.weight_decay)


def _worthwhile(problem: Problem) -> float:
    """The q beyond which decay costs more than all fermions can gain and heat can pay."""
    gain = (1 - problem.bosons) * _fermion(problem)[0]
    return 2 * problem.load * (gain + 1e-6) / problem.weight_decay + _free(problem)


def _curvature(problem: Problem) -> float:
    """αΔ² E tr H'' at z = 0: what pairs add to the decay of weights that they press together."""
    slope = problem.bosons / 2 + (1 - problem.bosons) * _fermion(problem)[1]  # of H against D²
    return 4 * slope * problem.load * (problem.delta * problem.steepness) ** 2


@lru_cache(maxsize=64)
def _fermion(problem: Problem) -> tuple[float, float]:
    """H of a fermion pair at D = 0, and its slope against D² there."""
    near, far = problem.fermion_energy(np.array([0.0, 1e-6]))
    return float(near), float(far - near) / 1e-6


def _kicks(problem: Problem, candidate: Candidate) -> list[_Start]:
    """Starts off an unstable state, along the directions in which it is unstable."""
    state, stability, q = candidate.overlaps, candidate.stability, candidate.q
    size, kicks = math.sqrt(q), []
    if not candidate.ordered and candidate.label_stiffness < 0:
        far, *near = (Overlaps(a * size, state.Q + a**2 * q, state.chi) for a in (0.7, 0.3, 0.05))
        kicks += [
            _Start(far, to_order=problem.pairing == "all"),
            *(_Start(at, patient=True, to_order=True) for at in near),
        ]
    if stability.freezing < 0:
        frozen = replace(state, Q=state.Q + 0.1 * q, chi=0.9 * state.chi)
        kicks += [_Start(frozen, patient=True)]
    if stability.size < 0 or (candidate.ordered and stability.state < 0):
        for a in (0.7, 1.4):
            scaled = Overlaps(a * state.M, a**2 * state.Q, a**2 * state.chi)
            kicks += [_Start(scaled, patient=True)]
    return kicks


def _search(
    problem: Problem, start: _Start, known: Sequence[Candidate] = ()
) -> Found | FixedPoint | None:
    """A saddle point near a start on the coarse grid; the failed iteration if there is none.

    None if it leads to one of the known states.
    """
    try:
        return _searched(problem, start, known)
    except ConvergenceError:  # on the way, samples had no potentials that make each other
        return FixedPoint(to_vector(start.overlaps), math.inf, 0, False)


def _searched(
    problem: Problem, start: _Start, known: Sequence[Candidate]
) -> Found | FixedPoint | None:
    count = 0

    def step(x: Array) -> tuple[Array, float]:
        new, residual = saddle(x)
        if residual < _SAME and any(
            distance(problem, to_overlaps(x), k.overlaps) < _SAME for k in known
        ):
            return new, 0.0
        return new, residual

    manners, tol = (_PATIENT, ROUGH / 100) if start.patient else (_MANNERS, ROUGH)
    for threshold, damping, most in manners:
        saddle, history = SaddleEquations(problem, coarseness=COARSE), Steps()
        point = iterate(
            step,
            to_vector(start.overlaps),
            tol=tol,
            max_iterations=most,
            history=history,
            accelerate_below=threshold,
            damping=damping,
            unit=saddle.unit,
        )
        count += point.iterations
        state = to_overlaps(point.x)
        lost = saddle.too_cold(state)
        if point.converged and point.residual == 0 and known:
            return None
        if point.converged:
            candidate = _candidate(saddle, state)
            if _unsure(candidate) and not start.patient:
                point = iterate(
                    saddle,
                    point.x,
                    tol=ROUGH / 100,
                    max_iterations=most,
                    history=history,
                    unit=saddle.unit,
                )
                candidate = _candidate(saddle, to_overlaps(point.x))
            return Found(candidate, count, history, lost)
        if lost:
            break  # rounding stops the iteration, and will in every manner
    return point


def _unsure(candidate: Candidate) -> bool:
    """Whether a rough state may be stable or not, next to where that changes."""
    stability = candidate.stability
    margins = (candidate.label_stiffness, stability.state, stability.freezing)
    return min(abs(margin) for margin in margins) < _UNSURE


def _candidate(saddle: SaddleEquations, overlaps: Overlaps) -> Candidate:
    """The candidate of a state, of two mirror images the one of M > 0; M = 0 is exact.

    A small M is the iteration's, on its way into or out of M = 0, unless M = 0 is unstable here and
    it is not.
    """
    candidate = saddle.candidate(replace(overlaps, M=abs(overlaps.M)))
    if candidate.overlaps.M == 0 or _TINY * math.sqrt(candidate.q) < candidate.overlaps.M:
        return candidate
    flat = saddle.candidate(Overlaps(0.0, overlaps.Q - overlaps.M**2, overlaps.chi))
    return candidate if flat.label_stiffness < 0 < candidate.label_stiffness else flat


def _failure(problem: Problem, points: Sequence[FixedPoint]) -> ConvergenceError:
    """The error to raise when no start leads anywhere."""
    best = min(points, key=lambda p: p.residual)
    if math.isfinite(best.residual) and SaddleEquations(problem, coarseness=COARSE).too_cold(
        to_overlaps(best.x)
    ):
        return cold(problem, to_overlaps(best.x))
    return ConvergenceError(
        f"no saddle point found at {problem}: the best residual is {best.residual:.1e}; "
        "solve a nearby problem and pass its solution as start",
        to_overlaps(best.x),
    )
