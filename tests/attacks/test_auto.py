"""AutoAttack. Oracles: the reference run directly, exact answers on linear models, its warnings."""

import builtins
import logging
import sys

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


def linear_problem(classes, norm, spread):
    """Inputs, labels, weights and who withstands ε = 0.25 without bounds, in closed form.

    Linear logits: fooled iff some margin falls below ε‖w_y − w_k‖ in the dual norm. The last input
    lies anywhere within ±spread, as one of another unit may, and no logit depends on it.
    """
    rng = np.random.default_rng([0, classes])
    x, w = rng.normal(size=(40, 8)), rng.normal(size=(classes, 8))
    x[:, 7], w[:, 7] = rng.uniform(-spread, spread, 40), 0
    x = x.astype(np.float32).astype(np.float64)
    y = (x @ w.T).argmax(1)
    gaps = []
    for image, label in zip(x, y, strict=True):
        rivals = [w[label] - w[k] for k in range(classes) if k != label]
        order = 1 if norm == "linf" else 2
        gaps.append(min(gap @ image - 0.25 * np.linalg.norm(gap, order) for gap in rivals))
    assert np.abs(gaps).min() > 0.01  # nobody on the border, where rounding would decide
    assert 0.2 < np.mean(np.array(gaps) > 0) < 0.9
    return x, y, w, np.array(gaps) > 0


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize(
    ("classes", "spread", "bound"), [(2, 4, 8.0), (3, 4, 8.0), (3, 4, np.inf), (3, 1000, 1000.0)]
)
def test_few_classes_flat_inputs_and_other_bounds(linear, classes, norm, spread, bound):
    """Also where the bounds are thousands of ε apart: rounding must not cost the attack."""
    x, y, w, exact = linear_problem(classes, norm, spread)
    threat = ThreatModel(norm, 0.25, (-bound, bound))
    found = auto_attack(linear(w), x.astype(np.float32), y, threat, square_queries=200)
    np.testing.assert_array_equal(found.robust.numpy(), exact)
    assert found.parameters["attacks"] == list(ensemble(classes))
    examples = found.examples.numpy()
    assert np.abs(examples).max() <= bound
    change, rounding = np.abs(examples - x), np.spacing(np.abs(examples))
    if norm == "linf":
        assert (change <= 0.25 * (1 + 1e-6) + rounding).all()
    else:
        assert (np.linalg.norm(np.maximum(change - rounding, 0), axis=1) <= 0.25 * (1 + 1e-6)).all()
    wrong = (examples @ w.T).argmax(1) != y
    np.testing.assert_array_equal(wrong, ~exact)
    assert not found.flags


def test_inputs_too_large_for_float32_are_flagged(linear):
    """Where neighbours in float32 are 4 ε apart the attack cannot move, and must say so."""
    x, y, w, exact = linear_problem(3, "linf", 4)
    x[:, 7] *= 1e7
    threat = ThreatModel("linf", 0.25, (-np.inf, np.inf))
    found = auto_attack(linear(w), x.astype(np.float32), y, threat, attacks=["apgd-ce"])
    assert found.robust_accuracy > np.mean(exact)
    (flag,) = found.flags
    assert "upper bound at best; rescale the inputs" in flag


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


def test_what_the_reference_cannot_do_is_refused(net, images):
    with pytest.raises(InputError, match="epsilon > 0"):
        auto_attack(net, *images, ThreatModel("linf", 0.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attacks": ("apgd",)}, r"got \['apgd'\]"),
        ({"attacks": "apgd"}, r"got \['apgd'\]"),
        ({"attacks": ()}, r"some of .*'square'\], got \[\]"),
        ({"square_queries": 0}, "square_queries must be a whole number of at least 1"),
    ],
)
def test_attacks_that_would_try_nothing_are_refused(net, images, options, message):
    with pytest.raises(InputError, match=message):
        auto_attack(net, *images, ThreatModel(), **options)


@pytest.mark.parametrize(("attack", "classes"), [("apgd-dlr", 2), ("apgd-t", 3)])
def test_losses_that_need_more_classes_are_refused(linear, attack, classes):
    x, y, w, _ = linear_problem(classes, "linf", 4)
    with pytest.raises(InputError, match=f"{attack} needs {classes + 1} classes"):
        auto_attack(linear(w), x, y, ThreatModel("linf", 0.25, (-8.0, 8.0)), attacks=attack)


def test_one_attack_may_be_given_by_its_name(net, images):
    found = auto_attack(net, images[0][:5], images[1][:5], ThreatModel(), attacks="apgd-ce")
    assert found.parameters["attacks"] == ["apgd-ce"]


def test_the_missing_extra_is_named(net, images, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "pyautoattack":
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(FermiboseError, match=r"pip install 'fermibose\[attacks\]'"):
        auto_attack(net, *images, ThreatModel())


class Dynamic(nn.Module):
    """Moves each input a little downhill before it answers."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        with torch.enable_grad():
            point = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.net(point).logsumexp(1).sum(), point)
        return self.net(x - 0.01 * slope)


class Named(nn.Module):
    """Has functions of its own by the names of autograd's."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def grad(self, x):
        return self.backward(x)

    def backward(self, x):
        return self.net(x)

    def forward(self, x):
        return self.grad(x)


def test_a_dynamic_model_is_flagged_and_no_other_after_it(net, images):
    """In one process: what one model does is not held against the next."""
    x, y = images[0][:20], images[1][:20]

    def flags(model):
        return auto_attack(model, x, y, ThreatModel("linf", 0.05), attacks="apgd-ce").flags

    for _ in range(2):
        (flag,) = flags(Dynamic(net))
        assert "differentiates while it answers" in flag
        assert flags(net) == ()
        assert flags(Named(net)) == ()


def test_tracing_survives_the_reference(net, images):
    def trace(*_):
        return None

    def profile(*_):
        return None

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        auto_attack(net, images[0][:5], images[1][:5], ThreatModel(), attacks="apgd-ce")
        after = sys.gettrace(), sys.getprofile()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    assert after == (trace, profile)
