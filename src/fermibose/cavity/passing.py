"""The loop that both message-passing algorithms share: sweep, compare, mix, record, stop.

Damped sweeps first, to come near; Anderson acceleration then, to stay; in turns until close. The
heavy tail of V∂f makes the AT eigenvalue of an instance scatter widely: where replica symmetry is
stable, that of one instance may still exceed 1, and plain sweeps, damped or not, leave its fixed
point. The acceleration finds it; it changes no equation that a fixed point satisfies.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fermibose.cavity.channel import DivergenceError
from fermibose.cavity.checks import number, whole
from fermibose.cavity.estimate import Estimate, History
from fermibose.cavity.instance import Instance, check_instance
from fermibose.cavity.lattice import LatticeError
from fermibose.errors import InputError
from fermibose.progress import progress_bar
from fermibose.theory import Array, Problem, Steps

TURN = 50  # sweeps that are damped, then accelerated, before damped ones have their turn again
CLOSE = 1e-2  # an undamped change below which acceleration goes on until it converges
LOOSEST = 2.0  # a variance may exceed that of the prior by this factor (A_i can be negative)


@dataclass(frozen=True)
class Marginals:
    """What one undamped sweep says."""

    mean: Array  # (N,)
    variance: Array  # (N,)
    change: float  # largest change of a message
    training_loss: float
    at_eigenvalue: float
    free_energy: float


class Messages(Protocol):
    """One undamped sweep of an algorithm, on all its messages in one vector."""

    start: Array
    memory: int  # earlier sweeps that acceleration remembers

    def sweep(self, x: Array) -> tuple[Array, Marginals]:
        """The next messages."""

    def allowed(self, x: Array) -> bool:
        """Whether the messages can be swept: variances are positive."""


def variances(problem: Problem, A: Array) -> Array:
    """v = 1/(βλ_w + A), bounded where pairs push a weight outwards faster than decay holds it."""
    prior = problem.beta * problem.weight_decay
    v: Array = 1 / np.maximum(prior + A, prior / LOOSEST)
    return v


def start_means(instance: Instance, start: Array | None, seed: int | None, *, least: int) -> Array:
    """The means to begin with: the given ones, or m ~ N(0, 1); ``least``: weights it takes."""
    check_instance(instance)
    if instance.problem.zero_temperature:
        raise InputError(
            "message passing needs a finite beta (say 50); ground_state() minimises the energy"
        )
    if instance.n < least:
        raise InputError(
            f"n = {instance.n} weights cannot move the two fields of a pair independently: this "
            f"algorithm needs n >= {least}"
        )
    rng = instance.generator("start", seed)
    return rng.standard_normal(instance.n) if start is None else instance.start(start, "means")


class Mixer:
    """What the next sweep begins with."""

    def __init__(self, messages: Messages, damping: float) -> None:
        self.messages, self.damping = messages, damping
        self.steps = Steps(messages.memory)
        self.turn = 0  # sweeps since damped ones began

    def after(self, x: Array, new: Array, change: float) -> Array:
        """Damped or accelerated messages, after a sweep took x to new with this largest change."""
        step = (1 - self.damping) * (new - x)
        self.turn += 1
        if not self.damping or self.turn <= TURN:
            return x + step
        if self.turn > 2 * TURN and change > CLOSE:
            self.steps.forget()
            self.turn = 1
            return x + step
        self.steps.add(x, step)
        proposal = self.steps.propose()
        if self.messages.allowed(proposal):
            return proposal
        self.steps.forget()
        return x + step


def pass_messages(
    instance: Instance,
    messages: Messages,
    damping: float,
    tol: float,
    max_iterations: int,
    show: bool | None,
) -> Estimate:
    """Sweep until the undamped change is at most tol.

    Without damping every sweep is plain; else damped and accelerated ones take turns.
    """
    if not 0 <= number("damping", damping) < 1:
        raise InputError(
            f"damping is the part of the old state kept: 0 <= damping < 1, got {damping!r}"
        )
    number("tol", tol, above=0, below=1)  # the means are of order 1
    whole("max_iterations", max_iterations, least=1)
    history, mixer = History(), Mixer(messages, damping)
    converged = diverged = False
    last: Marginals | None = None
    x = messages.start
    with progress_bar("message passing", max_iterations, show=show) as advance:
        for _ in range(max_iterations):
            try:
                new, last = messages.sweep(x)
            except (DivergenceError, LatticeError) as error:
                if last is None and isinstance(error, LatticeError):
                    raise
                if last is None:
                    raise InputError(
                        "no sweep can be taken: the fields are too far out (use a smaller delta "
                        "or m, and means of order 1 to start from), too sharp (use a larger "
                        "delta), or those of a pair are the same (its patterns are parallel: use "
                        "others)"
                    ) from None
                diverged = True
                break
            _record(history, last)
            if last.change <= tol:
                converged = True
                break
            x = mixer.after(x, new, last.change)
            advance(status=f"residual {last.change:.1e}")
    assert last is not None
    return Estimate(
        instance=instance,
        mean=last.mean,
        variance=last.variance,
        training_loss=last.training_loss,
        at_eigenvalue=last.at_eigenvalue,
        free_energy=last.free_energy,
        converged=converged,
        iterations=len(history.M),
        history=history,
        diverged=diverged,
    )


def _record(history: History, now: Marginals) -> None:
    Q = float((now.mean**2).mean())
    history.M.append(float(now.mean.mean()))
    history.Q.append(Q)
    history.q.append(Q + float(now.variance.mean()))
    history.training_loss.append(now.training_loss)
    history.residual.append(now.change)
