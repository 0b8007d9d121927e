r"""Online learning of K units from C classes: equations of motion of matrices of overlaps.

Inputs of class c are x = u_c/N + Δ/√N·ξ with u_c·u_d/N = G_cd. With M_kc = w_k·u_c/N and
Q_kl = w_k·w_l/N the pre-activations are z = M_c + s, s ~ N(0, Δ²Q), and the distance of two
samples is a mean over units, D² = Σ_k (φ(z_k) − φ(z'_k))²/K. A step takes B fresh samples of any
class,

.. math:: w_k ← w_k\,(1 - ηλ_w/N) - ηK\,∇_{w_k}\frac{2}{B(B-1)}\sum_{i<j} H_{ij},

so that η means the same for any K. With h_k = K ∂H/∂z_k of sample 1 and h̄ its mean over sample 2,

.. math::
    \dot M_{kc} &= -2η\,E[h̄_k (G_{c,c_1} + s^T Q^{-1} M_c)] - ηλ_w M_{kc} \\
    \dot Q &= -2η\,E[h̄ z^T + z h̄^T] - 2ηλ_w Q
              + η^2Δ^2 \frac{4}{B(B-1)} \{E[h h^T] + (B-2)\,E[h̄ h̄^T]\} .

Averages are over Sobol points with fresh random shifts at every step, one for the sample and two
for its partners, so that none is biased and what noise is left averages out along the way.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from scipy.stats import qmc

from fermibose.checks import number, whole
from fermibose.errors import InputError
from fermibose.theory.dynamics import times
from fermibose.theory.problem import Array, Problem, activation_derivatives, check_problem

_NODES = np.linspace(-8.5, 8.5, 681)  # of averages over one unit, 40 to a width: enough for φ too
_GAUSS = np.exp(-(_NODES**2) / 2) * (_NODES[1] - _NODES[0]) / math.sqrt(2 * math.pi)
_CODES = 2**12  # points a class by which codes are told apart: test_classes.py asks for 3e-3


@dataclass(frozen=True, eq=False)
class Classes:
    """C classes, equally frequent, and the unit that learns them."""

    problem: Problem  # Δ, d_F, λ_w, softness and activation; all else does not count here
    gram: Array  # (C, C): G, overlaps of the class means

    def __post_init__(self) -> None:
        check_problem(self.problem)
        if self.problem.hinge is not None:
            raise InputError("a hinge of your own has no known slope: use the softness instead")
        gram = _matrix("gram", self.gram)
        if gram.shape[0] != gram.shape[1] or len(gram) < 2 or not np.allclose(gram, gram.T):
            raise InputError("gram must be a symmetric matrix of two classes or more")
        if np.linalg.eigvalsh(gram)[0] < -1e-9 * np.abs(gram).max():
            raise InputError("gram must be the products of class means: no eigenvalue below 0")
        object.__setattr__(self, "gram", gram)

    @property
    def count(self) -> int:
        """C."""
        return len(self.gram)


@dataclass(frozen=True, eq=False)
class Codes:
    """What overlaps say of the representations of the classes."""

    classes: Classes
    M: Array  # (K, C)
    Q: Array  # (K, K)

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        """Mean and variance of φ(z_k) in each class, (K, C)."""
        problem = self.classes.problem
        width = problem.delta * np.sqrt(np.diag(self.Q))
        phi = problem.phi(self.M[..., None] + width[:, None, None] * _NODES)
        mean: Array = phi @ _GAUSS
        variance: Array = (phi - mean[..., None]) ** 2 @ _GAUSS
        return mean, variance

    @property
    def means(self) -> Array:
        """The code of each class: the mean of its representations, (K, C)."""
        return self._moments[0]

    @property
    def signs(self) -> NDArray[np.bool_]:
        """Whether a unit is on for a class, (K, C): the codes as bits."""
        bits: NDArray[np.bool_] = self.M > 0
        return bits

    @property
    def rank(self) -> float:
        r"""Effective rank of the centred codes, (Σσ²)²/Σσ⁴ of their singular values."""
        centred = self.means - self.means.mean(1, keepdims=True)
        squares = np.linalg.svd(centred, compute_uv=False) ** 2
        total = float((squares**2).sum())
        return float(squares.sum()) ** 2 / total if total else 0.0

    @property
    def boson_distance(self) -> float:
        """Mean D² of new samples of one class."""
        return 2 * float(self._moments[1].mean())

    @property
    def fermion_distance(self) -> float:
        """Mean D² of new samples of two classes."""
        count = self.classes.count
        between = 2 * count / (count - 1) * float(self.means.var(1).mean())
        return self.boson_distance + between

    @cached_property
    def accuracy(self) -> float:
        """Fraction of new samples whose representation is nearest to the code of their class."""
        points = ndtri(qmc.Sobol(len(self.M), seed=0).random(_CODES))
        noise = self.classes.problem.delta * points @ _root(self.Q).T
        hits = 0.0
        for c in range(self.classes.count):
            phi = self.classes.problem.phi(self.M[:, c] + noise)
            # |φ − code|² without |φ|², which is common to all codes
            score = (self.means**2).sum(0) - 2 * phi @ self.means
            hits += float((score.argmin(1) == c).mean())
        return hits / self.classes.count


@dataclass(frozen=True, eq=False)
class ClassTrajectory:
    """Overlaps along time."""

    classes: Classes
    learning_rate: float
    batch: int
    samples: int  # Sobol points a class of every average
    seed: int
    t: Array  # (points,): steps/N
    M: Array  # (points, K, C)
    Q: Array  # (points, K, K)

    def codes(self, point: int = -1) -> Codes:
        """What is known of the representations at one of the times, by default the last."""
        return Codes(self.classes, self.M[point], self.Q[point])


def plotkin_bound(classes: int) -> float:
    """No mean D_F² of C classes with activations in [0, 1] exceeds C/(2(C − 1)).

    Units that are on for one half of an even number of classes reach it.
    """
    count = whole("classes", classes, least=2)
    return count / (2 * (count - 1))


def random_start(
    classes: Classes, units: int, *, n: int, q: float = 1.0, seed: int = 0
) -> tuple[Array, Array]:
    """M and Q of ``units`` random weight vectors N(0, q) with ``n`` components."""
    check_classes(classes)
    whole("units", units, least=1)
    if whole("n", n, least=1) < units + classes.count:
        raise InputError(f"n = {n} weights cannot be free of {units} units and the class means")
    scale = math.sqrt(number("q", q, above=0))
    rng = np.random.default_rng(whole("seed", seed, least=0))
    along = rng.standard_normal((units, classes.count)) / math.sqrt(n)
    # The Gram matrix of what is left of the weights is Wishart.
    across = rng.standard_normal((units, n - classes.count)) / math.sqrt(n)
    return scale * along @ _root(classes.gram).T, scale**2 * (along @ along.T + across @ across.T)


def evolve_classes(
    classes: Classes,
    *,
    learning_rate: float,
    t: ArrayLike,
    start: tuple[Any, Any],
    batch: int = 2,
    samples: int = 64,
    step: float = 0.1,
    seed: int = 0,
) -> ClassTrajectory:
    """The overlaps from ``start`` = (M, Q), of shapes (K, C) and (K, K), at t = 0.

    t: the end, with 200 points up to it, or increasing times. samples: Sobol points a class of each
    average, a power of 2. step: longest step of ηt, by the midpoint rule.
    """
    check_classes(classes)
    rate, size = number("learning_rate", learning_rate, above=0), whole("batch", batch, least=2)
    longest = number("step", step, above=0) / rate
    points = times(t)
    M, Q = _check_start(classes, start)
    rng = np.random.default_rng(whole("seed", seed, least=0))
    average = Averages(classes, len(M), samples, rng)
    found, now = [], 0.0
    for point in points:
        count = math.ceil((point - now) / longest)
        dt = (point - now) / max(count, 1)
        for _ in range(count):
            M_dot, Q_dot = average.rates(M, Q, learning_rate=rate, batch=size)
            M_dot, Q_dot = average.rates(
                M + dt / 2 * M_dot, Q + dt / 2 * Q_dot, learning_rate=rate, batch=size
            )
            M, Q = M + dt * M_dot, Q + dt * Q_dot
        now = float(point)
        found.append((M, Q))
    path = [np.array(part) for part in zip(*found, strict=True)]
    return ClassTrajectory(classes, rate, size, samples, seed, points, path[0], path[1])


class Averages:
    """Ṁ and Q̇, with fresh points at every call."""

    def __init__(
        self, classes: Classes, units: int, samples: int, rng: np.random.Generator
    ) -> None:
        if whole("samples", samples, least=2) & (samples - 1):
            raise InputError(f"samples must be a power of 2, got {samples}")
        self.classes, self.rng = classes, rng
        self.points = qmc.Sobol(units, scramble=False).random(samples)
        self.labels = np.repeat(np.arange(classes.count), samples)

    def rates(self, M: Array, Q: Array, *, learning_rate: float, batch: int) -> tuple[Array, Array]:
        """At overlaps M (K, C) and Q (K, K)."""
        problem, root = self.classes.problem, _root(Q)
        noise, z, phi, slope = self._draw(M, root)
        means, squares = [], []
        for _ in range(2):  # two sets of partners: the product of two means has no bias
            mean, square = self._meet(phi, slope, self._draw(M, root)[2])
            means.append(mean)
            squares.append(square)
        h, count = (means[0] + means[1]) / 2, len(z)
        both = means[0].T @ means[1] / count
        field = self.classes.gram[self.labels] + noise @ np.linalg.pinv(root) @ M  # (n, C)
        decay, eta = problem.weight_decay, learning_rate
        M_dot = -2 * eta * h.T @ field / count - eta * decay * M
        drift = h.T @ z / count
        shared = (squares[0] + squares[1]) / 2 + (batch - 2) * (both + both.T) / 2
        diffusion = (eta * problem.delta) ** 2 * 4 / (batch * (batch - 1)) * shared
        return M_dot, diffusion - 2 * eta * (drift + drift.T) - 2 * eta * decay * Q

    def _draw(self, M: Array, root: Array) -> tuple[Array, Array, Array, Array]:
        """Δ·ξ, z, φ and φ′ of as many samples of every class, each (n, K)."""
        count, units = self.classes.count, len(M)
        shifts = self.rng.random((count, 1, units))
        uniform = (self.points + shifts).reshape(-1, units) % 1
        tiny = np.finfo(float).tiny
        noise = self.classes.problem.delta * ndtri(np.maximum(uniform, tiny))
        z = M.T[self.labels] + noise @ root.T
        return noise, z, *activation_derivatives(self.classes.problem, z)[:2]

    def _meet(self, phi: Array, slope: Array, other: Array) -> tuple[Array, Array]:
        """h̄ of every sample over the partners, (n, K), and E h hᵀ, (K, K)."""
        units, count = phi.shape[1], len(phi)
        d2 = (phi**2).sum(1)[:, None] + (other**2).sum(1) - 2 * phi @ other.T
        same = self.labels[:, None] == self.labels
        push = 2 * self.classes.problem.pair_energy.force(np.maximum(d2, 0) / units, same)
        mean = slope * (phi * push.sum(1)[:, None] - push @ other) / count
        square = push**2
        cross = square @ other  # (n, K)
        pairs = (other[:, :, None] * other[:, None, :]).reshape(count, -1)
        inner = (square @ pairs).reshape(count, units, units)
        inner += phi[:, :, None] * phi[:, None, :] * square.sum(1)[:, None, None]
        mixed = phi[:, :, None] * cross[:, None, :]
        inner -= mixed + mixed.transpose(0, 2, 1)
        return mean, np.einsum("nk,nl,nkl->kl", slope, slope, inner) / count**2


def check_classes(classes: Any) -> None:
    """Refuse what is not a set of classes."""
    if not isinstance(classes, Classes):
        raise InputError(f"this needs fermibose.theory.classes.Classes, got {classes!r}")


def _check_start(classes: Classes, start: Any) -> tuple[Array, Array]:
    try:
        given_M, given_Q = start
    except (TypeError, ValueError):
        raise InputError(f"start must be two matrices (M, Q), got {start!r}") from None
    M, Q = _matrix("M of start", given_M), _matrix("Q of start", given_Q)
    if M.shape[1] != classes.count or Q.shape != (len(M), len(M)):
        raise InputError(
            f"start needs M of shape (K, {classes.count}) and Q of shape (K, K), got {M.shape} "
            f"and {Q.shape}"
        )
    if not np.allclose(Q, Q.T) or np.linalg.eigvalsh(Q)[0] <= 0:
        raise InputError("Q of start must be symmetric with eigenvalues above 0")
    return M, Q


def _matrix(name: str, values: Any) -> Array:
    try:
        matrix = np.array(values, dtype=float)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():
        raise InputError(f"{name} must be a matrix of finite numbers, got {values!r}")
    return matrix


def _root(matrix: Array) -> Array:
    """The symmetric root; what rounding has left below 0 is 0."""
    values, vectors = np.linalg.eigh(matrix)
    root: Array = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return root
