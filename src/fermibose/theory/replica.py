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
from dataclasses import dataclass, replace

import numpy as np

from fermibose.errors import InputError
from fermibose.theory.channel import SQRT2, Axis, Channel, Response
from fermibose.theory.fixed_point import ConvergenceError, FixedPoint
from fermibose.theory.lattice import Lattice, make_lattice
from fermibose.theory.problem import Array, Problem
from fermibose.theory.solution import Candidate, Conjugates, Overlaps, Solution, Stability

_NARROWEST = 1e-4  # √Q in units of √(q − Q): narrower fields lose their forces to rounding
_SMALLEST = 1e-4  # Δ√Q in units of 1/max φ′, at zero temperature: the same
_VANISHING = 1e-6  # Δ²q in units of 1/max φ′², at zero temperature, below which there is no weight

_LOST = 1e-5  # weight of the field that floating point may lose
_PROBE = 1e-3  # relative length of the differences that estimate f''
_NARROW = 0.1  # Q/q below which they leave the lattice of the state

_GROWTH = 1e-6  # 0.001 at β = 1000, about the coldest that the equations of finite β are solved for
_AT_TOLERANCE = 0.02  # relative error of AT with which it is left
_FINENESS = (2.0, 4.0, 8.0, 16.0)  # of grids to try beyond the solution's


@dataclass(frozen=True)
class Averages:
    """Averages over pairs and over the field ω."""

    F: float  # E F
    force: float  # E[y·∇F]
    force2: float  # E|∇F|²
    slope: float  # E[v·∇F]
    stiffness: float  # E[y·∇²F y]: how fast the force along the labels grows with m M


class PairMeasure:
    """The law of ω on the grid: mean y m M, width Δ√Q, boson pairs with weight ρ."""

    def __init__(self, problem: Problem, r: Axis, t: Axis, *, M: float, Q: float) -> None:
        mean, width = SQRT2 * problem.m * M, problem.delta * math.sqrt(Q)
        self.width = width
        self._kinds = np.array([problem.bosons, 1 - problem.bosons])
        # A boson pair has its mean along t and a fermion pair along r.
        self._r = [r.gaussian(0.0, width), r.gaussian(mean, width)]
        self._t = self._r[::-1] if t is r else [t.gaussian(mean, width), t.gaussian(0.0, width)]

    def mean(self, g: Array) -> float:
        """E g of a function even in r, g of shape (2, r, t)."""
        return self._sum([r[0] @ x @ t[0] for r, t, x in zip(self._r, self._t, g, strict=True)])

    def along_labels(self, g_r: Array, g_t: Array) -> float:
        """E[y₁g₁ + y₂g₂] of a vector field: √2 y g_t for bosons, √2 y g_r for fermions."""
        boson = self._r[0][0] @ g_t[0] @ self._t[0][1]
        return SQRT2 * self._sum([boson, self._r[1][1] @ g_r[1] @ self._t[1][0]])

    def along_noise(self, g_r: Array, g_t: Array) -> tuple[float, float]:
        """E[v·g] of a vector field, and its part along the labels, E[(y·v)(y·g)]."""
        r_part = [r[2] @ g @ t[0] for r, t, g in zip(self._r, self._t, g_r, strict=True)]
        t_part = [r[0] @ g @ t[2] for r, t, g in zip(self._r, self._t, g_t, strict=True)]
        total = self._sum(r_part) + self._sum(t_part)
        return total, 2 * self._sum([t_part[0], r_part[1]])

    def _sum(self, kinds: list[float]) -> float:
        return float(self._kinds @ np.array(kinds))


def averages(channel: Channel, measure: PairMeasure, *, c: float) -> Averages:
    """Everything the saddle-point equations need, at stiffness c = Δ²χ."""
    pair = channel.effective(c)
    F, g_r, g_t, force2 = pair.weighted
    slope, label_slope = measure.along_noise(g_r, g_t)
    return Averages(
        F=measure.mean(F),
        force=measure.along_labels(g_r, g_t),
        force2=measure.mean(force2),
        slope=slope,
        stiffness=label_slope / measure.width,
    )


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


