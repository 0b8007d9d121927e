r"""Panels of Gauss-Legendre nodes along z, and the potential that samples on them exert.

.. math:: h_a(z) = \sum_b \int ρ_b(z')\, H_{ab}(z, z')\, dz', \qquad
          H_{ab} = \tfrac12 D^2 \;(a = b), \quad \tfrac12 φ(d_F - D^2) \;(a \ne b)

ρ_b is given by weights on the nodes; h, h′ and h″ are sums over them, in closed form. Two labels
that attract or repel with one energy need one table of it: bosons are polynomials in φ(z).
"""

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fermibose.theory.problem import Array, Problem, activation_derivatives

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_ACROSS = 2.5  # length of a panel along φ, in distances of the hinge's branch point from the axis
_FINEST = 1 / 64  # and its least: a hinge sharper than that hardly differs from a hard one
_LONG, _LONGER = 0.5, 0.3  # length along z at 0, in units of 1/max φ′, and its growth with |z|
_SCAN = 2000  # points at which the density of panels is looked at

_ORDER = 16  # nodes of a panel: what it holds is smooth, and shorter panels do the rest

NODES, WEIGHTS = np.polynomial.legendre.leggauss(_ORDER)
_SIGNED = np.sqrt((1 - NODES**2) * WEIGHTS) * (-1.0) ** np.arange(_ORDER)  # barycentric


def _lagrange(x: Array) -> Array:
    """Lagrange's polynomials of the nodes at points of (−1, 1): (points, 16)."""
    apart = x[:, None] - NODES
    apart[apart == 0] = 1e-300
    part = _SIGNED / apart
    basis: Array = part / part.sum(1, keepdims=True)
    return basis


@dataclass(frozen=True, eq=False)
class Panels:
    """A line cut into panels, symmetric about 0, with sixteen nodes each."""

    problem: Problem
    edges: Array  # (panels + 1,), increasing

    @cached_property
    def nodes(self) -> Array:
        """z, (panels · 16,)."""
        return self._mapped(NODES)

    @cached_property
    def weights(self) -> Array:
        """Of the nodes, for integrals over z."""
        return np.outer(np.diff(self.edges) / 2, WEIGHTS).ravel()

    def _mapped(self, reference: Array) -> Array:
        centre, half = (self.edges[1:] + self.edges[:-1]) / 2, np.diff(self.edges) / 2
        return (centre[:, None] + half[:, None] * reference).ravel()

    def locate(self, z: float) -> int:
        """The panel in which z lies."""
        found = int(np.searchsorted(self.edges, z, side="right")) - 1
        return min(max(found, 0), self.edges.size - 2)

    def basis(self, panel: int, z: Array) -> Array:
        """Lagrange's polynomials of a panel's nodes at z: (points, 16)."""
        left, right = self.edges[panel], self.edges[panel + 1]
        return _lagrange((2 * z - left - right) / (right - left))

    def interpolate(self, values: Array, z: Array) -> Array:
        """Functions known on the nodes, (…, nodes), at points z; beyond the ends as at the ends."""
        z = np.clip(z, self.edges[0], self.edges[-1])
        panels = np.clip(np.searchsorted(self.edges, z, side="right") - 1, 0, self.edges.size - 2)
        left, right = self.edges[panels], self.edges[panels + 1]
        basis = _lagrange((2 * z - left - right) / (right - left))
        own = values.reshape(*values.shape[:-1], -1, _ORDER)[..., panels, :]
        interpolated: Array = (own * basis).sum(-1)
        return interpolated

    def rows(self, panel: int) -> slice:
        """The nodes of a panel."""
        return slice(panel * _ORDER, (panel + 1) * _ORDER)

    @cached_property
    def _activation(self) -> tuple[Array, Array, Array]:
        return activation_derivatives(self.problem, self.nodes)

    @cached_property
    def _fermions(self) -> Array:
        """H of fermions, ∂H and ∂²H between all nodes: (3, nodes, nodes)."""
        return self._fermions_at(*self._activation)

    def _fermions_at(self, phi: Array, slope: Array, bend: Array) -> Array:
        pair = self.problem.pair_energy
        D = phi[:, None] - self._activation[0]
        d2 = D**2
        H, force = pair.energy_and_force(d2, False)
        H_D = 2 * D * force
        H_DD = 2 * force + 4 * d2 * pair.curvature(d2, False)
        return np.stack([H, H_D * slope[:, None], H_DD * slope[:, None] ** 2 + H_D * bend[:, None]])

    def potential(self, masses: Array, *, at: Array | None = None) -> Array:
        """h, h′ and h″ of every label, (3, labels, points), at the nodes if not elsewhere.

        masses: (labels, nodes), ρ_b times the weights of the nodes.
        """
        here = self._activation if at is None else activation_derivatives(self.problem, at)
        table = self._fermions if at is None else self._fermions_at(*here)
        by_label = np.stack([masses @ part.T for part in table])
        fermions = by_label.sum(1, keepdims=True) - by_label
        phi, slope, bend = here
        total, first, second = (masses @ self._activation[0] ** k for k in range(3))
        total, first, second = total[:, None], first[:, None], second[:, None]
        pull = total * phi - first
        bosons = np.stack(
            [total * phi**2 / 2 - first * phi + second / 2,
             pull * slope,
             total * slope**2 + pull * bend]
        )  # fmt: skip
        potential: Array = bosons + fermions
        return potential


def lay(
    problem: Problem,
    reach: float,
    too_long: Callable[[Array], NDArray[np.bool_]] | None = None,
    *,
    coarseness: float = 1.0,
) -> Panels:
    """Panels from −reach to reach that resolve φ and the hinge, halved where they are too long.

    too_long: of edges, which of the panels between them are (also asked about the mirror images).
    """
    branch = abs(cmath.sqrt(complex(problem.d_f, math.sqrt(problem.softness))).imag)
    across, unit = max(_ACROSS * branch, _FINEST), 1 / problem.steepness
    z = unit * np.sinh(np.linspace(0, math.asinh(reach / unit), _SCAN))
    slopes = [np.abs(activation_derivatives(problem, x)[1]) for x in (z, -z)]
    density = np.maximum(*slopes) / across + 1 / (_LONG * unit + _LONGER * z)
    count = np.concatenate([[0], np.cumsum(np.diff(z) * (density[1:] + density[:-1]) / 2)])
    panels = math.ceil(count[-1] / coarseness)
    edges = np.interp(np.linspace(0, count[-1], panels + 1), count, z)
    if too_long is not None:
        while True:
            both = np.concatenate([-edges[:0:-1], edges])
            long = too_long(both)
            long = long[edges.size - 1 :] | long[edges.size - 2 :: -1]
            if not long.any():
                break
            edges = np.sort(np.concatenate([edges, (edges[1:] + edges[:-1])[long] / 2]))
    return Panels(problem, np.concatenate([-edges[:0:-1], edges]))
