r"""Zero temperature of samples that feel each other through all pairs.

Every sample meets so many others that it feels a potential, which is the same for all samples of
its label and made by all of them:

.. math:: h_a(z) = \sum_g s_g \int ρ_g(z')\, H_{a,l_g}(z, z')\, dz', \qquad
          z^*(ω) = \operatorname{argmin}_z \{(z-ω)^2/2c_g + h_{l_g}(z)\}

Group g is a share s_g of the samples; its fields ω are Gaussian and ρ_g is the law of z*(ω). With
ψ(z) = z²/2 + c h(z), z* is the slope of the conjugate of ψ: it runs over those z where ψ touches
its convex hull, and there ω(z) = z + c h′(z) gives every average as an integral over z,

.. math:: E f = \int f(z)\, p_g(ω(z))\, (1 + c h''(z))\, dz .

A straight piece of the hull, from a to b, is a jump of z* at the field where both ends tie.

At fixed h the averages are derivatives of E F, F = (z* − ω)²/2c + h(z*): by the mean, E g (with the
force g = h′(z*)), by the width, E[v g], by c, −E g²/2. The functional Σ s E F − ½⟨ρHρ⟩ is
stationary in h, so its total derivatives are the same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermibose.checks import number, whole
from fermibose.errors import InputError
from fermibose.theory.fixed_point import ConvergenceError, FixedPoint, Steps, iterate
from fermibose.theory.hull import Gap, contact, find_gaps
from fermibose.theory.panels import Panels, lay
from fermibose.theory.problem import Array, Problem, check_problem

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_REACH = 8.5  # widths of the field beyond which it has no weight
_RESOLVED, _COARSE = 2.5, 5.0  # widths of the field across a new panel, and across one to renew
_LAYINGS = 60  # of panels, at most; two are usual, a cold start of stiff samples needs more
_FOLLOWS = 1e3  # change of h″ that counts as much as 1 of h and h′
_DEPTH = 6  # steps that the acceleration remembers
# Change at which acceleration begins, part of plain steps that is taken, steps at most; only halved
_MANNERS = ((3e-3, 1.0, 200), (1e-5, 0.5, 600))
_LOST = 1e-7  # weight of a group that the nodes of a solution may miss; 1e-12 is usual
_SPILT = 1e-3  # and those of a state on the way to it
_MARGIN = 1.25  # of new panels, so that they serve a state nearby
_POINTS = 40  # of a field, in a cold start
_NUDGE = 0.5  # widths by which a cold start moves labels apart

# Chosen by reason.
_SHORTER = 0.7  # new panels where those of a solution have lost weight: again, until none has
_MOST = 250  # panels: a bound of time and memory, for there are matrices of all 4000 nodes


@dataclass(frozen=True)
class Group:
    """Samples of one true class and one assigned label, with Gaussian fields ω."""

    share: float  # fraction of all samples, > 0
    label: int  # 0, 1, …: the potential it feels, and how others see it
    mean: float  # of ω
    width: float  # standard deviation of ω, > 0
    c: float  # stiffness of (z − ω)²/2c, > 0

    def __post_init__(self) -> None:
        for name in ("share", "width", "c"):
            number(f"{name} of a group", getattr(self, name), above=0)
        number("mean of a group", self.mean)
        whole("label of a group", self.label, least=0)


class Jump(NamedTuple):
    """A field at which two minima tie."""

    field: float  # ω
    left: float  # z* on either side
    right: float
    density: float  # of ω


@dataclass(frozen=True)
class GroupAverages:
    """Averages over the fields of a group; F = (z* − ω)²/2c + h(z*) and g = F′ = h′(z*)."""

    F: float  # E F
    force: float  # E g
    force2: float  # E g²
    slope: float  # E[v g], v = (ω − mean)/width: jumps included
    curvature2: float  # E F″² away from jumps, F″ = h″/(1 + ch″)
    growth: float  # Σ γ³/6 · density over jumps of the force by γ: lim E F″²/β for β → ∞
    energy: float  # E h(z*)
    jumps: tuple[Jump, ...]


@dataclass(frozen=True, eq=False)
class Crowd:
    """A self-consistent state of the groups."""

    groups: tuple[Group, ...]
    averages: tuple[GroupAverages, ...]  # of each group
    panels: Panels
    masses: Array  # (labels, nodes): all samples of a label on the nodes
    lost: float  # greatest weight of a group that the nodes miss: a measure of their error
    residual: float  # greatest change of h and h′ in one undamped step
    iterations: int

    @property
    def pair_energy(self) -> float:
        """⟨ρHρ⟩ = Σ s s′ E E′ H, over ordered pairs: the energy of n samples is half of it, n."""
        return self.mean("energy")

    @property
    def functional(self) -> float:
        """Σ s E F − ½⟨ρHρ⟩."""
        return self.mean("F") - self.pair_energy / 2

    def mean(self, name: str) -> float:
        """An average over all samples."""
        each = zip(self.groups, self.averages, strict=True)
        return sum(g.share * float(getattr(a, name)) for g, a in each)

    def seen_by(self, groups: Sequence[Group]) -> "tuple[GroupAverages, ...]":
        """Averages of other groups in the same potentials."""
        field = _Field(self.panels.problem, tuple(groups), self.panels, symmetric=False)
        return field.placed(self.panels.potential(self.masses).ravel()).averages

    def potential(self, z: Array) -> Array:
        """h, h′ and h″ of every label: (3, labels, points)."""
        return self.panels.potential(self.masses, at=np.asarray(z, dtype=float))


def gather(
    problem: Problem,
    groups: Sequence[Group],
    *,
    start: Crowd | None = None,
    symmetric: bool = False,
    tol: float = 1e-10,
    coarseness: float = 1.0,
) -> Crowd:
    """Solve for the potentials that samples make for each other.

    start: a solution nearby. Without one labels start apart, so that fields of mean 0 too end
    polarised where they can. symmetric: of fields of mean 0, keep the potentials symmetric under
    z → −z (if φ is odd) and under the exchange of two labels (if they are equally frequent).
    tol: greatest change of h and h′ in one undamped step. coarseness: of the panels.
    """
    groups = _checked(problem, groups, symmetric)
    reach, length = _extent(problem, groups), _RESOLVED * coarseness
    if start is None:
        panels = lay(problem, _MARGIN * reach, coarseness=coarseness)
        potential = panels.potential(_cold(panels, groups, apart=not symmetric))
    else:
        panels = _kept(problem, groups, start)
        potential = panels.potential(start.masses)
        if panels.edges[-1] < reach:
            further = _laid(problem, groups, panels, potential, reach, length, coarseness)
            panels, potential = further, panels.potential(start.masses, at=further.nodes)
    count, lost = 0, _LOST ** (1 / coarseness)  # errors are powers of the length of panels
    for _ in range(_LAYINGS):
        field = _Field(problem, groups, panels, symmetric, coarseness)
        try:
            point: FixedPoint | None = _settled(field, potential, tol)
        except _Unresolved as unresolved:
            potential, point = unresolved.potential, None
        count += field.steps
        if point is not None:
            if not point.converged:
                break
            state = field.placed(point.x)
            if state.lost <= lost:
                return Crowd(
                    groups, state.averages, panels, state.masses, state.lost, point.residual, count
                )
            potential, length = point.x.reshape(potential.shape), _SHORTER * length
        finer = _laid(problem, groups, panels, potential, reach, length, coarseness)
        panels, potential = finer, panels.interpolate(potential, finer.nodes)
        if panels.edges.size > _MOST:
            break
    raise ConvergenceError(
        f"the potentials of {len(groups)} groups did not settle in {count} steps; "
        "give a start nearby, or a larger tol"
    )


def _settled(field: "_Field", potential: Array, tol: float) -> FixedPoint:
    """The fixed point near a potential: plain steps first, which grow what is unstable and no more.

    Accelerated too early, they would fall for saddle points and overshoot.
    """
    for close, damping, most in _MANNERS:
        point = iterate(
            field.step,
            potential.ravel(),
            history=Steps(_DEPTH),
            tol=tol,
            max_iterations=most,
            accelerate_below=close,
            damping=damping,
            largest_move=math.inf,
            unit=_unit,
        )
        if point.converged:
            break
    return point


def _unit(x: Array) -> Array:
    """What change of h, h′ and h″ counts as 1: h″ follows, and would outweigh the others."""
    return np.repeat([1.0, 1.0, _FOLLOWS], x.size // 3)


def _checked(problem: Problem, groups: Sequence[Group], symmetric: bool) -> tuple[Group, ...]:
    check_problem(problem)
    if problem.hinge is not None or problem.softness == 0:
        raise InputError("at zero temperature the energy must be smooth: use softness > 0 and no "
                         "hinge of your own")  # fmt: skip
    groups = tuple(groups)
    if not groups or not all(isinstance(g, Group) for g in groups):
        raise InputError("groups must be a list of at least one Group")
    total = sum(g.share for g in groups)
    if abs(total - 1) > 1e-9:
        raise InputError(f"the shares of all groups must add up to 1, these make {total:g}")
    if symmetric and any(g.mean != 0 for g in groups):
        raise InputError("symmetric=True is for fields of mean 0: other means break the symmetry")
    return groups


def _labels(groups: Sequence[Group]) -> int:
    return max(g.label for g in groups) + 1


def _extent(problem: Problem, groups: Sequence[Group]) -> float:
    """|z| that no sample exceeds: F ≤ h(ω), so that (z* − ω)² ≤ 2c h(ω)."""
    field = max(abs(g.mean) + _REACH * g.width for g in groups)
    span = float(np.ptp(problem.phi(np.linspace(-field, field, 101))))
    highest = float(problem.energies_apart(np.array([0.0, span**2])).max())
    return field + math.sqrt(2 * max(g.c for g in groups) * highest)


def _cold(panels: Panels, groups: Sequence[Group], *, apart: bool) -> Array:
    """Samples at z = ω; labels are moved apart, in the order of their means, to be polarised."""
    labels = _labels(groups)
    masses = np.zeros((labels, panels.nodes.size))
    centres = [(sum(g.share * g.mean for g in groups if g.label == k), k) for k in range(labels)]
    rank = {k: i - (labels - 1) / 2 for i, (_, k) in enumerate(sorted(centres))}
    v, weights = np.polynomial.hermite_e.hermegauss(_POINTS)
    for g in groups:
        shift = _NUDGE * 2 * rank[g.label] * g.width if apart else 0.0
        for z, weight in zip(g.mean + shift + g.width * v, weights / weights.sum(), strict=True):
            panel = panels.locate(float(z))
            basis = panels.basis(panel, np.array([z]))[0]
            masses[g.label, panels.rows(panel)] += g.share * weight * basis
    return masses


def _kept(problem: Problem, groups: Sequence[Group], start: Crowd) -> Panels:
    """The panels of a solution, with the energy of this problem."""
    if start.masses.shape[0] != _labels(groups):
        raise InputError("start has another number of labels than the groups")
    before = start.panels.problem
    same = ("d_f", "softness", "activation")
    if all(getattr(before, name) == getattr(problem, name) for name in same):
        return start.panels
    return Panels(problem, start.panels.edges)


def _laid(
    problem: Problem,
    groups: Sequence[Group],
    panels: Panels,
    potential: Array,
    reach: float,
    length: float,
    coarseness: float,
) -> Panels:
    """Panels that resolve the fields in given potentials: none is longer than so many widths."""

    def too_long(edges: Array) -> NDArray[np.bool_]:
        force = panels.interpolate(potential[1], edges)
        long = np.zeros(edges.size - 1, dtype=bool)
        for g in groups:
            v = (edges + g.c * force[g.label] - g.mean) / g.width
            long |= np.abs(np.diff(np.clip(v, -_REACH, _REACH))) > length
        return long

    return lay(problem, _MARGIN * reach, too_long, coarseness=coarseness)


def _normal(omega: Array, g: Group) -> Array:
    density: Array = np.exp(-(((omega - g.mean) / g.width) ** 2) / 2)
    return density / (g.width * math.sqrt(2 * math.pi))


@dataclass(frozen=True, eq=False)
class _State:
    """All groups in given potentials."""

    averages: tuple[GroupAverages, ...]
    masses: Array
    lost: float
    fine: bool  # whether the panels resolve every field


class _Unresolved(Exception):
    """The panels are too coarse for the fields in a potential."""

    def __init__(self, potential: Array) -> None:
        self.potential = potential


class _Field:
    """The map h → ρ → h of the groups on fixed panels."""

    def __init__(
        self,
        problem: Problem,
        groups: tuple[Group, ...],
        panels: Panels,
        symmetric: bool,
        coarseness: float = 1.0,
    ) -> None:
        self.groups, self.panels, self._coarsest = groups, panels, _COARSE * coarseness
        self.labels, self.steps = _labels(groups), 0
        self._even = symmetric and problem.odd
        here = sorted((g.share, g.label, g.mean, g.width, g.c) for g in groups)
        there = sorted((g.share, 1 - g.label, -g.mean, g.width, g.c) for g in groups)
        self._mirror = self.labels == 2 and problem.odd and here == there
        shares = [sum(g.share for g in groups if g.label == k) for k in range(self.labels)]
        self._exchange = symmetric and self.labels == 2 and shares[0] == shares[1]

    def step(self, x: Array) -> tuple[Array, float]:
        """The potential that samples make in a potential, and the change of h and h′."""
        self.steps += 1
        state = self.placed(x)
        old = x.reshape(3, self.labels, -1)
        if not state.fine or state.lost > _SPILT:
            raise _Unresolved(old)
        new = self._symmetrised(self.panels.potential(state.masses))
        return new.ravel(), float(np.abs(new[:2] - old[:2]).max())

    def _symmetrised(self, potential: Array) -> Array:
        reflected = potential[:, :, ::-1] * np.array([1.0, -1.0, 1.0])[:, None, None]
        if self._mirror:
            potential = (potential + reflected[:, ::-1]) / 2
            reflected = potential[:, ::-1]
        if self._even:
            potential = (potential + reflected) / 2
        if self._exchange:
            potential = (potential + potential[:, ::-1]) / 2
        return potential

    def placed(self, x: Array) -> _State:
        """Where the samples of all groups go in the potentials x."""
        nodes = self.panels.nodes.size
        potential = x.reshape(3, self.labels, nodes)
        masses, lost, fine, averages = np.zeros((self.labels, nodes)), 0.0, True, []
        for g in self.groups:
            own = potential[:, g.label]
            gaps = find_gaps(self.panels, own, g.c)
            points = contact(self.panels, own, gaps)
            z, (h, force, bend) = points.z, points.potential
            omega, stretch = z + g.c * force, 1 + g.c * bend
            mass = points.weights * _normal(omega, g) * stretch
            v = (omega - g.mean) / g.width
            averages.append(_averages(g, mass, v, h, force, bend, gaps))
            masses[g.label] += g.share * points.folded(mass)
            lost = max(lost, abs(1 - float(mass.sum())))
            fine = fine and points.steepest(np.clip(v, -_REACH, _REACH)) <= self._coarsest
        return _State(tuple(averages), masses, lost, fine)


def _averages(
    g: Group, mass: Array, v: Array, h: Array, force: Array, bend: Array,
    gaps: list[Gap],
) -> GroupAverages:  # fmt: skip
    jumps = tuple(Jump(omega, a, b, float(_normal(np.array(omega), g))) for a, b, omega in gaps)
    return GroupAverages(
        F=float(mass @ (g.c * force**2 / 2 + h)),
        force=float(mass @ force),
        force2=float(mass @ force**2),
        slope=float(mass @ (v * force)),
        curvature2=float(mass @ (bend / (1 + g.c * bend)) ** 2),
        growth=sum(((j.right - j.left) / g.c) ** 3 / 6 * j.density for j in jumps),
        energy=float(mass @ h),
        jumps=jumps,
    )
