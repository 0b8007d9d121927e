"""Solutions with one step of replica symmetry breaking, for where the symmetric one is unstable.

The equations of :mod:`fermibose.theory.rsb` at one y = βx are iterated from those at a neighbouring
y. At large y clusters are narrow and nearly symmetric, so the search begins there and goes down in
equal ratios until Σ changes its sign: x itself scales like 1/β.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from scipy.optimize import brentq

from fermibose.checks import is_number, number
from fermibose.compute import threads
from fermibose.errors import InputError
from fermibose.theory.fixed_point import ConvergenceError, iterate
from fermibose.theory.problem import Problem, check_problem
from fermibose.theory.rsb import (
    ClusterAverages,
    ClusterEquations,
    Clusters,
    Eigenvalues,
    complexity,
    distance,
    eigenvalues,
    free_energy,
    label_stiffness,
    to_vector,
    training_energy,
)
from fermibose.theory.solution import Predictions, Solution
from fermibose.theory.solve import disordered, solve

_TOP = 100.0  # y at which a search begins
_HIGHEST, _ALMOST = 0.95, 0.999  # x at which it begins at most, and beyond which it does not go
_COLDEST = 1e5  # y beyond which it does not go at zero temperature
_RATIO = 0.75  # of neighbouring y on the way down
_LOWEST = 1e-3  # part of the first y where the way down ends
_STRIDES = tuple(1.01 ** (2**k) for k in range(8))  # ratios of y to a start's, around it
_PRECISION = 1e-6  # relative, of y
_ROUGH = 1e-6  # residual with which a state on another grid is left
_SECOND = 1.5  # coarseness of the grid that estimates the error
_SEARCH = 2.0  # and of the one to search on at zero temperature, where iterations are slow

# How to iterate: residual at which acceleration begins, length of steps until then, iterations.
_Manner = tuple[float, float, int]
_MANNERS: tuple[_Manner, ...] = ((math.inf, 1.0, 60), (1e-2, 0.5, 150), (1e-3, 0.5, 400))
_PATIENT = _MANNERS[2:]  # plain steps for long: acceleration would find an unstable state again
_KICKS = (0.3, 1.0)  # mean weights to try beside M = 0, in units of √q₀ + 0.3
_NOTHING = 1e-5  # a mean weight that is on its way to 0


BROKEN_QUANTITIES = (
    "M", "q", "Q", "q0", "q1", "x", "y", "free_energy", "complexity", "cluster_free_energy",
    "energy", "generalization_loss", "accuracy", "fermion_distance", "boson_distance",
    "adversarial_area", "training_energy", "between", "inside", "stable", "label_stiffness",
    "residual", "iterations", "error",
)  # fmt: skip


class StableError(InputError):
    """There is nothing to break: replica symmetry is stable."""


@dataclass(frozen=True)
class BrokenSolution(Predictions):
    """A solution with one step of replica symmetry breaking, next to the symmetric one."""

    problem: Problem
    clusters: Clusters
    free_energy: float  # f, per weight
    complexity: float  # Σ, per weight: 0 at the Parisi parameter that makes f stationary
    training_energy: float  # mean H of a training pair
    label_stiffness: float  # 1 + Xαm² E[y·∇²F₁ y]: below 0, a state of M = 0 grows a magnetisation
    symmetric: Solution
    residual: float  # largest undamped change of M, q₀, q₁, q, χ₁ (of q or χ₁ above 1, relative)
    iterations: int
    converged: bool
    error: float  # the same change between a second, coarser grid and this one

    @property
    def M(self) -> float:
        """Mean weight Σ w/N."""
        return self.clusters.M

    @property
    def q(self) -> float:
        """Self-overlap ⟨w·w⟩/N."""
        return self.clusters.q

    @property
    def q0(self) -> float:
        """Overlap of two clusters."""
        return self.clusters.q0

    @property
    def q1(self) -> float:
        """Overlap inside a cluster."""
        return self.clusters.q1

    @property
    def Q(self) -> float:
        """Mean overlap of two replicas, x q₀ + (1 − x) q₁."""
        return self.q1 - self.x * self.clusters.gap

    @property
    def x(self) -> float:
        """Parisi parameter; 0 at zero temperature."""
        return self.clusters.x

    @property
    def y(self) -> float:
        """βx, finite at zero temperature."""
        return self.clusters.y

    @property
    def cluster_free_energy(self) -> float:
        """Free energy of one cluster, f + Σ/y."""
        return self.free_energy + self.complexity / self.y

    @property
    def energy(self) -> float:
        """Mean energy per weight, e = α⟨H⟩ + λ_w q/2."""
        return self.problem.alpha * self.training_energy + self.problem.weight_decay * self.q / 2

    @cached_property
    def eigenvalues(self) -> Eigenvalues:
        """Against clusters of clusters (``between``) and inside a cluster (``inside``)."""
        return eigenvalues(self.problem, self.clusters)

    @property
    def between(self) -> float:
        """The eigenvalue against clusters of clusters."""
        return self.eigenvalues.between

    @property
    def inside(self) -> float:
        """The eigenvalue against clusters inside a cluster."""
        return self.eigenvalues.inside

    @property
    def stable(self) -> bool:
        """Whether one step is enough: both eigenvalues are below 1."""
        return max(self.eigenvalues) < 1

    def to_dict(self) -> dict[str, Any]:
        """Every parameter of the problem and every quantity, by name: the row of a table."""
        return self.problem.to_dict() | {name: getattr(self, name) for name in BROKEN_QUANTITIES}


@threads(1)
def solve_broken(
    problem: Problem,
    start: BrokenSolution | Clusters | None = None,
    *,
    x: float | None = None,
    y: float | None = None,
    tol: float = 1e-8,
) -> BrokenSolution:
    """Solve with one step of replica symmetry breaking.

    The Parisi parameter is where f is stationary, or fixed: x, or y = βx, which alone is finite at
    zero temperature. Of a state of M = 0 and one of M > 0 the lower free energy wins. ``start``: a
    solution of a neighbouring problem, or clusters, to follow instead of searching.

    Raises StableError, an InputError, where replica symmetry is stable and no start leads to
    clusters all the same; ConvergenceError if the equations are not solved to ``tol`` or no Parisi
    parameter makes f stationary.
    """
    check_problem(problem)
    number("tol", tol, above=0, below=1)
    _check_start(start)
    level = _check_level(problem, x, y)
    symmetric = solve(problem, start.symmetric if isinstance(start, BrokenSolution) else None)
    return _solve(symmetric, start, level, tol, kick=True)


@threads(1)
def disordered_broken(
    problem: Problem, start: BrokenSolution | None = None, *, tol: float = 1e-8
) -> BrokenSolution:
    """The solution with M = 0, whether or not it is stable."""
    return _solve(disordered(problem), start, None, tol, kick=False)


def _solve(
    symmetric: Solution,
    start: BrokenSolution | Clusters | None,
    level: float | None,
    tol: float,
    *,
    kick: bool,
) -> BrokenSolution:
    """From a start if that leads somewhere, else from the symmetric solution."""
    problem = symmetric.problem

    def finish(found: _Found) -> BrokenSolution:
        return _finish(_leave_flat(found, level) if kick else found, symmetric, level, tol)

    if start is not None:
        begin = start if isinstance(start, Clusters) else start.clusters
        with suppress(ConvergenceError):
            return finish(_near(_first_search(problem, tol), begin, level))
    if symmetric.rs_stable:
        raise StableError(
            f"replica symmetry is stable here (AT = {symmetric.at_eigenvalue:.3f} < 1): "
            "the symmetric solution of solve() is the answer"
        )
    return finish(_from_above(_first_search(problem, tol), symmetric, level))


def _check_start(start: Any) -> None:
    """Refuse a start that is neither a solution nor clusters that weights can have."""
    if start is None or isinstance(start, BrokenSolution):
        return
    if not isinstance(start, Clusters):
        raise InputError(
            f"start must be a BrokenSolution or Clusters(M, q0, q1, chi1, y, beta), got {start!r}"
        )
    if not all(is_number(v) for v in (start.M, start.q0, start.q1, start.chi1, start.y)):
        raise InputError(f"the clusters to start from must be finite numbers, got {start!r}")
    if not start.M**2 <= start.q0 < start.q1 or min(start.chi1, start.y) <= 0:
        raise InputError(f"clusters have M² <= q0 < q1, and chi1 and y above 0, got {start!r}")


def _check_level(problem: Problem, x: float | None, y: float | None) -> float | None:
    """The y that x or y fix, None if neither does."""
    if x is not None and y is not None:
        raise InputError("give x or y = beta x, not both")
    if x is not None:
        if problem.zero_temperature:
            raise InputError("x vanishes at zero temperature: give y = beta x instead")
        return problem.beta * number("x", x, above=0, below=1)
    return None if y is None else number("y", y, above=0, below=problem.beta)


@dataclass(frozen=True)
class _State:
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
        self._known: dict[float, _State] = {}

    def elsewhere(self) -> "Search":
        """Another on the same grid, that goes on counting iterations."""
        other = Search(self.problem, tol=self.tol, coarseness=self.coarseness)
        other.iterations = self.iterations
        return other

    def begin(self, y: float, start: Clusters, manners: tuple[_Manner, ...] = _MANNERS) -> _State:
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
                self._known[y] = _State(self.problem, clusters, average, point.residual)
                return self._known[y]
        raise ConvergenceError(
            f"no broken solution at {self.problem} and y = beta x = {y:.4g}: the residual stays at "
            f"{point.residual:.1e}; solve_broken() a nearby problem and pass its solution as "
            "start, or use the symmetric solution of solve() with its at_eigenvalue",
            clusters,
        )

    def at(self, y: float) -> _State:
        """The solution at y."""
        if y not in self._known:
            nearest = min(self._known, key=lambda other: abs(math.log(other / y)))
            self.begin(y, self._known[nearest].clusters)
        return self._known[y]

    def optimum(self, ys: Iterable[float]) -> _State:
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


def _first_search(problem: Problem, tol: float) -> Search:
    """A search on its first grid, which at finite temperature is also the last."""
    if problem.zero_temperature:
        return Search(problem, tol=max(tol, _ROUGH), coarseness=_SEARCH)
    return Search(problem, tol=tol)


@dataclass(frozen=True)
class _Found:
    """Where a search ended."""

    search: Search
    state: _State


def _from_above(search: Search, symmetric: Solution, level: float | None) -> _Found:
    """From nearly symmetric clusters down to the y wanted, or to where Σ vanishes."""
    beta = search.problem.beta
    top = max(min(_TOP, _HIGHEST * beta), level or 0.0)
    q1 = symmetric.Q + symmetric.chi / (10 * top)
    guess = Clusters(symmetric.M, symmetric.Q, q1, 0.9 * symmetric.chi, top, beta)
    first = search.begin(top, guess)
    if level is None and first.complexity > 0:
        up = itertools.takewhile(lambda y: y < _COLDEST, _ratios(top, 1 / _RATIO))
        return _Found(search, search.optimum(up))
    lowest = _LOWEST * top if level is None else level
    down = itertools.takewhile(lambda y: y > lowest, _ratios(top, _RATIO))
    if level is None:
        return _Found(search, search.optimum(down))
    for y in down:
        search.at(y)
    return _Found(search, search.at(level))


def _ratios(y: float, ratio: float) -> Iterator[float]:
    """y, and on in equal ratios."""
    return (y * ratio**k for k in itertools.count())


def _near(search: Search, begin: Clusters, level: float | None) -> _Found:
    """From clusters of a neighbouring problem to the y wanted, or to where Σ vanishes."""
    first = min(begin.y, _ALMOST * search.problem.beta) if level is None else level
    sign = 1 if search.begin(first, begin).complexity > 0 else -1
    if level is not None:
        return _Found(search, search.at(level))
    return _Found(search, search.optimum([first, *(first * r**sign for r in _STRIDES)]))


def _leave_flat(found: _Found, level: float | None) -> _Found:
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
            other = _near(search, moved.clusters, level)
        except ConvergenceError:
            continue
        lower = other.state.free_energy < flat.free_energy
        if other.state.ordered and (flat.label_stiffness < 0 or lower):
            return other
    return found


def _finish(found: _Found, symmetric: Solution, level: float | None, tol: float) -> BrokenSolution:
    """The solution on the last grid, measured."""
    problem = symmetric.problem
    if found.search.coarseness != 1:
        last = Search(problem, tol=tol)
        last.iterations = found.search.iterations
        found = _near(last, _exact(found.state), level)
    state, clusters = found.state, _exact(found.state)
    second = ClusterEquations(problem, clusters.y, coarseness=_SECOND)
    point = iterate(second, to_vector(clusters), tol=_ROUGH, max_iterations=30)
    lattice = ClusterEquations(problem, clusters.y).lattice(clusters)
    return BrokenSolution(
        problem=problem,
        clusters=clusters,
        free_energy=state.free_energy,
        complexity=state.complexity,
        training_energy=training_energy(problem, clusters, lattice),
        label_stiffness=state.label_stiffness,
        symmetric=symmetric,
        residual=state.residual,
        iterations=found.search.iterations + point.iterations,
        converged=True,
        error=max(distance(second.clusters(point.x), clusters), point.residual),
    )


def _exact(state: _State) -> Clusters:
    """The clusters of a state; M = 0 is exact."""
    return state.clusters if state.ordered else replace(state.clusters, M=0.0)
