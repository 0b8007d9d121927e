r"""The channel of one pair: what e^{−βH} does to a Gaussian field of *any* covariance.

.. math:: Z(ω, V) = \int N(z; ω, V)\, e^{-βH(z)}\, dz, \qquad f = ∇_ω \ln Z = V^{-1}⟨z-ω⟩,
          \qquad ∂f = ∇^2_ω \ln Z = V^{-1}(\mathrm{Cov}\,z - V)V^{-1}

In the limit of many weights V is a multiple of the identity and Z a separable convolution, which
:mod:`fermibose.theory.channel` uses. A single instance has a V of its own for every pair (and in
belief propagation for every message), so the sums are taken pair by pair: over a lattice in the
same turned plane, r = (z₁ − z₂)/√2 and t = (z₁ + z₂)/√2, in a window that holds all but e^{−_DEPTH}
of the weight.

What lattice and window must achieve is in ``tests/cavity/test_pair_channel.py``: errors of ln Z,
f and ∂f below 2e-6 in units of the field's width, for β from 5 to 150.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fermibose.errors import InputError
from fermibose.theory import Array, Problem

_DEPTH = 21.0  # nodes below e^{−this} of the largest do not count
_CHUNK = 60_000  # nodes handled at a time: they stay in the cache
_ROWS = 32  # of the table of H made at a time, for the same reason
# Nodes of r and t from one to the next that is looked at for the window; one of them is added on
# either side, so that none is missed.
_STRIDES = np.array([4, 2])
_FARTHEST = 1e3  # fields beyond this are those of an iteration that diverges: far from any solution
_TURN = np.array([[1.0, -1.0], [1.0, 1.0]]) / math.sqrt(2)  # (z₁, z₂) → (r, t); inverse: ᵀ
# Softness of the hinge below which steps stop shrinking (and errors grow), or tables would be too
# large.
_HARDEST = 1e-3
_MOST = 4_000_000  # nodes of a table: beyond, every sweep takes a second or more
_REACH, _STEP = 4.0, 0.06  # of the lattices of the default problem, by which others are judged

Integers = NDArray[np.int64]


class DivergenceError(ArithmeticError):
    """A field or covariance that no integral can be taken of: the iteration has diverged."""


class LatticeError(InputError):
    """Fields so wide, or so sharp, that their integrals need more nodes than can be handled."""


def lattice_steps(problem: Problem, kind: int, s: float) -> Array:
    """Steps along r and t for bosons (kind 0) or fermions (1) with fields of width s.

    Equal steps converge exponentially: along t as fast as the Gaussian allows, along r at the
    rate of the ridge of bosons, and of the corner of the hinge for fermions; none is longer than
    what φ takes to change.
    """
    z, steep = np.linspace(-6, 6, 241), problem.steepness
    slope = steep if steep > 1 else float(np.abs(np.gradient(problem.phi(z), z)).max())
    ridge = 0.6 / math.sqrt(2 * problem.beta * slope**2 + 1 / s**2)
    if kind == 0:
        return np.array([min(ridge, 0.5 * s), min(0.5 * s, 0.35 / steep)])
    soft = math.sqrt(max(problem.softness, _HARDEST))
    corner = min(0.3 * soft, 0.57 * math.sqrt(soft / problem.beta))
    corner /= slope * max(1.0, math.sqrt(problem.d_f))
    return np.array([min(ridge, corner, 0.5 * s), min(0.45 * s, 0.3 / steep)])


def check_size(reach: Array, steps: Array) -> None:
    """Refuse a lattice of too many nodes, 2·reach/steps along r times the same along t.

    What to do about it follows from which is further from the usual: the reach or the steps.
    """
    nodes = float(np.prod(2 * reach / steps))
    if nodes <= _MOST:
        return
    if np.prod(reach / _REACH) > np.prod(_STEP / steps):
        remedy = (
            "the fields are too wide or too far out: use a smaller delta or m, a larger "
            "weight_decay, or, where means to start from were given, means of order 1"
        )
    else:
        remedy = (
            "the fields are too sharp: use a larger delta, a smaller beta or weight_decay, a less "
            "steep activation, or a larger n (the patterns of a pair are nearly parallel at few "
            "weights)"
        )
    raise LatticeError(
        f"the integrals of a pair need a lattice of {nodes:.2g} nodes, more than the {_MOST:.0e} "
        f"that can be handled, to reach {reach.max():.2g} in steps of {steps.min():.1g}; {remedy}; "
        "sampling (hmc) and descent (ground) take no integrals"
    )


@dataclass(frozen=True)
class Moments:
    """ln Z, its derivatives by ω, and the mean energy ⟨H⟩ of every pair."""

    log_z: Array  # (pairs,)
    f: Array  # (pairs, 2)
    df: Array  # (pairs, 2, 2)
    energy: Array  # (pairs,)


@dataclass(frozen=True)
class _Batch:
    """Pairs of one kind whose covariances are similar, in the turned plane."""

    omega: Array  # (pairs, 2): r, t
    precision: Array  # (pairs, 2, 2): Λ = V⁻¹
    width: Array  # (pairs, 2): √V_rr, √V_tt
    radius: Array  # (pairs,): widths from ω beyond which no node counts
    steps: Array  # of the lattice, along r and t
    last: Integers  # the table has nodes −last … last along r and t, in steps
    H: Array  # (r, t)

    def exponents(
        self, which: Integers, first: Integers, counts: Integers, strides: Integers
    ) -> tuple[Array, Array, list[Array]]:
        """Exponent of the Gaussian, H, and distances to ω, in windows that begin at ``first``."""
        i, k = (first[:, a, None] + strides[a] * np.arange(counts[a]) for a in (0, 1))
        r, t = (
            index * h - o[:, None]
            for index, h, o in zip((i, k), self.steps, self.omega[which].T, strict=True)
        )
        rr, rt, tt = (self.precision[which, a, b, None] for a, b in ((0, 0), (0, 1), (1, 1)))
        left = np.stack([-rr / 2 * r**2, -rt * r, np.ones_like(r)], -1)
        right = np.stack([np.ones_like(t), t, -tt / 2 * t**2], -2)
        rows = (i + self.last[0]) * self.H.shape[1] + self.last[1]
        H = self.H.ravel().take(rows[:, :, None] + k[:, None, :])
        return left @ right, H, [r, t]


class PairChannel:
    """ln Z, f and ∂f of boson and fermion pairs, for any ω and any V."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def moments(
        self, omega: Array, V: Array, same: NDArray[np.bool_], *, tilt: bool = True
    ) -> Moments:
        """Of pairs with mean fields omega (pairs, 2) and covariances V (pairs, 2, 2).

        tilt=False leaves e^{−βH} out: ``energy`` is then the mean energy of pairs never seen.
        """
        omega, V = omega @ _TURN.T, _TURN @ V @ _TURN.T
        det = V[:, 0, 0] * V[:, 1, 1] - V[:, 0, 1] ** 2
        trace = V[:, 0, 0] + V[:, 1, 1]
        with np.errstate(invalid="ignore", divide="ignore"):
            narrow = np.sqrt(det / (trace / 2 + np.sqrt(np.maximum(trace**2 / 4 - det, 0))))
        if not (
            np.isfinite(narrow).all() and narrow.min() > 1e-6 and np.abs(omega).max() < _FARTHEST
        ):
            raise DivergenceError("fields or their covariances have left every bound")
        adjugate = np.stack(
            [np.stack([V[:, 1, 1], -V[:, 0, 1]], -1), np.stack([-V[:, 0, 1], V[:, 0, 0]], -1)], -2
        )
        precision = adjugate / det[:, None, None]
        width = np.sqrt(np.stack([V[:, 0, 0], V[:, 1, 1]], -1))
        count, beta = len(omega), self.problem.beta if tilt else 0.0
        sums, level = np.empty((count, 10)), np.empty(count)
        # Widths within a factor of two share a lattice, so that one narrow pair costs no other.
        octave = np.floor(np.log2(narrow))
        for kind, member in ((0, same), (1, ~same)):
            for value in np.unique(octave[member]):
                which = np.flatnonzero(member & (octave == value))
                part = omega[which], precision[which], width[which]
                batch = self._batch(kind, *part, s=float(narrow[which].min()), beta=beta)
                sums[which], level[which] = _sums(batch, beta)
        return _assemble(sums, level, precision, det)

    def _batch(
        self, kind: int, omega: Array, precision: Array, width: Array, *, s: float, beta: float
    ) -> _Batch:
        """The lattice of a batch: steps from the widths, a table that covers every window.

        The largest exponent is at least −βH(ω), its value at ω: no node counts whose Gaussian is
        more than DEPTH below that.
        """
        steps = lattice_steps(self.problem, kind, s)
        H = self.problem.energies(*(omega @ _TURN).T)[kind]
        radius = np.sqrt(2 * (_DEPTH + beta * H))
        reach = (np.abs(omega) + radius[:, None] * width).max(0) + 8 * steps
        check_size(reach, steps)
        last = np.ceil(reach / steps).astype(np.int64)
        table = self._energies(kind, steps, last)
        return _Batch(omega, precision, width, radius, steps, last, table)

    def _energies(self, kind: int, steps: Array, last: Integers) -> Array:
        """H of one kind of pairs on the nodes −last … last of both axes, shape (r, t)."""
        r, t = (h * np.arange(-k, k + 1.0) for h, k in zip(steps, last, strict=True))
        H = np.empty((r.size, t.size))
        for i in range(0, r.size, _ROWS):
            rows = r[i : i + _ROWS, None]
            z1, z2 = (t + rows) / math.sqrt(2), (t - rows) / math.sqrt(2)
            H[i : i + _ROWS] = self.problem.energies(z1, z2)[kind]
        return H


