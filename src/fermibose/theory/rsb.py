r"""The equations with one step of replica symmetry breaking, at any temperature.

States cluster: overlap q₁ inside a cluster, q₀ between clusters, Parisi parameter x. What stays
finite at zero temperature is y = βx, the inverse temperature of the clusters. The field of a
cluster, ω = y m M + Δ√q₀ v, feels the pair through a second channel, whose energy is the F of the
first:

.. math:: F_1(ω) = -\tfrac{1}{y} \ln E_u\, e^{-y F(ω + Δ\sqrt{q_1-q_0}\,u)}

With χ₁ = β(q − q₁), X = χ₁ + y(q₁ − q₀) and ⟨·⟩ the average over u with weight e^{−yF},

.. math::
    1/X = λ_w + αΔ^2 E\,\mathrm{tr}∇^2F_1, \quad
    1/χ_1 = 1/X + yαΔ^2 (E⟨|∇F|^2⟩ - E|∇F_1|^2)

    M = -Xαm E[y·∇F_1], \quad q_0 = M^2 + X^2αΔ^2 E|∇F_1|^2, \quad q_1 = q_0 + (X - χ_1)/y

    f = \tfrac{λ_w}{2}q - \frac{q_0-M^2}{2X} - \tfrac{1}{2β}\ln\frac{2πeχ_1}{β}
        - \tfrac{1}{2y}\ln\frac{X}{χ_1} + α E F_1

(labels y = ±1 in y m M and y·∇F₁). There are e^{NΣ} clusters of free energy f_c, and y selects
those with y = ∂Σ/∂f_c: y f = y f_c − Σ, so

.. math:: Σ = y^2\,∂f/∂y = βx^2\,∂f/∂x, \qquad f_c = f + Σ/y.

The clusters that count are the lowest, where Σ vanishes and f is stationary in y.

One step is enough where two eigenvalues are below 1: against clusters of clusters, and against
clusters inside a cluster. Each is the de Almeida-Thouless eigenvalue of its own level,

.. math:: αΔ^4X^2\, E\|∇^2F_1\|^2, \qquad αΔ^4χ_1^2\, E⟨\|∇^2F\|^2⟩.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fermibose.theory.channel import SQRT2, Axis, GaussianChannel
from fermibose.theory.disjoint import Averages, Lattice, PairMeasure, averages, make_lattice
from fermibose.theory.fixed_point import ConvergenceError
from fermibose.theory.problem import Array, Problem
from fermibose.theory.replica import conjugates
from fermibose.theory.solution import Conjugates, Overlaps

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
# Steps in the field's width inside a cluster: Gaussian averages good to 1e-12; only doubled
_INSIDE = 1.35
_FIELD = 1.6  # least steps in the width of the field between clusters
# Widths of that field that its nodes cover: forces differ by little near the AT line; only doubled
_TAIL = 6.5
_WIDTHS = 5.5  # widths of a field that a lattice covers
_ROOM = 4.0  # widths inside a cluster beyond them that the nodes of F reach
_SHARP = 0.7  # coarseness at zero temperature, where F has kinks
_SMALLEST = 1e-4  # floor of √(q₀ − M²)
_LEAST_GAP = 1e-12  # floor of q₁ − q₀

# Chosen by reason.
_GROWTH = 1e-6  # of an eigenvalue per unit of β that counts as none, as of AT
_TOLERANCE = 0.02  # relative error of an eigenvalue with which it is left, as of AT
_FINENESS = (2.0, 4.0, 8.0)  # of lattices to try in turn beyond the solution's, until it is


@dataclass(frozen=True)
class Clusters:
    """Order parameters with one step of replica symmetry breaking."""

    M: float  # mean weight
    q0: float  # overlap of two clusters
    q1: float  # overlap inside a cluster
    chi1: float  # χ₁ = β(q − q₁): response inside a cluster
    y: float  # βx: inverse temperature of the clusters
    beta: float  # of the weights; math.inf is zero temperature

    @property
    def x(self) -> float:
        """Parisi parameter y/β: 0 at zero temperature."""
        return self.y / self.beta

    @property
    def gap(self) -> float:
        """q₁ − q₀."""
        return self.q1 - self.q0

    @property
    def X(self) -> float:
        """χ₁ + y(q₁ − q₀): response of a cluster."""
        return self.chi1 + self.y * self.gap

    @property
    def q(self) -> float:
        """Self-overlap q₁ + χ₁/β."""
        return self.q1 + self.chi1 / self.beta


@dataclass(frozen=True)
class ClusterAverages:
    """Averages over pairs and fields that the equations need."""

    outer: Averages  # of F₁
    force2: float  # E⟨|∇F|²⟩
    F: float  # E⟨F⟩


class Eigenvalues(NamedTuple):
    """Of the fluctuations that would break the symmetry once more; one step holds if all are < 1.

    At zero temperature ``inside`` is infinite where forces jump.
    """

    between: float  # αΔ⁴X² E‖∇²F₁‖²: against clusters of clusters
    inside: float  # αΔ⁴χ₁² E⟨‖∇²F‖²⟩: against clusters inside a cluster


class ClusterEquations:
    """The equations at fixed y as a map on (M, √(q₀ − M²), ln χ₁, ln(q₁ − q₀))."""

    def __init__(
        self, problem: Problem, y: float, *, coarseness: float = 1.0, fineness: float = 1.0
    ) -> None:
        self.problem, self.y = problem, y
        sharp = _SHARP if problem.zero_temperature else 1.0
        self._grid = {"coarseness": coarseness * sharp, "fineness": fineness}
        self._lattice: Lattice | None = None
        self._gap = 0.0
        self._last: tuple[Clusters, ClusterAverages] | None = None

    def __call__(self, vector: Array) -> tuple[Array, float]:
        """The next state and the undamped residual of this one; M moves as in the symmetric map."""
        problem, clusters = self.problem, self.clusters(vector)
        average = self.evaluate(clusters)
        conjugate = outer_conjugates(problem, clusters, average)
        if problem.weight_decay + conjugate.chi <= 0:
            # The pairs push the weights apart faster than decay holds them: let them grow.
            grown = np.array([1.5 * vector[0], 1.5 * abs(vector[1]) + 0.1, *vector[2:]])
            return grown, math.inf
        plain = update(problem, clusters, average)
        new = to_vector(plain)
        # Linear through 0, so that a deviation that dies out is found at once.
        new[1] *= vector[1] / to_vector(clusters)[1]
        stiffness = label_stiffness(problem, clusters, average)
        new[0] = vector[0] + (new[0] - vector[0]) / max(1.0, stiffness)
        return new, distance(plain, clusters)

    def clusters(self, vector: Array) -> Clusters:
        """Inverse of the coordinates."""
        M, deviation, log_chi, log_gap = (float(v) for v in vector)
        q0 = M**2 + max(deviation**2, _SMALLEST**2)
        return Clusters(M, q0, q0 + math.exp(log_gap), math.exp(log_chi), self.y, self.problem.beta)

    def evaluate(self, clusters: Clusters) -> ClusterAverages:
        """Averages over both channels."""
        if self._last is None or self._last[0] != clusters:
            self._last = (
                clusters,
                cluster_averages(self.problem, clusters, self.lattice(clusters)),
            )
        return self._last[1]

    def lattice(self, clusters: Clusters) -> Lattice:
        """Nodes that resolve the field inside a cluster; kept while they are good for a state."""
        problem = self.problem
        # Room for the field inside beyond that between clusters: F₁ must not feel the last nodes.
        room = (_TAIL * math.sqrt(clusters.q0) + _ROOM * math.sqrt(clusters.gap)) / _WIDTHS
        overlaps = Overlaps(clusters.M, max(clusters.q1, room**2), clusters.chi1)
        fits = self._lattice is not None and self._lattice.covers(problem, overlaps)
        if self._lattice is None or not fits or clusters.gap < 0.8 * self._gap:
            inside = problem.delta * math.sqrt(clusters.gap)
            self._lattice = make_lattice(
                problem, overlaps, widest=inside / _INSIDE, everywhere=True, **self._grid
            )
            self._gap = clusters.gap
            if inside < _step(self._lattice.r):
                raise ConvergenceError(
                    f"no broken solution at {problem} and y = beta x = {self.y:.4g}: its clusters "
                    f"merge, or are too close to be told apart (q1 - q0 = {clusters.gap:.1e}); use "
                    "the symmetric solution of solve() with its at_eigenvalue",
                    clusters,
                )
        return self._lattice


class Levels:
    """Both channels at a state: F on the nodes of a lattice, F₁ on those that its own field needs.

    These have steps of their own if the field between clusters is narrower than the lattice
    resolves.
    """

    def __init__(self, problem: Problem, clusters: Clusters, lattice: Lattice) -> None:
        self.problem, self.clusters, self.channel = problem, clusters, lattice.channel
        self.c = problem.delta**2 * clusters.chi1
        self.outer_c = clusters.y * problem.delta**2 * clusters.gap
        self.on = (lattice.r, lattice.t)
        width = problem.delta * math.sqrt(clusters.q0)
        reach = SQRT2 * problem.m * abs(clusters.M) + _TAIL * width
        r, t = (_within(axis, reach, width) for axis in self.on)
        at = (r, r if lattice.t is lattice.r else t)
        self.inner = lattice.channel.effective(self.c)
        self.outer = GaussianChannel(self.inner.F, clusters.y, at=at, on=self.on)
        self.measure = PairMeasure(problem, *at, M=clusters.M, Q=clusters.q0)

    def mean(self, g: Array) -> float:
        """E⟨g⟩ of a function on the nodes of the lattice."""
        return self.measure.mean(self.outer.mean(g, self.outer_c))

    def averages(self) -> Averages:
        """Averages of F₁."""
        return averages(self.outer, self.measure, c=self.outer_c)


def _within(axis: Axis, reach: float, width: float) -> Axis:
    """The nodes of an axis up to ``reach``, or closer ones for a field narrower than its steps."""
    if width < _FIELD * _step(axis):
        return Axis.uniform(width / 2, reach, folded=axis.folded)
    near = np.abs(axis.nodes) <= reach
    return replace(axis, nodes=axis.nodes[near], weights=axis.weights[near])


def _step(axis: Axis) -> float:
    """The largest distance of neighbouring nodes."""
    return float(np.diff(axis.nodes).max())


def cluster_averages(problem: Problem, clusters: Clusters, lattice: Lattice) -> ClusterAverages:
    """F on the lattice, then F₁ from it, then averages over the field between clusters."""
    levels = Levels(problem, clusters, lattice)
    return ClusterAverages(
        outer=levels.averages(),
        force2=levels.mean(levels.inner.weighted[2]),
        F=levels.mean(levels.inner.F),
    )


def outer_conjugates(problem: Problem, clusters: Clusters, average: ClusterAverages) -> Conjugates:
    """M̂, Q̂ and χ̂ of the field between clusters."""
    between = Overlaps(clusters.M, clusters.q0, clusters.X)
    return conjugates(problem, between, average.outer)


def update(problem: Problem, clusters: Clusters, average: ClusterAverages) -> Clusters:
    """The equations of the module docstring, once."""
    conjugate, y = outer_conjugates(problem, clusters, average), clusters.y
    variance = problem.load * problem.delta**2 * (average.force2 - average.outer.force2)
    X = 1 / (problem.weight_decay + conjugate.chi)
    chi1 = 1 / (1 / X + y * max(variance, 0.0))  # below 0 by rounding only
    M = -X * conjugate.M
    q0 = M**2 - X**2 * conjugate.Q
    return Clusters(M, q0, q0 + (X - chi1) / y, chi1, y, problem.beta)


def free_energy(problem: Problem, clusters: Clusters, average: ClusterAverages) -> float:
    """f of the module docstring; stationary in every argument at a solution."""
    beta, chi1, X = problem.beta, clusters.chi1, clusters.X
    entropy = 0.0 if problem.zero_temperature else math.log(2 * math.pi * math.e * chi1 / beta)
    return (
        problem.weight_decay * clusters.q / 2
        - (clusters.q0 - clusters.M**2) / (2 * X)
        - entropy / (2 * beta)
        - math.log(X / chi1) / (2 * clusters.y)
        + problem.load * average.outer.F
    )


def complexity(problem: Problem, clusters: Clusters, average: ClusterAverages) -> float:
    """Σ = y² ∂f/∂y at fixed overlaps, which at a solution is the total derivative."""
    y, X, gap = clusters.y, clusters.X, clusters.gap
    slope = (
        (clusters.q0 - clusters.M**2) * gap / (2 * X**2)
        + math.log(X / clusters.chi1) / (2 * y**2)
        - gap / (2 * y * X)
        + problem.load * (average.F - average.outer.F) / y
    )
    return y**2 * slope


def label_stiffness(problem: Problem, clusters: Clusters, average: ClusterAverages) -> float:
    """1 + Xαm² E[y·∇²F₁ y]: below 0, a state of M = 0 grows a magnetisation."""
    return 1 + clusters.X * problem.load * problem.m**2 * average.outer.stiffness


def eigenvalues(problem: Problem, clusters: Clusters) -> Eigenvalues:
    """Both eigenvalues of a state, on a finer lattice where leaving out nodes changes them."""
    for fineness in (1.0, *_FINENESS):
        lattice = ClusterEquations(problem, clusters.y, fineness=fineness).lattice(clusters)
        found, error = _eigenvalues(problem, clusters, lattice)
        if problem.zero_temperature or error <= _TOLERANCE * found.inside or lattice.full:
            break
    return found


def _eigenvalues(
    problem: Problem, clusters: Clusters, lattice: Lattice
) -> tuple[Eigenvalues, float]:
    """Both on one lattice, and what that inside changes on every second node."""
    levels = Levels(problem, clusters, lattice)
    scale = problem.load * problem.delta**4
    outer = levels.outer.response(levels.outer_c)
    between = scale * clusters.X**2 * levels.measure.mean(outer.squared_norm)
    scale *= clusters.chi1**2
    bend = levels.channel.response(levels.c)
    if bend.growth is not None and scale * levels.mean(bend.growth) > _GROWTH:
        return Eigenvalues(between, math.inf), 0.0
    inside = scale * levels.mean(bend.squared_norm)
    thin_r, thin_t = (_thinning(axis) for axis in levels.on)
    thinned = scale * levels.mean(bend.squared_norm * thin_r[:, None] * thin_t)
    return Eigenvalues(between, inside), abs(inside - thinned)


def _thinning(axis: Axis) -> Array:
    """What turns the weights of an axis into those of every second node."""
    factor = np.zeros(axis.nodes.size)
    factor[::2] = axis.thinned().weights / axis.weights[::2]
    return factor


def training_energy(problem: Problem, clusters: Clusters, lattice: Lattice) -> float:
    """Mean H of a training pair."""
    levels = Levels(problem, clusters, lattice)
    return levels.mean(levels.channel.energy(levels.c))


def distance(a: Clusters, b: Clusters) -> float:
    """Largest difference in M, q₀, q₁, q and χ₁, relative to q and to χ₁ where they are above 1."""
    overlap = max(abs(a.M - b.M), abs(a.q0 - b.q0), abs(a.q1 - b.q1), abs(a.q - b.q))
    return max(overlap / max(1.0, b.q), abs(a.chi1 - b.chi1) / max(1.0, b.chi1))


def to_vector(clusters: Clusters) -> Array:
    """Coordinates (M, √(q₀ − M²), ln χ₁, ln(q₁ − q₀)), free of constraints."""
    deviation = math.sqrt(max(clusters.q0 - clusters.M**2, _SMALLEST**2))
    gap = max(clusters.gap, _LEAST_GAP)
    return np.array([clusters.M, deviation, math.log(clusters.chi1), math.log(gap)])
