"""The loop that both message-passing algorithms share: sweep, compare, damp, record, stop."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fermibose.cavity.channel import DivergenceError
from fermibose.cavity.estimate import Estimate, History
from fermibose.cavity.instance import Instance
from fermibose.errors import InputError
from fermibose.theory.problem import Array, Problem

LOOSEST = 2.0  # a variance may exceed that of the prior by this factor (A_i can be negative)


@dataclass(frozen=True)
class Marginals:
    """What one undamped sweep says."""

    mean: Array  # (N,)
    variance: Array  # (N,)
    change: float  # largest change of a message
    training_loss: float
    at_eigenvalue: float


class Messages(Protocol):
    """Messages of an algorithm between two sweeps."""

    def propose(self) -> Marginals:
        """One undamped sweep, kept aside."""

    def accept(self, damping: float) -> None:
        """Go to what was proposed, keeping a part of the old messages."""


def variances(problem: Problem, A: Array) -> Array:
    """v = 1/(βλ_w + A), bounded where pairs push a weight outwards faster than decay holds it."""
    prior = problem.beta * problem.weight_decay
    v: Array = 1 / np.maximum(prior + A, prior / LOOSEST)
    return v


def start_means(instance: Instance, start: Array | None, seed: int | None) -> Array:
    """The means to begin with: the given ones, or m ~ N(0, 1)."""
    if instance.problem.zero_temperature:
        raise InputError(
            "message passing needs a finite beta (say 50); ground_state() minimises the energy"
        )
    if start is None:
        rng = instance.generator("start") if seed is None else np.random.default_rng(seed)
        return rng.standard_normal(instance.n)
    start = np.array(start, dtype=float)
    if start.shape != (instance.n,) or not np.isfinite(start).all():
        raise InputError(
            f"start must be {instance.n} finite means, one for each weight, got shape {start.shape}"
        )
    return start


def pass_messages(
    instance: Instance, messages: Messages, damping: float, tol: float, max_iterations: int
) -> Estimate:
    """Sweep until the undamped change is at most tol."""
    if not 0 <= damping < 1:
        raise InputError(
            f"damping is the part of the old state kept: 0 <= damping < 1, got {damping!r}"
        )
    if not tol > 0:
        raise InputError(f"tol must be > 0, got {tol!r}")
    if max_iterations < 1:
        raise InputError(f"max_iterations must be at least 1, got {max_iterations!r}")
    history = History()
    converged = diverged = False
    last: Marginals | None = None
    for _ in range(max_iterations):
        try:
            last = messages.propose()
        except DivergenceError:
            if last is None:
                raise InputError(
                    "the start is too far out to begin from: use means of order 1"
                ) from None
            diverged = True
            break
        Q = float((last.mean**2).mean())
        history.M.append(float(last.mean.mean()))
        history.Q.append(Q)
        history.q.append(Q + float(last.variance.mean()))
        history.training_loss.append(last.training_loss)
        history.residual.append(last.change)
        if last.change <= tol:
            converged = True
            break
        messages.accept(damping)
    assert last is not None
    return Estimate(
        instance=instance,
        mean=last.mean,
        variance=last.variance,
        training_loss=last.training_loss,
        at_eigenvalue=last.at_eigenvalue,
        converged=converged,
        iterations=len(history.M),
        history=history,
        diverged=diverged,
    )
