r"""The energy of the weights of one instance, and its ground states by L-BFGS from many starts.

.. math:: E(w) = \sum_μ H_μ(w·x_{μ1}, w·x_{μ2}) + \tfrac{λ_w}{2}|w|^2

for disjoint pairs; samples that meet in many pairs weigh each of them by 1/n or 1/k
(:mod:`fermibose.cavity.forces`).
Nothing here knows the cavity method: minimising this energy, and sampling it
(:mod:`fermibose.cavity.sampling`), is the referee.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import ndtr

from fermibose.cavity.forces import Disjoint, Everyone, Forces, Partners
from fermibose.cavity.instance import Instance, Pairs, check_instance
from fermibose.checks import number, whole
from fermibose.compute import on_one_thread
from fermibose.errors import InputError
from fermibose.theory import Array, Predictions, Problem, activation_derivatives

# Distance of minima that are the same, in units of their length: far more than a descent leaves,
# far less than there is between independent ones, √2.
_SAME = 1e-2


class Landscape:
    """E and ∇E of one instance, for many weight vectors at once."""

    def __init__(self, instance: Instance) -> None:
        self.problem, train = instance.problem, instance.train
        if self.problem.hinge is not None:
            raise InputError("a hinge of your own has no known slope: use the softness instead")
        self._patterns = train.x.reshape(-1, instance.n)
        self._forces: Forces
        if isinstance(train, Pairs):
            self._forces = Disjoint(self.problem, train)
        elif train.meetings is None:
            self._forces = Everyone(self.problem, train)
        else:
            self._forces = Partners(self.problem, train)
        self.pairs = self._forces.weight  # that the energy of all is of the mean energy of one

    def energy_and_gradient(self, w: Array) -> tuple[Array, Array]:
        """E (k,) and ∇E (N, k) of k weight vectors, the columns of w (N, k)."""
        phi, slope, _ = activation_derivatives(self.problem, self._patterns @ w)
        energy, pull = self._forces.energy_and_slope(phi)
        decay = self.problem.weight_decay
        gradient = self._patterns.T @ (pull * slope) + decay * w
        return energy + decay / 2 * (w**2).sum(0), gradient

    def pair_energy(self, w: Array) -> Array:
        """Mean energy of a training pair, (k,)."""
        energy = self.energy_and_gradient(w)[0] - self.problem.weight_decay / 2 * (w**2).sum(0)
        return np.asarray(energy / self.pairs)


@dataclass(frozen=True)
class Descents:
    """Where the descent from every start ended; arrays of shape (restarts,)."""

    energy: Array  # E/N
    M: Array  # mean weight
    converged: NDArray[np.bool_]  # the gradient vanishes


@dataclass(frozen=True, repr=False)
class GroundState(Predictions):
    """The lowest minimum found. Nothing proves that there is none below: see ``history``."""

    instance: Instance
    weights: Array  # (N,)
    energy: float  # E/N: the free energy density at zero temperature
    training_loss: float  # mean energy of a training pair
    converged: bool  # the gradient vanishes
    iterations: int  # of all restarts together
    history: Descents

    @property
    def problem(self) -> Problem:  # type: ignore[override]
        """What the instance was drawn from."""
        return self.instance.problem

    @property
    def M(self) -> float:
        """Mean weight Σ w/N."""
        return float(self.weights.mean())

    @property
    def q(self) -> float:
        """Self-overlap w·w/N."""
        return float((self.weights**2).mean())

    @property
    def remark(self) -> str:
        """The verdict, and the size of the instance."""
        return f"{self.verdict}; N = {self.instance.n}"

    @property
    def verdict(self) -> str:
        """Whether the numbers can be used, in words."""
        descent = "converged" if self.converged else "did not converge: the gradient is not zero"
        reached = self.history.energy
        starts = f"{reached.size} start" + "s" * (reached.size != 1)
        return (
            f"{descent}; energy per weight {self.energy:.6f}, the lowest of {starts} "
            f"(median {np.median(reached):.6f})"
        )


@on_one_thread
def ground_state(
    instance: Instance,
    *,
    restarts: int = 20,
    start: Array | None = None,
    tol: float = 1e-6,
    seed: int | None = None,
) -> GroundState:
    """Minimise E(w) from ``start`` and then from starts w ~ N(0, 1), ``restarts`` in all.

    start: weights (N,), w = 1 by default: there every fermion pair tends to the sign of its labels,
    which descent from a random start mostly gets wrong and cannot mend. AMP's means are another
    good start. tol: the largest component of the gradient at which descent stops; it often stops
    earlier, because E no longer changes, and counts as converged up to a hundred times tol.
    """
    check_instance(instance)
    whole("restarts", restarts, least=1)
    number("tol", tol, above=0, below=1e-3)
    rng = instance.generator("restarts", seed)
    first = np.ones(instance.n) if start is None else instance.start(start, "weights")
    starts = [first, *rng.standard_normal((restarts - 1, instance.n))]
    landscape = Landscape(instance)
    ends = [_descend(landscape, w, tol) for w in starts]
    history = Descents(
        energy=np.array([end.fun for end in ends]) / instance.n,
        M=np.array([end.x.mean() for end in ends]),
        converged=np.array([_settled(end, tol) for end in ends]),
    )
    lowest = int(history.energy.argmin())
    best: Array = ends[lowest].x
    return GroundState(
        instance=instance,
        weights=best,
        energy=float(history.energy[lowest]),
        training_loss=float(landscape.pair_energy(best[:, None])[0]),
        converged=bool(history.converged[lowest]),
        iterations=int(sum(end.nit for end in ends)),
        history=history,
    )


def _descend(landscape: Landscape, start: Array, tol: float) -> Any:
    """What SciPy's L-BFGS says of the minimum below a start."""

    def cost(w: Array) -> tuple[float, Array]:
        energy, gradient = landscape.energy_and_gradient(w[:, None])
        return float(energy[0]), gradient[:, 0]

    options = {"maxiter": 5000, "maxfun": 10000, "gtol": tol, "ftol": 1e-15, "maxcor": 20}
    return minimize(cost, start, jac=True, method="L-BFGS-B", options=options)


