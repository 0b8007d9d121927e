"""What sampling finds on one instance: the walk of its chains, averages, their errors."""

import math
from dataclasses import dataclass, field

import numpy as np

from fermibose.cavity.instance import Instance
from fermibose.theory import Array, Predictions, Problem


@dataclass(frozen=True)
class Walk:
    """Every trajectory of the coldest copies; arrays of shape (trajectories, chains)."""

    M: Array  # signs are such that M >= 0
    q: Array
    energy: Array  # mean energy of a training pair
    Q: Array = field(repr=False)  # (trajectories,): overlap of the chains, w as good as −w


@dataclass(frozen=True)
class Sampling(Predictions):
    """Averages over the samples of one instance. Signs are such that M >= 0."""

    instance: Instance
    training_loss: float  # mean energy of a training pair
    errors: dict[str, float]  # standard errors of M, q, Q from blocks of the walk
    agreement: dict[str, float]  # R̂ of M and q: near 1 where the chains sampled the same
    acceptance: float  # of trajectories at the coldest copies
    exchange: float  # least accepted part of exchanges between neighbours; 1 without tempering
    converged: bool  # the chains agree, and copies moved and were exchanged
    iterations: int  # trajectories kept
    history: Walk

    @property
    def problem(self) -> Problem:  # type: ignore[override]
        """What the instance was drawn from."""
        return self.instance.problem

    @property
    def M(self) -> float:
        """Mean weight Σ w/N."""
        return float(self.history.M.mean())

    @property
    def q(self) -> float:
        """Self-overlap w·w/N."""
        return float(self.history.q.mean())

    @property
    def Q(self) -> float:
        """Overlap of independent chains; NaN if there is only one."""
        return float(self.history.Q.mean())

    @property
    def verdict(self) -> str:
        """Whether the numbers can be used, in words."""
        parts = "chains" if self.history.M.shape[1] > 1 else "halves of the only chain"
        agree = (
            f"the {parts} agree"
            if self.converged
            else f"did not converge: the {parts} disagree, or nothing was accepted or exchanged"
        )
        errors = ", ".join(f"{name} ± {error:.4f}" for name, error in self.errors.items())
        return (
            f"{agree}; standard errors {errors}; acceptance {self.acceptance:.2f}, "
            f"least exchange {self.exchange:.2f}"
        )


def standard_error(series: Array) -> float:
    """Standard error of the mean from ten blocks of every chain."""
    columns = series.reshape(len(series), -1)
    blocks = np.array([part.mean(0) for part in np.array_split(columns, 10)]).ravel()
    return float(blocks.std(ddof=1) / math.sqrt(blocks.size))


def spread_ratio(series: Array) -> float:
    """R̂ of the halves of every chain: √(total variance / variance within)."""
    halves = np.concatenate(np.array_split(series[: len(series) // 2 * 2], 2), axis=1)
    within = halves.var(0, ddof=1).mean()
    between = halves.mean(0).var(ddof=1)
    return float(math.sqrt(1 + between / within))
