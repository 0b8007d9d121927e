"""One finite instance: pairs of patterns from two Gaussian clusters, for training and testing."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fermibose import checks
from fermibose.errors import InputError
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
        if not np.isfinite(self.x).all():
            raise InputError("the patterns contain NaN or infinite values: clean them first")
        if not np.isin(self.y, (-1, 1)).all():
            raise InputError("labels must be -1 or 1")


def symmetric(a: Array, b: Array, c: Array) -> Array:
    """Stack of symmetric 2 × 2 matrices ((a, b), (b, c))."""
    return np.stack([np.stack([a, b], -1), np.stack([b, c], -1)], -2)


@dataclass(frozen=True)
class Instance:
    """A problem with N weights and P = αN training pairs, and pairs never trained on."""

    problem: Problem
    train: Pairs
    test: Pairs
    seed: int  # everything about the instance follows from it

    @property
    def n(self) -> int:
        """Number of weights N."""
        return int(self.train.x.shape[2])

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
) -> Instance:
    """Draw P = αN pairs of patterns with N = ``n`` inputs, and ``test_pairs`` further ones.

    counts: "random" makes each pair a boson pair with probability ρ; "exact" takes round(ρP) of
    them, in random order. Labels of a pair are (y, y) or (y, −y) with y = ±1 at random.
    """
    if not isinstance(problem, Problem):
        raise InputError(f"sample_instance needs a fermibose.theory.Problem, got {problem!r}")
    for name, value, least in (("n", n, 1), ("test_pairs", test_pairs, 1), ("seed", seed, 0)):
        checks.whole(name, value, least=least)
    checks.choice("counts", counts, get_args(Counts))
    pairs = round(problem.load * n)
    if pairs < 1:
        raise InputError(
            f"alpha = {problem.load:g} leaves no training pair at n = {n}: use n >= "
            f"{math.ceil(0.5 / problem.load) + 1}"
        )
    checks.memory(
        f"{pairs} training and {test_pairs} test pairs of N = {n} inputs take",
        16.0 * n * (pairs + test_pairs),
        "use a smaller n or alpha",
    )
    rng = np.random.default_rng(seed)
    train = _sample_pairs(problem, n, pairs, counts, rng)
    return Instance(problem, train, _sample_pairs(problem, n, test_pairs, counts, rng), int(seed))


def _sample_pairs(
    problem: Problem, n: int, pairs: int, counts: Counts, rng: np.random.Generator
) -> Pairs:
    first = rng.choice(np.array([-1, 1]), pairs)
    if counts == "random":
        same = rng.random(pairs) < problem.rho
    else:
        same = rng.permutation(pairs) < round(problem.rho * pairs)
    y = np.stack([first, np.where(same, first, -first)])
    x = rng.standard_normal((2, pairs, n))
    x *= problem.delta / math.sqrt(n)
    x += (y * (problem.m / n))[:, :, None]
    return Pairs(x, y)
