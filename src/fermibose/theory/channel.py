r"""The channel at finite temperature: what a pair does to the Gaussian field it feels.

With ω the mean and c/β the variance of the two pre-activations of a pair,

.. math:: F(ω) = -\tfrac1β \ln Z(ω), \qquad Z(ω) = \int dz\, N(z; ω, (c/β)\,1)\, e^{-βH(z)},

so that ln Z = −βF, f = ∇ln Z = −β∇F and Hess = ∇²ln Z = −β∇²F. Written for F, the limit β → ∞ is
the Moreau envelope F = min_z {|z−ω|²/2c + H(z)} of :mod:`fermibose.theory.moreau`, which offers the
same methods. Z is a separable Gaussian convolution of a table of e^{−βH}: products of matrices.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fermibose.theory.grid import SQRT2, Axis
from fermibose.theory.problem import Array, Problem

_TINY = 1e-290  # Z below this has left the range of floating point
_LIFT = 160.0  # added to exponents, once for each Gaussian and twice for e^{−βH}: twice the range


@dataclass(frozen=True)
class Effective:
    """F and its gradient on the grid; each of shape (2, r, t): boson, then fermion pairs."""

    F: Array
    r: Array  # ∂F/∂r
    t: Array  # ∂F/∂t
    share: Array | float = 1.0  # part of its cell a node stands for; not 1 beside a jump of ∇F


@dataclass(frozen=True)
class Response:
    """∇²F (where it exists) and the pair's mean energy ⟨H⟩, shapes as in :class:`Effective`."""

    rr: Array
    rt: Array
    tt: Array
    energy: Array
    lost: Array | None = None  # 1 where Z left the range of floating point, else 0


def pair_table(problem: Problem, r: Axis, t: Axis) -> Array:
    """H of boson and fermion pairs on the nodes of the rotated plane, shape (2, r, t)."""
    z_r, z_t = r.nodes[:, None], t.nodes
    return problem.energies((z_t + z_r) / SQRT2, (z_t - z_r) / SQRT2)


class Channel(Protocol):
    """What the replica equations need to know about a pair."""

    def effective(self, c: float) -> Effective:
        """F and ∇F at stiffness c = Δ²χ."""

    def response(self, c: float) -> Response:
        """∇²F where it exists, and ⟨H⟩."""


def gaussian_kernels(
    x: Axis, z: Axis, s: float, *, order: int, depth: float = math.inf, lift: float = 0.0
) -> list[Array]:
    """Matrices K_j, j = 0 … order, with Σ_k K_j[i, k] g(z_k) = ∂ʲ/∂xʲ ∫ N(z; x_i, s²) g(z) dz.

    On a folded z-axis g is even and the mirror image of each node is added, as far as its Gaussian
    is above e^{−depth}. order is at most 2; lift multiplies everything by e^{lift}.
    """
    scale = z.weights / (s * math.sqrt(2 * math.pi)) / (2 if z.folded else 1)
    kernels = _gaussian(z.nodes - x.nodes[:, None], s, scale, order, lift)
    if z.folded:
        near = s * math.sqrt(2 * depth)
        i, k = np.searchsorted(x.nodes, near), np.searchsorted(z.nodes, near)
        mirror = _gaussian(-z.nodes[:k] - x.nodes[:i, None], s, scale[:k], order, lift)
        for kernel, image in zip(kernels, mirror, strict=True):
            kernel[:i, :k] += image
    return kernels


def _gaussian(distance: Array, s: float, scale: Array, order: int, lift: float) -> list[Array]:
    """A Gaussian of width s and its first derivatives with respect to its mean."""
    d = distance / s
    g = np.exp(lift - d**2 / 2) * scale
    kernels = [g]
    if order > 0:
        kernels.append(g * d / s)
    if order > 1:
        kernels.append(g * (d**2 - 1) / s**2)
    return kernels


class GaussianChannel:
    """F, ∇F, ∇²F at inverse temperature beta on the nodes r × t, from a table of H on z × z'.

    table: (2, z_r, z_t), the energy of boson and fermion pairs. The channel's own F, on a grid, can
    be the table of another channel: that is one step of replica symmetry breaking.
    """

    def __init__(
        self, table: Array, beta: float, *, at: tuple[Axis, Axis], on: tuple[Axis, Axis]
    ) -> None:
        self.beta = beta
        self._at, self._on = at, on
        self._H = table
        self._lowest = float(table.min())
        # Where a Gaussian is below this, no gain in energy can make it count.
        self._depth = 40 + beta * float(np.ptp(table))
        self._weight = np.exp(2 * _LIFT - beta * (table - self._lowest))
        self._last: tuple[float, tuple[Array, ...]] | None = None

    def effective(self, c: float) -> Effective:
        """F = −ln Z/β and ∇F = −∇Z/(βZ)."""
        *_, Z, Z_r, Z_t = self._moments(c)
        F = self._lowest + (4 * _LIFT - np.log(Z)) / self.beta
        return Effective(F, Z_r / -self.beta, Z_t / -self.beta)

    def response(self, c: float) -> Response:
        """∇²F = −(∇²Z/Z − ∇Z∇Zᵀ/Z²)/β and ⟨H⟩."""
        left, left1, Z, Z_r, Z_t = self._moments(c)
        (_, _, r2), (t0, t1, t2) = self._kernels(c, order=2)
        return Response(
            rr=(Z_r**2 - (r2 @ self._weight @ t0.T) / Z) / self.beta,
            rt=(Z_r * Z_t - (left1 @ t1.T) / Z) / self.beta,
            tt=(Z_t**2 - (left @ t2.T) / Z) / self.beta,
            energy=self.mean(self._H, c),
            lost=(Z <= _TINY).astype(float),
        )

    def mean(self, g: Array, c: float) -> Array:
        """⟨g⟩ = ∫ N g e^{−βH} / Z of a table like that of H."""
        (r0,), (t0,) = self._kernels(c, order=0)
        average: Array = (r0 @ (self._weight * g) @ t0.T) / self._moments(c)[2]
        return average

    def _moments(self, c: float) -> tuple[Array, ...]:
        """Products of the table with the kernels, and Z, ∂_rZ/Z, ∂_tZ/Z; kept for the last c."""
        if self._last is None or self._last[0] != c:
            (r0, r1), (t0, t1) = self._kernels(c, order=1)
            left, left1 = r0 @ self._weight, r1 @ self._weight
            Z = np.maximum(left @ t0.T, _TINY)
            self._last = (c, (left, left1, Z, (left1 @ t0.T) / Z, (left @ t1.T) / Z))
        return self._last[1]

    def _kernels(self, c: float, *, order: int) -> tuple[list[Array], list[Array]]:
        s = math.sqrt(c / self.beta)
        r, t = (
            gaussian_kernels(x, z, s, order=order, depth=self._depth, lift=_LIFT)
            for x, z in zip(self._at, self._on, strict=True)
        )
        return r, t
