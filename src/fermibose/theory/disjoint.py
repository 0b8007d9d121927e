"""Disjoint pairs: the nodes that a state needs, and averages over pairs and field on them.

Axes and channel are chosen from the widths of the two Gaussians of a state.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from fermibose.theory.channel import (
    SQRT2,
    THIN,
    Axis,
    Channel,
    GaussianChannel,
    Response,
    kept_average,
    kept_table,
)
from fermibose.theory.deposit import deposit_step, deposited_table
from fermibose.theory.moreau import MoreauChannel
from fermibose.theory.problem import Array, Function, Problem
from fermibose.theory.solution import Overlaps

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_TAIL = (5.5, 5.0)  # widths of the field ω that a fine and a coarse grid cover
# Thermal widths s that the table of H extends beyond a wide field, and widths of both Gaussians
# together that it covers at least, on a fine and on a coarse grid.
_REACH, _TOGETHER = (4.5, 4.0), (6.0, 5.5)
_MORE = 1.0  # widths of the field beyond that where it has no mean: what ends there is 1e-10 of it
_BLIND = 2.0  # distance of nodes, in units of 1/max φ′, at which a sum over them misses what φ does
_ROUGH = 2.0  # coarseness from which on a table too small for φ will do
_FURTHER = (1.5, 1.0)  # thermal widths more where the table is deposited, and small
_PLAIN = 0.04  # step of a field that is not graded
_NARROW = 0.4  # width of a field that meets no competing minima but those on the axes
_GRADING = 1.5  # nodes over which steps grow, by the root of how much they grow
_LADDER = 1.1  # ratio of the steps of tables that follow s
# Part of c down to which an average taken beforehand leaves the channel as it is, to 1e-8
# (test_a_table_averaged_beforehand_is_the_same_channel).
LEAST_BLURRED = 0.7
_PAYS = 1.5  # times as many nodes of a table that pay for an average taken beforehand

# Chosen by reason.
_MIDDLE = 12  # nodes beside 0 that the end corrections there need, thinned too
_FIELDS, _TABLE = 700, 1100  # most nodes along an axis of ω and of the table: 1100² are 10 MB


@dataclass(frozen=True)
class Lattice:
    """Nodes for the field ω, the channel evaluated there, and the states they are good for."""

    r: Axis
    t: Axis
    channel: Channel
    reach: float  # largest field on the nodes
    tail: float  # the same, in widths of the field beyond its mean
    width: float  # Δ√Q the nodes were made for
    c: float  # Δ²χ the nodes were made for
    resolves: bool  # whether nodes are close enough for φ, and for the Gaussians around them
    hole: tuple[float, float] = (0.0, 0.0)  # fields between these two have no nodes
    end: float = math.inf  # the largest field where it has no mean
    least: float = 0.6  # part of c down to which the channel is good

    @property
    def full(self) -> bool:
        """Whether the field has as many nodes as it may: a finer lattice would be the same."""
        return self.r.nodes.size >= _FIELDS

    def covers(self, problem: Problem, overlaps: Overlaps) -> bool:
        """Whether the state's field is inside the nodes and no narrower than they resolve."""
        mean, width = _field(problem, overlaps)
        c = problem.delta**2 * overlaps.chi
        tail = 0.9 * self.tail * width
        inside = mean + tail <= self.reach <= mean + 2 * self.tail * width
        inside = inside and tail + _MORE * width <= self.end
        if self.hole[0] < self.hole[1]:
            inside = inside and tail <= self.hole[0] and mean - tail >= self.hole[1]
        return inside and width >= 0.7 * self.width and self.least * self.c <= c <= 1.8 * self.c


