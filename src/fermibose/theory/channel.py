r"""The channel at finite temperature: what a pair does to the Gaussian field it feels.

With ω the mean and c/β the variance of the two pre-activations of a pair,

.. math:: F(ω) = -\tfrac1β \ln Z(ω), \qquad Z(ω) = \int dz\, N(z; ω, (c/β)\,1)\, e^{-βH(z)},

so that ln Z = −βF, f = ∇ln Z = −β∇F and Hess = ∇²ln Z = −β∇²F. Written for F, the limit β → ∞ is the
Moreau envelope F = min_z {|z−ω|²/2c + H(z)} of :mod:`fermibose.theory.moreau`, which offers the same
three methods. Z is a separable Gaussian convolution of a table of e^{−βH}: products of matrices.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fermibose.theory.grid import SQRT2, Axis
from fermibose.theory.problem import Array, Problem

_TINY = 1e-290  # below this Z has left the range of floating point


@dataclass(frozen=True)
class Effective:
    """F and its gradient on the grid; each of shape (2, r, t): boson, then fermion pairs."""

    F: Array
    r: Array  # ∂F/∂r
    t: Array  # ∂F/∂t
    share: Array | float = 1.0  # part of its cell a node stands for; not 1 beside a jump of ∇F


@dataclass(frozen=True)
class Curvature:
    """∇²F on the grid, shapes as in :class:`Effective`."""

    rr: Array
    rt: Array
    tt: Array


class Channel(Protocol):
    """What the replica equations need to know about a pair."""

    def effective(self, c: float) -> Effective:
        """F and ∇F at stiffness c = Δ²χ."""

    def curvature(self, c: float) -> Curvature:
        """∇²F where it exists."""

    def mean_energy(self, c: float) -> Array:
        """⟨H⟩ of the pair under its measure, shape (2, r, t)."""


def gaussian_kernels(x: Axis, z: Axis, s: float, *, order: int) -> list[Array]:
    """Matrices K_j, j = 0 … order, with Σ_k K_j[i, k] g(z_k) = ∂ʲ/∂xʲ ∫ N(z; x_i, s²) g(z) dz.

    On a folded z-axis g is even and the mirror image of each node is added. order is at most 2.
    """
    scale = z.weights / (s * math.sqrt(2 * math.pi)) / (2 if z.folded else 1)
    kernels: list[Array] = []
    for mirror in (1.0, -1.0) if z.folded else (1.0,):
        d = (z.nodes * mirror - x.nodes[:, None]) / s
        g = np.exp(d**2 / -2) * scale
        terms = [g, g * d / s, g * (d**2 - 1) / s**2][: order + 1]
        kernels = [a + b for a, b in zip(kernels, terms, strict=True)] if kernels else terms
    return kernels


class GaussianChannel:
    """F, ∇F, ∇²F at finite temperature on the nodes r × t, from a table of H on z × z'."""

    def __init__(self, problem: Problem, r: Axis, t: Axis, z_r: Axis, z_t: Axis) -> None:
        self.beta = problem.beta
        self._axes = (r, t, z_r, z_t)
        zr, zt = z_r.nodes[:, None], z_t.nodes
        self._H = problem.energies((zt + zr) / SQRT2, (zt - zr) / SQRT2)
        # Centring the exponent doubles the range of temperatures floating point can hold.
        self._shift = float(self._H.max() + self._H.min()) / 2
        self._weight = np.exp(-self.beta * (self._H - self._shift))

    def effective(self, c: float) -> Effective:
        """F = −ln Z/β and ∇F = −∇Z/(βZ)."""
        (r0, r1), (t0, t1) = self._kernels(c, order=1)
        left = r0 @ self._weight
        Z = _positive(left @ t0.T)
        F = self._shift - np.log(Z) / self.beta
        scale = -1 / (self.beta * Z)
        return Effective(F, (r1 @ self._weight @ t0.T) * scale, (left @ t1.T) * scale)

    def curvature(self, c: float) -> Curvature:
        """∇²F = −(∇²Z/Z − ∇Z∇Zᵀ/Z²)/β."""
        (r0, r1, r2), (t0, t1, t2) = self._kernels(c, order=2)
        left, left1 = r0 @ self._weight, r1 @ self._weight
        Z = _positive(left @ t0.T)
        zr, zt = (left1 @ t0.T) / Z, (left @ t1.T) / Z
        return Curvature(
            rr=(zr**2 - (r2 @ self._weight @ t0.T) / Z) / self.beta,
            rt=(zr * zt - (left1 @ t1.T) / Z) / self.beta,
            tt=(zt**2 - (left @ t2.T) / Z) / self.beta,
        )

    def mean_energy(self, c: float) -> Array:
        """⟨H⟩ = ∫ N H e^{−βH} / Z."""
        (r0,), (t0,) = self._kernels(c, order=0)
        mean: Array = (r0 @ (self._weight * self._H) @ t0.T) / _positive(r0 @ self._weight @ t0.T)
        return mean

    def _kernels(self, c: float, *, order: int) -> tuple[list[Array], list[Array]]:
        r, t, z_r, z_t = self._axes
        s = math.sqrt(c / self.beta)
        return gaussian_kernels(r, z_r, s, order=order), gaussian_kernels(t, z_t, s, order=order)


def _positive(Z: Array) -> Array:
    """Z kept away from 0; only fields of negligible Gaussian weight ever get there."""
    return np.maximum(Z, _TINY)
