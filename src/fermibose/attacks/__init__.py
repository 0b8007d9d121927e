"""How much noise or adversary does a classifier survive, and can that number be trusted?

Any torch module that maps images (n, …) to logits (n, classes) can be attacked.
"""

from fermibose.attacks.adversary import Adversary
from fermibose.attacks.auditing import Audit, audit
from fermibose.attacks.auto import auto_attack
from fermibose.attacks.certificate import Certificate, certified_radius
from fermibose.attacks.curves import (
    PAPER_STRENGTHS,
    Band,
    Curve,
    mean_curve,
    robustness_area,
)
from fermibose.attacks.methods import fgsm, gaussian_noise, one_step_l2, pgd
from fermibose.attacks.result import AttackResult
from fermibose.attacks.strengths import accuracy_curve
from fermibose.attacks.threat import LARGEST, ThreatModel

__all__ = [
    "LARGEST",
    "PAPER_STRENGTHS",
    "Adversary",
    "AttackResult",
    "Audit",
    "Band",
    "Certificate",
    "Curve",
    "ThreatModel",
    "accuracy_curve",
    "audit",
    "auto_attack",
    "certified_radius",
    "fgsm",
    "gaussian_noise",
    "mean_curve",
    "one_step_l2",
    "pgd",
    "robustness_area",
]
