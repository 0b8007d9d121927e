r"""The channel at finite temperature: what a pair does to the Gaussian field it feels, on nodes.

With ω the mean and c/β the variance of the two pre-activations of a pair,

.. math:: F(ω) = -\tfrac1β \ln Z(ω), \qquad Z(ω) = \int dz\, N(z; ω, (c/β)\,1)\, e^{-βH(z)},

so that ln Z = −βF, f = ∇ln Z = −β∇F and Hess = ∇²ln Z = −β∇²F. Written for F, the limit β → ∞ is
the Moreau envelope F = min_z {|z−ω|²/2c + H(z)} of :mod:`fermibose.theory.moreau`, which offers the
same methods. Z is a separable Gaussian convolution of a table of e^{−βH}: products of matrices.

The pair plane is turned by 45°: r = (ω₁ − ω₂)/√2, t = (ω₁ + ω₂)/√2. A Gaussian of equal widths
stays separable, exchanging the two members of a pair is r → −r, and the ridge of the fermion energy
(D = 0, where forces change over a width of order s²) lies at r = 0, where one axis can be graded.

Along a curve the energy of a pair rarely changes, only what surrounds it: the last tables are kept.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from fermibose.theory.problem import Array, Function, Problem

SQRT2 = math.sqrt(2.0)
_GREGORY = np.array([95 / 288, 317 / 240, 23 / 30, 793 / 720, 157 / 160])  # weights at an end

_ROWS = 32  # of a table evaluated at a time: small arrays stay in the cache
_BLOCK = 64  # sizes of kept tables are multiples of this: a state may grow and find its own again
_LARGEST = 512  # nodes along an axis beyond which a table, 8 MB there, is too large to be kept
_KEPT = 12  # tables, one for each distance of nodes: a bound of their memory
_AVERAGED = 48  # tables averaged beforehand, which are smaller: one for each width too

_LIFT = 320.0  # added to the exponents −βH: most of the range of floating point is above 1
# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_BLUR = 0.4  # part of the variance s² that a table is averaged with beforehand
THIN = 0.35  # step of what remains, in units of s

_TINY = 1e-290  # Z below this has left the range of floating point
_LEAST = -690.0  # exponents below this count as −∞: products of denormal numbers are slow


@dataclass(frozen=True)
class Axis:
    """Nodes and weights with Σ w g(x) ≈ ∫ g over all of the line, for even g if ``folded``.

    A folded axis keeps x >= 0 only.
    """

    nodes: Array  # (n,), increasing
    weights: Array  # (n,)
    folded: bool
    step: float | None = None  # distance of the nodes, if they are the multiples of one
    kinked: bool = False  # whether the first weights are Gregory's, for a kink at 0

    @classmethod
    def uniform(cls, step: float, reach: float, *, folded: bool = True) -> "Axis":
        """Trapezoidal rule with equal steps up to ``reach`` (from −reach if not folded)."""
        count = math.ceil(reach / step)
        if not folded:
            nodes = step * np.arange(-count, count + 1.0)
            return cls(nodes, np.full(nodes.size, step), folded, step)
        return cls.graded(step, step, reach, width=1.0)

    @classmethod
    def graded(cls, step: float, finest: float, reach: float, *, width: float) -> "Axis":
        """Folded trapezoidal rule whose steps grow smoothly from ``finest`` at 0 to ``step``.

        The map x(u) = step·u − (step − finest)·width·tanh(u/width) is analytic and odd, so the rule
        keeps the exponential convergence of equal steps.
        """
        drop = step - finest
        u = np.arange(math.ceil((reach + drop * width) / step) + 1.0)
        nodes = step * u - drop * width * np.tanh(u / width)
        weights = 2 * (step - drop * (1 - np.tanh(u / width) ** 2))
        weights[0] /= 2
        return cls(nodes, weights, True, step if drop == 0 else None)

    @classmethod
    def one_sided(cls, step: float, reach: float) -> "Axis":
        """Folded equal steps with Gregory's end corrections, for functions with a kink at 0."""
        nodes = step * np.arange(math.ceil(reach / step) + 6.0)
        weights = np.full(nodes.size, 2 * step)
        weights[:5] *= _GREGORY
        return cls(nodes, weights, True, kinked=True)

    def unfolded(self) -> "Axis":
        """The same nodes on both sides of 0."""
        nodes = np.concatenate([-self.nodes[:0:-1], self.nodes])
        half = self.weights / 2
        weights = np.concatenate([half[:0:-1], self.weights[:1], half[1:]])
        return Axis(nodes, weights, folded=False)

    def thinned(self) -> "Axis":
        """Every second node, with the weights of the same rule."""
        weights = 2 * self.weights[::2]
        if self.kinked:
            weights[:5] = weights[5] * _GREGORY
        return Axis(self.nodes[::2], weights, self.folded, kinked=self.kinked)

    def ending(self, reach: float) -> "Axis":
        """The same axis, scaled so that its last node is at ``reach``."""
        scale = reach / float(self.nodes[-1])
        step = None if self.step is None else scale * self.step
        return replace(self, nodes=scale * self.nodes, weights=scale * self.weights, step=step)

    def within(self, *windows: tuple[float, float]) -> "Axis":
        """The nodes inside any of the windows, in stretches that :meth:`thinned` leaves in step."""
        keep = np.zeros(self.nodes.size, dtype=bool)
        for low, high in windows:
            first, last = np.searchsorted(self.nodes, (low, high))
            keep[first // 2 * 2 : (last + 1) // 2 * 2] = True
        return replace(self, nodes=self.nodes[keep], weights=self.weights[keep], step=None)

    @property
    def adjacent(self) -> NDArray[np.bool_]:
        """Which pairs of nodes that follow each other are neighbours, with no gap between them."""
        gaps = np.diff(self.nodes)
        adjacent: NDArray[np.bool_] = gaps < 1.5 * gaps[0]
        return adjacent

    def gaussian(self, mean: float, width: float) -> tuple[Array, Array, Array]:
        """Weights of Gaussian averages over x = y·mean + width·v with both signs y = ±1.

        Returns (even, odd, slope) with Σ even·g = E g, Σ odd·g = E y g and Σ slope·g = E v g.
        """
        scale = self.weights / (2 * width * math.sqrt(2 * math.pi))
        if mean == 0:
            x = self.nodes / width
            even = np.exp(-(x**2) / 2) * (2 * scale)
            return even, np.zeros_like(even), x * even
        plus, minus = (self.nodes - mean) / width, (self.nodes + mean) / width
        a, b = np.exp(-(plus**2) / 2) * scale, np.exp(-(minus**2) / 2) * scale
        return a + b, a - b, plus * a + minus * b


def pair_values(phi: Function, r: Axis, t: Axis) -> tuple[Array, Array]:
    """φ(z₁) and φ(z₂) at z = (t ± r)/√2 for every node of r × t: read-only views.

    Where r is folded and all nodes are multiples of one step they share their values: φ is
    evaluated along a line.
    """
    if not r.folded or r.step is None or r.step != t.step:
        z_r, z_t = r.nodes[:, None], t.nodes
        return phi((z_t + z_r) / SQRT2), phi((z_t - z_r) / SQRT2)
    first, rows, columns = round(t.nodes[0] / t.step), r.nodes.size, t.nodes.size
    line = phi(np.arange(first - rows + 1.0, first + rows + columns - 1) * (t.step / SQRT2))
    windows = sliding_window_view(line, columns)
    return windows[rows - 1 :], windows[rows - 1 :: -1]


@dataclass(frozen=True)
class Table:
    """What a channel at inverse temperature β needs of the energy H of boson and fermion pairs."""

    weight: Array  # e^{_LIFT − β(H − lowest)}, shape (2, r, t)
    weighted: Array  # H × weight
    lowest: float  # least H
    span: float  # greatest H − lowest

    @classmethod
    def of(cls, H: Array, beta: float) -> "Table":
        """From energies."""
        lowest, highest = float(H.min()), float(H.max())
        weight = H - lowest
        weight *= -beta
        weight += _LIFT
        np.exp(weight, out=weight)
        return cls(weight, H * weight, lowest, highest - lowest)

    def part(self, r: Axis, t: Axis) -> "Table":
        """The middle of a table on larger axes of the same equal steps."""
        assert t.step is not None
        first = 0 if t.folded else self.weight.shape[1] - 1 + round(t.nodes[0] / t.step)
        part = np.s_[:, : r.nodes.size, first : first + t.nodes.size]
        return replace(self, weight=self.weight[part], weighted=self.weighted[part])


# The last one used comes last.
_TABLES: dict[tuple[Problem, float, bool], Table] = {}
_AVERAGES: dict[tuple[Problem, float, bool, float, float | None, int], Table] = {}


def pair_table(problem: Problem, r: Axis, t: Axis) -> Array:
    """H of boson and fermion pairs on the nodes of the rotated plane, shape (2, r, t)."""
    phi1, phi2 = pair_values(problem.phi, r, t)
    H = np.empty((2, *phi1.shape))
    for i in range(0, r.nodes.size, _ROWS):
        rows = slice(i, i + _ROWS)
        H[:, rows] = problem.energies_apart((phi1[rows] - phi2[rows]) ** 2)
    return H


def kept_table(problem: Problem, r: Axis, t: Axis) -> Table:
    """The table of a problem on axes of equal steps, from one already made if there is one."""
    assert r.step is not None
    size = -(-r.nodes.size // _BLOCK) * _BLOCK
    if size > _LARGEST:
        return Table.of(pair_table(problem, r, t), problem.beta)
    key = (_pair(problem), r.step, t.folded)
    kept = _TABLES.pop(key, None)  # and in again, as the last one used
    if kept is None or kept.weight.shape[1] < size:
        kept = Table.of(pair_table(key[0], *_whole(size, r.step, t.folded)), problem.beta)
    _TABLES[key] = kept
    for oldest in list(_TABLES)[:-_KEPT]:
        del _TABLES[oldest]
    return kept.part(r, t)


def kept_average(problem: Problem, r: Axis, t: Axis, s: float) -> "tuple[Table, Blur]":
    """The same, averaged beforehand for Gaussians of width s or more.

    One of another size would do, but not to the last bit: averages feel where a table ends.
    """
    assert r.step is not None
    blur = Blur((r, t), s)
    size = -(-r.nodes.size // _BLOCK) * _BLOCK
    if size > _LARGEST:
        return blur(kept_table(problem, r, t)), blur
    key = (_pair(problem), r.step, t.folded, blur.variance, blur.on[0].step, size)
    kept = _AVERAGES.pop(key, None)
    if kept is None:
        whole = _whole(size, r.step, t.folded)
        kept = Blur(whole, s)(kept_table(problem, *whole))
    _AVERAGES[key] = kept
    for oldest in list(_AVERAGES)[:-_AVERAGED]:
        del _AVERAGES[oldest]
    return kept.part(*blur.on), blur


def _whole(size: int, step: float, folded: bool) -> tuple[Axis, Axis]:
    """Axes of as many nodes as are kept."""
    reach = (size - 1.25) * step  # rounds up to size − 1 steps
    r = Axis.uniform(step, reach)
    return r, r if folded else Axis.uniform(step, reach, folded=False)


@lru_cache(maxsize=64)
def _pair(problem: Problem) -> Problem:
    """The problem without what H does not depend on."""
    return replace(problem, alpha=1.0, delta=1.0, weight_decay=1.0, m=1.0, rho=0.5)


def forget_tables() -> None:
    """Let the kept tables go."""
    _TABLES.clear()
    _AVERAGES.clear()


@dataclass(frozen=True)
class Effective:
    """F and its gradient on the grid; each of shape (2, r, t): boson, then fermion pairs."""

    free: Callable[[], Array]  # F: most steps of the equations do without
    r: Array  # ∂F/∂r
    t: Array  # ∂F/∂t
    force2: Array  # |∇F|²
    share: Array | None = None  # part of its cell a node stands for; not 1 beside a jump of ∇F
    kink: Array | None = None  # what a sum over nodes misses of F there, for F has no jump

    @cached_property
    def F(self) -> Array:
        """Of every node."""
        return self.free()

    @property
    def weighted_F(self) -> Array:
        """F as averages need it."""
        return self.F if self.kink is None else self.F + self.kink

    @property
    def weighted(self) -> tuple[Array, Array, Array]:
        """∂F/∂r, ∂F/∂t and |∇F|² as averages need them."""
        if self.share is None:
            return self.r, self.t, self.force2
        return self.r * self.share, self.t * self.share, self.force2 * self.share


@dataclass(frozen=True)
class Response:
    """∇²F where it exists, shapes as in :class:`Effective`."""

    rr: Array
    rt: Array
    tt: Array
    growth: Array | None = None  # lim ‖∇²F‖²/β for β → ∞: not 0 beside a jump of ∇F

    @cached_property
    def squared_norm(self) -> Array:
        """‖∇²F‖² (Frobenius), which does not change when the plane is turned."""
        norm: Array = self.rr**2 + 2 * self.rt**2 + self.tt**2
        return norm


class Channel(Protocol):
    """What the replica equations need to know about a pair."""

    def effective(self, c: float) -> Effective:
        """F and ∇F at stiffness c = Δ²χ."""

    def response(self, c: float) -> Response:
        """∇²F where it exists."""

    def energy(self, c: float) -> Array:
        """⟨H⟩, the mean energy of the pair."""

    def lost(self, c: float) -> Array | None:
        """1 where Z left the range of floating point, else 0; None if there is no Z."""


def gaussian_kernels(
    x: Axis, z: Axis, s: float, *, order: int, depth: float = math.inf, lift: float = 0.0
) -> Array:
    """Matrices K_j, j = 0 … order, with Σ_k K_j[i, k] g(z_k) = ∂ʲ/∂xʲ ∫ N(z; x_i, s²) g(z) dz.

    On a folded z-axis g is even and the mirror image of each node is added, as far as its Gaussian
    is above e^{−depth}. order is at most 2; lift multiplies everything by e^{lift}. The shape is
    (order + 1, x, z).
    """
    scale = z.weights / (s * math.sqrt(2 * math.pi)) / (2 if z.folded else 1)
    kernels = _gaussian(z.nodes - x.nodes[:, None], s, scale, order, lift)
    if z.folded:
        near = s * math.sqrt(2 * depth)
        i, k = np.searchsorted(x.nodes, near), np.searchsorted(z.nodes, near)
        mirror = _gaussian(-z.nodes[:k] - x.nodes[:i, None], s, scale[:k], order, lift)
        kernels[:, :i, :k] += mirror
    return kernels


def _gaussian(distance: Array, s: float, scale: Array, order: int, lift: float) -> Array:
    """A Gaussian of width s and its first derivatives with respect to its mean."""
    kernels = np.empty((order + 1, *distance.shape))
    d, g = np.divide(distance, s, out=distance), kernels[0]
    # In place: fresh memory costs as much as the arithmetic.
    np.multiply(d, d, out=g)
    g *= -0.5
    g += lift
    np.putmask(g, g < _LEAST, -np.inf)
    np.exp(g, out=g)
    g *= scale
    if order > 0:
        np.multiply(g, d, out=kernels[1])
        kernels[1] /= s
    if order > 1:
        kernels[2] = g * (d**2 - 1) / s**2
    return kernels


@dataclass(frozen=True)
class _Moments:
    """Of kinds of pairs with the same kernels: their products with the weights, Z, ∂_aZ/Z, ∂_bZ/Z.

    Along a the field has mean 0 and ends early: r for boson and t for fermion pairs. b: the other.
    """

    a: Array  # (order, a, z_a)
    b: Array  # (order, b, z_b)
    left: Array  # (kinds, a, z_b)
    left1: Array
    Z: Array  # (kinds, a, b), and the next two
    by_a: Array
    by_b: Array


class Blur:
    r"""A Gaussian average of a table taken beforehand, for all the wider ones asked for later.

    N(s²) is N(σ²) after N(s² − σ²), and what the first leaves is smooth: fewer nodes z′ do. Of

    .. math:: N(ω; z', s^2 - σ^2)\, N(z'; z, σ^2) = N(ω; z, s^2)\, N(z'; \cdot, σ^2 (1 - σ^2/s^2))

    the sum over z′ misses a part 2e^{−2π²σ²(1 − σ²/s²)/h²}, and since all terms of Z are positive,
    no Z misses more of itself: 2e-12 at the least s of a lattice, 1e-16 where it was made.
    """

    def __init__(self, on: tuple[Axis, Axis], s: float) -> None:
        """on: the axes of tables; s: the width that averages will have, or little less."""
        self._from, self._width = on, math.sqrt(_BLUR) * s
        self.variance = self._width**2
        r, t = (Axis.uniform(THIN * s, z.nodes[-1] + 3 * self._width, folded=z.folded) for z in on)
        self.on = (r, r if on[0] is on[1] else t)

    def __call__(self, table: Table) -> Table:
        """A table on fewer nodes."""
        r, t = (
            gaussian_kernels(x, z, self._width, order=0)[0]
            for x, z in zip(self.on, self._from, strict=True)
        )
        weight, weighted = r @ table.weight @ t.T, r @ table.weighted @ t.T
        return replace(table, weight=weight, weighted=weighted)


class GaussianChannel:
    """F, ∇F, ∇²F at inverse temperature beta on the nodes r × t, from a table of H on z × z'.

    table: (2, z_r, z_t), the energy of boson and fermion pairs. The channel's own F, on a grid, can
    be the table of another channel: that is one step of replica symmetry breaking.

    variance: of the Gaussian that the table has been averaged with beforehand. end: where the field
    ends along r for boson and along t for fermion pairs, which have no mean
    there; beyond it all is 0.
    """

    def __init__(
        self,
        table: Table | Array,
        beta: float,
        *,
        at: tuple[Axis, Axis],
        on: tuple[Axis, Axis],
        variance: float = 0.0,
        end: float = math.inf,
    ) -> None:
        self.beta = beta
        self._at, self._on = at, on
        self._alike = at[1] is at[0] and on[1] is on[0]  # both kinds have the same kernels
        self._table = table if isinstance(table, Table) else Table.of(table, beta)
        # Where a Gaussian is below this, no gain in energy can make it count.
        self._depth = 40 + beta * self._table.span
        self._variance = variance
        self._weights = self._by_kind(self._table.weight)
        self._parts = [_between(axis.nodes, end) for axis in at]
        self._kept: dict[float, tuple[list[_Moments], Effective]] = {}

    def effective(self, c: float) -> Effective:
        """F = −ln Z/β and ∇F = −∇Z/(βZ); kept for two c, so that differences along c find both."""
        if c not in self._kept:
            moments, lowest = self._moments(c), self._table.lowest
            along_a, along_b = (
                [by / -self.beta for by in each]
                for each in ([m.by_a for m in moments], [m.by_b for m in moments])
            )
            r, t = self._turned(along_a, along_b)

            def free() -> Array:
                return self._grid([lowest + (2 * _LIFT - np.log(m.Z)) / self.beta for m in moments])

            for old in list(self._kept)[:-1]:
                del self._kept[old]
            self._kept[c] = moments, Effective(free, r, t, r**2 + t**2)
        return self._kept[c][1]

    def response(self, c: float) -> Response:
        """∇²F = −(∇²Z/Z − ∇Z∇Zᵀ/Z²)/β."""
        moments, second = self._at_last(c), self._sides([k[2] for k in self._kernels(c, order=2)])
        aa, ab, bb = [], [], []
        for m, weight, (a, b) in zip(moments, self._weights, second, strict=True):
            aa += [(m.by_a**2 - (a @ weight @ m.b[0].T) / m.Z) / self.beta]
            ab += [(m.by_a * m.by_b - (m.left1 @ m.b[1].T) / m.Z) / self.beta]
            bb += [(m.by_b**2 - (m.left @ b.T) / m.Z) / self.beta]
        rr, tt = self._turned(aa, bb)
        return Response(rr, self._grid(ab), tt)

    def energy(self, c: float) -> Array:
        """⟨H⟩."""
        return self._mean(self._table.weighted, c)

    def lost(self, c: float) -> Array:
        """1 where Z left the range of floating point, else 0."""
        return self._grid([(m.Z <= _TINY).astype(float) for m in self._at_last(c)])

    def mean(self, g: Array, c: float) -> Array:
        """⟨g⟩ = ∫ N g e^{−βH} / Z of a table like that of H."""
        return self._mean(self._table.weight * g, c)

    def _mean(self, weighted: Array, c: float) -> Array:
        kinds = zip(self._at_last(c), self._by_kind(weighted), strict=True)
        return self._grid([(m.a[0] @ table @ m.b[0].T) / m.Z for m, table in kinds])

    def _at_last(self, c: float) -> list[_Moments]:
        self.effective(c)
        return self._kept[c][0]

    def _moments(self, c: float) -> list[_Moments]:
        sides = self._sides(self._kernels(c, order=1))
        return [_moments(w, a, b) for w, (a, b) in zip(self._weights, sides, strict=True)]

    def _kernels(self, c: float, *, order: int) -> tuple[Array, Array]:
        s = math.sqrt(c / self.beta - self._variance)
        (r, t), (z_r, z_t) = self._at, self._on
        along_r = gaussian_kernels(r, z_r, s, order=order, depth=self._depth, lift=_LIFT / 2)
        if self._alike:
            return along_r, along_r
        return along_r, gaussian_kernels(t, z_t, s, order=order, depth=self._depth, lift=_LIFT / 2)

    def _by_kind(self, table: Array) -> list[Array]:
        """A table with axis a first, both kinds together where they have the same kernels."""
        bosons, fermions = table[:1], table[1:].transpose(0, 2, 1)
        return [np.concatenate([bosons, fermions])] if self._alike else [bosons, fermions]

    def _sides(self, kernels: Sequence[Array]) -> list[tuple[Array, Array]]:
        """Kernels along r and t as kernels along a and b, of bosons and of fermions, or of both."""
        (r, t), (part_r, part_t) = kernels, self._parts
        sides = [(r[..., part_r, :], t), (t[..., part_t, :], r)]
        return sides[:1] if self._alike else sides

    def _grid(self, one: Sequence[Array], other: Sequence[Array] | None = None) -> Array:
        """What is known on a × b, on r × t: of bosons from ``one``, of fermions from ``other``."""
        grid = np.zeros((2, *(axis.nodes.size for axis in self._at)))
        grid[0, self._parts[0]] = one[0][0]
        grid[1, :, self._parts[1]] = (one if other is None else other)[-1][-1].T
        return grid

    def _turned(self, a: Sequence[Array], b: Sequence[Array]) -> tuple[Array, Array]:
        """What is known along a and along b, along r and t."""
        return self._grid(a, b), self._grid(b, a)


def _between(nodes: Array, end: float) -> slice:
    """The nodes in [−end, end]."""
    return slice(*(int(i) for i in np.searchsorted(nodes, (-end, end))))


def _moments(weights: Array, a: Array, b: Array) -> _Moments:
    # Both orders, and all kinds, in one product: large matrices multiply faster.
    count = a.shape[1]
    left = a.reshape(-1, a.shape[2]) @ weights
    both = left @ b[0].T
    left, left1 = left[:, :count], left[:, count:]
    Z = np.maximum(both[:, :count], _TINY)
    return _Moments(a, b, left, left1, Z, both[:, count:] / Z, (left @ b[1].T) / Z)
