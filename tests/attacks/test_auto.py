"""AutoAttack. Oracles: the reference run directly, exact answers on linear models, its warnings."""

import builtins
import logging

import numpy as np
import pyautoattack
import pytest
import torch
from torch import nn

from fermibose.attacks import ThreatModel, auto_attack, pgd
from fermibose.attacks.auto import Frame, ensemble
from fermibose.errors import FermiboseError, InputError

EPSILON = {"linf": 0.08, "l2": 0.6}


class AsImages(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x.flatten(1))


@pytest.mark.parametrize(
    ("norm", "attacks"), [("linf", None), ("l2", ["apgd-ce", "apgd-t", "fab-t"])]
)
def test_it_is_the_reference(net, images, norm, attacks):
    """pyautoattack (standard, or without the slow Square) in its own layout finds the same."""
    x, y = images[0][::3], images[1][::3]
    epsilon = EPSILON[norm]
    correct = net(x).argmax(1) == y
    state = torch.get_rng_state()
    found = auto_attack(net, x, y, ThreatModel(norm, epsilon), seed=1, attacks=attacks)
    assert torch.equal(state, torch.get_rng_state())  # though the reference seeds the global one
    reference = pyautoattack.AutoAttack(
        AsImages(net), norm={"linf": "Linf", "l2": "L2"}[norm], eps=epsilon, seed=1
    )
    reference.attacks_to_run = attacks or reference.attacks_to_run
    square = x[correct].view(-1, 1, 8, 8)
    with torch.random.fork_rng():
        theirs, _ = reference.run_standard_evaluation(square, y[correct], batch_size=500)
    torch.testing.assert_close(found.examples[correct], theirs.flatten(1))
    withstand = net(theirs).argmax(1) == y[correct]
    assert torch.equal(found.robust[correct], withstand)
    assert not found.robust[~correct].any()
    assert found.flags == ()
    assert 0.1 < found.robust_accuracy < found.clean_accuracy - 0.1
    ours = pgd(net, x, y, ThreatModel(norm, epsilon), restarts=5)
    assert abs(ours.robust_accuracy - found.robust_accuracy) <= 0.02


@pytest.mark.parametrize(("classes", "norm"), [(2, "l2"), (3, "linf")])
def test_few_classes_flat_inputs_and_other_bounds(linear, classes, norm):
    """Linear logits: fooled iff some margin falls below ε‖w_y − w_k‖_*; bounds too far to bind."""
    rng = np.random.default_rng(classes)
    x, w = rng.normal(size=(40, 7)), rng.normal(size=(classes, 7))
    y = (x @ w.T).argmax(1)
    threat = ThreatModel(norm, 0.25, (-8.0, 8.0))
    exact = []
    for image, label in zip(x, y, strict=True):
        gaps = [
            (w[label] - w[k]) @ image
            - 0.25 * np.linalg.norm(w[label] - w[k], 1 if norm == "linf" else 2)
            for k in range(classes)
            if k != label
        ]
        exact.append(min(gaps) > 0)
    found = auto_attack(linear(w), x.astype(np.float32), y, threat, square_queries=200)
    assert np.mean(exact) > 0.2
    np.testing.assert_array_equal(found.robust.numpy(), exact)
    assert found.parameters["attacks"] == list(ensemble(classes))
    change = (found.examples - torch.tensor(x)).norm(torch.inf if norm == "linf" else 2, dim=1)
    assert change.max() <= 0.25 * (1 + 1e-4)
    assert not found.flags


def test_the_frame_lays_flat_inputs_out_as_a_square():
    x = torch.rand(3, 7) * 4 - 2
    frame = Frame(nn.Identity(), x.shape[1:], (-2.0, 2.0))
    unit = frame.enter(x)
    assert unit.shape == (3, 1, 5, 5)
    assert unit.min() >= 0
    assert unit.max() <= 1
    torch.testing.assert_close(frame.leave(unit), x)
    torch.testing.assert_close(frame(unit), x)
    picture = torch.rand(2, 3, 6, 7)
    assert Frame(nn.Identity(), picture.shape[1:], (0.0, 1.0)).enter(picture) is not None
    assert Frame(nn.Identity(), picture.shape[1:], (0.0, 1.0)).enter(picture).shape == picture.shape


def test_pictures_go_in_as_they_are(digits):
    """A small convolutional net, whose inputs have channels, rows and columns."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3, generator=generator)
    x = torch.tensor(digits.x_test[:30]).view(-1, 1, 8, 8)
    y = model(x).argmax(1)
    found = auto_attack(model, x, y, ThreatModel("linf", 0.05), attacks=("apgd-ce", "apgd-t"))
    assert found.examples.shape == x.shape
    assert torch.equal(model(found.examples).argmax(1) == y, found.robust)
    assert found.robust_accuracy < 0.9


def test_warnings_of_the_reference_become_flags(net, images, caplog, capfd):
    x, y = images[0][:20], images[1][:20]

    class Random(nn.Module):
        def forward(self, x):
            return net(x) + torch.randn(len(x), 10)

    class Probabilities(nn.Module):
        def forward(self, x):
            return net(x).softmax(1)

    logger = logging.getLogger("auto-attack")
    before = (logger.level, logger.propagate, list(logger.handlers))
    noisy = auto_attack(Random(), x, y, ThreatModel(), attacks=("apgd-ce",))
    assert any("randomized defense" in flag for flag in noisy.flags)
    probable = auto_attack(Probabilities(), x, y, ThreatModel(), attacks=("apgd-ce",))
    assert any("probability distribution" in flag for flag in probable.flags)
    assert before == (logger.level, logger.propagate, list(logger.handlers))
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_nothing_correct_means_nothing_attacked(net, images):
    x, _ = images
    wrong = (net(x).argmax(1) + 1) % 10
    found = auto_attack(net, x, wrong, ThreatModel())
    assert found.robust_accuracy == 0
    assert torch.equal(found.examples, x)


@pytest.mark.parametrize(
    "threat", [ThreatModel("linf", 0.0), ThreatModel("l2", 1.0, (0.0, float("inf")))]
)
def test_what_the_reference_cannot_do_is_refused(net, images, threat):
    with pytest.raises(InputError, match="finite bounds"):
        auto_attack(net, *images, threat)


def test_unknown_attacks_are_named(net, images):
    with pytest.raises(InputError, match=r"not \['apgd'\]"):
        auto_attack(net, *images, ThreatModel(), attacks=("apgd",))


def test_the_missing_extra_is_named(net, images, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "pyautoattack":
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(FermiboseError, match=r"pip install 'fermibose\[attacks\]'"):
        auto_attack(net, *images, ThreatModel())
