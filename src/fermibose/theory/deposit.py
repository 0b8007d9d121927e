r"""A table of e^{−βH} under Gaussians much wider than all that φ does: hot pairs, or a steep φ.

Nodes close enough for φ would be too many there, and most of them where H is constant. But a wide
Gaussian is smooth: it is known everywhere from nodes a tenth of its width s apart. So the integral
is done in (z₁, z₂), where a grid can follow φ, and each of its points deposited on the nodes around
it,

.. math:: \int N(z; ω, s^2)\, g(z)\, dz = \sum_i w_i\, g(z_i)\, N(z_i; ω, s^2)
          ≈ \sum_k \Bigl[\sum_i w_i\, g(z_i)\, L_k(z_i)\Bigr] N(z_k; ω, s^2)

with Lagrange's polynomials L_k. The brackets are a table like any other.
"""

import math

import numpy as np

from fermibose.theory.channel import SQRT2, Axis, Table
from fermibose.theory.problem import Array, Problem

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_WIDTH = 10.0  # nodes to a width s at least: eight of them interpolate the Gaussian to 1e-9
_DEPTH = 1.3  # nodes to the length over which its tail falls by e, where that can count
_RISE = 0.025  # of φ from one panel of points to the next, at most
_TAILS = 0.1  # the same if φ rose as the fourth root of its slope
_LENGTHS = 1.7  # panels to a width s, at least
_POINTS = 1200  # along an axis, at most

_STENCIL = np.arange(-3.0, 5.0)  # nodes around a point that it is deposited on
_PANEL = np.polynomial.legendre.leggauss(4)
_SCAN = 400_000  # places where the slope of φ is looked at, at most: arrays of 3 MB


def deposit_step(problem: Problem, reach: float, s: float) -> float:
    """Distance of the nodes for a Gaussian of width s.

    Pairs gain at most the span of H by going out into its tail, d widths where d² = 2β span; there
    it falls by e over s/d.
    """
    phi = problem.phi(np.linspace(-reach, reach, 401))
    span = np.ptp(problem.energies_apart(np.array([0.0, np.ptp(phi) ** 2])))
    return s / max(_WIDTH, _DEPTH * math.sqrt(2 * problem.beta * span))


def deposited_table(
    problem: Problem, r: Axis, t: Axis, *, reach: float, s: float, coarseness: float
) -> Table:
    """The table on axes of equal steps, which extend four of them beyond ``reach``."""
    assert r.step is not None
    z, weight = _points(problem, SQRT2 * reach, s, coarseness)  # the square stands on its corner
    first, second = np.tril_indices(z.size)
    r_at, t_at = (z[first] - z[second]) / SQRT2, (z[first] + z[second]) / SQRT2
    images = np.where(first == second, 1.0, 2.0)  # the pair exchanged, and turned if φ is odd
    if t.folded:
        images *= 1 + np.sign(np.where(np.abs(t_at) < 1e-9 * reach, 0.0, t_at))
    inside = (r_at <= reach) & (np.abs(t_at) <= reach) & (images > 0)
    first, second, r_at, t_at = first[inside], second[inside], r_at[inside], t_at[inside]
    mass = weight[first] * weight[second] * images[inside] / r.step**2
    phi = problem.phi(z)
    H = problem.energies_apart((phi[first] - phi[second]) ** 2)
    plain = Table.of(H, problem.beta)
    deposited = _deposit(r_at / r.step, t_at / r.step, mass * plain.weight, r.nodes.size, t)
    weighted = _deposit(r_at / r.step, t_at / r.step, mass * plain.weighted, r.nodes.size, t)
    return Table(deposited, weighted, plain.lowest, plain.span)


def _deposit(r: Array, t: Array, masses: Array, rows: int, axis: Axis) -> Array:
    """Masses of points at r and t, in steps, on the nodes; shape (kinds, rows, nodes of the axis).

    Every point has mirror images at −r, and at −t if the axis is folded.
    """
    columns = axis.nodes.size if axis.folded else (axis.nodes.size + 1) // 2
    height, width = 2 * rows - 1, 2 * columns - 1
    low_r, low_t = np.floor(r), np.floor(t)
    share_r, share_t = _lagrange(r - low_r), _lagrange(t - low_t)
    index = ((low_r + rows - 1) * width + low_t + columns - 1).astype(np.intp)
    total = np.zeros((len(masses), height * width))
    for i, a in enumerate(_STENCIL):
        for j, b in enumerate(_STENCIL):
            place, part = index + int(a * width + b), share_r[i] * share_t[j]
            for kind, mass in enumerate(masses):
                total[kind] += np.bincount(place, mass * part, height * width)
    plane = total.reshape(-1, height, width)
    plane = (plane + plane[:, ::-1])[:, rows - 1 :] / 2
    if axis.folded:
        plane = (plane + plane[..., ::-1])[..., columns - 1 :] / 2
    return np.ascontiguousarray(plane)


def _lagrange(x: Array) -> Array:
    """The polynomials that are 1 at one node of the stencil and 0 at the others, at x."""
    return np.array([
        math.prod((x - other) / (node - other) for other in _STENCIL if other != node)
        for node in _STENCIL
    ])  # fmt: skip


def _points(problem: Problem, reach: float, s: float, coarseness: float) -> tuple[Array, Array]:
    """Points and weights on a line: Gaussian panels, as short as φ is steep, and shorter than s.

    They grow slowly where φ flattens: it has tails there that no long panel follows.
    """
    count = min(_SCAN, math.ceil(40 * reach * problem.steepness))
    z = np.linspace(-reach, reach, count + 1)
    rise, length = np.abs(np.diff(problem.phi(z))), np.diff(z)
    top = rise.max() / length[0]
    finest = max(coarseness * _rise(problem), 2 * _PANEL[0].size * rise.sum() / _POINTS)
    tails = (rise / length * top**3) ** 0.25 * length if top else rise
    steps = rise / finest + (tails / _TAILS + length * _LENGTHS / s) / coarseness
    passed = np.concatenate([[0.0], np.cumsum(steps)])
    edges = np.interp(np.linspace(0, passed[-1], math.ceil(passed[-1]) + 1), passed, z)
    half = np.diff(edges)[:, None] / 2
    points = edges[:-1, None] + half * (1 + _PANEL[0])
    return points.ravel(), (half * _PANEL[1]).ravel()


def _rise(problem: Problem) -> float:
    """What φ may change along a panel: e^{−βH} has ridges, and the hinge a corner."""
    corner = max(0.015, math.sqrt(problem.softness) / 2)
    return min(_RISE, corner, 0.5 / math.sqrt(problem.beta))