def _settled(end: Any, tol: float) -> bool:
    return bool(np.abs(end.jac).max() <= 100 * tol)


@dataclass(frozen=True)
class Minima:
    """Where descents from random starts ended, from the lowest energy up."""

    instance: Instance
    weights: Array  # (starts, N)
    energy: Array  # (starts,): E/N
    converged: NDArray[np.bool_]  # (starts,): the gradient vanishes
    kind: NDArray[np.int64]  # (starts,): which minimum it is, from 0 up
    aligned: float  # E/N below w = 1, where fermion pairs begin with the sign of their labels

    @property
    def accuracy(self) -> Array:
        """Accuracy of every end on new patterns, Φ(m|M|/Δ√q)."""
        problem, M, q = self.instance.problem, self.weights.mean(1), (self.weights**2).mean(1)
        return np.asarray(ndtr(problem.m * np.abs(M) / (problem.delta * np.sqrt(q))))

    @property
    def distinct(self) -> int:
        """Number of different minima, w and −w being the same where φ is odd."""
        return int(self.kind.max()) + 1

    @property
    def excess(self) -> float:
        """Mean energy over the lowest known, be it below a random start or below w = 1."""
        return float(self.energy.mean() / min(self.energy[0], self.aligned))


@on_one_thread
def minima(
    instance: Instance, *, starts: int = 20, tol: float = 1e-6, seed: int | None = None
) -> Minima:
    """The minima of E(w) below random starts w ~ N(0, 1): one if it is simple, many of a glass.

    tol as in :func:`ground_state`. Two ends are the same minimum if their distance is below 1 % of
    their length.
    """
    check_instance(instance)
    whole("starts", starts, least=1)
    number("tol", tol, above=0, below=1e-3)
    rng = instance.generator("minima", seed)
    landscape = Landscape(instance)
    ends = [_descend(landscape, w, tol) for w in rng.standard_normal((starts, instance.n))]
    ends.sort(key=lambda end: float(end.fun))
    w = np.array([end.x for end in ends])
    return Minima(
        instance=instance,
        weights=w,
        energy=np.array([end.fun for end in ends]) / instance.n,
        converged=np.array([_settled(end, tol) for end in ends]),
        kind=_kinds(w, flips=instance.problem.odd),
        aligned=float(_descend(landscape, np.ones(instance.n), tol).fun) / instance.n,
    )


def _kinds(w: Array, *, flips: bool) -> NDArray[np.int64]:
    """Number each row by the first one that it equals, counted from 0 up."""
    overlap, length = w @ w.T, np.linalg.norm(w, axis=1)
    if flips:
        overlap = np.abs(overlap)
    apart = np.sqrt(np.maximum(length[:, None] ** 2 + length**2 - 2 * overlap, 0))
    first = (apart <= _SAME * length[:, None]).argmax(1)
    return np.unique(first, return_inverse=True)[1].astype(np.int64)
