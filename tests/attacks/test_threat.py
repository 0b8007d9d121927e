"""The threat model and the checks before an attack. Oracle: what a person must be told."""

import numpy as np
import pytest
import torch
from torch import nn

from fermibose.attacks import ThreatModel, fgsm, gaussian_noise, one_step_l2, pgd
from fermibose.errors import InputError

X, Y = np.full((3, 4), 0.5, np.float32), np.array([0, 1, 2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"norm": "l1"}, "norm must be one of 'linf', 'l2', 'noise', got 'l1'"),
        ({"epsilon": -0.1}, r"epsilon must be a finite number >= 0 and <= 1e\+15, got -0.1"),
        ({"epsilon": float("nan")}, "epsilon must be"),
        ({"epsilon": float("inf")}, "epsilon must be"),
        ({"bounds": (1.0, 0.0)}, "bounds must be"),
        ({"bounds": (0.0, float("nan"))}, "bounds must be"),
    ],
)
def test_impossible_threats_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        ThreatModel(**arguments)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ((255 * X).astype(np.uint8), Y, "divide by 255"),
        (X + 1, Y, r"lie in \[1.5, 1.5\], outside the bounds \(0.0, 1.0\)"),
        (X - 1, Y, "normalisation inside the model"),
        (X * np.nan, Y, "NaN or infinity"),
        (X[0], Y, r"shape \(n, …\), got \(4,\)"),
        (X[:0], Y[:0], "shape"),
        (X, Y[:2], "one whole number >= 0 for each of the 3 images"),
        (X, Y.astype(float), "one whole number"),
        (X, Y - 1, "one whole number"),
        (X, Y == 1, "one whole number"),
        (np.array([["a"]]), [0], "must be numbers"),
        (X, [0, 1, 3], "labels go up to 3, but the model knows 3 classes"),
    ],
)
def test_unusable_images_and_labels_are_named_before_anything_runs(x, y, message, linear):
    model = linear(np.ones((3, 4)))
    with pytest.raises(InputError, match=message):
        fgsm(model, x, y, ThreatModel())
    assert model.seen in (0, 3)  # at most one look at the clean images


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda x: x, "must be a torch module"),
        (nn.Flatten(0), r"logits of shape \(3, classes\)"),
        (nn.Linear(4, 1), "two classes as two logits"),
    ],
)
def test_unusable_models_are_named(model, message):
    with pytest.raises(InputError, match=message):
        fgsm(model, X, Y, ThreatModel())


def test_a_model_that_returns_nan_is_refused(linear):
    with pytest.raises(InputError, match="returns NaN"):
        fgsm(linear(np.full((3, 4), np.nan)), X, Y, ThreatModel())


@pytest.mark.parametrize(
    ("attack", "norm", "message"),
    [
        (fgsm, "l2", "fgsm needs a threat model with norm='linf', got 'l2'"),
        (one_step_l2, "linf", "one_step_l2 needs"),
        (pgd, "noise", "norm='linf' or norm='l2'"),
        (gaussian_noise, "linf", "gaussian_noise needs"),
    ],
)
def test_an_attack_refuses_a_norm_it_is_not_made_for(attack, norm, message, linear):
    with pytest.raises(InputError, match=message):
        attack(linear(np.ones((3, 4))), X, Y, ThreatModel(norm))


@pytest.mark.parametrize(
    "bad",
    [
        {"steps": 0},
        {"restarts": 0},
        {"step_size": 0.0},
        {"losses": ()},
        {"losses": ("hinge",)},
        {"batch_size": 0},
        {"dtype": torch.float16},
    ],
)
def test_impossible_attack_parameters_are_refused(bad, linear):
    with pytest.raises(InputError):
        pgd(linear(np.ones((3, 4))), X, Y, ThreatModel(), **bad)


def test_normalisation_inside_the_model_gives_the_attack_on_its_own_scale(net, images):
    """A net on pixels 0..255 that divides inside is exactly the net on [0, 1], strengths × 255."""
    x, y = images

    class Bytes(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, pixels):
            return self.net(pixels / 255)

    small = fgsm(net, x, y, ThreatModel("linf", 0.1))
    large = fgsm(Bytes(), 255 * x, y, ThreatModel("linf", 25.5, (0.0, 255.0)))
    torch.testing.assert_close(large.examples / 255, small.examples)
    assert large.robust_accuracy == small.robust_accuracy
