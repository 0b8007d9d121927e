r"""Replica-symmetric equations: overlaps, averages over the channel, conjugates, free energy.

One form serves every temperature. With χ = β(q − Q), c = Δ²χ and ω = y m M + Δ√Q v,

.. math::
    λ_w + \hatχ = 1/χ, \quad M = -χ\hat M, \quad Q - M^2 = -χ^2 \hat Q, \quad q = Q + χ/β

    \hat M = α m\, E[y·∇F], \quad \hat Q = -αΔ^2\, E|∇F|^2, \quad
    \hatχ = αΔ^2\, E\,\mathrm{tr}∇^2F = \frac{αΔ}{\sqrt Q}\, E[v·∇F]

(hats in units of β, β² and β; at zero temperature Q = q). The last form of χ̂ holds where ∇F jumps.
"""

import math
from dataclasses import dataclass

import numpy as np

from fermibose.theory.channel import Channel, Response
from fermibose.theory.grid import SQRT2, Axis
from fermibose.theory.problem import Array, Problem


@dataclass(frozen=True)
class Overlaps:
    """Order parameters of the weights."""

    M: float  # mean weight, Σ w/N
    Q: float  # overlap of two replicas
    chi: float  # χ = β(q − Q): response to a field

    def q(self, beta: float) -> float:
        """Self-overlap ⟨w·w⟩/N = Q + χ/β."""
        return self.Q + self.chi / beta


@dataclass(frozen=True)
class Conjugates:
    """Conjugate order parameters, in units of β (M, χ) and β² (Q)."""

    M: float
    Q: float
    chi: float  # (2q̂ − Q̂)/β of the paper


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
        self._kinds = np.array([problem.rho, 1 - problem.rho])
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
    alpha, delta = problem.alpha, problem.delta
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
        + problem.alpha * average.F
    )


def squared_norm(curvature: Response) -> Array:
    """‖∇²F‖² (Frobenius), which does not change when the plane is turned."""
    norm: Array = curvature.rr**2 + 2 * curvature.rt**2 + curvature.tt**2
    return norm
