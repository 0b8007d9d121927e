"""The states of the weights: overlaps, a solved saddle point, and what they predict of new data."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gamma, hyp1f1, ndtr

from fermibose.checks import is_number
from fermibose.errors import InputError
from fermibose.summary import Summarised
from fermibose.theory.channel import SQRT2, Axis, pair_values
from fermibose.theory.problem import Array, Problem

Norm: TypeAlias = float | str  # 2, "inf", or any p > 1

# How a state is told: label, attribute, format; "attacked" and "area" are of an attack of ε.
LABELS = (
    ("mean weight M", "M", ".6f"),
    ("self-overlap q", "q", ".6f"),
    ("replica overlap Q", "Q", ".6f"),
    ("response χ", "chi", ".4f"),
    ("free energy f", "free_energy", ".7f"),
    ("entropy s", "entropy", ".6f"),
    ("training energy of a pair", "training_energy", ".6f"),
    ("test loss ε_g", "generalization_loss", ".6f"),
    ("test accuracy", "accuracy", ".2%"),
    ("accuracy under {norm} attack, ε = {eps:g}", "attacked", ".2%"),
    ("area under {norm} attack, ε from 0 to 1", "area", ".4f"),
    ("fermion distance D_F²", "fermion_distance", ".4f"),
    ("boson distance D_B²", "boson_distance", ".4f"),
    ("AT eigenvalue", "at_eigenvalue", ".4f"),
    ("residual", "residual", ".1e"),
    ("numerical error of M, q, Q, χ, relative", "error", ".1e"),
    ("numerical error of AT", "at_error", ".1e"),
    ("iterations", "iterations", "d"),
)
QUANTITIES = (
    "M", "q", "Q", "chi", "free_energy", "generalization_loss", "accuracy", "fermion_distance",
    "boson_distance", "adversarial_area", "training_energy", "mean_field_energy", "energy",
    "entropy", "at_eigenvalue", "stable", "rs_stable", "label_stiffness", "residual",
    "iterations", "error", "at_error",
)  # fmt: skip
# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
# M/√q up to which a state is not ordered.
_LEAVING = 0.1  # where M = 0 is unstable: on its way out of that
_DYING = 1e-4  # elsewhere: what an iteration has left of an M on its way to 0


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
class Stability:
    """How f resists changes around a saddle point, in natural units: all positive in a state.

    Of all Q the one of *largest* f describes weights of given M and q (there are n(n−1)/2 < 0 pairs
    of replicas); over M and q the lowest f wins.
    """

    state: float  # lowest eigenvalue of f'' over M and q, with Q where f is largest
    size: float  # the same over q alone
    freezing: float  # −∂²f/∂χ² at fixed M and q; where Q = 0 it is 1 − AT

    @property
    def stable(self) -> bool:
        """Whether the saddle point is a state of the weights, of lowest f or metastable."""
        return self.state > 0 and self.freezing > 0


@dataclass(frozen=True)
class Candidate:
    """A saddle point, to be compared with others by stability, free energy and order."""

    overlaps: Overlaps
    q: float
    free_energy: float
    label_stiffness: float  # below 0, a state of M = 0 grows a magnetisation
    stability: Stability

    @property
    def ordered(self) -> bool:
        """Whether it tells the clusters apart: M > 0, and not merely on its way out of M = 0."""
        least = _LEAVING if self.label_stiffness < 0 else _DYING
        return abs(self.overlaps.M) > least * math.sqrt(self.q)

    @property
    def stable(self) -> bool:
        """Whether it is a state of the weights."""
        return self.stability.stable

    @property
    def rank(self) -> tuple[bool, float]:
        """Its place among others: the stable ones first, and of these the lowest free energy."""
        return not self.stable, self.free_energy


class Predictions(Summarised):
    r"""What M and q alone predict of new data: losses, distances and accuracies.

    A new pattern of class y has pre-activation z = y m M + Δ√q u, u ~ N(0, 1). With κ = m|M|/√q,

    .. math:: \mathrm{acc} = Φ(κ/Δ), \qquad \mathrm{acc}(ε) = Φ\Bigl(\frac{κ - εΛ/\sqrt q}{Δ}\Bigr)

    under an ℓ_p attack \|δx\|_p <= ε N^{1/p − 1}: components of typical size ε/N, so that ε = m
    cancels the class mean. Whatever the increasing activation, the worst it can do is to move z
    by −yεΛ, with 1/p + 1/p* = 1 and

    .. math:: Λ = \bigl(E|w|^{p^*}\bigr)^{1/p^*}, \qquad w \sim N(M, q - M^2) .

    That is the law of a weight in every phase: turning the inputs around the class direction
    changes nothing, so all that is not along it is isotropic. ℓ₂ has Λ = √q, ℓ∞ has Λ = E|w|.
    """

    problem: Problem

    @property
    def summary(self) -> str:
        """M, q and accuracy, whether they can be used, and of which problem they are."""
        told = f"M {abs(self.M):.4f}, q {self.q:.4f}, accuracy {self.accuracy:.1%}"
        return "; ".join(filter(None, (told, self.remark, self.problem.told())))

    @property
    def remark(self) -> str:
        """Whether the numbers can be used, in words; nothing where there is no doubt."""
        return ""

    @property
    @abstractmethod
    def M(self) -> float:
        """Mean weight Σ w/N."""

    @property
    @abstractmethod
    def q(self) -> float:
        """Self-overlap ⟨w·w⟩/N."""

    @property
    def accuracy(self) -> float:
        """Classification accuracy on new patterns."""
        return accuracy(self.problem, self.M, self.q)

    @cached_property
    def generalization_loss(self) -> float:
        """Mean energy of a new pair, ε_g."""
        return generalization_loss(self.problem, self.M, self.q)

    @property
    def fermion_distance(self) -> float:
        """Mean D² of new fermion pairs."""
        return distances(self.problem, self.M, self.q)[1]

    @property
    def boson_distance(self) -> float:
        """Mean D² of new boson pairs."""
        return distances(self.problem, self.M, self.q)[0]

    @overload
    def adversarial_accuracy(self, eps: float, norm: Norm = 2) -> float: ...
    @overload
    def adversarial_accuracy(self, eps: Sequence[float] | Array, norm: Norm = 2) -> Array: ...
    def adversarial_accuracy(self, eps: ArrayLike, norm: Norm = 2) -> float | Array:
        """Accuracy under an attack of strength eps >= 0: of one, or of an array of them.

        norm: 2, "inf", or any p > 1.
        """
        return adversarial_accuracy(self.problem, self.M, self.q, eps, norm)

    @property
    def adversarial_area(self) -> float:
        """Area under the accuracy-ε curve of ℓ₂ attacks for ε from 0 to 1."""
        return self.robustness_area()

    def robustness_area(self, norm: Norm = 2) -> float:
        """The same under attacks of any norm: 2, "inf", or any p > 1."""
        return robustness_area(self.problem, self.M, self.q, norm)


class State(Predictions):
    """What is known by its overlaps."""

    problem: Problem
    overlaps: Overlaps

    @property
    def M(self) -> float:
        """Mean weight Σ w/N."""
        return self.overlaps.M

    @property
    def q(self) -> float:
        """Self-overlap ⟨w·w⟩/N."""
        return self.overlaps.q(self.problem.beta)

    @property
    def Q(self) -> float:
        """Overlap of two replicas; equal to q at zero temperature."""
        return self.overlaps.Q

    @property
    def chi(self) -> float:
        """Response χ = β(q − Q)."""
        return self.overlaps.chi


@dataclass(frozen=True, repr=False)
class Solution(State):
    """A replica-symmetric saddle point with M >= 0. ``converged`` is True of every one returned."""

    problem: Problem
    overlaps: Overlaps
    conjugates: Conjugates
    free_energy: float  # f, per weight
    training_energy: float  # mean H of a training pair
    mean_field_energy: float  # E F: what one more pair per weight adds to the free energy
    at_eigenvalue: float  # αΔ⁴χ² E‖∇²F‖²; infinite where forces jump at zero temperature
    label_stiffness: float  # 1 + χαm² E[y·∇²F y]: below 0, a state of M = 0 grows a magnetisation
    stability: Stability  # against changes of M, q and Q
    residual: float  # largest undamped change of M/√q, q/q, Q/q, χ/χ
    iterations: int
    converged: bool
    errors: Mapping[str, float] = field(hash=False)  # numerical, absolute, by name of an attribute
    second: Overlaps  # the solution on a second, coarser grid
    rivals: tuple[Candidate, ...] = ()  # other saddle points met on the way

    @property
    def candidate(self) -> Candidate:
        """The saddle point without its observables."""
        stability = self.stability
        return Candidate(self.overlaps, self.q, self.free_energy, self.label_stiffness, stability)

    @property
    def stable(self) -> bool:
        """Whether M, q and Q resist every small change; whether replicas do, ``rs_stable`` says."""
        return self.stability.stable

    @property
    def energy(self) -> float:
        """Mean energy per weight, e = α⟨H⟩ + λ_w q/2."""
        return self.problem.load * self.training_energy + self.problem.weight_decay * self.q / 2

    @property
    def entropy(self) -> float:
        """Entropy per weight, β(e − f) = −∂f/∂T; −∞ at zero temperature: weights are continuous."""
        if self.problem.zero_temperature:
            return -math.inf
        return self.problem.beta * (self.energy - self.free_energy)

    @property
    def error(self) -> float:
        """Numerical error of M, q, Q and χ: the largest, each relative to the number itself."""
        values = {"M": self.M, "q": self.q, "Q": self.Q, "chi": self.chi}
        return max(self.errors[name] / abs(value) for name, value in values.items() if value)

    @property
    def resolved(self) -> bool:
        """Whether q and χ are known to better than a half."""
        least = _LEAST / (self.problem.delta * self.problem.steepness) ** 2
        q, chi = self.errors["q"] / max(self.q, least), self.errors["chi"] / self.chi
        return max(q, chi) < _KNOWN

    @property
    def at_error(self) -> float:
        """Numerical error of the AT eigenvalue (absolute)."""
        return self.errors["at_eigenvalue"]

    @property
    def rs_stable(self) -> bool:
        """Whether replica symmetry holds (de Almeida-Thouless)."""
        return self.at_eigenvalue < 1

    @property
    def remark(self) -> str:
        """Whether replica symmetry holds."""
        word = "stable" if self.rs_stable else "UNSTABLE"
        return f"replica symmetry {word} (AT {self.at_eigenvalue:.3g})"

    def to_dict(self) -> dict[str, Any]:
        """Every parameter of the problem and every quantity, by name: the row of a table."""
        errors = {f"{name}_error": error for name, error in self.errors.items()}
        return self.problem.to_dict() | {name: getattr(self, name) for name in QUANTITIES} | errors


# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_TAIL = 8.5  # widths of the Gaussian that averages over single patterns cover; only doubled
_PAIRS = 6.5  # and over pairs; only doubled

# Chosen by reason.
_KNOWN = 0.5  # relative error of what is still called a number: errors are stated with a margin
_LEAST = 1e-6  # Δ²q in units of 1/max φ′² that counts as no weight
_NODES = 4000  # most nodes on half an axis of pairs, to bound the time
_SINGLE = 200_000  # and on half that of single patterns: arrays of 3 MB
_BLOCK = 32  # rows of pairs evaluated at a time: small arrays stay in the cache


def accuracy(problem: Problem, M: float, q: float) -> float:
    """Fraction of new patterns with sgn(w·x) = y."""
    return float(ndtr(_kappa(problem, M, q) / problem.delta))


def adversarial_accuracy(
    problem: Problem, M: float, q: float, eps: ArrayLike, norm: Norm = 2
) -> float | Array:
    """The same under an attack of strength eps, or of each strength of an array."""
    try:
        strength = np.asarray(eps, dtype=float)
    except (TypeError, ValueError):
        strength = np.array(np.nan)
    if not np.all(strength >= 0):
        raise InputError(f"the strength eps of an attack must be a number >= 0, got {eps!r}")
    reach = _lever(M, q, norm)
    attacked: Array = ndtr((_kappa(problem, M, q) - strength * reach) / problem.delta)
    return attacked if strength.ndim else float(attacked)


def robustness_area(problem: Problem, M: float, q: float, norm: Norm = 2) -> float:
    r"""∫₀¹ acc(ε) dε = (Δ/l)[g(κ/Δ) − g((κ−l)/Δ)], l = Λ/√q, g(x) = xΦ(x) + e^{−x²/2}/√(2π)."""

    def g(x: float) -> float:
        return x * float(ndtr(x)) + math.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)

    kappa, delta, reach = _kappa(problem, M, q), problem.delta, _lever(M, q, norm)
    return delta / reach * (g(kappa / delta) - g((kappa - reach) / delta))


def _lever(M: float, q: float, norm: Any) -> float:
    """Λ/√q: how far attacks of a norm reach, in units of ℓ₂ ones; no weights are like small ones.

    E|w|^s = (2v)^{s/2} Γ((1+s)/2)/√π · ₁F₁(−s/2; 1/2; −M²/2v) with v = q − M².
    """
    p = math.inf if norm == "inf" else norm
    if p != math.inf and not (is_number(p) and p > 1):
        raise InputError(
            f'norm must be 2, "inf" or a number p > 1, got {norm!r}'
            + (": ℓ₁ attacks gather on the largest weight, which grows with N" * (p == 1))
        )
    dual = 1.0 if p == math.inf else float(p) / (float(p) - 1)
    mean = abs(M) / math.sqrt(q) if q else 0.0
    variance = 1 - mean**2
    if variance <= 0:
        return 1.0
    moment = hyp1f1(-dual / 2, 0.5, -(mean**2) / (2 * variance))
    moment *= (2 * variance) ** (dual / 2) * gamma((1 + dual) / 2) / math.sqrt(math.pi)
    return float(moment ** (1 / dual))


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
        return (1 - problem.bosons) * float(problem.fermion_energy(np.zeros(1))[0])
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
    bosons = problem.bosons
    return bosons * boson + (1 - bosons) * float(r.gaussian(mean, width)[0] @ fermion)


def _kappa(problem: Problem, M: float, q: float) -> float:
    return problem.m * abs(M) / math.sqrt(q) if q else 0.0
