"""The search for the Parisi parameter of a broken solution, and for its order.

The equations of :mod:`fermibose.theory.rsb` at one y = βx are iterated from those at a neighbouring
y. At large y clusters are narrow and nearly symmetric, so the search begins there and goes down in
equal ratios until Σ changes its sign: x itself scales like 1/β.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from scipy.optimize import brentq

from fermibose.theory.fixed_point import ConvergenceError, iterate
from fermibose.theory.problem import Problem
from fermibose.theory.rsb import (
    ClusterAverages,
    ClusterEquations,
    Clusters,
    complexity,
    free_energy,
    label_stiffness,
    to_vector,
)
from fermibose.theory.solution import Solution

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_TOP = 100.0  # y at which a search begins
_HIGHEST = 0.95  # x at which it begins at most; only halved
_RATIO = 0.75  # of neighbouring y on the way down; only halved
_PRECISION = 1e-6  # relative, of y

# Chosen by reason.
_ALMOST = 0.999  # x beyond which it does not go: at 1 nothing is broken
_COLDEST = 1e5  # y beyond which it does not go at zero temperature, a thousand times the first
_LOWEST = 1e-3  # part of the first y where the way down ends, after 24 ratios
_STRIDES = tuple(1.01 ** (2**k) for k in range(8))  # ratios of y to a start's, around it
ROUGH = 1e-6  # residual with which a state is left on a grid that only searches or estimates errors
_SEARCH = 2.0  # coarseness of the grid to search on at zero temperature: iterations are slow there

# How to iterate: residual at which acceleration begins, length of steps until then, iterations.
# The fastest way comes first, and more patient ones where it fails.
_Manner = tuple[float, float, int]
_MANNERS: tuple[_Manner, ...] = ((math.inf, 1.0, 60), (1e-2, 0.5, 150), (1e-3, 0.5, 400))
_PATIENT = _MANNERS[2:]  # plain steps for long: acceleration would find an unstable state again
_KICKS = (0.3, 1.0)  # mean weights to try beside M = 0, in units of √q₀ + 0.3: less, and as much
_NOTHING = 1e-5  # a mean weight that is on its way to 0: ten times what ``ROUGH`` leaves
_UNDECIDED = 1e-3  # label stiffness below 0 beside a transition, as in solve.py


@dataclass(frozen=True)
class State:
    """A solution at one y."""

    problem: Problem
    clusters: Clusters
    average: ClusterAverages
    residual: float

    @property
    def free_energy(self) -> float:
        """f."""
        return free_energy(self.problem, self.clusters, self.average)

    @property
    def complexity(self) -> float:
        """Σ."""
        return complexity(self.problem, self.clusters, self.average)

    @property
    def label_stiffness(self) -> float:
        """Below 0, M = 0 grows a magnetisation."""
        return label_stiffness(self.problem, self.clusters, self.average)

    @property
    def ordered(self) -> bool:
        """Whether M > 0."""
        return self.clusters.M > _NOTHING


class Search:
    """Solutions of one problem on one grid at several y, each iterated from that at the nearest."""

    def __init__(self, problem: Problem, *, tol: float, coarseness: float = 1.0) -> None:
        self.problem, self.tol, self.coarseness = problem, tol, coarseness
        self.iterations = 0
        self._known: dict[float, State] = {}

    def elsewhere(self) -> "Search":
        """Another on the same grid, that goes on counting iterations."""
        other = Search(self.problem, tol=self.tol, coarseness=self.coarseness)
        other.iterations = self.iterations
        return other

    def begin(self, y: float, start: Clusters, manners: tuple[_Manner, ...] = _MANNERS) -> State:
        """Solve the equations at a first y; the manners are tried in turn."""
        for threshold, damping, most in manners:
            equations = ClusterEquations(self.problem, y, coarseness=self.coarseness)
            point = iterate(
                equations,
                to_vector(start),
                tol=self.tol,
                max_iterations=most,
                accelerate_below=threshold,
                damping=damping,
            )
            self.iterations += point.iterations
            clusters = equations.clusters(point.x)
            if point.converged:
                clusters = replace(clusters, M=abs(clusters.M))
                average = equations.evaluate(clusters)
                self._known[y] = State(self.problem, clusters, average, point.residual)
                return self._known[y]
        raise ConvergenceError(
            f"no broken solution at {self.problem} and y = beta x = {y:.4g}: the residual stays at "
            f"{point.residual:.1e}; solve_broken() a nearby problem and pass its solution as "
            "start, or use the symmetric solution of solve() with its at_eigenvalue",
            clusters,
        )

    def at(self, y: float) -> State:
        """The solution at y."""
        if y not in self._known:
            nearest = min(self._known, key=lambda other: abs(math.log(other / y)))
            self.begin(y, self._known[nearest].clusters)
        return self._known[y]

    def optimum(self, ys: Iterable[float]) -> State:
        """Where Σ vanishes: go along ys until it changes its sign, then close in."""
        problem = self.problem
        limit = _COLDEST if problem.zero_temperature else _ALMOST * problem.beta
        before, sign = math.nan, 0.0
        for y in (min(y, limit) for y in ys):
            value = self.at(y).complexity
            if sign * value < 0:
                ends = sorted((before, y))
                precision = {"xtol": _PRECISION * ends[0], "rtol": _PRECISION}
                return self.at(float(brentq(lambda y: self.at(y).complexity, *ends, **precision)))
            before, sign = y, value
            if y == limit and sign > 0:
                break
        raise ConvergenceError(
            f"no broken solution at {problem}: the complexity keeps its sign as far as "
            f"y = beta x = {before:.4g}, where it is {sign:.1e}, so no Parisi parameter makes the "
            "free energy stationary; give x or y, or use the symmetric solution of solve()",
            self.at(before).clusters,
        )


def first_search(problem: Problem, tol: float) -> Search:
    """A search on its first grid, which at finite temperature is also the last."""
    if problem.zero_temperature:
        return Search(problem, tol=max(tol, ROUGH), coarseness=_SEARCH)
    return Search(problem, tol=tol)


@dataclass(frozen=True)
class Found:
    """Where a search ended."""

    search: Search
    state: State


def from_above(search: Search, symmetric: Solution, level: float | None) -> Found:
    """From nearly symmetric clusters down to the y wanted, or to where Σ vanishes."""
    beta = search.problem.beta
    top = max(min(_TOP, _HIGHEST * beta), level or 0.0)
    q1 = symmetric.Q + symmetric.chi / (10 * top)
    guess = Clusters(symmetric.M, symmetric.Q, q1, 0.9 * symmetric.chi, top, beta)
    first = search.begin(top, guess)
    if level is None and first.complexity > 0:
        up = itertools.takewhile(lambda y: y < _COLDEST, _ratios(top, 1 / _RATIO))
        return Found(search, search.optimum(up))
    lowest = _LOWEST * top if level is None else level
    down = itertools.takewhile(lambda y: y > lowest, _ratios(top, _RATIO))
    if level is None:
        return Found(search, search.optimum(down))
    for y in down:
        search.at(y)
    return Found(search, search.at(level))


def _ratios(y: float, ratio: float) -> Iterator[float]:
    """y, and on in equal ratios."""
    return (y * ratio**k for k in itertools.count())


def near(search: Search, begin: Clusters, level: float | None) -> Found:
    """From clusters of a neighbouring problem to the y wanted, or to where Σ vanishes."""
    first = min(begin.y, _ALMOST * search.problem.beta) if level is None else level
    sign = 1 if search.begin(first, begin).complexity > 0 else -1
    if level is not None:
        return Found(search, search.at(level))
    return Found(search, search.optimum([first, *(first * r**sign for r in _STRIDES)]))


def leave_flat(found: Found, level: float | None) -> Found:
    """What was found; if it has M = 0 and there is a lower solution of M > 0, that."""
    flat = found.state
    if flat.ordered:
        return found
    for kick in _KICKS:
        M = kick * (math.sqrt(flat.clusters.q0) + 0.3)
        q0, q1 = flat.clusters.q0 + M**2, flat.clusters.q1 + M**2
        search = found.search.elsewhere()
        try:
            moved = search.begin(
                flat.clusters.y, replace(flat.clusters, M=M, q0=q0, q1=q1), _PATIENT
            )
            if not moved.ordered:
                continue
            other = near(search, moved.clusters, level)
        except ConvergenceError:
            continue
        lower = other.state.free_energy < flat.free_energy
        if other.state.ordered and (flat.label_stiffness < 0 or lower):
            return other
    if flat.label_stiffness < -_UNDECIDED:
        raise ConvergenceError(
            f"no stable broken solution at {flat.problem}: the one found has M = 0 and label "
            f"stiffness {flat.label_stiffness:.3g} < 0, so it grows a magnetisation, but none with "
            "M > 0 was reached; solve_broken() a nearby problem and pass its solution as start",
            flat.clusters,
        )
    return found


def exact(state: State) -> Clusters:
    """The clusters of a state; M = 0 is exact."""
    return state.clusters if state.ordered else replace(state.clusters, M=0.0)