class SaddlePoint:
    """One iteration of the saddle-point equations; the lattice stays while it covers the state."""

    def __init__(self, problem: Problem, *, coarseness: float = 1.0, fineness: float = 1.0) -> None:
        self.problem = problem
        self._grid = {"coarseness": coarseness, "fineness": fineness}
        self._odd = problem.odd
        self.lattice: Lattice | None = None
        self._last: tuple[Overlaps, Averages, Conjugates] | None = None
        self._measure: tuple[tuple[float, float], PairMeasure] | None = None
        self._response: tuple[Overlaps, Response] | None = None
        self._energy: tuple[float, Array] | None = None

    def afresh(self) -> "SaddlePoint":
        """The same equations on a lattice still to be made."""
        return SaddlePoint(self.problem, **self._grid)

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
        new[0] = x[0] + (new[0] - x[0]) / max(1.0, label_stiffness(problem, overlaps, average))
        return new, distance(problem, plain, overlaps)

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
        """Averages and conjugates of a state, on a new lattice if the old one does not cover it."""
        problem = self.problem
        if self._last is not None and self._last[0] == overlaps:
            return self._last[1:]
        state = self.resolved(overlaps)
        if self.lattice is None or not self.lattice.covers(problem, state):
            self.lattice = make_lattice(problem, state, **self._grid)
            self._measure = self._response = self._energy = None  # they were on other nodes
        self._last = (overlaps, *self.on_lattice(state))
        return self._last[1:]

    def on_lattice(self, overlaps: Overlaps) -> tuple[Averages, Conjugates]:
        """The same on the present lattice, whether or not that covers the state."""
        problem, measure = self.problem, self.measure(overlaps)
        assert self.lattice is not None
        average = averages(self.lattice.channel, measure, c=problem.delta**2 * overlaps.chi)
        return average, conjugates(problem, self.resolved(overlaps), average)

    def measure(self, overlaps: Overlaps) -> PairMeasure:
        """The law of the field on the present lattice."""
        assert self.lattice is not None
        M, Q = overlaps.M, self.resolved(overlaps).Q
        if self._measure is None or self._measure[0] != (M, Q):
            measure = PairMeasure(self.problem, self.lattice.r, self.lattice.t, M=M, Q=Q)
            self._measure = ((M, Q), measure)
        return self._measure[1]

    def response(self, overlaps: Overlaps) -> Response:
        """∇²F at a state, on the lattice of its evaluation."""
        self.evaluate(overlaps)
        assert self.lattice is not None
        if self._response is None or self._response[0] != overlaps:
            response = self.lattice.channel.response(self.problem.delta**2 * overlaps.chi)
            self._response = (overlaps, response)
        return self._response[1]

    def lost(self, overlaps: Overlaps) -> float:
        """The weight of the fields of a state at which floating point has lost Z."""
        self.evaluate(overlaps)
        assert self.lattice is not None
        lost = self.lattice.channel.lost(self.problem.delta**2 * overlaps.chi)
        return 0.0 if lost is None else self.measure(overlaps).mean(lost)

    def too_cold(self, overlaps: Overlaps, *, margin: float = 1.0) -> bool:
        """Whether that is more than ``margin`` times what may be lost."""
        return self.lost(overlaps) > margin * _LOST

    def candidate(self, overlaps: Overlaps) -> Candidate:
        """A state with its free energy and its stability."""
        problem, (average, _) = self.problem, self.evaluate(overlaps)
        return Candidate(
            overlaps,
            overlaps.q(problem.beta),
            free_energy(problem, overlaps, average),
            label_stiffness(problem, overlaps, average),
            stability_of(self, overlaps),
        )

    def energy(self, overlaps: Overlaps) -> float:
        """Mean H of a training pair in a state."""
        self.evaluate(overlaps)
        assert self.lattice is not None
        c = self.problem.delta**2 * overlaps.chi
        if self._energy is None or self._energy[0] != c:
            self._energy = (c, self.lattice.channel.energy(c))
        return self.measure(overlaps).mean(self._energy[1])


class TemperatureError(ConvergenceError, InputError):
    """β is so large that e^{−βH} leaves the range of floating point where the field has weight."""


def cold(problem: Problem, state: Overlaps) -> TemperatureError:
    """The error to raise of a state that is too cold."""
    return TemperatureError(
        f"beta = {problem.beta:g} is too large here: e^(-beta H) leaves the range of floating "
        "point where the field has weight; use a smaller beta, or math.inf for its limit",
        state,
    )


def update(problem: Problem, overlaps: Overlaps, conjugate: Conjugates) -> Overlaps:
    """The plain equations: χ = 1/(λ_w + χ̂), M = −χM̂, Q = M² − χ²Q̂, where λ_w + χ̂ > 0."""
    chi = 1 / (problem.weight_decay + conjugate.chi)
    M = -chi * conjugate.M
    return Overlaps(M, M**2 - chi**2 * conjugate.Q, chi)


