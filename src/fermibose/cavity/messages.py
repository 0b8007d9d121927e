"""Message passing: the loop that BP and AMP share, and where it leads with very many weights.

Sweep, compare, mix, record, stop. Damped sweeps first, to come near; Anderson acceleration then, to
stay; in turns until close. The heavy tail of V∂f makes the AT eigenvalue of an instance scatter
widely: where replica symmetry is stable, that of one instance may still exceed 1, and plain sweeps,
damped or not, leave its fixed point. The acceleration finds it; it changes no equation that a fixed
point satisfies.

State evolution is the same without an instance. After a sweep the means have M = Σm_i/N and
Q = Σm_i²/N and the variances V = Σv_i/N; the next fields are ω = y m M + Δ√Q v, whatever the
instance, so the next M, Q and V follow from one step of the saddle-point equations, undamped. Its
fixed points are the saddle points of :mod:`fermibose.theory`; the trajectory says how AMP gets
there.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from fermibose.cavity.channel import DivergenceError, LatticeError, PairChannel
from fermibose.cavity.instance import Instance, check_instance
from fermibose.checks import number, whole
from fermibose.compute import Advance, on_one_thread, progress_bar
from fermibose.errors import InputError
from fermibose.theory import (
    Array,
    Overlaps,
    Predictions,
    Problem,
    SaddleEquations,
    Steps,
    generalization_loss,
    saddle_distance,
    saddle_update,
)

# ``turns`` of benchmarks/cavity.py compares others. Of 24 instances 18, 20 and 22 converge with a
# TURN of 25, 50 and 100, of half of them 10, 11 and 10 with 50, 100 and 200, in 1737, 1920 and 2526
# sweeps: flat between 50 and 100.
TURN = 50  # sweeps that are damped, then accelerated, before damped ones have their turn again
# An undamped change below which acceleration goes on until it converges; ``turns`` has others.
CLOSE = 1e-2
# A variance may exceed that of the prior by this factor: A_i can be negative on the way, and
# without a bound the variance could be too.
LOOSEST = 2.0


@dataclass(frozen=True)
class History:
    """One entry per sweep."""

    M: list[float] = field(default_factory=list)  # mean weight
    q: list[float] = field(default_factory=list)  # self-overlap, (Σ m_i² + v_i)/N
    Q: list[float] = field(default_factory=list)  # overlap of two replicas, Σ m_i²/N
    training_loss: list[float] = field(default_factory=list)  # mean energy of a training pair
    residual: list[float] = field(default_factory=list)  # largest undamped change of m and v

    def generalization_loss(self, problem: Problem) -> list[float]:
        """Mean energy of a new pair after every sweep."""
        return [generalization_loss(problem, M, q) for M, q in zip(self.M, self.q, strict=True)]


@dataclass(frozen=True, repr=False)
class Estimate(Predictions):
    """Gaussian marginals of the weights of one instance, and how they were reached.

    ``generalization_loss``, ``accuracy`` and the like are those of new data for the instance's own
    M and q, exact for given weights: a new pattern has z = y m M + Δ√q u.
    """

    instance: Instance
    mean: Array  # (N,): m_i
    variance: Array  # (N,): v_i
    training_loss: float  # mean energy of a training pair
    at_eigenvalue: float  # Σ_μ ‖V_μ ∂f_μ‖²/N on the instance; above 1, replica symmetry is unstable
    free_energy: float  # Bethe's: −ln ∫dw e^{−βE(w)} / (βN)
    converged: bool
    iterations: int
    history: History
    diverged: bool = False  # the messages left every bound; the state is the last one before

    @property
    def problem(self) -> Problem:  # type: ignore[override]
        """What the instance was drawn from."""
        return self.instance.problem

    @property
    def M(self) -> float:
        """Mean weight Σ m_i/N; its sign is the instance's choice."""
        return float(self.mean.mean())

    @property
    def Q(self) -> float:
        """Overlap of two replicas, Σ m_i²/N."""
        return float((self.mean**2).mean())

    @property
    def q(self) -> float:
        """Self-overlap ⟨w·w⟩/N = Q + Σ v_i/N."""
        return self.Q + float(self.variance.mean())

    @property
    def residual(self) -> float:
        """Largest undamped change of a mean or variance in the last sweep."""
        return self.history.residual[-1]

    @cached_property
    def test_loss(self) -> float:
        """Mean energy of the instance's own test pairs, over the marginals."""
        test = self.instance.test
        channel = PairChannel(self.problem)
        V = test.field_covariance(self.variance)
        unseen = channel.moments(test.fields(self.mean).T, V, test.same, tilt=False)
        return float(unseen.energy.mean())

    @property
    def remark(self) -> str:
        """The verdict, and the size of the instance."""
        return f"{self.verdict}; N = {self.instance.n}"

    @property
    def verdict(self) -> str:
        """Whether the numbers can be used, in words."""
        sweeps = f"{self.iterations} sweep" + "s" * (self.iterations != 1)
        stability = f"AT = {self.at_eigenvalue:.2f}"
        if self.converged:
            unstable = ": plain sweeps may leave this fixed point" * (self.at_eigenvalue > 1)
            return f"converged in {sweeps}; {stability}{unstable}"
        stopped = (
            f": diverged after {sweeps}"
            if self.diverged
            else f" in {sweeps} (residual {self.residual:.1e})"
        )
        return f"did not converge{stopped}; {stability} in the last sweep"


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
    number("damping (the part of the old state kept)", damping, least=0, below=1)
    number("tol", tol, above=0, below=1)  # the means are of order 1
    whole("max_iterations", max_iterations, least=1)
    history, mixer = History(), Mixer(messages, damping)
    converged = diverged = False
    last: Marginals | None = None
    x = messages.start
    with _bar(max_iterations, show) as advance:
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


