"""The states of the weights: overlaps, and all that can be read off a solved saddle point."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

from numpy.typing import ArrayLike

from fermibose.theory import observables
from fermibose.theory.problem import Array, Problem

# M, and M/√Q, up to which a state is not ordered.
_LEAVING = (0.1, 0.1)  # where M = 0 is unstable: on its way out of that
_DYING = (1e-6, 1e-4)  # elsewhere: what an iteration has left of an M on its way to 0


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
class Candidate:
    """A saddle point as the coarse grid sees it."""

    overlaps: Overlaps
    free_energy: float
    label_stiffness: float  # below 0, a state of M = 0 grows a magnetisation

    @property
    def ordered(self) -> bool:
        """Whether it tells the clusters apart: M > 0, and not merely on its way out of M = 0."""
        size = abs(self.overlaps.M)
        least, ratio = _LEAVING if self.label_stiffness < 0 else _DYING
        return size > least and size / math.sqrt(self.overlaps.Q) > ratio

    @property
    def locally_stable(self) -> bool:
        """False for a state of M = 0 that grows a magnetisation."""
        return self.ordered or self.label_stiffness >= 0


class Predictions(ABC):
    """What M and q predict of new data."""

    problem: Problem

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
        return observables.accuracy(self.problem, self.M, self.q)

    @cached_property
    def generalization_loss(self) -> float:
        """Mean energy of a new pair, ε_g."""
        return observables.generalization_loss(self.problem, self.M, self.q)

    @property
    def fermion_distance(self) -> float:
        """Mean D² of new fermion pairs."""
        return observables.distances(self.problem, self.M, self.q)[1]

    @property
    def boson_distance(self) -> float:
        """Mean D² of new boson pairs."""
        return observables.distances(self.problem, self.M, self.q)[0]

    @overload
    def adversarial_accuracy(self, eps: float) -> float: ...
    @overload
    def adversarial_accuracy(self, eps: Sequence[float] | Array) -> Array: ...
    def adversarial_accuracy(self, eps: ArrayLike) -> float | Array:
        """Accuracy under an ℓ₂ attack of strength eps >= 0: of one, or of an array of them."""
        return observables.adversarial_accuracy(self.problem, self.M, self.q, eps)

    @property
    def adversarial_area(self) -> float:
        """Area under the accuracy-ε curve for ε from 0 to 1."""
        return observables.adversarial_area(self.problem, self.M, self.q)


@dataclass(frozen=True)
class Solution(Predictions):
    """A replica-symmetric saddle point with M >= 0. ``converged`` is True of every one returned."""

    problem: Problem
    overlaps: Overlaps
    conjugates: Conjugates
    free_energy: float  # f, per weight
    training_energy: float  # mean H of a training pair
    mean_field_energy: float  # E F: what one more pair per weight adds to the free energy
    at_eigenvalue: float  # αΔ⁴χ² E‖∇²F‖²; infinite where forces jump at zero temperature
    at_error: float  # what AT changes when every second node is left out: more than its error
    label_stiffness: float  # 1 + χαm² E[y·∇²F y]: below 0, a state of M = 0 grows a magnetisation
    residual: float  # largest undamped change of M, q, Q, χ (of q or χ above 1, relative)
    iterations: int
    converged: bool
    error: float  # the same change, of M, q, Q and χ, between a second, coarser grid and this one
    second: Overlaps  # the solution on that second grid
    rivals: tuple[Candidate, ...] = ()  # other saddle points met on the way

    @property
    def candidate(self) -> Candidate:
        """The saddle point without its observables."""
        return Candidate(self.overlaps, self.free_energy, self.label_stiffness)

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

    @property
    def energy(self) -> float:
        """Mean energy per weight, e = α⟨H⟩ + λ_w q/2."""
        return self.problem.alpha * self.training_energy + self.problem.weight_decay * self.q / 2

    @property
    def entropy(self) -> float:
        """Entropy per weight, β(e − f) = −∂f/∂T; −∞ at zero temperature: weights are continuous."""
        if self.problem.zero_temperature:
            return -math.inf
        return self.problem.beta * (self.energy - self.free_energy)

    @property
    def rs_stable(self) -> bool:
        """Whether replica symmetry holds (de Almeida-Thouless)."""
        return self.at_eigenvalue < 1