def label_stiffness(problem: Problem, overlaps: Overlaps, average: Averages) -> float:
    """1 + χαm² E[y·∇²F y]: 1 minus the slope of the plain update of M."""
    return 1 + overlaps.chi * problem.load * problem.m**2 * average.stiffness


def gradient(problem: Problem, overlaps: Overlaps, conjugate: Conjugates) -> Array:
    """∂f/∂M, ∂f/∂Q at fixed χ, and ∂f/∂χ at fixed q, M: all 0 at a saddle point."""
    chi = overlaps.chi
    return np.array([
        overlaps.M / chi + conjugate.M,
        (problem.weight_decay + conjugate.chi - 1 / chi) / 2,
        ((overlaps.Q - overlaps.M**2) / chi**2 + conjugate.Q) / 2,
    ])  # fmt: skip


def stability_of(saddle: SaddlePoint, overlaps: Overlaps) -> Stability:
    """f'' of a saddle point by differences of f', on the lattice of its evaluation.

    At M = 0 nothing couples to M, and f'' along it is the label stiffness over χ.
    """
    problem, beta = saddle.problem, saddle.problem.beta
    average, _ = saddle.evaluate(overlaps)
    overlaps = saddle.resolved(overlaps)
    q, chi = overlaps.q(beta), overlaps.chi
    here = np.array([overlaps.M, overlaps.Q, chi])
    moves = np.diag([math.sqrt(q), q, chi]) * _PROBE
    narrow = _NARROW * q > overlaps.Q

    def slope(x: Array, *, wider: bool = False) -> Array:
        state = Overlaps(*(float(v) for v in x))
        at = saddle.afresh().evaluate(state) if wider else saddle.on_lattice(state)
        return gradient(problem, state, at[1])

    base = slope(here)
    f = np.zeros((3, 3))
    for i in range(3):
        if i == 0 and overlaps.M == 0:
            f[0, 0] = label_stiffness(problem, overlaps, average) / chi
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


def at_eigenvalue(saddle: SaddlePoint, overlaps: Overlaps) -> tuple[float, float]:
    """AT of a state on a saddle point's lattice, and what it changes on every second node.

    The change is far above the error of a rule that converges as fast as this one. AT is infinite
    where it grows with β.
    """
    problem = saddle.problem
    response, measure = saddle.response(overlaps), saddle.measure(overlaps)
    scale = problem.load * problem.delta**4 * overlaps.chi**2
    if response.growth is not None and scale * measure.mean(response.growth) > _GROWTH:
        return math.inf, 0.0
    assert saddle.lattice is not None
    r, t = saddle.lattice.r.thinned(), saddle.lattice.t.thinned()
    thin = PairMeasure(problem, r, t, M=overlaps.M, Q=saddle.resolved(overlaps).Q)
    norm = squared_norm(response)
    at = scale * measure.mean(norm)
    return at, abs(at - scale * thin.mean(norm[:, ::2, ::2]))


def squared_norm(curvature: Response) -> Array:
    """‖∇²F‖² (Frobenius), which does not change when the plane is turned."""
    norm: Array = curvature.rr**2 + 2 * curvature.rt**2 + curvature.tt**2
    return norm


def resolved_at(saddle: SaddlePoint, overlaps: Overlaps) -> tuple[float, float]:
    """AT on the lattice of a solution, or a finer one where it needs that, and its error.

    Squares of ∇²F are sharper than the forces that the equations average: where minima compete off
    the axes or in a narrow, cold field, a lattice good for M and q is too coarse for AT.
    """
    at, error = at_eigenvalue(saddle, overlaps)
    for fineness in () if saddle.problem.zero_temperature else _FINENESS:
        assert saddle.lattice is not None
        if error <= _AT_TOLERANCE * at or saddle.lattice.full:
            break
        saddle = SaddlePoint(saddle.problem, fineness=fineness)
        at, error = at_eigenvalue(saddle, overlaps)
    return at, error


def solution_of(
    saddle: SaddlePoint,
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
        label_stiffness=label_stiffness(problem, overlaps, average),
        stability=stability,
        residual=point.residual,
        iterations=point.iterations,
        converged=point.converged,
        errors=errors,
        second=second,
    )