def make_lattice(
    problem: Problem,
    overlaps: Overlaps,
    *,
    coarseness: float = 1.0,
    fineness: float = 1.0,
    widest: float = math.inf,
    everywhere: bool = False,
) -> Lattice:
    """The lattice for a state; coarseness > 1 takes wider steps everywhere, and ends earlier.

    fineness: what the steps of the field are divided by. widest: an upper bound on them.
    everywhere: whether the channel is needed where the field has no weight, too.
    """
    mean, width = _field(problem, overlaps)
    c = problem.delta**2 * overlaps.chi
    short = int(coarseness > 1)
    tail = _TAIL[short]
    reach = mean + tail * width
    folded = problem.odd
    s = math.sqrt(c / problem.beta)
    z_reach = max(
        reach, min(reach / 2 + math.sqrt(c * problem.d_f), _contact(problem.phi, problem.d_f))
    )
    z_reach += max(_REACH[short] * s, _TOGETHER[short] * math.hypot(width, s) - tail * width)
    steep = problem.steepness  # where φ is steep all lengths count for more
    steps = _steps(problem, steep * mean, steep * width, steep * s)
    step, finest, z_step = (length / steep for length in steps)
    step, finest = coarseness / fineness * step, coarseness / fineness * finest
    step = max(min(step, width / 1.6, widest), coarseness * reach / _FIELDS)
    least = z_reach / _TABLE
    wide = 2 * z_step < least and s > 0 and coarseness < _ROUGH
    wide = wide and deposit_step(problem, z_reach, s) >= least
    z_end = z_reach
    if wide:
        z_step, z_reach = deposit_step(problem, z_reach, s), z_reach + _FURTHER[short] * s
        z_end = z_reach + 4 * coarseness * z_step
    z_step = coarseness * max(z_step, least)
    resolves = wide or z_step * steep < _BLIND * coarseness
    resolves = resolves and step < coarseness * max(s, 1 / steep)
    z_r = Axis.uniform(z_step, z_end)
    z_t = z_r if folded else Axis.uniform(z_step, z_end, folded=False)
    if problem.zero_temperature:
        # A narrow field is near 0 along one axis and near its mean along the other.
        hole = max(1.5 * tail * width, _MIDDLE * step), mean - 2 * tail * width
        windows = [(-reach, -hole[1]), (-hole[0], hole[0]), (hole[1], reach)]
        r = Axis.one_sided(step, reach).within(*windows)
        t = Axis.uniform(step, reach, folded=folded).within(*windows)
        zero = MoreauChannel(problem, at=(r, t), on=(z_r, z_t))
        return Lattice(r, t, zero, reach, tail, width, c, resolves, hole)
    finest = min(step, finest)
    r = Axis.graded(step, finest, reach, width=max(8.0, _GRADING * math.sqrt(step / finest)))
    r = r.ending(reach) if short else r
    # Without symmetry there is no knowing where along t two minima compete.
    plain = coarseness * _PLAIN / steep
    t = r if folded else Axis.uniform(min(step, plain), reach, folded=False)
    on, variance, least = (z_r, z_t), 0.0, Lattice.least
    if wide:
        table = deposited_table(problem, z_r, z_t, reach=z_reach, s=s, coarseness=coarseness)
    elif coarseness < _ROUGH and _PAYS * z_step < THIN * s:
        table, blur = kept_average(problem, z_r, z_t, _rung(s))
        on, variance, least = blur.on, blur.variance, LEAST_BLURRED
    else:
        table = kept_table(problem, z_r, z_t)
    end = math.inf if everywhere else (tail + _MORE) * width
    warm = GaussianChannel(table, problem.beta, at=(r, t), on=on, variance=variance, end=end)
    return Lattice(r, t, warm, reach, tail, width, c, resolves, end=end, least=least)


