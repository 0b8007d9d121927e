r"""What a solution predicts: losses, distances and accuracies on new data, from M and q alone.

A new pattern of class y has pre-activation z = y m M + Δ√q u with u ~ N(0, 1). With κ = m|M|/√q,

.. math:: \mathrm{acc} = Φ(κ/Δ), \qquad \mathrm{acc}(ε) = Φ((κ-ε)/Δ)

for an ℓ₂ attack of strength ε (scaled so that it moves w·x by an amount of order one): the gradient
of the loss is along w, and the attack moves z by −yε√q whatever the increasing activation.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from fermibose.errors import InputError
from fermibose.theory.channel import SQRT2, Axis, pair_values
from fermibose.theory.problem import Array, Problem

_TAIL = 8.5  # widths of the Gaussian that averages over single patterns cover
_PAIRS = 6.5  # and over pairs
_NODES = 4000  # most nodes on half an axis of pairs
_SINGLE = 200_000  # and on half that of single patterns
_BLOCK = 32  # rows of pairs evaluated at a time: small arrays stay in the cache


def accuracy(problem: Problem, M: float, q: float) -> float:
    """Fraction of new patterns with sgn(w·x) = y."""
    return float(ndtr(_kappa(problem, M, q) / problem.delta))


def adversarial_accuracy(problem: Problem, M: float, q: float, eps: ArrayLike) -> float | Array:
    """The same under an ℓ₂ attack of strength eps, or of each strength of an array."""
    try:
        strength = np.asarray(eps, dtype=float)
    except (TypeError, ValueError):
        strength = np.array(np.nan)
    if not np.all(strength >= 0):
        raise InputError(f"the strength eps of an attack must be a number >= 0, got {eps!r}")
    attacked: Array = ndtr((_kappa(problem, M, q) - strength) / problem.delta)
    return attacked if strength.ndim else float(attacked)


def adversarial_area(problem: Problem, M: float, q: float) -> float:
    r"""∫₀¹ acc(ε) dε = Δ[g(κ/Δ) − g((κ−1)/Δ)] with g(x) = xΦ(x) + e^{−x²/2}/√(2π)."""

    def g(x: float) -> float:
        return x * float(ndtr(x)) + math.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)

    kappa, delta = _kappa(problem, M, q), problem.delta
    return delta * (g(kappa / delta) - g((kappa - 1) / delta))


def distances(problem: Problem, M: float, q: float) -> tuple[float, float]:
    """Mean D² of new boson and of new fermion pairs.

    E D² = 2 Var φ(z) for two patterns of one class, averaged over the classes; for opposite classes
    the squared difference of the class means comes on top.
    """
    mean, width = problem.m * abs(M), problem.delta * math.sqrt(q)
    # In units of the width: φ changes over 1/(width φ′), however wide the field is.
    step = max(min(0.02, 0.25 / max(1.0, width * problem.steepness)), _TAIL / _SINGLE)
    axis = Axis.uniform(step, _TAIL, folded=False)
    weights = np.exp(-(axis.nodes**2) / 2) * axis.weights / math.sqrt(2 * math.pi)
    classes = [problem.phi(y * mean + width * axis.nodes) for y in (1.0, -1.0)]
    means = [float(weights @ phi) for phi in classes]
    variance = sum(float(weights @ (x - c) ** 2) for x, c in zip(classes, means, strict=True))
    return variance, variance + (means[0] - means[1]) ** 2


def generalization_loss(problem: Problem, M: float, q: float) -> float:
    r"""ε_g: mean energy of a new pair, ρ E[D²/2] + (1−ρ) E[φ(d_F − D²)/2]."""
    if q == 0:  # no weight at all: all outputs are the same
        return (1 - problem.rho) * float(problem.fermion_energy(np.zeros(1))[0])
    mean, width = SQRT2 * problem.m * abs(M), problem.delta * math.sqrt(q)
    boson = distances(problem, M, q)[0] / 2
    reach = mean + _PAIRS * width
    corner = min(0.04, max(0.03, 0.4 * math.sqrt(problem.softness))) / problem.steepness
    step = max(min(corner, width / 4), reach / _NODES)
    r = Axis.uniform(step, reach)
    t = Axis.uniform(step, _PAIRS * width, folded=problem.odd)
    over_t = t.gaussian(0.0, width)[0]
    phi1, phi2 = pair_values(problem.phi, r, t)
    blocks = [slice(i, i + _BLOCK) for i in range(0, r.nodes.size, _BLOCK)]
    rows = [problem.fermion_energy((phi1[b] - phi2[b]) ** 2) @ over_t for b in blocks]
    fermion = np.concatenate(rows)
    return problem.rho * boson + (1 - problem.rho) * float(r.gaussian(mean, width)[0] @ fermion)


def _kappa(problem: Problem, M: float, q: float) -> float:
    return problem.m * abs(M) / math.sqrt(q) if q else 0.0
