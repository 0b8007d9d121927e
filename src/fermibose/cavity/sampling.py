r"""Hamiltonian Monte Carlo with parallel tempering: weights drawn from exp(−βE) on one instance.

At β = 50 a fermion pair cannot take its D through zero (a barrier of about β/2), so a plain walk
keeps the signs it started with. Copies of the system at lower β, down to ``hottest``, cross the
barrier and are exchanged with colder ones with probability min(1, e^{(β−β')(E−E')}).

Sampling here is tempered; without a ladder of such copies (``hottest=None``) it is *plain*.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fermibose.cavity.ground import Landscape
from fermibose.cavity.instance import Instance, check_instance
from fermibose.checks import number, whole
from fermibose.compute import threads
from fermibose.errors import InputError
from fermibose.progress import progress_bar
from fermibose.statistics import summary
from fermibose.theory import Array, Predictions, Problem

_LEAPS = 12  # leapfrog steps of a trajectory, on average
_TARGET = 0.8  # acceptance that steps are tuned to while warming up
_AGREE = 1.1  # largest R̂ of chains that sampled the same

Indices = NDArray[np.intp]


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
    return float(summary(blocks).error)


def r_hat(series: Array) -> float:
    """R̂ of the halves of every chain: √(total variance / variance within)."""
    halves = np.concatenate(np.array_split(series[: len(series) // 2 * 2], 2), axis=1)
    within = halves.var(0, ddof=1).mean()
    between = halves.mean(0).var(ddof=1)
    return float(math.sqrt(1 + between / within))


@threads(1)
def hmc(
    instance: Instance,
    *,
    hottest: float | None = 5.0,
    start: Array | None = None,
    chains: int = 2,
    trajectories: int = 2000,
    warm_up: int = 1000,
    seed: int | None = None,
    show: bool | None = False,
) -> Sampling:
    """Sample the weights of one instance at its β.

    hottest: lowest β of the ladder; None is plain sampling. start: weights (N,) to begin every
    chain with; by default each chain starts from its own w ~ N(0, 1).
    """
    check_instance(instance)
    problem = instance.problem
    if problem.zero_temperature:
        raise InputError("sampling needs a finite beta; ground_state() minimises the energy")
    whole("chains", chains, least=1)
    whole("trajectories", trajectories, least=20)
    whole("warm_up", warm_up, least=1)
    rng = instance.generator("walk", seed)
    betas = ladder(problem.beta, hottest, instance.n)
    if start is None:
        w = np.repeat(rng.standard_normal((instance.n, chains)), betas.size, axis=1)
    else:
        first = instance.start(start, "weights")
        w = np.repeat(first[:, None], chains * betas.size, axis=1)
    copies = _Copies(Landscape(instance), w, np.tile(betas, chains), rng)
    cold = np.arange(chains) * betas.size + betas.size - 1
    records: list[tuple[Array, ...]] = []
    with progress_bar("sampling", warm_up + trajectories, show=show) as advance:
        for step in range(warm_up + trajectories):
            copies.move(tune=step < warm_up)
            copies.exchange(betas.size)
            advance()
            if step == warm_up - 1:
                copies.forget_counts()
            if step >= warm_up:
                records.append(_record(copies, cold))
    M, q, energy, Q = (np.array(column) for column in zip(*records, strict=True))
    return _averages(instance, Walk(M, q, energy, Q), copies, cold)


def ladder(beta: float, hottest: float | None, n: int) -> Array:
    """Inverse temperatures from hottest to β in equal ratios that exchanges can bridge.

    The energy of n weights fluctuates by about √(0.6 n)/β.
    """
    if hottest is None or number("hottest (an inverse temperature)", hottest, above=0) >= beta:
        return np.array([beta])
    steps = math.ceil(math.log(beta / hottest) * math.sqrt(0.6 * n) / 1.6)
    return np.asarray(np.geomspace(hottest, beta, steps + 1))


class _Copies:
    """All copies of the system: columns of w, one for each chain and β (hot to cold)."""

    def __init__(
        self, landscape: Landscape, w: Array, betas: Array, rng: np.random.Generator
    ) -> None:
        self.landscape, self.w, self.betas, self._rng = landscape, w, betas, rng
        self.E, self._gradient = landscape.energy_and_gradient(w)
        self._step = 0.3 / np.sqrt(betas)
        self._parity = 0
        self.forget_counts()

    def forget_counts(self) -> None:
        """Begin to count acceptance afresh."""
        self.moves = 0
        self.accepted = np.zeros(self.betas.size)
        self.tries, self.exchanges = np.zeros(self.betas.size), np.zeros(self.betas.size)

    def move(self, *, tune: bool) -> None:
        """One trajectory of every copy."""
        rng, betas = self._rng, self.betas
        step = self._step * rng.uniform(0.8, 1.2, betas.size)
        p = rng.standard_normal(self.w.shape)
        kinetic = (p**2).sum(0) / 2
        w, gradient = self.w.copy(), self._gradient
        for _ in range(int(rng.integers(_LEAPS // 2, _LEAPS + _LEAPS // 2 + 1))):
            p -= step * betas / 2 * gradient
            w += step * p
            energy, gradient = self.landscape.energy_and_gradient(w)
            p -= step * betas / 2 * gradient
        loss = betas * (energy - self.E) + (p**2).sum(0) / 2 - kinetic
        yes = rng.random(betas.size) < np.exp(np.minimum(-loss, 0))
        self.w = np.where(yes, w, self.w)
        self._gradient = np.where(yes, gradient, self._gradient)
        self.E = np.where(yes, energy, self.E)
        self.moves += 1
        self.accepted += yes
        if tune:
            self._step *= np.exp(0.1 * (np.exp(np.minimum(-loss, 0)) - _TARGET))

    def exchange(self, size: int) -> None:
        """Offer exchanges to every other pair of neighbours on each ladder of ``size`` copies."""
        hot = np.arange(self.betas.size - 1)
        hot = hot[(hot % size != size - 1) & (hot % size % 2 == self._parity)]
        self._parity = 1 - self._parity
        gain = (self.betas[hot + 1] - self.betas[hot]) * (self.E[hot + 1] - self.E[hot])
        yes = self._rng.random(hot.size) < np.exp(np.minimum(gain, 0))
        self.tries[hot] += 1
        self.exchanges[hot] += yes
        one, other = hot[yes], hot[yes] + 1
        for array in (self.w, self._gradient, self.E):
            array[..., one], array[..., other] = array[..., other], array[..., one].copy()


def _record(copies: _Copies, cold: Indices) -> tuple[Array, ...]:
    """M, q and energy of the coldest copies, and their overlap."""
    w = copies.w[:, cold]
    n = w.shape[0]
    M, q = w.mean(0), (w**2).mean(0)
    problem = copies.landscape.problem
    energy = (copies.E[cold] - problem.weight_decay / 2 * n * q) / copies.landscape.pairs
    return np.abs(M), q, energy, np.asarray(overlap(w, flips=problem.odd))


def overlap(w: Array, *, flips: bool) -> float:
    """Mean overlap w_a·w_b/N of the columns of w; NaN if there is one alone.

    flips: w and −w are the same state, as for odd activations. Every column then has the sign that
    its overlap with the first one asks for. (The sign of M would do as well where M is large, but
    is chance where it vanishes.)
    """
    chains = w.shape[1]
    if chains == 1:
        return math.nan
    aligned = w * np.where(w[:, 0] @ w < 0, -1, 1) if flips else w
    total = (aligned.sum(1) ** 2).mean() - (aligned**2).mean(0).sum()
    return float(total / (chains * (chains - 1)))


def _averages(instance: Instance, walk: Walk, copies: _Copies, cold: Indices) -> Sampling:
    tried = copies.tries > 0
    agreement = {"M": r_hat(walk.M), "q": r_hat(walk.q)}
    acceptance = float(copies.accepted[cold].mean() / copies.moves)
    exchange = float((copies.exchanges[tried] / copies.tries[tried]).min()) if tried.any() else 1.0
    return Sampling(
        instance=instance,
        training_loss=float(walk.energy.mean()),
        errors={name: standard_error(getattr(walk, name)) for name in ("M", "q", "Q")},
        agreement=agreement,
        acceptance=acceptance,
        exchange=exchange,
        # One by one: a maximum would pass over a NaN.
        converged=all(r < _AGREE for r in agreement.values()) and min(acceptance, exchange) > 0,
        iterations=len(walk.M),
        history=walk,
    )