def _steps(problem: Problem, mean: float, width: float, s: float) -> tuple[float, float, float]:
    """Steps of the field, of the field at r = 0 and t = 0, and of the table of H, where φ′ <= 1.

    The force changes over a width of order s² where minima of the energy compete: at r = 0 for
    fermion pairs (which member goes up?), at t = 0 for boson pairs (which one crosses over?), and
    on curves that need not be resolved as finely: the field meets them at an angle, or hardly at
    all when it is narrow. e^{−βH} has ridges of width 1/√(2β) and the
    corner of the hinge, under a Gaussian of width s. At zero temperature the table only chooses
    among minima.
    """
    if problem.zero_temperature:
        return min(0.05, width / 5), 0.05, 0.08
    ridge = min(0.05, max(0.03, 0.25 / math.sqrt(problem.beta)))
    corner = max(0.012, math.sqrt(problem.softness) / 2.5)
    apart = min(1.0, max(0.0, mean / width - 1))
    wide = min(0.1 - 0.035 * apart, max(0.065, s / 2.5))
    smooth = min(max(wide, s / 5), max(0.025, 3 * s**2))
    narrow = width / 2.5 if width < _NARROW else 0.0
    return max(smooth, narrow), min(s**2 / 3, s / 10), min(_rung(s / 4), ridge, corner)


def _rung(length: float) -> float:
    """The length, or up to a tenth less: states alike have tables of one step, made once."""
    return float(_LADDER ** math.floor(math.log(length, _LADDER))) if length > 0 else 0.0


def _field(problem: Problem, overlaps: Overlaps) -> tuple[float, float]:
    """Mean (along r or t) and width of the field ω."""
    return SQRT2 * problem.m * abs(overlaps.M), problem.delta * math.sqrt(overlaps.Q)


@lru_cache(maxsize=64)
def _contact(phi: Function, d_f: float) -> float:
    """The r beyond which a fermion pair at t = 0 is pushed no further out."""
    r = np.linspace(0, 40, 401)
    d2 = (phi(r / SQRT2) - phi(-r / SQRT2)) ** 2
    free = (d2 >= d_f + 0.3) | (d2 >= d2[-1] * (1 - 1e-4))
    return float(r[int(np.argmax(free))])


@dataclass(frozen=True)
class Averages:
    """Averages over pairs and over the field ω."""

    free: Callable[[], float]  # E F: most steps of the equations do without
    force: float  # E[y·∇F]
    force2: float  # E|∇F|²
    slope: float  # E[v·∇F]
    stiffness: float  # E[y·∇²F y]: how fast the force along the labels grows with m M
    residual: float = 0.0  # of what had to be solved on the way

    @cached_property
    def F(self) -> float:
        """E F."""
        return self.free()


class PairMeasure:
    """The law of ω on the grid: mean y m M, width Δ√Q, boson pairs with weight ρ."""

    def __init__(self, problem: Problem, r: Axis, t: Axis, *, M: float, Q: float) -> None:
        mean, width = SQRT2 * problem.m * M, problem.delta * math.sqrt(Q)
        self.width = width
        self._kinds = problem.bosons, 1 - problem.bosons
        # A boson pair has its mean along t and a fermion pair along r.
        self._r = [r.gaussian(0.0, width), r.gaussian(mean, width)]
        self._t = self._r[::-1] if t is r else [t.gaussian(mean, width), t.gaussian(0.0, width)]

    def mean(self, g: Array) -> float:
        """E g of a function even in r, g of shape (2, r, t)."""
        return self._sum(*(r[0] @ x @ t[0] for r, t, x in zip(self._r, self._t, g, strict=True)))

    def forces(self, g_r: Array, g_t: Array) -> tuple[float, float, float]:
        """E[y₁g₁ + y₂g₂] of a vector field, E[v·g], and its part along the labels, E[(y·v)(y·g)].

        Along the labels is along t for bosons and along r for fermions, by √2.
        """
        (r_b, r_f), (t_b, t_f) = self._r, self._t
        bosons, fermions = r_b[0] @ g_t[0], g_r[1] @ t_f[0]
        labels = self._sum(bosons @ t_b[1], r_f[1] @ fermions)
        along = self._sum(bosons @ t_b[2], r_f[2] @ fermions)
        across = self._sum(r_b[2] @ g_r[0] @ t_b[0], r_f[0] @ g_t[1] @ t_f[2])
        return SQRT2 * labels, along + across, 2 * along

    def _sum(self, bosons: float, fermions: float) -> float:
        return float(self._kinds[0] * bosons + self._kinds[1] * fermions)


