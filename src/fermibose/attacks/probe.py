"""What the checks of an audit share: the images they look at, and the answer they give."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, nn

from fermibose.attacks.methods import pgd
from fermibose.attacks.threat import ThreatModel


@dataclass(frozen=True)
class Check:
    """One question put to a robust accuracy, and the answer."""

    name: str
    passed: bool | None  # None: the check cannot tell, so it speaks neither for nor against
    evidence: str  # one line, with numbers
    numbers: dict[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> Literal["passed", "inconclusive", "FAILED"]:
        """How it ended, in a word."""
        if self.passed is None:
            return "inconclusive"
        return "passed" if self.passed else "FAILED"


@dataclass(frozen=True, eq=False)
class Probe:
    """The images the checks look at, with what the strongest white-box attack left of them."""

    model: nn.Module
    x: Tensor  # (n, …), all classified correctly without attack
    y: Tensor
    withstood: Tensor  # (n,) bool: withstood every white-box attack
    classes: int
    threat: ThreatModel
    tolerance: float  # fraction of the images by which two attacks may differ
    seed: int

    def accuracy(self, **options: Any) -> float:
        """Accuracy under PGD on the cross-entropy, the attack that masking defeats first."""
        settings: dict[str, Any] = {"losses": ("cross_entropy",), "seed": self.seed} | options
        model, threat = settings.pop("model", self.model), settings.pop("threat", self.threat)
        found = pgd(model, self.x, self.y, threat, show=False, **settings)
        return found.robust_accuracy


class Scaled(nn.Module):
    """The model with its logits multiplied by a constant."""

    def __init__(self, model: nn.Module, factor: float) -> None:
        super().__init__()
        self.model, self.factor = model, factor

    def forward(self, x: Tensor) -> Tensor:
        """The logits times the factor."""
        return self.model(x) * self.factor  # type: ignore[no-any-return]


def largest_rise(values: Sequence[float]) -> float:
    """By how much the values ever rise above their lowest so far."""
    lowest, rise = values[0], 0.0
    for value in values[1:]:
        rise, lowest = max(rise, value - lowest), min(lowest, value)
    return rise


def percent(fraction: float) -> str:
    """A fraction as it stands in the evidence."""
    return f"{100 * fraction:.1f} %"
