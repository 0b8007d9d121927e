"""Solutions along a parameter, each from the ones before it, with every state known on the way.

A state is extrapolated from the last points and followed; where one is lost or a lower one is known
all are searched for again. What no point before had is found by a search at every few points, and
by searches back from there until a point was right.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from fermibose.compute import Interrupted
from fermibose.theory.points import Attempt, attempt
from fermibose.theory.problem import Array, Problem
from fermibose.theory.replica import to_overlaps, to_vector
from fermibose.theory.search import STRIDE, apart
from fermibose.theory.solution import Candidate, Solution
from fermibose.theory.solve import jumped, search_again

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_KNOWN = 5  # points that predict the next
_LEAP = 0.7  # of the weights, or of ln χ: a prediction further from the last point is none
_ALIKE = 0.5  # how far apart solutions are that need not be different states
_RIVALS = 3  # points that predict its rivals, which are known on a coarse grid only


def continue_along(
    problems: Sequence[Problem],
    parameter: str,
    *,
    tol: float | None,
    looks: Sequence[int],
    solved: Sequence[Attempt] = (),
) -> list[Attempt]:
    """Solve problems one from another; a failed point is returned as an error and seeds nothing.

    looks: the points at which all states are searched for again. solved: the first points, if they
    are known. Ctrl-C raises Interrupted with the points so far.
    """
    points = list(solved)
    try:
        for index, problem in enumerate(problems[len(points) :], len(points)):
            known = [p for p in points[-_KNOWN:] if isinstance(p, Solution)]
            follows = bool(points) and isinstance(points[-1], Solution)
            start = _predict(known, parameter, getattr(problem, parameter)) if follows else None
            point = attempt(problem, start, tol=tol)
            points.append(point)
            if start is None or not isinstance(point, Solution):
                continue
            if index in looks:
                points[index] = point = search_again(point, tol=tol)
            if changed(start, point):  # it may have been so for some points already
                _look_back(points, tol=tol)
    except KeyboardInterrupt as stop:
        raise Interrupted(points) from stop
    return points


def _look_back(points: list[Attempt], *, tol: float | None) -> None:
    """Ask points, from the last but one back, about the states of the next, until one has none."""
    for index in range(len(points) - 2, -1, -1):
        known, after = points[index], points[index + 1]
        if not isinstance(known, Solution) or not isinstance(after, Solution):
            return
        points[index] = again = asked(known, [after], tol=tol)
        if not changed(known, again):
            return


def asked(point: Solution, others: Sequence[Solution], *, tol: float | None) -> Solution:
    """A solution that knows of the stable states of neighbouring problems."""
    own, states = point.candidate, []
    for other in others:
        alike = other.candidate.ordered == own.ordered and apart(other.candidate, own) < _ALIKE
        states += [*other.rivals, *([] if alike else [other.candidate])]
    new = [state.overlaps for state in states if state.stable and is_new(state, point)]
    return search_again(point, new, tol=tol) if new else point


def changed(one: Solution, other: Solution) -> bool:
    """Whether two solutions of neighbouring problems are different states, or their rivals are."""
    rivals = [r for r in other.rivals if r.stable]
    return jumped(one, other) or any(is_new(r, one) for r in rivals)


def is_new(state: Candidate, point: Solution) -> bool:
    """Whether a state of a neighbouring problem is far from all that are known at a point."""
    near = (other for other in (point.candidate, *point.rivals) if other.ordered == state.ordered)
    return not any(apart(state, other) < STRIDE for other in near)


def _predict(known: Sequence[Solution], parameter: str, value: float) -> Solution:
    """The last solution and its rivals moved on, by polynomials through the last ones."""
    last = known[-1]
    same = [s for s in known if s.candidate.ordered == last.candidate.ordered]
    at = np.array([*(getattr(s.problem, parameter) for s in same), value])
    if len(set(at)) < len(at) or not np.all(np.isfinite(at)):
        return last
    if at.min() > 0:
        at = np.log(at)  # most curves bend less against the logarithm
    states = np.array([to_vector(s.overlaps) for s in same])
    best = _extrapolate(at, states)
    shift = states[-1] - to_vector(last.second)
    rivals = []
    for rival in last.rivals:
        line = np.array([to_vector(r.overlaps) for r in _line(same[-_RIVALS:], rival)])
        moved = to_overlaps(_extrapolate(at[-len(line) - 1 :], line))
        rivals.append(replace(rival, overlaps=moved, q=moved.q(last.problem.beta)))
    return replace(
        last,
        overlaps=to_overlaps(best),
        second=to_overlaps(best - shift),
        rivals=tuple(rivals),
    )


def _line(points: Sequence[Solution], rival: Candidate) -> list[Candidate]:
    """A rival of the last point at the points before it too, as far back as it is known."""
    line = [rival]
    for point in reversed(points[:-1]):
        alike = [r for r in point.rivals if r.ordered == rival.ordered]
        near = min(alike, key=lambda r: apart(r, line[0]), default=None)
        if near is None or apart(near, line[0]) > STRIDE:
            break
        line.insert(0, near)
    return line


def _extrapolate(at: Array, states: Array) -> Array:
    """States at all but the last value of a parameter, continued to that.

    The degree of the polynomial is where one more changes the prediction least.
    """
    guesses = [_polynomial(at[-n - 1 : -1], states[-n:], at[-1]) for n in range(1, len(at))]
    changes = [float(np.abs(b - a).max()) for a, b in pairwise(guesses)]
    best = guesses[int(np.argmin(changes)) + 1] if changes else guesses[0]
    size = np.array([*[math.hypot(*states[-1][:2])] * 2, 1.0])
    return best if np.all(np.abs(best - states[-1]) <= _LEAP * size) else states[-1]


def _polynomial(at: Array, states: Array, value: float) -> Array:
    """The polynomial through states at some values of a parameter, at another (Lagrange's form)."""
    weights = [
        math.prod((value - b) / (a - b) for j, b in enumerate(at) if j != i)
        for i, a in enumerate(at)
    ]
    combined: Array = np.tensordot(weights, states, axes=1)
    return combined
