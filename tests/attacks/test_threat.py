"""The threat model and the checks before an attack. Oracle: what a person must be told."""

import json
from itertools import zip_longest

import numpy as np
import pytest
import torch
from torch import nn

from fermibose.attacks import (
    Adversary,
    ThreatModel,
    accuracy_curve,
    certify,
    check_attack,
    fgsm,
    gaussian_noise,
    one_step_l2,
    pgd,
)
from fermibose.errors import InputError

X, Y = np.full((3, 4), 0.5, np.float32), np.array([0, 1, 2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"norm": "l1"}, "norm must be 'linf' or 'l2' or 'noise', got 'l1'"),
        ({"epsilon": -0.1}, r"epsilon must be a finite number >= 0 and <= 1e\+15, got -0.1"),
        ({"epsilon": float("nan")}, "epsilon must be"),
        ({"epsilon": float("inf")}, "epsilon must be"),
        ({"bounds": (1.0, 0.0)}, "bounds must be"),
        ({"bounds": None}, "bounds must be"),
        ({"bounds": ("a", "b")}, "bounds must be"),
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
        ([[0.1, 0.2], [0.3]], [0, 1], "must be arrays of numbers"),
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


FLOATS = (">f4", "<f4", ">f8", np.longdouble)
WHOLE = (">i8", "<i2", np.uint8, np.uint16, np.uint32, np.uint64)


@pytest.mark.parametrize(("kind", "whole"), list(zip_longest(FLOATS, WHOLE, fillvalue="<i4")))
def test_arrays_of_any_layout_are_the_same_images(kind, whole, net, images):
    """Foreign byte orders, unsigned labels, reversed and strided views: torch refuses them all."""
    x, y = (tensor.numpy() for tensor in images)
    kind = "<f4" if kind == "<i4" else kind
    expected = fgsm(net, x, y, ThreatModel())
    found = fgsm(net, x.astype(kind), y.astype(whole), ThreatModel())
    assert torch.equal(found.robust, expected.robust)
    assert torch.equal(found.examples, expected.examples)
    backwards = fgsm(net, x.astype(kind)[::-1], y.astype(whole)[::-1], ThreatModel())
    assert torch.equal(backwards.robust, expected.robust.flip(0))
    other = np.repeat(np.asfortranarray(x), 2, axis=1).astype(kind)[:, ::2]
    assert torch.equal(fgsm(net, other, y, ThreatModel()).robust, expected.robust)


def test_one_loss_may_be_given_by_its_name(net, images):
    alone = pgd(net, *images, ThreatModel(), losses="margin", steps=3)
    assert alone.parameters["losses"] == ("margin",)
    listed = pgd(net, *images, ThreatModel(), losses=["margin"], steps=3)
    assert torch.equal(alone.examples, listed.examples)


def test_strengths_of_numpy_are_ready_for_json():
    threat = ThreatModel("linf", np.float32(0.5), (np.float64(0), np.inf))
    record = json.loads(json.dumps(threat.as_dict(), allow_nan=False))
    assert record == {"norm": "linf", "epsilon": 0.5, "bounds": [0.0, None]}


def test_a_model_that_returns_nan_is_refused(linear):
    with pytest.raises(InputError, match="returns NaN"):
        fgsm(linear(np.full((3, 4), np.nan)), X, Y, ThreatModel())


@pytest.mark.parametrize(
    ("attack", "norm", "message"),
    [
        (fgsm, "l2", "fgsm needs the norm linf, got l2"),
        (one_step_l2, "linf", "one_step_l2 needs"),
        (pgd, "noise", "linf or l2"),
        (gaussian_noise, "linf", "gaussian_noise needs"),
    ],
)
def test_an_attack_refuses_a_norm_it_is_not_made_for(attack, norm, message, linear):
    with pytest.raises(InputError, match=message):
        attack(linear(np.ones((3, 4))), X, Y, ThreatModel(norm))
    with pytest.raises(InputError, match=message):
        check_attack(attack.__name__, ThreatModel(norm))
    with pytest.raises(InputError, match="attack must be 'fgsm' or 'one_step_l2' or"):
        check_attack("square", ThreatModel(norm))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"steps": 2.5}, "steps must be a whole number"),
        ({"restarts": 0}, "restarts must be"),
        ({"step_size": 0.0}, "step_size .* must be a finite number > 0"),
        ({"losses": ()}, "at least one loss"),
        ({"losses": ("hinge",)}, "got 'hinge'"),
        ({"losses": "hinge"}, "got 'hinge'"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"dtype": torch.float16}, "dtype must be"),
    ],
)
def test_impossible_attack_parameters_are_refused(bad, message, linear):
    with pytest.raises(InputError, match=message):
        pgd(linear(np.ones((3, 4))), X, Y, ThreatModel(), **bad)


def test_an_adversary_without_steps_is_refused():
    model, x, y = nn.Linear(4, 3), torch.tensor(X), torch.tensor(Y)
    with pytest.raises(InputError, match="steps must be a whole number of at least 1, got 0"):
        Adversary(ThreatModel(), steps=0)(model, x, y, torch.Generator())


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


ATTACKS = (fgsm, pgd, one_step_l2, gaussian_noise, accuracy_curve, certify)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_word_is_no_threat_model(attack):
    with pytest.raises(InputError, match=r'like ThreatModel\("linf", 0.1\), got \'linf\''):
        attack(None, [[0.5]], [0], "linf")
