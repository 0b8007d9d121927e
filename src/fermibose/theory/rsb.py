r"""One step of replica symmetry breaking, for where the replica-symmetric solution is unstable.

States cluster: overlap q₁ inside a cluster, q₀ between clusters, Parisi parameter x. The field of a
cluster, ω = y m M + Δ√q₀ v, feels the pair through a second channel, whose energy is the F of the
first:

.. math:: F_1(ω) = -\tfrac{1}{βx} \ln E_u\, e^{-βx F(ω + Δ\sqrt{q_1-q_0}\,u)}

With χ₁ = β(q − q₁), X = χ₁ + βx(q₁ − q₀) and ⟨·⟩ the average over u with weight e^{−βxF},

.. math::
    1/X = λ_w + αΔ^2 E\,\mathrm{tr}∇^2F_1, \quad
    1/χ_1 = 1/X + βxαΔ^2 (E⟨|∇F|^2⟩ - E|∇F_1|^2)

    M = -Xαm E[y·∇F_1], \quad q_0 = M^2 + X^2αΔ^2 E|∇F_1|^2, \quad q_1 = q_0 + (X - χ_1)/βx

    f = \tfrac{λ_w}{2}q - \frac{q_0-M^2}{2X} - \tfrac{1}{2β}\Bigl[1 + \ln 2π
        + (1-\tfrac1x)\ln\tfrac{χ_1}{β} + \tfrac1x\ln\tfrac{X}{β}\Bigr] + α E F_1

and x is where ∂f/∂x = 0.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from fermibose.checks import number
from fermibose.compute import threads
from fermibose.errors import InputError
from fermibose.theory.channel import GaussianChannel
from fermibose.theory.fixed_point import ConvergenceError, iterate
from fermibose.theory.lattice import Lattice, make_lattice
from fermibose.theory.problem import Array, Problem, check_problem
from fermibose.theory.replica import Averages, PairMeasure, averages, conjugates
from fermibose.theory.solution import Overlaps, Predictions, Solution
from fermibose.theory.solve import solve

_SEARCH = (0.05, 0.95)  # where the Parisi parameter is looked for
_USABLE = 1e-5  # residual up to which a larger tol is worth advising
_ELSEWHERE = (
    "use the symmetric solution of solve() with its at_eigenvalue, or a problem nearer to "
    "Problem() or Problem(alpha=0.3, beta=150), where one step is known to work"
)


@dataclass(frozen=True)
class Clusters:
    """Order parameters with one step of replica symmetry breaking."""

    M: float
    q0: float  # overlap of two clusters
    q1: float  # overlap inside a cluster
    chi1: float  # β(q − q₁)
    x: float  # Parisi parameter, in (0, 1)

    def X(self, beta: float) -> float:
        """χ₁ + βx(q₁ − q₀): response of a cluster."""
        return self.chi1 + beta * self.x * (self.q1 - self.q0)

    def q(self, beta: float) -> float:
        """Self-overlap q₁ + χ₁/β."""
        return self.q1 + self.chi1 / beta


@dataclass(frozen=True)
class ClusterAverages:
    """Averages over pairs and fields that the equations need."""

    outer: Averages  # of F₁
    force2: float  # E⟨|∇F|²⟩
    F: float  # E⟨F⟩


@dataclass(frozen=True)
class BrokenSolution(Predictions):
    """A solution with one step of replica symmetry breaking, next to the symmetric one."""

    problem: Problem
    clusters: Clusters
    free_energy: float
    symmetric: Solution
    residual: float
    iterations: int
    converged: bool

    @property
    def M(self) -> float:
        """Mean weight Σ w/N."""
        return self.clusters.M

    @property
    def q(self) -> float:
        """Self-overlap ⟨w·w⟩/N."""
        return self.clusters.q(self.problem.beta)


@threads(1)
def solve_broken(problem: Problem, *, tol: float = 1e-8) -> BrokenSolution:
    """Solve with one step of replica symmetry breaking, the Parisi parameter optimised.

    Raises InputError where replica symmetry is stable (there is nothing to break) and at zero
    temperature, ConvergenceError if the equations are not solved to ``tol`` or if ∂f/∂x has no
    zero in the range of x searched, 0.05 to 0.95.
    """
    check_problem(problem)
    number("tol", tol, above=0, below=1)
    if problem.zero_temperature:
        raise InputError("replica symmetry breaking is solved at finite temperature: lower beta")
    symmetric = solve(problem)
    if symmetric.rs_stable:
        raise InputError(
            f"replica symmetry is stable here (AT = {symmetric.at_eigenvalue:.3f} < 1): "
            "the symmetric solution of solve() is the answer"
        )
    gap = (symmetric.q - symmetric.Q) / 10
    guess = Clusters(
        symmetric.M, symmetric.Q - gap, symmetric.Q + gap, 0.9 * symmetric.chi, math.nan
    )
    found: list[BrokenSolution] = []

    def slope(x: float) -> float:
        start = found[-1].clusters if found else guess
        equations = ClusterEquations(problem, x)
        point = iterate(
            equations,
            _to_vector(start),
            tol=tol,
            max_iterations=200,
            accelerate_below=1e-3,
            damping=1.0,
        )
        clusters = equations.clusters(point.x)
        average = equations.evaluate(clusters)
        f = free_energy(problem, clusters, average)
        total = point.iterations + (found[-1].iterations if found else 0)
        found.append(
            BrokenSolution(problem, clusters, f, symmetric, point.residual, total, point.converged)
        )
        if not point.converged:
            raise ConvergenceError(
                f"the broken solution at {problem} and x = {x:.3f} was not found: "
                f"the residual stays at {point.residual:.1e}; {_remedy(point.residual)}",
                found[-1],
            )
        return free_energy_slope(problem, clusters, average)

    ends = {x: slope(x) for x in _SEARCH}
    first, last = ends.values()
    if not first * last < 0:
        raise ConvergenceError(
            f"no broken solution at {problem}: df/dx is {first:.1e} at x = {_SEARCH[0]} and "
            f"{last:.1e} at x = {_SEARCH[1]}, so no Parisi parameter between them makes the "
            f"free energy stationary; {_ELSEWHERE}",
            found[-1],
        )
    root = brentq(lambda x: ends[x] if x in ends else slope(x), *_SEARCH, xtol=1e-4)
    slope(float(root))
    return found[-1]


def _remedy(residual: float) -> str:
    """What to try after an iteration that ended at this residual."""
    return f"tol = {2 * residual:.0e} accepts it" if residual < _USABLE else _ELSEWHERE


class ClusterEquations:
    """The equations at fixed x as a map on (M, √(q₀ − M²), ln χ₁, ln(q₁ − q₀))."""

    def __init__(self, problem: Problem, x: float) -> None:
        self.problem, self.x = problem, x
        self._lattice: Lattice | None = None
        self._gap = 0.0

    def __call__(self, vector: Array) -> tuple[Array, float]:
        """The next state and the undamped residual of this one."""
        clusters = self.clusters(vector)
        new = update(self.problem, clusters, self.evaluate(clusters))
        beta = self.problem.beta
        pairs = ((new.M, clusters.M), (new.q0, clusters.q0), (new.q1, clusters.q1))
        changes = [abs(a - b) for a, b in (*pairs, (new.q(beta), clusters.q(beta)))]
        return _to_vector(new), max(changes) / max(1.0, clusters.q1)

    def clusters(self, vector: Array) -> Clusters:
        """Inverse of the coordinates."""
        M, deviation, log_chi, log_gap = (float(v) for v in vector)
        q0 = M**2 + deviation**2
        return Clusters(M, q0, q0 + math.exp(log_gap), math.exp(log_chi), self.x)

    def evaluate(self, clusters: Clusters) -> ClusterAverages:
        """Averages over both channels, on one lattice that resolves the spread inside a cluster."""
        problem, gap = self.problem, clusters.q1 - clusters.q0
        overlaps = Overlaps(clusters.M, clusters.q1, clusters.chi1)
        fits = self._lattice is not None and self._lattice.covers(problem, overlaps)
        if self._lattice is None or not fits or gap < self._gap / 2:
            widest = problem.delta * math.sqrt(gap) / 2
            self._lattice = make_lattice(problem, overlaps, widest=widest)
            self._gap = gap
        return cluster_averages(problem, clusters, self._lattice)


def cluster_averages(problem: Problem, clusters: Clusters, lattice: Lattice) -> ClusterAverages:
    """F on the lattice, then F₁ from it, then averages over the field between clusters."""
    inner = lattice.channel.effective(problem.delta**2 * clusters.chi1)
    axes = (lattice.r, lattice.t)
    level = problem.beta * clusters.x  # β of the clusters
    outer = GaussianChannel(inner.F, level, at=axes, on=axes)
    c = level * problem.delta**2 * (clusters.q1 - clusters.q0)
    measure = PairMeasure(problem, *axes, M=clusters.M, Q=clusters.q0)
    return ClusterAverages(
        outer=averages(outer, measure, c=c),
        force2=measure.mean(outer.mean(inner.r**2 + inner.t**2, c)),
        F=measure.mean(outer.mean(inner.F, c)),
    )


def update(problem: Problem, clusters: Clusters, average: ClusterAverages) -> Clusters:
    """The equations of the module docstring, once."""
    between = Overlaps(clusters.M, clusters.q0, clusters.X(problem.beta))
    conjugate = conjugates(problem, between, average.outer)
    level = problem.beta * clusters.x
    variance = problem.alpha * problem.delta**2 * (average.force2 - average.outer.force2)
    X = 1 / (problem.weight_decay + conjugate.chi)
    chi1 = 1 / (1 / X + level * variance)
    M = -X * conjugate.M
    q0 = M**2 - X**2 * conjugate.Q
    return Clusters(M, q0, q0 + (X - chi1) / level, chi1, clusters.x)


def free_energy(problem: Problem, clusters: Clusters, average: ClusterAverages) -> float:
    """f of the module docstring; stationary in every argument at a solution."""
    beta, x, X = problem.beta, clusters.x, clusters.X(problem.beta)
    logs = (1 - 1 / x) * math.log(clusters.chi1 / beta) + math.log(X / beta) / x
    return (
        problem.weight_decay * clusters.q(beta) / 2
        - (clusters.q0 - clusters.M**2) / (2 * X)
        - (1 + math.log(2 * math.pi) + logs) / (2 * beta)
        + problem.alpha * average.outer.F
    )


def free_energy_slope(problem: Problem, clusters: Clusters, average: ClusterAverages) -> float:
    """∂f/∂x at fixed overlaps."""
    beta, x, X = problem.beta, clusters.x, clusters.X(problem.beta)
    gap = clusters.q1 - clusters.q0
    logs = math.log(clusters.chi1 / X) / x**2 + beta * gap / (x * X)
    return (
        (clusters.q0 - clusters.M**2) * beta * gap / (2 * X**2)
        - logs / (2 * beta)
        + problem.alpha * (average.F - average.outer.F) / x
    )


def _to_vector(clusters: Clusters) -> Array:
    deviation = math.sqrt(max(clusters.q0 - clusters.M**2, 1e-14))
    gap = max(clusters.q1 - clusters.q0, 1e-12)
    return np.array([clusters.M, deviation, math.log(clusters.chi1), math.log(gap)])
