r"""Hamiltonian Monte Carlo with parallel tempering: weights drawn from exp(−βE) on one instance.

At β = 50 a fermion pair cannot take its D through zero (a barrier of about β/2), so a plain walk
keeps the signs it started with. Copies of the system at lower β, down to ``hottest``, cross the
barrier and are exchanged with colder ones with probability min(1, e^{(β−β')(E−E')}).

For Gaussian energies of one heat capacity neighbours at distance ℓ, which is additive along the
ladder, are exchanged with probability erfc(ℓ/2). While warming up, a ladder with neighbours that
are exchanged too rarely is laid anew in equal steps of the ℓ that exchanges tell, with as many
copies as that takes; what is still wrong the next look sees and mends.

Sampling here is tempered; without a ladder of such copies (``hottest=None``) it is *plain*.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcinv

from fermibose.cavity.diagnostics import effective_size, r_hat
from fermibose.cavity.ground import Landscape
from fermibose.cavity.instance import Instance, check_instance
from fermibose.checks import number, whole
from fermibose.compute import on_one_thread, progress_bar
from fermibose.errors import InputError
from fermibose.statistics import summary
from fermibose.theory import Array, Predictions, Problem

_LEAPS = 12  # leapfrog steps of a trajectory, on average: ``leaps`` of benchmarks/cavity.py
_TARGET = 0.8  # acceptance that steps are tuned to; 0.65 to 0.8 is best (Betancourt et al. 2014)
_AGREE = 1.1  # largest R̂ of chains that sampled the same (Gelman and Rubin's)
_ENOUGH = 50  # least effective size of a walk that R̂ can judge (Vehtari et al. 2021)
# Parts of the warm-up. After each but the last the ladder may be laid anew; in the last, steps are
# tuned on it.
_LOOKS = 5
_LOOK = 20  # trajectories that such a part must have: ten exchanges of every pair
_RARE = 0.2  # exchange that is too rare; ``ladder`` aims at erfc(0.8) = 0.26, ``_STRIDE`` at 0.32
_STRIDE = 1.4  # ℓ between neighbours of a ladder laid anew: one exchange in three, erfc(ℓ/2)
_NEVER = 1e-12  # exchange, at ℓ = 10, below which how far apart neighbours are cannot be told

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Walk:
    """Every trajectory of the coldest copies; arrays of shape (trajectories, chains)."""

    M: Array  # signs are such that M >= 0
    q: Array
    energy: Array  # mean energy of a training pair
    Q: Array = field(repr=False)  # (trajectories,): overlap of the chains, w as good as −w


@dataclass(frozen=True, repr=False)
class Sampling(Predictions):
    """Averages over the samples of one instance. Signs are such that M >= 0."""

    instance: Instance
    training_loss: float  # mean energy of a training pair
    errors: dict[str, float]  # standard errors of M, q, Q from blocks of the walk
    agreement: dict[str, float]  # R̂ of M, q, energy and Q: near 1 where all sampled the same
    ess: dict[str, float]  # effective sample sizes of the same
    acceptance: float  # of trajectories at the coldest copies
    exchange: float  # least probability of exchange of neighbours, mean; 1 without tempering
    round_trips: int  # of copies from the coldest to the hottest β and back
    betas: Array  # (copies,): the ladder, hottest first
    converged: bool  # R̂ and ess are good, copies moved and were exchanged
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
    def remark(self) -> str:
        """The verdict, and the size of the instance."""
        return f"{self.verdict}; N = {self.instance.n}"

    @property
    def verdict(self) -> str:
        """Whether the numbers can be used, in words."""
        parts = "chains" if self.history.M.shape[1] > 1 else "halves of the only chain"
        told = f"the {parts} agree"
        if not self.converged:
            told = "did not converge: " + "; ".join(self.doubts)
        errors = ", ".join(f"{name} ± {error:.4f}" for name, error in self.errors.items())
        worst, least = max(self.agreement.values()), min(self.ess.values())
        ladder = f", {self.round_trips} round trips" if self.betas.size > 1 else ""
        return (
            f"{told}; standard errors {errors}; R̂ up to {worst:.2f}, effective size from "
            f"{least:.0f}; acceptance {self.acceptance:.2f}, least exchange {self.exchange:.2f}"
            f"{ladder}"
        )

    @property
    def doubts(self) -> list[str]:
        """What is wrong with the walk; nothing if it can be used."""
        parts = "chains" if self.history.M.shape[1] > 1 else "halves of the only chain"
        apart = [name for name, r in self.agreement.items() if not r < _AGREE]
        few = [name for name, size in self.ess.items() if not size >= _ENOUGH]
        doubts = [
            (apart, f"the {parts} disagree on {', '.join(apart)}"),
            (few, f"too few independent draws of {', '.join(few)}: use more trajectories"),
            (self.acceptance == 0, "nothing was accepted"),
            (
                self.exchange * self.iterations < 1,
                "some neighbours on the ladder are exchanged less than once in the whole walk",
            ),
        ]
        return [words for wrong, words in doubts if wrong]


def standard_error(series: Array) -> float:
    """Standard error of the mean from ten blocks of every chain."""
    columns = series.reshape(len(series), -1)
    blocks = np.array([part.mean(0) for part in np.array_split(columns, 10)]).ravel()
    return float(summary(blocks).error)


@on_one_thread
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

    hottest: lowest β of the ladder; None is plain sampling. While warming up, step sizes are tuned
    and the ladder is laid anew if its copies are exchanged too rarely. start: weights (N,) to begin
    every chain with; by default each chain starts from its own w ~ N(0, 1).
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
    copies = _Copies(Landscape(instance), w, betas, chains, rng)
    looks = [warm_up * k // _LOOKS for k in range(1, _LOOKS)] if warm_up >= _LOOKS * _LOOK else []
    records: list[tuple[Array, ...]] = []
    with progress_bar("sampling", warm_up + trajectories, show=show) as advance:
        for step in range(1, warm_up + trajectories + 1):
            copies.move(tune=step <= warm_up)
            copies.exchange()
            advance()
            if step in looks:
                copies.lay_ladder()
            if step in looks or step == warm_up:
                copies.forget_counts()
            if step > warm_up:
                records.append(_record(copies))
    M, q, energy, Q = (np.array(column) for column in zip(*records, strict=True))
    return _averages(instance, Walk(M, q, energy, Q), copies)


def ladder(beta: float, hottest: float | None, n: int) -> Array:
    """Inverse temperatures from hottest to β in equal ratios that exchanges can bridge.

    The energy of n weights fluctuates by about √(0.6 n)/β (``heat`` of benchmarks/cavity.py), and
    neighbours at ℓ = 1.6 are exchanged one time in four.
    """
    if hottest is None or number("hottest (an inverse temperature)", hottest, above=0) >= beta:
        return np.array([beta])
    steps = math.ceil(math.log(beta / hottest) * math.sqrt(0.6 * n) / 1.6)
    return np.asarray(np.geomspace(hottest, beta, steps + 1))


class _Copies:
    """All copies of the system: columns of w, one for each chain and β (hot to cold)."""

    def __init__(
        self, landscape: Landscape, w: Array, ladder: Array, chains: int, rng: np.random.Generator
    ) -> None:
        self.landscape, self.chains, self._rng = landscape, chains, rng
        self._parity = 0
        self._set(w, ladder, np.tile(0.3 / np.sqrt(ladder), chains))

    def _set(self, w: Array, ladder: Array, step: Array) -> None:
        self.w, self.ladder, self._step = w, ladder, step
        self.betas = np.tile(ladder, self.chains)
        self.E, self._gradient = self.landscape.energy_and_gradient(w)
        self.forget_counts()

    @property
    def cold(self) -> Indices:
        """The coldest copy of every chain."""
        return np.arange(self.chains) * self.ladder.size + self.ladder.size - 1

    def forget_counts(self) -> None:
        """Begin to count acceptance, exchanges and round trips afresh."""
        self.moves = 0
        self.accepted, self._chance = np.zeros((2, self.betas.size))
        self.round_trips = 0
        self._who = np.arange(self.betas.size)  # who is where
        # Which end someone was at last: 1 coldest, 2 hottest after that, 0 neither or the hottest.
        self._end = np.zeros(self.betas.size, dtype=int)

    @property
    def chance(self) -> Array:
        """Mean probability of exchange of every β with the next colder one."""
        every = self._chance.reshape(self.chains, self.ladder.size)[:, :-1]
        return np.asarray(every.mean(0) / self.moves)

    def lay_ladder(self) -> None:
        """Lay the ladder anew if neighbours are too far apart; copies start from the nearest."""
        size, chance = self.ladder.size, self.chance
        if (chance >= _RARE).all():
            return
        places = np.concatenate([[0.0], np.cumsum(2 * erfcinv(np.maximum(chance, _NEVER)))])
        count = math.ceil(places[-1] / _STRIDE) + 1
        log_betas = np.interp(np.linspace(0, places[-1], count), places, np.log(self.ladder))
        nearest = np.abs(np.log(self.ladder)[:, None] - log_betas).argmin(0)
        origin = (np.arange(self.chains)[:, None] * size + nearest).ravel()
        ladder = np.exp(log_betas)
        ladder[[0, -1]] = self.ladder[[0, -1]]
        step = self._step[origin] * np.sqrt(self.betas[origin] / np.tile(ladder, self.chains))
        self._set(self.w[:, origin], ladder, step)

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

    def exchange(self) -> None:
        """Offer exchanges to every other pair of neighbours on each ladder."""
        size = self.ladder.size
        hot = np.arange(self.betas.size - 1)
        hot = hot[(hot % size != size - 1) & (hot % size % 2 == self._parity)]
        self._parity = 1 - self._parity
        gain = np.diff(self.betas) * np.diff(self.E)
        chance = np.exp(np.minimum(gain, 0))
        self._chance[:-1] += chance
        yes = self._rng.random(hot.size) < chance[hot]
        one, other = hot[yes], hot[yes] + 1
        for array in (self.w, self._gradient, self.E, self._who):
            array[..., one], array[..., other] = array[..., other], array[..., one].copy()
        self._count_trips()

    def _count_trips(self) -> None:
        """A trip is complete when who was at the coldest β, then at the hottest, is back."""
        if self.ladder.size == 1:
            return
        coldest, hottest = self._who[self.cold], self._who[self.cold - self.ladder.size + 1]
        self.round_trips += int((self._end[coldest] == 2).sum())
        self._end[coldest] = 1
        self._end[hottest[self._end[hottest] == 1]] = 2


def _record(copies: _Copies) -> tuple[Array, ...]:
    """M, q and energy of the coldest copies, and their overlap."""
    cold = copies.cold
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


def _averages(instance: Instance, walk: Walk, copies: _Copies) -> Sampling:
    names = ["M", "q", "energy", "Q"][: 3 if copies.chains == 1 else 4]
    found = Sampling(
        instance=instance,
        training_loss=float(walk.energy.mean()),
        errors={name: standard_error(getattr(walk, name)) for name in ("M", "q", "Q")},
        agreement={name: r_hat(getattr(walk, name)) for name in names},
        ess={name: effective_size(getattr(walk, name)) for name in names},
        acceptance=float(copies.accepted[copies.cold].mean() / copies.moves),
        exchange=float(copies.chance.min(initial=1.0)),
        round_trips=copies.round_trips,
        betas=copies.ladder,
        converged=False,
        iterations=len(walk.M),
        history=walk,
    )
    return replace(found, converged=not found.doubts)
