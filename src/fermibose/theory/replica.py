r"""Replica-symmetric equations: averages over the channel, the saddle point, its stability.

One form serves every temperature. With χ = β(q − Q), c = Δ²χ and ω = y m M + Δ√Q v,

.. math::
    λ_w + \hatχ = 1/χ, \quad M = -χ\hat M, \quad Q - M^2 = -χ^2 \hat Q, \quad q = Q + χ/β

    \hat M = α m\, E[y·∇F], \quad \hat Q = -αΔ^2\, E|∇F|^2, \quad
    \hatχ = αΔ^2\, E\,\mathrm{tr}∇^2F = \frac{αΔ}{\sqrt Q}\, E[v·∇F]

(hats in units of β, β² and β; at zero temperature Q = q). The last form of χ̂ holds where ∇F jumps.

Replica symmetry is stable where the de Almeida-Thouless eigenvalue is below 1:

.. math:: \mathrm{AT} = αΔ^4χ^2\, E\|∇^2F\|^2 = αΔ^4 (q-Q)^2\, E\|\mathrm{Hess}\|^2

At zero temperature ∇F jumps wherever two minima of the pair energy tie. Near a jump ‖∇²F‖² grows
like β² over a width of order 1/β, so AT grows like β and is infinite in the limit: where jumps have
weight, replica symmetry does not hold at zero temperature. Gaussian tails give them some weight
everywhere; what adds less than ``_GROWTH``·β to AT counts as none.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from fermibose.errors import InputError
from fermibose.theory.disjoint import Averages, Disjoint
from fermibose.theory.exhaustive import Exhaustive
from fermibose.theory.fixed_point import ConvergenceError, FixedPoint
from fermibose.theory.frozen import Frozen
from fermibose.theory.problem import Array, Problem
from fermibose.theory.solution import Candidate, Conjugates, Overlaps, Solution, Stability

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_NARROWEST = 1e-4  # √Q in units of √(q − Q): narrower fields lose their forces to rounding
_SMALLEST = 1e-4  # Δ√Q in units of 1/max φ′, at zero temperature: the same
_VANISHING = 1e-6  # Δ²q in units of 1/max φ′², at zero temperature, below which there is no weight
_PROBE = 1e-3  # relative length of the differences that estimate f''
_NARROW = 0.1  # Q/q below which they leave the lattice of the state
_AT_TOLERANCE = 0.02  # relative error of AT with which it is left

# Chosen by reason.
_LOST = 1e-5  # weight of the field that floating point may lose: averages miss about as much
_GROWTH = 1e-6  # 0.001 at β = 1000, about the coldest that the equations of finite β are solved for
_FINENESS = (1.5, 3.0, 6.0, 12.0)  # of grids to try in turn beyond the solution's, until AT holds


def conjugates(problem: Problem, overlaps: Overlaps, average: Averages) -> Conjugates:
    """M̂, Q̂ and χ̂ from the averages (module docstring)."""
    alpha, delta = problem.load, problem.delta
    return Conjugates(
        M=alpha * problem.m * average.force,
        Q=-alpha * delta**2 * average.force2,
        chi=alpha * delta / math.sqrt(overlaps.Q) * average.slope,
    )


def free_energy(problem: Problem, overlaps: Overlaps, average: Averages) -> float:
    r"""Free energy density with the conjugates eliminated; stationary at the saddle point.

    .. math:: f = \tfrac{λ_w}{2} q - \frac{Q-M^2}{2χ} - \frac{1}{2β}\ln\frac{2πeχ}{β} + α\,E F
    """
    chi, beta = overlaps.chi, problem.beta
    entropy = 0.0 if problem.zero_temperature else math.log(2 * math.pi * math.e * chi / beta)
    return (
        problem.weight_decay * overlaps.q(beta) / 2
        - (overlaps.Q - overlaps.M**2) / (2 * chi)
        - entropy / (2 * beta)
        + problem.load * average.F
    )


def to_vector(overlaps: Overlaps) -> Array:
    """Coordinates (M, √(Q − M²), ln χ): free of constraints, and smooth where Q → M²."""
    deviation = math.sqrt(max(overlaps.Q - overlaps.M**2, 0.0))
    return np.array([overlaps.M, deviation, math.log(overlaps.chi)])


def to_overlaps(x: Array) -> Overlaps:
    """Inverse of :func:`to_vector`."""
    M, deviation, log_chi = (float(v) for v in x)
    return Overlaps(M, M**2 + deviation**2, math.exp(log_chi))


def distance(problem: Problem, a: Overlaps, b: Overlaps) -> float:
    """Largest difference in M, q, Q and χ: of M in units of √q, of q and Q of q, of χ of χ.

    Weights that vanish, which they can at zero temperature, are measured by what φ can tell apart.
    """
    beta = problem.beta
    q = max(b.q(beta), _VANISHING / (problem.delta * problem.steepness) ** 2)
    overlap = max(abs(a.Q - b.Q), abs(a.q(beta) - b.q(beta)))
    return max(abs(a.M - b.M) / math.sqrt(q), overlap / q, abs(a.chi - b.chi) / b.chi)


class Ensemble(Protocol):
    """What the equations need of the training data, on nodes that are good for some states."""

    def __init__(
        self, problem: Problem, state: Overlaps, *, coarseness: float, fineness: float
    ) -> None: ...

    @property
    def resolves(self) -> bool:
        """Whether nodes are close enough for φ, and for the Gaussians around them."""

    @property
    def full(self) -> bool:
        """Whether there are as many nodes as there may be."""

    def covers(self, state: Overlaps) -> bool:
        """Whether the nodes are good for a state."""

    def averages(self, state: Overlaps) -> Averages:
        """All that the equations need."""

    def stiffness(self, state: Overlaps) -> float:
        """How fast the force along the labels grows with m M, all that follows it included."""

    def curvature(self, state: Overlaps, *, field: Overlaps | None = None) -> float:
        """E‖∇²F‖² at the response of one state, and the field of that or of another one."""

    def thin_curvature(self, state: Overlaps) -> float:
        """The same on every second node."""

    def growth(self, state: Overlaps) -> float:
        """lim E‖∇²F‖²/β for β → ∞; 0 at finite temperature."""

    def lost(self, state: Overlaps) -> float:
        """The weight of the fields at which floating point has lost Z."""

    def energy(self, state: Overlaps) -> float:
        """Mean H of a training pair."""


class SaddleEquations:
    """One iteration of the saddle-point equations; nodes stay while they cover the state."""

    def __init__(
        self,
        problem: Problem,
        *,
        coarseness: float = 1.0,
        fineness: float = 1.0,
        before: "SaddleEquations | None" = None,
    ) -> None:
        """before: the same equations on other nodes, from which potentials go on."""
        self.problem = problem
        self._before = None if before is None else before.nodes
        self._grid = {"coarseness": coarseness, "fineness": fineness}
        self._odd = problem.odd
        self.nodes: Ensemble | None = None  # the present ones
        self._last: tuple[Overlaps, Averages, Conjugates] | None = None

    def afresh(self) -> "SaddleEquations":
        """The same equations on nodes still to be chosen."""
        coarseness, fineness = self._grid["coarseness"], self._grid["fineness"]
        return SaddleEquations(self.problem, coarseness=coarseness, fineness=fineness)

    def __call__(self, x: Array) -> tuple[Array, float]:
        """A better state, and the undamped residual of x.

        The plain update of M overshoots where the pairs resist a shift of M strongly (small Δ);
        dividing its change by 1 + χαm² E[y·∇²F y] is Newton's step in M, and leaves every solution
        where it is.
        """
        problem, overlaps = self.problem, to_overlaps(x)
        average, conjugate = self.evaluate(overlaps)
        if problem.weight_decay + conjugate.chi <= 0:
            # The pairs push the weights apart faster than decay holds them: let them grow.
            return x * [1.5, 1.5, 1.0] + [0.0, 0.1 * self.unit(x)[1], 0.4], math.inf
        new = to_vector(update(problem, overlaps, conjugate))
        if self._odd and x[0] == 0:
            # Q = 0 is exact. Linear through it, so that a Q that dies out is found at once.
            new[1] *= x[1] / to_vector(self.resolved(overlaps))[1]
        plain = to_overlaps(new)
        new[0] = x[0] + (new[0] - x[0]) / max(1.0, self._stiffness(overlaps, average.stiffness))
        return new, max(distance(problem, plain, overlaps), average.residual)

    def unit(self, x: Array) -> Array:
        """Lengths of coordinates that count as 1: the weights' own size for M and √(Q − M²)."""
        problem = self.problem
        q = to_overlaps(x).q(problem.beta)
        size = math.sqrt(max(q, _VANISHING / (problem.delta * problem.steepness) ** 2))
        return np.array([size, size, 1.0])

    def resolved(self, overlaps: Overlaps) -> Overlaps:
        """The state with a field wide enough to be told from rounding."""
        problem = self.problem
        least = _NARROWEST**2 * overlaps.chi / problem.beta
        if problem.zero_temperature:
            least = (_SMALLEST / (problem.delta * problem.steepness)) ** 2
        least += overlaps.M**2
        return overlaps if least <= overlaps.Q else replace(overlaps, Q=least)

    def evaluate(self, overlaps: Overlaps) -> tuple[Averages, Conjugates]:
        """Averages and conjugates of a state, on new nodes if the old ones do not cover it."""
        if self._last is None or self._last[0] != overlaps:
            state = self.resolved(overlaps)
            if self.nodes is None or not self.nodes.covers(state):
                before = self.nodes or self._before
                self.nodes = ensemble(self.problem, state, **self._grid)
                if isinstance(self.nodes, Exhaustive) and isinstance(before, Exhaustive):
                    self.nodes.go_on_from(before)
            self._last = (overlaps, *self.on_nodes(state))
        return self._last[1:]

    def on_nodes(self, overlaps: Overlaps) -> tuple[Averages, Conjugates]:
        """The same on the present nodes, whether or not they cover the state."""
        assert self.nodes is not None
        state = self.resolved(overlaps)
        average = self.nodes.averages(state)
        return average, conjugates(self.problem, state, average)

    def at(self, overlaps: Overlaps) -> tuple[Ensemble, Overlaps]:
        """The ensemble on the nodes of a state's evaluation, and the state as these resolve it."""
        self.evaluate(overlaps)
        assert self.nodes is not None
        return self.nodes, self.resolved(overlaps)

    def lost(self, overlaps: Overlaps) -> float:
        """The weight of the fields of a state at which floating point has lost Z."""
        ensemble, state = self.at(overlaps)
        return ensemble.lost(state)

    def too_cold(self, overlaps: Overlaps, *, margin: float = 1.0) -> bool:
        """Whether that is more than ``margin`` times what may be lost."""
        return self.lost(overlaps) > margin * _LOST

    def label_stiffness(self, overlaps: Overlaps) -> float:
        """1 + χαm² E[y·∇²F y]: 1 minus the slope of the plain update of M."""
        ensemble, state = self.at(overlaps)
        return self._stiffness(overlaps, ensemble.stiffness(state))

    def _stiffness(self, overlaps: Overlaps, stiffness: float) -> float:
        return 1 + overlaps.chi * self.problem.load * self.problem.m**2 * stiffness

    def candidate(self, overlaps: Overlaps) -> Candidate:
        """A state with its free energy and its stability."""
        problem, (average, _) = self.problem, self.evaluate(overlaps)
        return Candidate(
            overlaps,
            overlaps.q(problem.beta),
            free_energy(problem, overlaps, average),
            self.label_stiffness(overlaps),
            stability_of(self, overlaps),
        )

    def energy(self, overlaps: Overlaps) -> float:
        """Mean H of a training pair in a state."""
        ensemble, state = self.at(overlaps)
        return ensemble.energy(state)


