"""Solutions with one step of replica symmetry breaking, for where the symmetric one is unstable."""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fermibose.checks import is_number, number
from fermibose.compute import on_one_thread
from fermibose.errors import InputError
from fermibose.theory.broken_search import (
    ROUGH,
    Found,
    Search,
    exact,
    first_search,
    from_above,
    leave_flat,
    near,
)
from fermibose.theory.fixed_point import ConvergenceError, iterate
from fermibose.theory.problem import Problem, check_disjoint
from fermibose.theory.rsb import (
    ClusterEquations,
    Clusters,
    Eigenvalues,
    distance,
    eigenvalues,
    to_vector,
    training_energy,
)
from fermibose.theory.solution import Predictions, Solution
from fermibose.theory.solve import disordered, solve

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_SECOND = 1.5  # coarseness of the grid that estimates the error


BROKEN_QUANTITIES = (
    "M", "q", "Q", "q0", "q1", "x", "y", "free_energy", "complexity", "cluster_free_energy",
    "energy", "generalization_loss", "accuracy", "fermion_distance", "boson_distance",
    "adversarial_area", "training_energy", "between", "inside", "stable", "label_stiffness",
    "residual", "iterations", "error",
)  # fmt: skip


class StableError(InputError):
    """There is nothing to break: replica symmetry is stable."""


@dataclass(frozen=True, repr=False)
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
    def remark(self) -> str:
        """The overlaps of the clusters."""
        return f"one step of breaking: q0 {self.q0:.4f}, q1 {self.q1:.4f}, x {self.x:.3g}"

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
        return self.problem.load * self.training_energy + self.problem.weight_decay * self.q / 2

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


@on_one_thread
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
    check_disjoint(problem)
    number("tol", tol, above=0, below=1)
    _check_start(start)
    level = _check_level(problem, x, y)
    symmetric = solve(problem, start.symmetric if isinstance(start, BrokenSolution) else None)
    return _solve(symmetric, start, level, tol, kick=True)


@on_one_thread
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

    def finish(found: Found) -> BrokenSolution:
        return _finish(leave_flat(found, level) if kick else found, symmetric, level, tol)

    if start is not None:
        begin = start if isinstance(start, Clusters) else start.clusters
        with suppress(ConvergenceError):
            return finish(near(first_search(problem, tol), begin, level))
    if symmetric.rs_stable:
        raise StableError(
            f"replica symmetry is stable here (AT = {symmetric.at_eigenvalue:.3f} < 1): "
            "the symmetric solution of solve() is the answer"
        )
    return finish(from_above(first_search(problem, tol), symmetric, level))


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


def _finish(found: Found, symmetric: Solution, level: float | None, tol: float) -> BrokenSolution:
    """The solution on the last grid, measured."""
    problem = symmetric.problem
    if found.search.coarseness != 1:
        last = Search(problem, tol=tol)
        last.iterations = found.search.iterations
        found = near(last, exact(found.state), level)
    state, clusters = found.state, exact(found.state)
    second = ClusterEquations(problem, clusters.y, coarseness=_SECOND)
    point = iterate(second, to_vector(clusters), tol=ROUGH, max_iterations=30)
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
