"""Ground states of one instance: the energy minimised by L-BFGS from many starts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from fermibose.cavity.checks import number, whole
from fermibose.cavity.instance import Instance, check_instance
from fermibose.cavity.landscape import Landscape
from fermibose.compute import threads
from fermibose.theory import Array, Predictions, Problem


@dataclass(frozen=True)
class Descents:
    """Where the descent from every start ended; arrays of shape (restarts,)."""

    energy: Array  # E/N
    M: Array  # mean weight
    converged: NDArray[np.bool_]  # the gradient vanishes


@dataclass(frozen=True)
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
    def verdict(self) -> str:
        """Whether the numbers can be used, in words."""
        descent = "converged" if self.converged else "did not converge: the gradient is not zero"
        reached = self.history.energy
        starts = f"{reached.size} start" + "s" * (reached.size != 1)
        return (
            f"{descent}; energy per weight {self.energy:.6f}, the lowest of {starts} "
            f"(median {np.median(reached):.6f})"
        )


@threads(1)
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

    def cost(w: Array) -> tuple[float, Array]:
        energy, gradient = landscape.energy_and_gradient(w[:, None])
        return float(energy[0]), gradient[:, 0]

    options = {"maxiter": 5000, "maxfun": 10000, "gtol": tol, "ftol": 1e-15, "maxcor": 20}
    runs = [minimize(cost, w, jac=True, method="L-BFGS-B", options=options) for w in starts]
    history = Descents(
        energy=np.array([run.fun for run in runs]) / instance.n,
        M=np.array([run.x.mean() for run in runs]),
        converged=np.array([np.abs(run.jac).max() <= 100 * tol for run in runs]),
    )
    lowest = int(history.energy.argmin())
    best: Array = runs[lowest].x
    return GroundState(
        instance=instance,
        weights=best,
        energy=float(history.energy[lowest]),
        training_loss=float(landscape.pair_energy(best[:, None])[0]),
        converged=bool(history.converged[lowest]),
        iterations=int(sum(run.nit for run in runs)),
        history=history,
    )
