"""How much noise or adversary does a classifier survive, and can that number be trusted?

Any torch module that maps images (n, …) to logits (n, classes) can be attacked.
"""

from fermibose.attacks.audit import Audit, audit
from fermibose.attacks.auto import auto_attack, check_attack
from fermibose.attacks.certificate import (
    Certificate,
    Proof,
    certified_radius,
    certify,
    check_certifiable,
)
from fermibose.attacks.curves import (
    PAPER_STRENGTHS,
    Band,
    Curve,
    accuracy_curve,
    mean_curve,
    robustness_area,
)
from fermibose.attacks.figures import AXIS, draw_accuracy, draw_audit, draw_examples
from fermibose.attacks.front_end import attack_behind, front_end, unmasked_pgd
from fermibose.attacks.gradient import (
    Adversary,
    LossName,
    fgsm,
    gaussian_noise,
    noisy,
    one_step_l2,
    pgd,
)
from fermibose.attacks.masking import Check
from fermibose.attacks.readout_choice import ReadoutChoice, ReadoutTrial, choose_readout
from fermibose.attacks.victim import AttackResult
from fermibose.threat import LARGEST, ThreatModel

__all__ = [
    "AXIS",
    "LARGEST",
    "PAPER_STRENGTHS",
    "Adversary",
    "AttackResult",
    "Audit",
    "Band",
    "Certificate",
    "Check",
    "Curve",
    "LossName",
    "Proof",
    "ReadoutChoice",
    "ReadoutTrial",
    "ThreatModel",
    "accuracy_curve",
    "attack_behind",
    "audit",
    "auto_attack",
    "certified_radius",
    "certify",
    "check_attack",
    "check_certifiable",
    "choose_readout",
    "draw_accuracy",
    "draw_audit",
    "draw_examples",
    "fgsm",
    "front_end",
    "gaussian_noise",
    "mean_curve",
    "noisy",
    "one_step_l2",
    "pgd",
    "robustness_area",
    "unmasked_pgd",
]