def ensemble(problem: Problem, state: Overlaps, *, coarseness: float, fineness: float) -> Ensemble:
    """The training data of a problem on nodes for a state."""
    of_all = Frozen if problem.zero_temperature else Exhaustive
    kind: type[Ensemble] = Disjoint if problem.pairing == "disjoint" else of_all
    return kind(problem, state, coarseness=coarseness, fineness=fineness)


class TemperatureError(ConvergenceError, InputError):
    """β is so large that e^{−βH} leaves the range of floating point where the field has weight."""


def cold(problem: Problem, state: Overlaps) -> TemperatureError:
    """The error to raise of a state that is too cold."""
    return TemperatureError(
        f"beta = {problem.beta:g} is too large here: e^(-beta H) leaves the range of floating "
        "point where the field has weight; use a smaller beta, or inf for its limit",
        state,
    )


def update(problem: Problem, overlaps: Overlaps, conjugate: Conjugates) -> Overlaps:
    """The plain equations: χ = 1/(λ_w + χ̂), M = −χM̂, Q = M² − χ²Q̂, where λ_w + χ̂ > 0."""
    chi = 1 / (problem.weight_decay + conjugate.chi)
    M = -chi * conjugate.M
    return Overlaps(M, M**2 - chi**2 * conjugate.Q, chi)