def _sums(batch: _Batch, beta: float) -> tuple[Array, Array]:
    """Σ over nodes of weight × (9 monomials of the distances, H), and the exponent taken out."""
    start, counts = _windows(batch, beta)
    sums, level = np.empty((len(start), 10)), np.empty(len(start))
    for which in _chunks(counts.prod(1), _CHUNK):
        most = counts[which].max(0)
        first = np.minimum(start[which], batch.last + 1 - most)
        e, H, (r, t) = batch.exponents(which, first, most, np.ones(2, np.int64))
        if beta:
            e -= beta * H
        top = e.max((1, 2))
        e -= top[:, None, None]
        np.exp(e, out=e)
        right = np.stack([np.ones_like(t), t, t**2], -1)
        left = np.stack([np.ones_like(r), r, r**2], -2)
        sums[which, :9] = (left @ (e @ right)).reshape(-1, 9)
        sums[which, 9] = np.einsum("prt,prt->p", e, H)
        level[which] = top + math.log(batch.steps.prod())
    return sums, level


def _windows(batch: _Batch, beta: float) -> tuple[Integers, Integers]:
    """First node and number of nodes, along r and t, of the window of every pair.

    Within the distance from ω at which a node can count at all, every few nodes are looked at.
    """
    start, counts = np.empty((2, len(batch.omega), 2), np.int64)
    centre = np.rint(batch.omega / batch.steps).astype(np.int64)
    span = np.ceil(_radius(batch, beta)[:, None] * batch.width / batch.steps).astype(np.int64) + 1
    for which in _chunks((2 * span // _STRIDES).prod(1), _CHUNK):
        half = span[which].max(0)
        n = 2 * half // _STRIDES + 1
        first = np.clip(centre[which] - half, -batch.last, batch.last - (n - 1) * _STRIDES)
        e, H, _ = batch.exponents(which, first, n, _STRIDES)
        e -= beta * H
        counted = e > e.max((1, 2))[:, None, None] - _DEPTH
        for axis, stride in enumerate(_STRIDES):
            any_ = counted.any(2 - axis)
            # One more of the nodes looked at on either side: what counts may begin just beyond it.
            begin = first[:, axis] + stride * (any_.argmax(1) - 1)
            end = first[:, axis] + stride * (n[axis] - any_[:, ::-1].argmax(1))
            start[which, axis] = np.maximum(begin, -batch.last[axis])
            counts[which, axis] = np.minimum(end, batch.last[axis]) - start[which, axis] + 1
    return start, counts


def _chunks(sizes: Integers, most: int) -> Iterator[Integers]:
    """Indices in groups of similar size, of about ``most`` nodes each."""
    order = np.argsort(sizes, kind="stable")
    done = 0
    while done < order.size:
        take = max(1, int(most // sizes[order[done]]))
        yield order[done : done + take]
        done += take


def _radius(batch: _Batch, beta: float) -> Array:
    """√(2(DEPTH − best exponent)), the best exponent being looked for along r through ω."""
    stride = int(batch.radius.max() * batch.width[:, 0].max() / batch.steps[0]) // 24 + 1
    centre = np.rint(batch.omega / batch.steps).astype(np.int64)
    r = np.clip(centre[:, :1] + stride * np.arange(-12, 13), -batch.last[0], batch.last[0])
    H = batch.H[r + batch.last[0], centre[:, 1:] + batch.last[1]]
    d_r = r * batch.steps[0] - batch.omega[:, :1]
    d_t = centre[:, 1:] * batch.steps[1] - batch.omega[:, 1:]
    a, b, c = (batch.precision[:, i, j, None] for i, j in ((0, 0), (0, 1), (1, 1)))
    e = -(a * d_r**2 + 2 * b * d_r * d_t + c * d_t**2) / 2 - beta * H
    nearer: Array = np.minimum(np.sqrt(2 * (_DEPTH - e.max(1))), batch.radius)
    return nearer


def _assemble(sums: Array, level: Array, precision: Array, det: Array) -> Moments:
    """Moments of the distances in the turned plane → ln Z, f, ∂f in the plane of the pair."""
    Z = sums[:, 0]
    _, t, tt, r, rt, _, rr, _, _, energy = (sums / Z[:, None]).T
    mean = np.stack([r, t], -1)
    second = np.stack([np.stack([rr, rt], -1), np.stack([rt, tt], -1)], -2)
    covariance = second - mean[:, :, None] * mean[:, None, :]
    f = (precision @ mean[:, :, None])[:, :, 0]
    df = precision @ covariance @ precision - precision
    log_z = np.log(Z) + level - np.log(2 * math.pi * np.sqrt(det))
    return Moments(log_z, f @ _TURN, _TURN.T @ df @ _TURN, energy)
