"""What an attack returns: the worst example of each image, and what was done to find it."""

import platform
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fermibose import __version__
from fermibose.attacks.threat import ThreatModel


@dataclass(frozen=True, eq=False)
class AttackResult:
    """The outcome of one attack on n images.

    ``robust_accuracy`` is the worst case per example: an image counts only if it is classified
    correctly without attack and withstood everything that was tried on it.
    """

    attack: str
    threat: ThreatModel
    examples: Tensor  # (n, …): the worst input found; the image itself where it is misclassified
    correct: Tensor  # (n,) bool: classified correctly without attack
    robust: Tensor  # (n,) bool: correct, and withstood the attack
    parameters: dict[str, Any] = field(default_factory=dict)  # steps, restarts, seed, …
    flags: tuple[str, ...] = ()  # reasons not to trust the number
    seconds: float = 0.0

    @property
    def clean_accuracy(self) -> float:
        """Fraction of images classified correctly without attack."""
        return float(self.correct.double().mean())

    @property
    def robust_accuracy(self) -> float:
        """Fraction of images still classified correctly at the worst example found."""
        return float(self.robust.double().mean())

    @property
    def standard_error(self) -> float:
        """Binomial standard error of the robust accuracy, from the finite number of images."""
        p = self.robust_accuracy
        return float((p * (1 - p) / len(self.robust)) ** 0.5)

    def as_dict(self) -> dict[str, Any]:
        """Numbers, parameters and versions, ready for JSON (without the examples)."""
        return {
            "attack": self.attack,
            "threat": self.threat.as_dict(),
            "images": len(self.robust),
            "clean_accuracy": self.clean_accuracy,
            "robust_accuracy": self.robust_accuracy,
            "standard_error": self.standard_error,
            "parameters": self.parameters,
            "flags": list(self.flags),
            "seconds": round(self.seconds, 3),
            "versions": versions(),
        }


def versions() -> dict[str, str]:
    """The versions a robustness number may depend on."""
    return {
        "fermibose": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
