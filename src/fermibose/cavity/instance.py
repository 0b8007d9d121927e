"""One finite instance: patterns of two Gaussian clusters, for training and testing.

Training patterns come in disjoint pairs, or as samples that are paired with all others or with some
of them; test patterns in pairs.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fermibose import checks
from fermibose.errors import InputError
from fermibose.summary import Summarised
from fermibose.theory import Array, Problem

Counts = Literal["random", "exact"]


@dataclass(frozen=True)
class Pairs:
    """Patterns x = y m/N·1 + Δ/√N·noise in pairs; a boson pair has equal labels."""

    x: Array  # (2, pairs, N)
    y: NDArray[np.int64]  # (2, pairs), ±1

    def __len__(self) -> int:
        return int(self.x.shape[1])

    @cached_property
    def same(self) -> NDArray[np.bool_]:
        """True for boson pairs, shape (pairs,)."""
        return np.asarray(self.y[0] == self.y[1])

    def fields(self, w: Array) -> Array:
        """Pre-activations z = w·x of every pattern: (2, pairs), or (2, pairs, k) for w (N, k)."""
        z: Array = self.x @ w
        return z

    def field_covariance(self, v: Array) -> Array:
        """Σ_i v_i x_i x_iᵀ of every pair for weights of variances v: (pairs, 2, 2)."""
        weighted = self.x * v
        one, other = (np.einsum("pi,pi->p", weighted[k], self.x[k]) for k in (0, 1))
        cross = np.einsum("pi,pi->p", weighted[0], self.x[1])
        return symmetric(one, cross, other)

    def __post_init__(self) -> None:
        if self.x.ndim != 3 or self.x.shape[0] != 2 or self.y.shape != self.x.shape[:2]:
            raise InputError(
                "pairs need x of shape (2, pairs, N) and y of shape (2, pairs), got "
                f"{self.x.shape} and {self.y.shape}"
            )
        _check_patterns(self.x, self.y)


@dataclass(frozen=True)
class Samples:
    """Patterns x = y m/N·1 + Δ/√N·noise that meet in more than one pair each.

    A pair is a boson pair if both are taught the same label. Among all pairs of n samples each has
    the weight 1/n; if every sample has k partners, 1/k. In total that is n/2 (all: less ½).
    """

    x: Array  # (samples, N)
    y: NDArray[np.int64]  # (samples,): class, ±1
    taught: NDArray[np.int64]  # (samples,): the label learnt; not y where mislabelled
    meetings: NDArray[np.int64] | None = None  # (2, pairs): who meets whom; None is everyone

    def __len__(self) -> int:
        return int(self.x.shape[0])

    def __post_init__(self) -> None:
        shapes = (self.x.shape[:1], self.y.shape, self.taught.shape)
        if self.x.ndim != 2 or len(set(shapes)) > 1 or len(self) < 2:
            raise InputError(
                "samples need x of shape (samples, N) with two samples or more, and y and taught "
                f"of shape (samples,), got {self.x.shape}, {self.y.shape} and {self.taught.shape}"
            )
        _check_patterns(self.x, self.y)
        _check_patterns(self.x, self.taught)


def _check_patterns(x: Array, y: NDArray[np.int64]) -> None:
    if not np.isfinite(x).all():
        raise InputError("the patterns contain NaN or infinite values: clean them first")
    if not np.isin(y, (-1, 1)).all():
        raise InputError("labels must be -1 or 1")


def symmetric(a: Array, b: Array, c: Array) -> Array:
    """Stack of symmetric 2 × 2 matrices ((a, b), (b, c))."""
    return np.stack([np.stack([a, b], -1), np.stack([b, c], -1)], -2)


@dataclass(frozen=True, repr=False)
class Instance(Summarised):
    """A problem with N weights, its P = αN training pairs or n = γN samples, and new pairs."""

    problem: Problem
    train: Pairs | Samples  # as the problem's pairing is "disjoint" or "all"
    test: Pairs
    seed: int  # everything about the instance follows from it

    @property
    def summary(self) -> str:
        """Its size and its problem."""
        what = "pairs" if isinstance(self.train, Pairs) else "samples"
        told = self.problem.told()
        return f"N = {self.n}, {len(self.train)} training {what}, seed {self.seed}; {told}"

    @property
    def n(self) -> int:
        """Number of weights N."""
        return int(self.train.x.shape[-1])

    def at(self, beta: float) -> "Instance":
        """The same data at another inverse temperature."""
        return replace(self, problem=replace(self.problem, beta=beta))

    def generator(self, purpose: str, seed: int | None = None) -> np.random.Generator:
        """Random numbers for an algorithm, independent of the data's and of other purposes'.

        seed: replaces all that, for another run on the same data.
        """
        if seed is None:
            return np.random.default_rng([self.seed, *purpose.encode()])
        return np.random.default_rng(checks.whole("seed", seed, least=0))

    def start(self, given: Any, what: str) -> Array:
        """A copy of the N numbers an algorithm was told to begin from; ``what`` they are."""
        try:
            start = np.array(given, dtype=float)
        except (TypeError, ValueError):
            raise InputError(f"start must be {self.n} finite {what}, got {given!r}") from None
        if start.shape != (self.n,) or not np.isfinite(start).all():
            raise InputError(
                f"start must be {self.n} finite {what}, one for each weight, got shape "
                f"{start.shape}"
            )
        return start

    def __post_init__(self) -> None:
        checks.whole("seed", self.seed, least=0)
        if isinstance(self.train, Samples) != (self.problem.pairing == "all"):
            raise InputError(
                f'a problem of pairing "{self.problem.pairing}" is not trained with '
                f"{type(self.train).__name__}: disjoint pairs are Pairs, all others Samples"
            )


def check_instance(instance: Any) -> None:
    """Refuse what is not an instance."""
    if not isinstance(instance, Instance):
        raise InputError(f"this needs an Instance, as of sample_instance(), got {instance!r}")


def sample_instance(
    problem: Problem,
    n: int,
    *,
    seed: int = 0,
    counts: Counts = "random",
    test_pairs: int = 500,
    partners: int | None = None,
) -> Instance:
    """Draw P = αN pairs, or γN samples, of N = ``n`` inputs each, and ``test_pairs`` further pairs.

    counts: "random" makes each pair a boson pair with probability ρ; "exact" takes round(ρP) of
    them, in random order. Labels of a pair are (y, y) or (y, −y) with y = ±1 at random. Of samples,
    "exact" makes exact the sizes of the classes and how many of each are mislabelled.

    partners: with pairing "all", how many others each sample is paired with, at random: 1 pairs
    them off (disjoint pairs, of these very samples), None takes all pairs. Energies are of the same
    total weight. Test pairs have correct labels.
    """
    if not isinstance(problem, Problem):
        raise InputError(f"sample_instance needs a fermibose.theory.Problem, got {problem!r}")
    for name, value, least in (("n", n, 1), ("test_pairs", test_pairs, 1), ("seed", seed, 0)):
        checks.whole(name, value, least=least)
    checks.choice("counts", counts, get_args(Counts))
    everyone = problem.pairing == "all"
    load, told, what = (
        (problem.samples, "samples", "sample") if everyone else (problem.alpha, "alpha", "pair")
    )
    assert load is not None
    size = round(load * n)
    if size < 1 + everyone:
        raise InputError(
            f"{told} = {load:g} leaves no training pair at n = {n}: use n >= "
            f"{math.ceil((0.5 + everyone) / load) + 1}"
        )
    checks.memory(
        f"{size} training {what}s and {test_pairs} test pairs of N = {n} inputs take",
        8.0 * n * (size * (1 if everyone else 2) + 2 * test_pairs),
        f"use a smaller n or {told}",
    )
    _check_partners(partners, size if everyone else None)
    rng = np.random.default_rng(seed)
    if not everyone:
        train = _sample_pairs(problem, n, size, counts, rng)
        test = _sample_pairs(problem, n, test_pairs, counts, rng)
        return Instance(problem, train, test, int(seed))
    test = _sample_pairs(problem, n, test_pairs, counts, rng)
    samples = _sample_samples(problem, n, size, counts, partners, rng)
    return Instance(problem, samples, test, int(seed))


def _check_partners(partners: int | None, samples: int | None) -> None:
    """Refuse partners that cannot be found; samples: how many there are, None in disjoint pairs."""
    if partners is None:
        return
    if samples is None:
        raise InputError('partners goes with pairing="all": disjoint pairs have one each')
    checks.whole("partners", partners, least=1)
    if partners > samples // 2:
        raise InputError(
            f"{samples} samples may have up to {samples // 2} partners each, got {partners}: use "
            "fewer, or None for all pairs"
        )
    if samples * partners % 2:
        raise InputError(
            f"an odd number of samples ({samples}) cannot have {partners} partners each: use an "
            "even number of either"
        )


def _sample_pairs(
    problem: Problem, n: int, pairs: int, counts: Counts, rng: np.random.Generator
) -> Pairs:
    first = rng.choice(np.array([-1, 1]), pairs)
    same = _chosen(problem.bosons, pairs, counts, rng)
    y = np.stack([first, np.where(same, first, -first)])
    return Pairs(_patterns(problem, n, y, rng), y)


def _sample_samples(
    problem: Problem,
    n: int,
    samples: int,
    counts: Counts,
    partners: int | None,
    rng: np.random.Generator,
) -> Samples:
    y = np.where(_chosen(problem.balance, samples, counts, rng), 1, -1)
    taught = y.copy()
    for members in (np.flatnonzero(y == 1), np.flatnonzero(y == -1)):
        wrong = _chosen(problem.mislabelled, members.size, counts, rng)
        taught[members[wrong]] *= -1
    x = _patterns(problem, n, y, rng)
    # Last, so that the same seed has the same samples whatever their partners.
    meetings = None if partners is None else _meetings(samples, partners, rng)
    return Samples(x, y, taught, meetings)


def _chosen(share: float, size: int, counts: Counts, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which of ``size`` belong to a share of them."""
    if counts == "random":
        return rng.random(size) < share
    return rng.permutation(size) < round(share * size)


def _patterns(problem: Problem, n: int, y: NDArray[np.int64], rng: np.random.Generator) -> Array:
    """One pattern for each label, shape (*y, n)."""
    x = rng.standard_normal((*y.shape, n))
    x *= problem.delta / math.sqrt(n)
    x += (y * (problem.m / n))[..., None]
    return x


def _meetings(samples: int, partners: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """A random graph in which everyone has so many partners, shape (2, pairs).

    Places are paired off at random; a pair of somebody with himself, or a second one of the same
    two, exchanges an end with a pair drawn at random until there is none.
    """
    ends = rng.permutation(np.repeat(np.arange(samples), partners)).reshape(2, -1)
    pairs = ends.shape[1]
    while True:
        names = ends.min(0) * samples + ends.max(0)
        first = np.zeros(pairs, dtype=bool)
        first[np.unique(names, return_index=True)[1]] = True
        flawed = np.flatnonzero((ends[0] == ends[1]) | ~first)
        if not flawed.size:
            return ends
        for pair in flawed:
            other = rng.integers(pairs)
            ends[1, [pair, other]] = ends[1, [other, pair]]