def gradient(problem: Problem, overlaps: Overlaps, conjugate: Conjugates) -> Array:
    """∂f/∂M, ∂f/∂Q at fixed χ, and ∂f/∂χ at fixed q, M: all 0 at a saddle point."""
    chi = overlaps.chi
    return np.array([
        overlaps.M / chi + conjugate.M,
        (problem.weight_decay + conjugate.chi - 1 / chi) / 2,
        ((overlaps.Q - overlaps.M**2) / chi**2 + conjugate.Q) / 2,
    ])  # fmt: skip


def stability_of(saddle: SaddleEquations, overlaps: Overlaps) -> Stability:
    """f'' of a saddle point by differences of f', on the lattice of its evaluation.

    At M = 0 nothing couples to M, and f'' along it is the label stiffness over χ.
    """
    problem, beta = saddle.problem, saddle.problem.beta
    _, overlaps = saddle.at(overlaps)
    q, chi = overlaps.q(beta), overlaps.chi
    here = np.array([overlaps.M, overlaps.Q, chi])
    moves = np.diag([math.sqrt(q), q, chi]) * _PROBE
    narrow = _NARROW * q > overlaps.Q

    def slope(x: Array, *, wider: bool = False) -> Array:
        state = Overlaps(*(float(v) for v in x))
        at = saddle.afresh().evaluate(state) if wider else saddle.on_nodes(state)
        return gradient(problem, state, at[1])

    base = slope(here)
    f = np.zeros((3, 3))
    for i in range(3):
        if i == 0 and overlaps.M == 0:
            f[0, 0] = saddle.label_stiffness(overlaps) / chi
        else:
            moved = slope(here + moves[i], wider=narrow and i < 2)
            f[i] = (moved - base) / moves[i, i]
    f[2] -= f[1] / beta  # χ grows at fixed q: Q falls
    f = (f + f.T) / 2
    reduced = f[:2, :2] - np.outer(f[:2, 2], f[2, :2]) / f[2, 2]
    unit = np.sqrt([chi, 2 * q * chi])
    reduced = reduced * np.outer(unit, unit)
    lowest = np.linalg.eigvalsh(reduced)[0]
    freezing = -f[2, 2] * 2 * chi**3 / q
    return Stability(float(lowest), float(reduced[1, 1]), float(freezing))


