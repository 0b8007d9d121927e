"""Models that return NaN. Oracle: a cliff at a known place, beyond which there is no answer."""

import numpy as np
import pytest
import torch
from torch import nn

from fermibose.attacks import (
    ThreatModel,
    accuracy_curve,
    audit,
    auto_attack,
    fgsm,
    gaussian_noise,
    one_step_l2,
    pgd,
)
from fermibose.attacks.victim import misclassified

EPSILON = 0.1
CORNER = torch.linspace(0.05, 0.45, 33, dtype=torch.float64)  # the first input; the cliff is at ½
BEYOND = CORNER + EPSILON > 0.5


class Cliff(nn.Module):
    """The label wins everywhere by more than ½, but beyond x₀ = ½ all logits are NaN."""

    def __init__(self, label):
        super().__init__()
        self.label = label

    def forward(self, x):
        z = x[:, :1]
        z = torch.where(z > 0.5, torch.nan, z)
        own = torch.full_like(z, 1.0) + 0 * z
        return torch.cat([own, z] if self.label == 0 else [z, own], 1)


@pytest.fixture(params=[0, 1])
def cliff(request):
    """The model with images and labels; the class that an argmax of NaN gives is 0."""
    x = torch.full((len(CORNER), 3), 0.5, dtype=torch.float64)
    x[:, 0] = CORNER
    return Cliff(request.param), x, torch.full((len(x),), request.param)


def nan_points(flags):
    (flag,) = (flag for flag in flags if "returned NaN" in flag)
    return int(flag.split("NaN at ")[1].split()[0])


@pytest.mark.parametrize(
    ("attack", "norm"), [(fgsm, "linf"), (one_step_l2, "l2"), (pgd, "linf"), (pgd, "l2")]
)
def test_an_image_led_to_nan_is_fooled_and_the_result_says_so(cliff, attack, norm):
    found = attack(*cliff, ThreatModel(norm, EPSILON))
    assert torch.equal(found.robust, ~BEYOND)
    assert nan_points(found.flags) == int(BEYOND.sum())
    assert torch.isfinite(found.examples).all()
    harmless = attack(*cliff, ThreatModel(norm, 0.04))
    assert harmless.robust_accuracy == 1
    assert harmless.flags == ()


def test_noise_and_curves_count_nan_as_wrong(cliff):
    found = gaussian_noise(*cliff, ThreatModel("noise", 0.2))
    lost = found.examples[:, 0] > 0.5
    assert 0 < lost.sum() < len(lost)
    assert torch.equal(found.robust, ~lost)
    assert nan_points(found.flags) == int(lost.sum())
    strengths = np.array([0.0, 0.1, 0.2])
    curve = accuracy_curve(*cliff, ThreatModel(), epsilons=strengths)
    beyond = CORNER.numpy() + strengths[:, None] > 0.5
    np.testing.assert_array_equal(curve.robust, ~beyond)
    assert nan_points(curve.flags) == nan_points(curve.as_dict()["flags"]) == beyond.sum()


def test_autoattack_flags_nan(cliff):
    """The reference reads NaN as class 0; whatever that hides from it, the flag is there."""
    model, x, y = cliff
    found = auto_attack(model, x.float(), y, ThreatModel("linf", EPSILON), attacks=["apgd-ce"])
    assert nan_points(found.flags) > 0
    assert found.robust[~BEYOND].all()
    if model.label == 1:
        assert not found.robust[BEYOND].any()


def test_points_that_are_no_numbers_are_no_examples_of_autoattack():
    """√x has an infinite slope at 0, and 0·∞ is NaN; the class never changes, whatever is tried."""

    class Rooted(nn.Module):
        def forward(self, x):
            steep = x.sqrt().sum(1) + (x * 0).sqrt().sum(1)
            return torch.stack([steep - 100, torch.zeros_like(steep)], 1)

    x = torch.zeros(5, 3)
    x[:, 0] = 0.5
    y = torch.ones(5, dtype=torch.long)
    found = auto_attack(Rooted(), x, y, ThreatModel("linf", 0.1), attacks=["apgd-ce"])
    assert found.robust_accuracy == 1
    assert torch.isfinite(found.examples).all()


def test_an_audit_does_not_establish_what_rests_on_nan(cliff):
    """PGD counts whom it leads to the cliff; FAB meets it again, as it searches farther out."""
    found = audit(*cliff, ThreatModel("linf", EPSILON), square_queries=10)
    assert found.robust_accuracy == float((~BEYOND).double().mean())
    (check,) = (check for check in found.checks if check.name == "attacks raise no flag")
    assert not check.passed
    assert nan_points(check.numbers["flags"][:1]) == BEYOND.sum()
    assert not found.established


def test_infinite_logits_are_answers():
    """The logarithm of a probability 0; only NaN leaves the answer open."""
    inf, nan = torch.inf, torch.nan
    logits = torch.tensor([[0.0, -inf], [-inf, 0.0], [nan, nan], [0.0, nan], [inf, 0.0]])
    assert misclassified(logits, torch.zeros(5).long()).tolist() == [False, True, True, True, False]
