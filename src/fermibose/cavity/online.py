r"""SGD on fresh samples with N weights: the referee of the theory of online learning.

A step draws B samples x = y m/N·1 + Δ/√N·ξ and follows the mean energy of all their pairs,

.. math:: w ← w\,(1 - ηλ_w/N) - η \sum_i g_i x_i .

The samples meet the weights in the direction of 1 and in that of w only: with w = M·1 + √(Nv)·e,
a = 1·ξ/√N and b = e·ξ,

.. math:: z &= y m M + Δ(M a + \sqrt v b), \qquad
              M ← (1 - ηλ_w/N) M - \tfrac ηN \sum_i g_i (y_i m + Δ a_i), \\
          v &← \Big((1-ηλ_w/N)\sqrt v - \tfrac{ηΔ}{N} \sum_i g_i b_i\Big)^2
               + \Big(\tfrac{ηΔ}{N}\Big)^2 χ^2_{N-2} \sum_i g_i^2 ,

because what is left of Σ g ξ is Gaussian in the N − 2 other directions. M and q = M² + v so drawn
have exactly the law of the simulation with vectors (``vectors=True``), at N-th of its price.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fermibose.checks import flag, number, whole
from fermibose.compute import progress_bar
from fermibose.errors import InputError
from fermibose.summary import Summarised
from fermibose.theory import Array, Problem, activation_derivatives, check_batch, check_start, times

_BLOCK = 2**20  # random numbers drawn at a time


@dataclass(frozen=True, eq=False, repr=False)
class Runs(Summarised):
    """M and q of independent runs of SGD, each of shape (runs, points)."""

    problem: Problem
    n: int  # weights N
    learning_rate: float  # η
    batch: int  # samples a step
    seed: int
    t: Array  # (points,): steps/N
    M: Array
    q: Array

    @property
    def summary(self) -> str:
        """Where the runs end, on average."""
        return (
            f"{len(self.M)} runs of SGD, N = {self.n}, η = {self.learning_rate:g}: at t = "
            f"{self.t[-1]:g} M {self.M[:, -1].mean():.4f}, q {self.q[:, -1].mean():.4f}"
        )


def sgd(
    problem: Problem,
    n: int,
    *,
    learning_rate: float,
    t: ArrayLike,
    batch: int | None = None,
    start: tuple[float, float] | float = (0.1, 1.0),
    runs: int = 1,
    vectors: bool = False,
    seed: int = 0,
    show: bool | None = False,
) -> Runs:
    """One-pass SGD of N = ``n`` weights; arguments as of :func:`fermibose.theory.dynamics.evolve`.

    start: M and q, exactly, or q alone: weights N(0, q) at random. vectors: keep all N weights and
    draw all N inputs of every sample, instead of their projections; the law is the same. show:
    a progress bar over the times (None: on a terminal).
    """
    if not isinstance(problem, Problem):
        raise InputError(f"sgd needs a fermibose.theory.Problem, got {problem!r}")
    if problem.hinge is not None:
        raise InputError("a hinge of your own has no known slope: use the softness instead")
    whole("n", n, least=3)
    whole("runs", runs, least=1)
    whole("seed", seed, least=0)
    flag("vectors", vectors)
    rate, size = number("learning_rate", learning_rate, above=0), check_batch(problem, batch)
    rng = np.random.default_rng(seed)
    simulation = (_Vectors if vectors else _Projections)(problem, n, rate, size, runs, rng)
    if isinstance(start, tuple | list):
        simulation.begin(*check_start(start))
    else:
        simulation.begin_anywhere(number("q of start", start, above=0))
    steps = np.rint(times(t) * n).astype(int)
    done, M, q = 0, np.empty((runs, steps.size)), np.empty((runs, steps.size))
    with progress_bar("SGD", steps.size, show=show) as advance:
        for point, step in enumerate(steps):
            simulation.advance(int(step) - done)
            done = int(step)
            M[:, point], q[:, point] = simulation.overlaps()
            advance()
    return Runs(problem, n, rate, size, seed, steps / n, M, q)


class _Simulation:
    """What both simulations share: labels and forces."""

    def __init__(
        self,
        problem: Problem,
        n: int,
        learning_rate: float,
        batch: int,
        runs: int,
        rng: np.random.Generator,
    ) -> None:
        self.problem, self.n, self.eta, self.batch = problem, n, learning_rate, batch
        self.runs, self.rng = runs, rng
        self.keep = 1 - learning_rate * problem.weight_decay / n

    def classes(self, steps: int) -> tuple[Array, Array]:
        """Classes and the labels assigned to them, (steps, runs, batch)."""
        problem, rng, shape = self.problem, self.rng, (steps, self.runs, self.batch)
        if problem.pairing == "all":
            y = np.where(rng.random(shape) < problem.balance, 1.0, -1.0)
            return y, np.where(rng.random(shape) < problem.mislabelled, -y, y)
        y = np.where(rng.random(shape) < 0.5, 1.0, -1.0)
        if self.batch == 2:
            y[..., 1] = y[..., 0] * np.where(rng.random(shape[:2]) < problem.rho, 1, -1)
        return y, y

    def forces(self, z: Array, labels: Array) -> Array:
        """∂/∂z of the mean energy of all pairs, (runs, batch)."""
        phi, slope, _ = activation_derivatives(self.problem, z)
        D = phi[:, :, None] - phi[:, None, :]
        same = labels[:, :, None] == labels[:, None, :]
        push = 2 * D * self.problem.pair_energy.force(D**2, same)
        force: Array = push.sum(2) * slope * (2 / (self.batch * (self.batch - 1)))
        return force


class _Projections(_Simulation):
    """M and √v of every run."""

    M: Array
    root: Array  # √v

    def begin(self, M: float, q: float) -> None:
        self.M = np.full(self.runs, M)
        self.root = np.full(self.runs, math.sqrt(q - M**2))

    def begin_anywhere(self, q: float) -> None:
        self.M = self.rng.standard_normal(self.runs) * math.sqrt(q / self.n)
        self.root = np.sqrt(self.rng.chisquare(self.n - 1, self.runs) * q / self.n)

    def advance(self, steps: int) -> None:
        block = max(1, _BLOCK // (2 * self.runs * self.batch))
        for done in range(0, steps, block):
            count = min(block, steps - done)
            y, labels = self.classes(count)
            a, b = self.rng.standard_normal((2, *y.shape))
            rest = self.rng.chisquare(self.n - 2, (count, self.runs))
            for step in range(count):
                self._step(y[step], labels[step], a[step], b[step], rest[step])

    def _step(self, y: Array, labels: Array, a: Array, b: Array, rest: Array) -> None:
        m, delta = self.problem.m, self.problem.delta
        M, root = self.M[:, None], self.root[:, None]
        g = self.forces(y * (m * M) + delta * (M * a + root * b), labels)
        self.M = self.keep * self.M - self.eta / self.n * (g * (m * y + delta * a)).sum(1)
        pull = self.eta * delta / self.n
        along = self.keep * self.root - pull * (g * b).sum(1)
        self.root = np.sqrt(along**2 + pull**2 * rest * (g**2).sum(1))

    def overlaps(self) -> tuple[Array, Array]:
        return self.M, self.M**2 + self.root**2


class _Vectors(_Simulation):
    """All weights of every run."""

    w: Array  # (runs, N)

    def begin(self, M: float, q: float) -> None:
        noise = self.rng.standard_normal((self.runs, self.n))
        noise -= noise.mean(1, keepdims=True)
        noise /= np.sqrt((noise**2).mean(1, keepdims=True))
        self.w = M + math.sqrt(q - M**2) * noise

    def begin_anywhere(self, q: float) -> None:
        self.w = math.sqrt(q) * self.rng.standard_normal((self.runs, self.n))

    def advance(self, steps: int) -> None:
        m, delta, n = self.problem.m, self.problem.delta, self.n
        for _ in range(steps):
            y, labels = (part[0] for part in self.classes(1))
            x = self.rng.standard_normal((self.runs, self.batch, n))
            x *= delta / math.sqrt(n)
            x += (y * (m / n))[..., None]
            g = self.forces(np.einsum("rbi,ri->rb", x, self.w), labels)
            self.w = self.keep * self.w - self.eta * np.einsum("rb,rbi->ri", g, x)

    def overlaps(self) -> tuple[Array, Array]:
        return self.w.mean(1), (self.w**2).mean(1)
