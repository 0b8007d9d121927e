r"""All pairs of the training samples: each sample feels one potential, made by all the others.

With n = γN samples and energy (1/n) Σ_{i<j} H_ij a sample meets O(N) others at weight O(1/N) each:
what acts on it does not fluctuate. Samples of label a feel

.. math:: h_a(z) = \sum_{a'} \int dz'\, ρ_{a'}(z')\, H_{aa'}(z, z'),

with ρ_a the density of the pre-activations of samples of that label (∫ρ₊ + ∫ρ₋ = 1). The channel of
a sample is one-dimensional, and its tilted density makes ρ in turn: with ω = y m M + Δ√Q v,

.. math:: Z_a(ω) = \int dz\, N(z; ω, c/β)\, e^{-βh_a(z)}, \quad F = -\tfrac1β \ln Z, \quad
          ρ_a(z) = E_ω\Bigl[\frac{N(z; ω, c/β)\, e^{-βh_a(z)}}{Z_a(ω)}\Bigr] .

The equations of :mod:`fermibose.theory.replica` hold with α = γ/2 and a sample's averages counted
twice, a pair having two members:

.. math:: E[y·∇F] → 2E[yF'], \quad E|∇F|^2 → 2E[F'^2], \quad E[v·∇F] → 2E[vF'], \quad
          E\,F → 2E\,F - \langle ρHρ\rangle .

The last is stationary in ρ and h, and ⟨ρHρ⟩ is the mean energy of a pair. A label may be wrong:
then samples of both clusters feel h_a.

w → −w is a symmetry, which the potentials may break. They do where M > 0, and without a cluster
mean (m = 0) where samples can be learnt by heart. At M = 0 otherwise the symmetric potentials are
taken, so that M = 0 is a saddle point like that of disjoint pairs.
"""

import math
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lu_factor, lu_solve

from fermibose.theory.channel import Axis, gaussian_kernels
from fermibose.theory.disjoint import Averages
from fermibose.theory.fixed_point import ConvergenceError, FixedPoint, Step, Steps, iterate
from fermibose.theory.problem import Array, Problem
from fermibose.theory.solution import Overlaps

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_TAIL = (6.0, 5.4)  # widths of the field that a fine and a coarse grid cover
_REACH = (6.0, 5.4)  # thermal widths that z reaches further than the field and its displacement
_CORE = 2.5  # where φ changes, in units of 1/max φ′
_SMOOTH = 0.07  # distance of nodes of the field around 0 where it is smooth, in the same units
_COMPETING = 2.5  # −cF'' beyond which minima compete
_FELT = 2e-3  # the same times e^{−v²/2}, beyond which it matters
_NOISE = 0.4  # distance of nodes of the field in units of its width, at most
_ROOM = 1.15  # what a state's extent is multiplied by, so that it may grow
_COARSE = 2.0  # coarseness of grids that only search
_SETTLED = 1e-12  # change of the potentials in units of 1/β, at which they are consistent
_ROUGHLY = 1e-8  # the same on a grid that only estimates errors
_SEARCHED = 1e-5  # the same on a grid that only searches
_CLOSE = 1.0  # change, in the same units, from which on steps are accelerated
_DAMPING = 0.5  # undamped, potentials of cold samples overshoot
_DENSE = 300  # unknowns of potentials up to which Newton's matrix pays
_MEMORY = 6  # iterations that acceleration remembers
_MOVE = 1e-4  # of M in units of √q, for the slope of the force

# Chosen by reason.
_FIELDS, _POINTS = 900, 1400  # most nodes of the field and of z: a matrix of both takes 10 MB
_TRIES = 300  # iterations of the potentials, at most
_LIFT = 600.0  # added to the exponents −βh: most of the range of floating point is above 1
_LEAST = -690.0  # exponents below this count as −∞
_TINY = 1e-290  # Z below this has left the range of floating point
_BOTTOMLESS = -1e6  # a slope as good as −∞


Factor: TypeAlias = tuple[Array, NDArray[np.int32]]


@dataclass(frozen=True)
class Kind:
    """Samples of one cluster with one label."""

    share: float  # of all samples
    y: int  # ±1, the cluster
    label: int  # 0 for +, 1 for −: the potential they feel