def _bar(total: int, show: bool | None) -> AbstractContextManager[Advance]:
    """The bar of the sweeps; what is not to be shown is not made."""
    if show is False:
        return nullcontext(lambda status: None)
    return progress_bar("message passing", total, show=show)


def _record(history: History, now: Marginals) -> None:
    Q = float((now.mean**2).mean())
    history.M.append(float(now.mean.mean()))
    history.Q.append(Q)
    history.q.append(Q + float(now.variance.mean()))
    history.training_loss.append(now.training_loss)
    history.residual.append(now.change)


@on_one_thread
def state_evolution(
    problem: Problem, *, M: float, Q: float, V: float | None = None, sweeps: int
) -> History:
    """The trajectory of undamped AMP from means with Σm/N = M and Σm²/N = Q.

    V: mean variance Σv/N at the start, that of the prior by default, as in AMP. An uninformed start
    has M = 0 and stays there for ever in this limit: on an instance M starts from a chance value of
    order 1/√N, which is the M to give here. ``training_loss`` stays empty.
    """
    if not isinstance(problem, Problem):
        raise InputError(f"state evolution needs a fermibose.theory.Problem, got {problem!r}")
    if problem.zero_temperature:
        raise InputError("state evolution needs a finite beta, as AMP does")
    if number("M", M) ** 2 > number("Q", Q, above=0):
        raise InputError(f"means have Q > 0 and M² <= Q, got M = {M!r} and Q = {Q!r}")
    whole("sweeps", sweeps, least=0)
    saddle, history = SaddleEquations(problem), History()
    floor = problem.weight_decay / LOOSEST - problem.weight_decay  # AMP bounds its variances there
    chi = 1 / problem.weight_decay if V is None else problem.beta * number("V", V, above=0)
    state = Overlaps(M, Q, chi)
    for _ in range(sweeps):
        _, conjugate = saddle.evaluate(state)
        if conjugate.chi < floor:
            conjugate = replace(conjugate, chi=floor)
        new = saddle_update(problem, state, conjugate)
        history.M.append(new.M)
        history.Q.append(new.Q)
        history.q.append(new.q(problem.beta))
        history.residual.append(saddle_distance(problem, new, state))
        state = new
    return history
