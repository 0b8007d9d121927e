"""Accuracy as a function of the attack's strength, its band over seeds, and the area under it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.integrate import trapezoid

from fermibose.attacks.result import versions
from fermibose.attacks.threat import ThreatModel
from fermibose.errors import InputError

Floats = npt.NDArray[np.float64]

PAPER_STRENGTHS: tuple[float, ...] = tuple(k / 100 for k in range(80))  # ε = 0, 0.01, …, 0.79


@dataclass(frozen=True, eq=False)
class Curve:
    """Accuracy at each strength, from which images withstand the attack at exactly that ε."""

    attack: str
    threat: ThreatModel  # norm and bounds; its ε plays no role
    epsilons: Floats  # (strengths,), increasing
    robust: npt.NDArray[np.bool_]  # (strengths, n)
    parameters: dict[str, Any]
    flags: tuple[str, ...] = ()  # reasons not to trust the curve

    @property
    def accuracy(self) -> Floats:
        """Fraction of images that withstand at each ε, as the paper draws it, (strengths,)."""
        return np.asarray(self.robust.mean(1))

    @property
    def worst_case(self) -> Floats:
        """Fraction that withstands at ε and at every smaller one, (strengths,).

        An example found within a smaller ball lies in the larger one too, so for a norm-bounded
        attack this is the robust accuracy; it never increases.
        """
        return np.asarray(np.logical_and.accumulate(self.robust).mean(1))

    def as_dict(self) -> dict[str, Any]:
        """Numbers, parameters and versions, ready for JSON."""
        return {
            "attack": self.attack,
            "threat": {key: self.threat.as_dict()[key] for key in ("norm", "bounds")},
            "images": self.robust.shape[1],
            "epsilons": self.epsilons.tolist(),
            "accuracy": self.accuracy.tolist(),
            "parameters": self.parameters,
            "flags": list(self.flags),
            "versions": versions(),
        }


@dataclass(frozen=True, eq=False)
class Band:
    """Mean of several curves (one per seed) with a confidence interval for that mean."""

    epsilons: Floats
    mean: Floats
    low: Floats
    high: Floats


def robustness_area(curve: Curve | Band) -> float:
    """Area under straight lines between the points of the curve, accuracy in percent.

    The published areas are these: they follow so from the published curves over ε = 0, 0.01, …,
    0.79, those of FGSM to four digits and those of noise to 0.1 %. A perfect classifier has 79.
    """
    if len(curve.epsilons) < 2 or not (np.diff(curve.epsilons) > 0).all():
        raise InputError("the area needs the accuracy at two increasing strengths at least")
    accuracy = curve.mean if isinstance(curve, Band) else curve.accuracy
    return 100 * float(trapezoid(accuracy, curve.epsilons))


def mean_curve(curves: Sequence[Curve], *, confidence: float = 0.95) -> Band:
    """Mean over seeds at each ε, with Student's confidence interval for that mean."""
    from scipy.stats import t as student

    if len(curves) < 2:
        raise InputError("a confidence band needs the curves of at least two seeds")
    epsilons = curves[0].epsilons
    if any(not np.array_equal(curve.epsilons, epsilons) for curve in curves):
        raise InputError("the curves were measured at different strengths; measure them alike")
    values = np.array([curve.accuracy for curve in curves])
    error = values.std(0, ddof=1) / len(values) ** 0.5
    half = error * student.ppf((1 + confidence) / 2, len(values) - 1)
    mean = values.mean(0)
    return Band(epsilons, mean, np.clip(mean - half, 0, 1), np.clip(mean + half, 0, 1))
