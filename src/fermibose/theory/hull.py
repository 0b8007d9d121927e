r"""Where ψ(z) = z²/2 + c h(z) touches its convex hull: the proximal points of h, and their jumps.

z minimises (z−ω)²/2c + h(z) for some ω if and only if ψ touches its hull at z, and then
ω = ψ′(z) = z + c h′(z). A straight piece of the hull from a to b has

.. math:: ψ'(a) = ψ'(b) = \frac{ψ(b) - ψ(a)}{b - a} = ω,

the field at which the minima a and b tie.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermibose.theory.panels import NODES, WEIGHTS, Panels
from fermibose.theory.problem import Array

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_POLISHINGS = 30  # Newton steps to the ends of a gap; four are usual
_LAST = 1e-13  # a step so short that the next would be below rounding
_LEAST = 0.01  # of ψ″ at an end: 0 is where its minimum vanishes


class Gap(NamedTuple):
    """A straight piece of the hull."""

    left: float
    right: float
    field: float  # ω, its slope


@dataclass(frozen=True, eq=False)
class Contact:
    """Quadrature over those z where ψ touches its hull."""

    panels: Panels
    z: Array
    weights: Array  # Σ w f = ∫ f dz
    potential: Array  # h, h′, h″: (3, points)
    uncut: NDArray[np.bool_]  # which nodes of the panels are among the points, before all others
    cut: list[tuple[int, Array]]  # panels with an end of a gap, and their basis at the points there

    def folded(self, mass: Array) -> Array:
        """Masses at the points as masses on the nodes, exact for the polynomials of a panel."""
        folded = np.zeros(self.panels.nodes.size)
        end = int(self.uncut.sum())
        folded[self.uncut] = mass[:end]
        for panel, basis in self.cut:
            folded[self.panels.rows(panel)] += mass[end : end + len(basis)] @ basis
            end += len(basis)
        return folded

    def steepest(self, v: Array) -> float:
        """The greatest growth of v, given at the points, across one of the uncut panels."""
        rows = v[: int(self.uncut.sum())].reshape(-1, NODES.size)
        return float((rows[:, -1] - rows[:, 0]).max(initial=0.0))


def contact(panels: Panels, potential: Array, gaps: list[Gap]) -> Contact:
    """Nodes of uncut panels, and new ones in what gaps leave of the others.

    potential: h, h′, h″ on the nodes, (3, nodes).
    """
    keep = np.ones(panels.edges.size - 1, dtype=bool)
    touched = set()
    for gap in gaps:
        first, last = panels.locate(gap.left), panels.locate(gap.right)
        keep[first : last + 1] = False
        touched |= {first, last}
    uncut = np.repeat(keep, NODES.size)
    z, weights, values = [panels.nodes[uncut]], [panels.weights[uncut]], [potential[:, uncut]]
    cut = []
    for panel in touched:
        for low, high in _left_over(panels.edges[panel], panels.edges[panel + 1], gaps):
            z.append((low + high) / 2 + (high - low) / 2 * NODES)
            weights.append((high - low) / 2 * WEIGHTS)
            basis = panels.basis(panel, z[-1])
            values.append(potential[:, panels.rows(panel)] @ basis.T)
            cut.append((panel, basis))
    return Contact(
        panels,
        np.concatenate(z),
        np.concatenate(weights),
        np.concatenate(values, axis=1),
        uncut,
        cut,
    )


def _left_over(low: float, high: float, gaps: list[Gap]) -> list[tuple[float, float]]:
    """An interval without the gaps, which are in order."""
    pieces = []
    for gap in gaps:
        if gap.right > low and gap.left < high:
            pieces.append((low, gap.left))
            low = gap.right
    pieces.append((low, high))
    return [(a, b) for a, b in pieces if b > a]


def find_gaps(panels: Panels, potential: Array, c: float) -> list[Gap]:
    """All straight pieces of the hull, in order: from a hull of the nodes, ends polished."""
    z = panels.nodes
    omega = z + c * potential[1]
    falls = np.diff(omega) < 0
    if not falls.any():
        return []
    corners = _lower_hull(z, z**2 / 2 + c * potential[0])
    found: list[tuple[int, int, Gap]] = []
    for i, j in pairwise(corners):
        if j == i + 1 or not falls[i:j].any():
            continue
        first, gap = i, _polished(panels, potential, c, i, j)
        while found and found[-1][2].right >= gap.left:  # the minimum between the two never wins
            first = found.pop()[0]
            gap = _polished(panels, potential, c, first, j)
        found.append((first, j, gap))
    return [gap for _, _, gap in found]


def _lower_hull(x: Array, y: Array) -> list[int]:
    """Corners of the lower convex hull of points in order (Andrew's chain)."""
    xs, ys = x.tolist(), y.tolist()
    corners: list[int] = []
    for k, (px, py) in enumerate(zip(xs, ys, strict=True)):
        while len(corners) > 1:
            i, j = corners[-2], corners[-1]
            if (ys[j] - ys[i]) * (px - xs[j]) < (py - ys[j]) * (xs[j] - xs[i]):
                break
            corners.pop()
        corners.append(k)
    return corners


def _polished(panels: Panels, potential: Array, c: float, i: int, j: int) -> Gap:
    """Newton's method on ψ′(a) = ψ′(b) and ψ(b) − ψ(a) = (b − a)(ψ′(a) + ψ′(b))/2.

    The ends of the gap lie between the neighbours of nodes i and j, the ends on the nodes.
    """
    z = panels.nodes
    bounds = [(float(z[max(k - 1, 0)]), float(z[min(k + 1, z.size - 1)])) for k in (i, j)]
    a, b = float(z[i]), float(z[j])
    for _ in range(_POLISHINGS):
        psi_a, omega_a, bend_a = _psi(panels, potential, c, a)
        psi_b, omega_b, bend_b = _psi(panels, potential, c, b)
        bend_a, bend_b = max(bend_a, _LEAST), max(bend_b, _LEAST)
        apart, half = (omega_b - omega_a) / 2, (b - a) / 2
        tie = psi_b - psi_a - half * (omega_a + omega_b)
        # −ψ″(a) da + ψ″(b) db = −2 apart,  (apart − half ψ″(a)) da + (apart − half ψ″(b)) db = −tie
        det = bend_a * (half * bend_b - apart) + bend_b * (half * bend_a - apart)
        if det <= 0:
            break
        new_a = a + (bend_b * tie - 2 * apart * (apart - half * bend_b)) / det
        new_b = b + (bend_a * tie + 2 * apart * (apart - half * bend_a)) / det
        new_a, new_b = np.clip(new_a, *bounds[0]), np.clip(new_b, *bounds[1])
        moved = max(abs(new_a - a), abs(new_b - b))
        a, b = float(new_a), float(new_b)
        if moved <= _LAST * (1 + abs(a) + abs(b)):
            break
    return Gap(a, b, (omega_a + omega_b) / 2)


def _psi(panels: Panels, potential: Array, c: float, z: float) -> tuple[float, float, float]:
    """ψ, ψ′ and ψ″."""
    panel = panels.locate(z)
    h, force, bend = potential[:, panels.rows(panel)] @ panels.basis(panel, np.array([z]))[0]
    return z**2 / 2 + c * float(h), z + c * float(force), 1 + c * float(bend)