def averages(channel: Channel, measure: PairMeasure, *, c: float) -> Averages:
    """Everything the saddle-point equations need, at stiffness c = Δ²χ."""
    pair = channel.effective(c)
    g_r, g_t, force2 = pair.weighted
    force, slope, label_slope = measure.forces(g_r, g_t)
    return Averages(
        free=lambda: measure.mean(pair.weighted_F),
        force=force,
        force2=measure.mean(force2),
        slope=slope,
        stiffness=label_slope / measure.width,
    )


class Disjoint:
    """What the saddle-point equations need of disjoint pairs, on a lattice made for a state."""

    def __init__(
        self,
        problem: Problem,
        state: Overlaps,
        *,
        coarseness: float = 1.0,
        fineness: float = 1.0,
    ) -> None:
        self.problem = problem
        self.lattice = make_lattice(problem, state, coarseness=coarseness, fineness=fineness)
        self._last: tuple[Overlaps, Averages] | None = None
        self._measure: tuple[tuple[float, float], PairMeasure] | None = None
        self._response: tuple[float, Response] | None = None
        self._energy: tuple[float, Array] | None = None

    @property
    def resolves(self) -> bool:
        """Whether nodes are close enough for φ, and for the Gaussians around them."""
        return self.lattice.resolves

    @property
    def full(self) -> bool:
        """Whether a finer lattice would be the same."""
        return self.lattice.full

    def covers(self, state: Overlaps) -> bool:
        """Whether the lattice is good for a state."""
        return self.lattice.covers(self.problem, state)

    def averages(self, state: Overlaps) -> Averages:
        """All that the equations need; kept for the last state."""
        if self._last is None or self._last[0] != state:
            found = averages(self.lattice.channel, self.measure(state), c=self._c(state))
            self._last = (state, found)
        return self._last[1]

    def stiffness(self, state: Overlaps) -> float:
        """E[y·∇²F y]."""
        return self.averages(state).stiffness

    def measure(self, state: Overlaps) -> PairMeasure:
        """The law of the field."""
        key = (state.M, state.Q)
        if self._measure is None or self._measure[0] != key:
            r, t = self.lattice.r, self.lattice.t
            self._measure = (key, PairMeasure(self.problem, r, t, M=state.M, Q=state.Q))
        return self._measure[1]

    def response(self, state: Overlaps) -> Response:
        """∇²F."""
        c = self._c(state)
        if self._response is None or self._response[0] != c:
            self._response = (c, self.lattice.channel.response(c))
        return self._response[1]

    def curvature(self, state: Overlaps, *, field: Overlaps | None = None) -> float:
        """E‖∇²F‖² at the response of one state, and the field of that or of another one."""
        return self.measure(field or state).mean(self.response(state).squared_norm)

    def thin_curvature(self, state: Overlaps) -> float:
        """The same on every second node."""
        r, t = self.lattice.r.thinned(), self.lattice.t.thinned()
        thin = PairMeasure(self.problem, r, t, M=state.M, Q=state.Q)
        return thin.mean(self.response(state).squared_norm[:, ::2, ::2])

    def growth(self, state: Overlaps) -> float:
        """lim E‖∇²F‖²/β for β → ∞; 0 at finite temperature."""
        growth = self.response(state).growth
        return 0.0 if growth is None else self.measure(state).mean(growth)

    def lost(self, state: Overlaps) -> float:
        """The weight of the fields at which floating point has lost Z."""
        lost = self.lattice.channel.lost(self._c(state))
        return 0.0 if lost is None else self.measure(state).mean(lost)

    def energy(self, state: Overlaps) -> float:
        """Mean H of a training pair."""
        c = self._c(state)
        if self._energy is None or self._energy[0] != c:
            self._energy = (c, self.lattice.channel.energy(c))
        return self.measure(state).mean(self._energy[1])

    def _c(self, state: Overlaps) -> float:
        return self.problem.delta**2 * state.chi