def kinds(problem: Problem) -> list[Kind]:
    """The samples of a problem: of both clusters, rightly and wrongly labelled."""
    wrong, clusters = problem.mislabelled, ((1, problem.balance), (-1, 1 - problem.balance))
    right = [Kind(share * (1 - wrong), y, (1 - y) // 2) for y, share in clusters]
    return right + [Kind(share * wrong, y, (1 + y) // 2) for y, share in clusters if wrong]


@dataclass(frozen=True)
class Field:
    """Nodes of the noise v, and the field ω = mM + Δ√Q v of the cluster y = 1 at each.

    The cluster y = −1 is looked at in a mirror, z → −z: it has the same field there.
    """

    v: Array
    weight: Array  # Σ weight·g = E g
    axis: Axis  # with nodes ω
    width: float  # Δ√Q

    @classmethod
    def of(
        cls,
        problem: Problem,
        state: Overlaps,
        *,
        steps: tuple[float, float],
        core: float,
        tail: float,
    ) -> "Field":
        """Nodes of a state: steps of the field far from ω = 0, and within ``core`` of it."""
        mean, width = problem.m * state.M, problem.delta * math.sqrt(state.Q)
        step, near = (min(_NOISE * _TAIL[0] / tail, step / width) for step in steps)
        middle = -mean / width if near < step else 0.0
        reach = tail + abs(middle)
        noise = _both_sides(step, near, reach, core=core / width, most=_FIELDS)
        v = noise.nodes + middle
        inside = np.abs(v) <= tail
        v, weight = v[inside], noise.weights[inside]
        weight = weight * np.exp(-(v**2) / 2) / math.sqrt(2 * math.pi)
        return cls(v, weight, Axis(mean + width * v, weight, folded=False), width)


@dataclass(frozen=True)
class Potentials:
    """Potentials that the samples they act on make; columns are kinds of samples."""

    field: Field
    kernels: Array  # (order, ω, z)
    h: Array  # (labels, z)
    mass: Array  # (labels, z): ρ with the weights of the nodes
    lowest: Array  # (kinds,): least h
    boltzmann: Array  # (z, kinds): e^{_LIFT − β(h − lowest)}
    Z: Array  # (ω, kinds)
    chi: float = math.nan
    residual: float = math.nan


class Exhaustive:
    """What the saddle-point equations need of all pairs at finite temperature, on given nodes."""

    def __init__(
        self, problem: Problem, state: Overlaps, *, coarseness: float = 1.0, fineness: float = 1.0
    ) -> None:
        self.problem = problem
        self._tol = _SETTLED if coarseness <= 1 else _ROUGHLY
        self._tol = self._tol if coarseness <= _COARSE else _SEARCHED
        self._odd = problem.odd
        self._mirrored = self._odd and problem.balance == 0.5
        every = kinds(problem)
        # If the labels are mirror images of each other, one of them does, counted twice.
        self._kinds = [k for k in every if k.label == 0] if self._mirrored else every
        self._labels = 1 if self._mirrored else 2
        self._shares = np.array([k.share for k in self._kinds]) * (2 / self._labels)
        short, steep = int(coarseness > 1), problem.steepness
        self._tail, self._c = _TAIL[short], problem.delta**2 * state.chi
        s = math.sqrt(self._c / problem.beta)
        self._scale = coarseness / fineness
        self._compete = False  # minima of a sample's energy, somewhere in the field
        self._reach = _ROOM * self._extent(state)
        beyond = _displacement(problem, self._c) + _REACH[short] * s
        corner = max(0.015, math.sqrt(problem.softness) / 2.5)
        finest = coarseness * min(s / 3, min(0.08, corner) / steep)
        step = coarseness * s / 3
        self.z = _both_sides(step, finest, self._reach + beyond, core=_CORE / steep, most=_POINTS)
        z = self.z.nodes
        self.resolves = float(np.diff(z).min()) <= 1.5 * finest
        self._phi = problem.phi(z)
        self._phi2 = self._phi**2
        self._fermion = problem.fermion_energy((self._phi[:, None] - self._phi) ** 2)
        self._last: tuple[Overlaps, Potentials] | None = None
        self._known: dict[tuple[bool, bool], tuple[Array, Steps, Factor | None]] = {}

    def go_on_from(self, before: "Exhaustive") -> None:
        """Begin with the potentials that were found on other nodes."""
        for key, (h, _, _) in before._known.items():
            there = np.array([np.interp(self.z.nodes, before.z.nodes, part) for part in h])
            self._known[key] = (there, Steps(_MEMORY), None)

    @property
    def full(self) -> bool:
        """Whether the field has as many nodes as it may."""
        return self._last is not None and 2 * self._last[1].field.v.size >= _FIELDS

    def covers(self, state: Overlaps) -> bool:
        """Whether the nodes are good for a state."""
        c, extent = self.problem.delta**2 * state.chi, self._extent(state)
        return self._reach / 10 <= extent <= self._reach and 0.6 * self._c <= c <= 1.5 * self._c

    def averages(self, state: Overlaps) -> Averages:
        """All that the equations need; each average over a pair is twice that over a sample."""
        now = self.potentials(state)
        weight, v = now.field.weight[:, None] * self._shares, now.field.v[:, None]
        force = self._force(now)
        slope = 2 * float((weight * v * force).sum())

        def free() -> float:
            F = now.lowest + (_LIFT - np.log(now.Z)) / self.problem.beta
            # With h not yet quite that of ρ, the error of this form is of second order.
            pairs = self._sum(now.mass * (self._potentials(now.mass) - 2 * now.h))
            return 2 * float((weight * F).sum()) + pairs

        # Rounding must not break the symmetry.
        along_labels = 0.0 if is_symmetric(self.problem, state) else float((weight * force).sum())
        return Averages(
            free=free,
            force=2 * along_labels,
            force2=2 * float((weight * force**2).sum()),
            slope=slope,
            stiffness=slope / now.field.width,
            residual=now.residual,
        )

    def stiffness(self, state: Overlaps) -> float:
        """2 d E[yF']/d(mM), the response of the potentials included."""
        return label_slope(self, state)

    def curvature(self, state: Overlaps, *, field: Overlaps | None = None) -> float:
        """2 E F''² at the potentials of one state, and the field of that or of another one."""
        law = self._field(field or state)
        return 2 * float(law.weight @ self._bend(self.potentials(state), law) ** 2 @ self._shares)

    def thin_curvature(self, state: Overlaps) -> float:
        """The same on every second node."""
        now = self.potentials(state)
        bend = self._bend(now, now.field)[::2]
        return 4 * float(now.field.weight[::2] @ bend**2 @ self._shares)

    def growth(self, state: Overlaps) -> float:
        """0: forces do not jump at finite temperature."""
        return 0.0

    def lost(self, state: Overlaps) -> float:
        """The weight of the fields at which floating point has lost Z."""
        now = self.potentials(state)
        return float(now.field.weight @ (now.Z <= _TINY) @ self._shares)

    def energy(self, state: Overlaps) -> float:
        """Mean H of a training pair, ⟨ρHρ⟩."""
        mass = self.potentials(state).mass
        return self._sum(mass * self._potentials(mass))

    def _sum(self, terms: Array) -> float:
        """Over the samples of both labels."""
        return 2 / self._labels * float(terms.sum())

    def potentials(self, state: Overlaps) -> Potentials:
        """The potentials of a state; kept for the last one."""
        if self._last is None or self._last[0] != state:
            self._last = (state, self._found_potentials(state))
        return self._last[1]

    def _found_potentials(self, state: Overlaps) -> Potentials:
        """Potentials and densities that make each other, on closer nodes if minima compete.

        Var z = (c/β)(1 − cF'') is much more than that of a sample without energy where they do.
        """
        now = self._iterated(state)
        if not self._compete:
            c, density = self.problem.delta**2 * state.chi, np.exp(-(now.field.v[1:] ** 2) / 2)
            bend = np.diff(self._force(now), axis=0) / np.diff(now.field.axis.nodes)[:, None]
            felt = -c * bend * density[:, None]
            self._compete = bool(np.any((felt > _FELT) & (-c * bend > _COMPETING)))
            now = self._iterated(state) if self._compete else now
        return now

    def _iterated(self, state: Overlaps) -> Potentials:
        """Iterate potentials and densities until they make each other."""
        symmetric, side = is_symmetric(self.problem, state), state.M < 0
        h, history, factor = self._known.get((symmetric, side), (None, Steps(_MEMORY), None))
        field = self._field(state)
        kernels = self._kernels(state.chi, field, order=1)
        if h is None:
            h = self._potentials(self._guess(state, symmetric=symmetric))
        elif factor is None and h.size <= _DENSE:
            factor = self._newton(self._tilt(h, kernels, field), symmetric=symmetric)
            history = Steps(_MEMORY)

        def step(x: Array) -> tuple[Array, float]:
            mass = self._tilt(x.reshape(self._labels, -1), kernels, field).mass
            new = self._potentials(self._symmetrised(mass) if symmetric else mass)
            change = new.ravel() - x
            if factor is None:
                return x + _DAMPING * change, self.problem.beta * float(np.abs(change).max())
            move: Array = lu_solve(factor, change, check_finite=False)
            return x + move, self.problem.beta * float(np.abs(change).max())

        point = self._solve(step, h, history)
        found = self._tilt(point.x.reshape(self._labels, -1), kernels, field)
        if not symmetric and self._turned(found.mass, side):
            history, factor = Steps(_MEMORY), None
            point = self._solve(step, self._mirror(found.h), history)
            found = self._tilt(point.x.reshape(self._labels, -1), kernels, field)
        self._known[symmetric, side] = (found.h, history.elsewhere(), factor)
        return replace(found, chi=state.chi, residual=0.0 if point.converged else point.residual)

    def _solve(self, step: Step, h: Array, history: Steps) -> FixedPoint:
        return iterate(
            step,
            h.ravel(),
            tol=self._tol,
            max_iterations=_TRIES,
            history=history,
            accelerate_below=_CLOSE,
            damping=1.0,
        )

    def _newton(self, now: Potentials, *, symmetric: bool) -> Factor:
        """1 − J of the map from potentials to potentials, factorised: it hardly changes nearby.

        ∂ρ/∂h = −β(diag ρ − E[tilted density ⊗ tilted density]).
        """
        responses = [np.diag(mass) for mass in now.mass]
        for column, kind in enumerate(self._kinds):
            share = self._labels / 2 * self._shares[column]
            root = np.sqrt(share * now.field.weight) / now.Z[:, column]
            tilted = (root[:, None] * now.kernels[0] * now.boltzmann[:, column])[:, :: kind.y]
            responses[kind.label] -= tilted.T @ tilted
        responses = [-self.problem.beta * response for response in responses]
        if symmetric and self._odd:
            responses = [(r + r[::-1]) / 2 for r in responses]
        phi, phi2 = self._phi, self._phi2
        bosons = [
            (np.outer(phi2, r.sum(0)) + phi2 @ r) / 2 - np.outer(phi, phi @ r) for r in responses
        ]
        if self._mirrored:
            slope = bosons[0] + self._fermion @ responses[0][::-1]
        else:
            fermions = [self._fermion @ r for r in responses]
            slope = np.block([[bosons[0], fermions[1]], [fermions[0], bosons[1]]])
        factor: Factor = lu_factor(np.eye(len(slope)) - slope)
        return factor

    def _turned(self, mass: Array, side: bool) -> bool:
        """Whether the samples are on the other side than their cluster means: a worse solution."""
        outputs = mass @ self._phi / mass.sum(1)
        apart = outputs[0] if self._mirrored else outputs[0] - outputs[1]
        return bool(apart > 0 if side else apart < 0)

    def _mirror(self, x: Array) -> Array:
        """What w → −w makes of potentials or densities."""
        return x[:, ::-1] if self._odd else x[::-1]

    def _tilt(self, h: Array, kernels: Array, field: Field) -> Potentials:
        """Partition functions and densities in given potentials."""
        seen = np.array([h[kind.label, :: kind.y] for kind in self._kinds]).T
        lowest = seen.min(0)
        exponent = _LIFT - self.problem.beta * (seen - lowest)
        boltzmann = np.exp(np.where(exponent > _LEAST, exponent, -np.inf))
        Z = np.maximum(kernels[0] @ boltzmann, _TINY)
        parts = boltzmann * (kernels[0].T @ (field.weight[:, None] / Z)) * self._shares
        mass = np.zeros_like(h)
        for kind, part in zip(self._kinds, parts.T, strict=True):
            mass[kind.label] += self._labels / 2 * part[:: kind.y]
        return Potentials(field, kernels, h, mass, lowest, boltzmann, Z)

    def _potentials(self, mass: Array) -> Array:
        """h of every label: the mean of H over all samples."""
        others = mass[:, ::-1] if self._mirrored else mass[::-1]
        total, first, second = mass.sum(1), mass @ self._phi, mass @ self._phi2
        # Bosons need three moments: H = (φ − φ')²/2.
        return np.array([
            (a * self._phi2 + c) / 2 - b * self._phi + self._fermion @ other
            for a, b, c, other in zip(total, first, second, others, strict=True)
        ])  # fmt: skip

    def _symmetrised(self, mass: Array) -> Array:
        """Densities that w → −w leaves as they are."""
        return (mass + self._mirror(mass)) / 2

    def _guess(self, state: Overlaps, *, symmetric: bool) -> Array:
        """Densities to begin with: Gaussians, pushed apart by half their width."""
        mean, width = self.problem.m * abs(state.M), self.problem.delta * math.sqrt(state.Q)
        width_z = math.hypot(width, math.sqrt(self._c / self.problem.beta))
        shift = 0.0 if symmetric else math.copysign(mean + width_z / 2, state.M)
        centres, share = (
            np.array([[shift], [-shift]]),
            sum(kind.share for kind in kinds(self.problem) if kind.label == 0),
        )
        mass = np.exp(-(((self.z.nodes - centres) / width_z) ** 2) / 2) * self.z.weights
        guess: Array = mass * (np.array([[share], [1 - share]]) / mass.sum(1, keepdims=True))
        return guess[: self._labels]

    def _extent(self, state: Overlaps) -> float:
        """The largest field of a state that has nodes."""
        width = self.problem.delta * math.sqrt(state.Q)
        return self.problem.m * abs(state.M) + self._tail * width

    def _field(self, state: Overlaps) -> Field:
        """Nodes close to each other where φ changes; everywhere, if minima compete somewhere.

        The force changes over s²/d there, with d the distance of two minima.
        """
        problem, s2 = self.problem, self._c / self.problem.beta
        finest, core = _SMOOTH / problem.steepness, _CORE / problem.steepness
        step = max(finest, math.sqrt(s2) / 2)
        if self._compete:
            step = finest = min(finest, s2 / _displacement(problem, self._c))
        steps = self._scale * step, self._scale * finest
        return Field.of(problem, state, steps=steps, core=core, tail=self._tail)

    def _kernels(self, chi: float, field: Field, *, order: int) -> Array:
        """Gaussians around the fields, and their derivatives, with the weights of the nodes."""
        s = self.problem.delta * math.sqrt(chi / self.problem.beta)
        return gaussian_kernels(field.axis, self.z, s, order=order)

    def _force(self, now: Potentials) -> Array:
        """F' = −Z'/(βZ), as the mirror shows it: yF'."""
        force: Array = (now.kernels[1] @ now.boltzmann) / (-self.problem.beta * now.Z)
        return force

    def _bend(self, now: Potentials, field: Field) -> Array:
        """F'' = −(Z''/Z − Z'²/Z²)/β at the potentials of a state, on the nodes of a field."""
        Z, first, second = self._kernels(now.chi, field, order=2) @ now.boltzmann
        Z = np.maximum(Z, _TINY)
        bend: Array = ((first / Z) ** 2 - second / Z) / self.problem.beta
        return bend


def _both_sides(step: float, finest: float, reach: float, *, core: float, most: int) -> Axis:
    """Nodes on both sides of 0, their distance growing from ``finest`` to ``step`` beyond core."""
    width = max(8.0, core / finest)
    half = Axis.graded(step, finest, reach, width=width)
    if (thin := 2 * half.nodes.size / most) > 1:
        half = Axis.graded(thin * step, thin * finest, reach, width=width)
    return half.unfolded()


def _displacement(problem: Problem, c: float) -> float:
    """The farthest that samples move against the stiffness 1/c, for all that H can gain them."""
    phi = problem.phi(np.linspace(-20, 20, 401))
    bosons, fermions = np.ptp(problem.energies_apart(np.array([0.0, np.ptp(phi) ** 2])), axis=1)
    share = min(1.0, max(problem.balance, 1 - problem.balance) + problem.mislabelled)
    mean = share * max(bosons, fermions) + (1 - share) * min(bosons, fermions)
    return math.sqrt(2 * c * float(mean))


def is_symmetric(problem: Problem, state: Overlaps) -> bool:
    """Whether the potentials of a state are those that w → −w leaves as they are."""
    return state.M == 0 and problem.m > 0


class Samples(Protocol):
    """An ensemble of samples."""

    @property
    def problem(self) -> Problem:
        """What they are drawn from."""

    def averages(self, state: Overlaps) -> Averages:
        """All that the equations need."""


def label_slope(ensemble: Samples, state: Overlaps) -> float:
    """The slope of the force along the labels, by differences."""
    problem = ensemble.problem
    if problem.m == 0:
        return 0.0
    move = _MOVE * math.sqrt(state.q(problem.beta))
    here = ensemble.averages(state).force
    try:
        moved = ensemble.averages(replace(state, M=state.M + move)).force
    except ConvergenceError:
        if state.M:
            raise
        return _BOTTOMLESS  # samples of a narrow field that move apart too far for any nodes
    return (moved - here) / (problem.m * move)