def at_eigenvalue(problem: Problem, nodes: Ensemble, state: Overlaps) -> tuple[float, float]:
    """AT of a state on some nodes, and what it changes on every second node.

    The change is far above the error of a rule that converges as fast as this one. AT is infinite
    where it grows with β.
    """
    scale = problem.load * problem.delta**4 * state.chi**2
    if scale * nodes.growth(state) > _GROWTH:
        return math.inf, 0.0
    at = scale * nodes.curvature(state)
    return at, abs(at - scale * nodes.thin_curvature(state))


def resolved_at(saddle: SaddleEquations, overlaps: Overlaps) -> tuple[float, float]:
    """AT on the lattice of a solution, or a finer one where it needs that, and its error.

    Squares of ∇²F are sharper than the forces that the equations average: where minima compete off
    the axes or in a narrow, cold field, a lattice good for M and q is too coarse for AT.
    """
    problem, (nodes, state) = saddle.problem, saddle.at(overlaps)
    at, error = at_eigenvalue(problem, nodes, state)
    for fineness in () if problem.zero_temperature else _FINENESS:
        if error <= _AT_TOLERANCE * at or nodes.full:
            break
        nodes = ensemble(problem, state, coarseness=1.0, fineness=fineness)
        at, error = at_eigenvalue(problem, nodes, state)
    return at, error


def solution_of(
    saddle: SaddleEquations,
    point: FixedPoint,
    *,
    at: float,
    stability: Stability,
    errors: Mapping[str, float],
    second: Overlaps,
) -> Solution:
    """Everything a solution carries, of the state in which an iteration ended."""
    problem, overlaps = saddle.problem, to_overlaps(point.x)
    average, conjugate = saddle.evaluate(overlaps)
    return Solution(
        problem=problem,
        overlaps=overlaps,
        conjugates=conjugate,
        free_energy=free_energy(problem, overlaps, average),
        training_energy=saddle.energy(overlaps),
        mean_field_energy=average.F,
        at_eigenvalue=at,
        label_stiffness=saddle.label_stiffness(overlaps),
        stability=stability,
        residual=point.residual,
        iterations=point.iterations,
        converged=point.converged,
        errors=errors,
        second=second,
    )
