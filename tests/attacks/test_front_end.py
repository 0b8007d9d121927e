"""Attacks behind a front end, against a model whose worst point is known."""

import math

import pytest
import torch
from torch import nn

from fermibose.attacks import (
    ThreatModel,
    attack_behind,
    audit,
    front_end,
    pgd,
    unmasked_pgd,
)
from fermibose.attacks.front_end import carry_back
from fermibose.attacks.masking import Probe, cross_entropy_suffices
from fermibose.attacks.victim import victim_of
from fermibose.errors import InputError
from fermibose.machine import FermiBoseNet, LocalPointwise, Pointwise
from fermibose.threat import LinfBall


def steep(k=40.0, t=0.4):
    layer = LocalPointwise(steepness=(0.1, 1e4), thresholds=(0.01, 1.0))
    layer.log_steepness.fill_(math.log(k))
    layer.threshold.fill_(t)
    return layer


def linear_behind(seed=0, inputs=12):
    """s(x) → two logits ±(w·s + b): the worst point of the box is a corner known in closed form."""
    g = torch.Generator().manual_seed(seed)
    rest = nn.Linear(inputs, 2)
    with torch.no_grad():
        w = torch.randn(inputs, generator=g)
        rest.weight.copy_(torch.stack([w, -w]))
        rest.bias.zero_()
    x = torch.rand(400, inputs, generator=g)
    return rest.double(), w.double(), x.double()


@pytest.mark.parametrize("losses", ["margin", "targeted"])
@pytest.mark.parametrize("eps", [0.02, 0.1, 0.3])
def test_it_is_exact_for_a_linear_model_behind_a_steep_threshold(eps, losses):
    """By climbing, whose steps have to fit the box, and by a leap to its corner."""
    rest, w, x = linear_behind()
    front = steep().double()
    score = front(x) @ w
    y = (score < 0).long()
    lower, upper = front((x - eps).clamp(0, 1)), front((x + eps).clamp(0, 1))
    sign = torch.where(y == 0, 1.0, -1.0)[:, None]
    worst = torch.where(sign * w > 0, lower, upper) @ w  # every term as small as it can be
    robust = worst * sign[:, 0] > 0
    found = attack_behind(front, rest, x, y, ThreatModel("linf", eps), losses=losses, show=False)
    assert torch.equal(found.robust, robust)
    assert 0 < int(robust.sum()) < 400


def test_examples_are_carried_back_into_the_ball_and_fool_the_whole_model():
    rest, w, x = linear_behind(1)
    front = steep(25.0).double()
    y = (front(x) @ w < 0).long()
    found = attack_behind(front, rest, x, y, ThreatModel("linf", 0.1), show=False)
    fooled = ~found.robust
    change = (found.examples - x).abs()
    assert float(change.max()) <= 0.1 + 1e-9
    assert 0 <= float(found.examples.min()) <= float(found.examples.max()) <= 1
    wrong = rest(front(found.examples[fooled])).argmax(1) != y[fooled]
    assert float(wrong.double().mean()) > 0.98  # but for those that rounding carries back


def test_a_plain_attack_is_misled_by_a_step_and_this_one_is_not():
    """A threshold so steep that its gradient is 0 in float32 nearly everywhere."""
    rest, _, x = linear_behind(2)
    front = steep(3000.0)
    whole = nn.Sequential(front, rest.float())
    x = x.float()
    y = whole(x).argmax(1)
    threat = ThreatModel("linf", 0.1)
    plain = pgd(whole, x, y, threat, show=False)
    exact = attack_behind(front, rest, x, y, threat, show=False)
    assert exact.robust_accuracy < plain.robust_accuracy - 0.1


def test_a_threshold_behind_a_scale_is_attacked_as_without_it():
    """Bytes in place of [0, 1], and a ball 16 times as wide."""
    rest, _, x = (part.float() for part in linear_behind(2))
    net = FermiBoseNet(12, (Pointwise(steepness=(0.1, 1e4), thresholds=(0.01, 1.0)),), 2)
    net.local_layers[0].log_steepness.fill_(math.log(3000.0))
    net.readout.weight.copy_(rest.weight.T)
    y = net(x).argmax(1)
    plain = unmasked_pgd(net, x, y, ThreatModel("linf", 0.1), show=False)
    net.take_raw_inputs(torch.zeros(12).double(), torch.full((12,), 1 / 16).double())
    scaled = unmasked_pgd(net, 16 * x, y, ThreatModel("linf", 1.6, (0, 16)), show=False)
    assert scaled.attack == plain.attack == "behind"
    assert scaled.robust_accuracy == pytest.approx(plain.robust_accuracy, abs=0.01)
    blind = pgd(net, 16 * x, y, ThreatModel("linf", 1.6, (0, 16)), show=False)
    assert scaled.robust_accuracy < blind.robust_accuracy - 0.1


def test_it_says_where_the_gradient_behind_is_zero():
    class Flat(nn.Module):
        def forward(self, h):
            return torch.stack([h[:, 0].round(), 1 - h[:, 0].round()], 1)

    x = torch.rand(30, 4, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(steep(4.0), Flat())
    found = attack_behind(*model, x, model(x).argmax(1), ThreatModel("linf", 0.05), show=False)
    assert any("exactly zero" in flag for flag in found.flags)


def test_bisection_inverts_a_monotone_function():
    front = steep(7.0).double()
    g = torch.Generator().manual_seed(3)
    x = torch.rand(50, 4, generator=g).double()
    ball = LinfBall((x - 0.2).clamp(0, 1), (x + 0.2).clamp(0, 1))
    torch.testing.assert_close(carry_back(front, front(x), ball), x, atol=1e-12, rtol=0)


def test_the_front_end_of_a_net_is_found_and_what_is_none_is_refused():
    net = FermiBoseNet(9, (Pointwise(), 6), 3)
    net.initialise(torch.Generator().manual_seed(0))
    front, rest = front_end(net)
    x = torch.rand(5, 9)
    torch.testing.assert_close(rest(front(x)), net(x))
    net.take_raw_inputs(torch.full((9,), 2.0).double(), torch.rand(9).double() + 0.1)
    front, rest = front_end(net)  # in the unit of the net's inputs
    torch.testing.assert_close(rest(front(x)), net(x))
    assert front_end(FermiBoseNet(9, (6,), 3)) is None
    assert front_end(nn.Linear(9, 3)) is None
    threat = ThreatModel("linf", 0.1)
    y = torch.zeros(5, dtype=torch.long)

    class Down(nn.Module):
        def forward(self, x):
            return 1 - x

    with pytest.raises(InputError, match="monotone"):
        attack_behind(Down(), nn.Linear(9, 3), x, y, threat, show=False)
    with pytest.raises(InputError, match="linf"):
        attack_behind(front, rest, x, y, ThreatModel("l2", 0.1), show=False)


def test_the_audit_is_not_taken_in_by_a_steep_threshold_and_names_loose_cross_entropy():
    """A step of float32: in front of it gradients vanish, behind it nothing is hidden."""
    rest, _, x = linear_behind(4)
    net = FermiBoseNet(12, (Pointwise(steepness=(0.1, 1e4), thresholds=(0.01, 1.0)),), 2)
    net.local_layers[0].log_steepness.fill_(math.log(3000.0))
    net.readout.weight.copy_(rest.weight.T)
    x = x.float()[:100]
    y = net(x).argmax(1)
    found = audit(net, x, y, ThreatModel("linf", 0.1), square_queries=50, show=False)
    named = {check.name: check for check in found.checks}
    assert named["front end hides nothing"].outcome == "FAILED"
    assert not found.established
    exact = attack_behind(*front_end(net), x, y, ThreatModel("linf", 0.1), show=False)
    assert found.robust_accuracy <= exact.robust_accuracy + 0.02
    # The same without the step: nothing is in front, and the other checks do not mind.
    plain = nn.Linear(12, 2)
    plain.load_state_dict(rest.float().state_dict())
    honest = audit(plain, x, plain(x).argmax(1), ThreatModel("linf", 0.02), show=False)
    assert {c.name: c for c in honest.checks}["front end hides nothing"].outcome == "passed"


@pytest.mark.parametrize(("gain", "outcome"), [(1.0, "passed"), (1e-7, "inconclusive")])
def test_logits_too_small_for_a_cross_entropy_are_flagged(gain, outcome):
    """At 10⁻⁷ the softmax is flat to rounding, and its gradient is noise; a margin has none."""
    g = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 4))
    with torch.no_grad():
        for p in net.parameters():
            p.normal_(generator=g)
        net[2].weight.mul_(gain)
        net[2].bias.zero_()
    x = torch.rand(150, 20, generator=g)
    y = net(x).argmax(1)
    threat = ThreatModel("linf", 0.05)
    with victim_of(net, x, y, threat) as victim:
        probe = Probe(victim, victim.correct, threat, 0.02, 0)
        assert cross_entropy_suffices(probe).outcome == outcome
        by_margin = ~probe.pgd(losses="margin").robust
        assert by_margin.any()
        assert (probe.fooled | ~by_margin).all()  # what the check finds counts


def test_a_fair_attack_goes_behind_the_threshold_if_there_is_one():
    rest, w, x = (part.float() for part in linear_behind(2))
    front = steep(3000.0)  # where the gradient in front is 0 in float32
    y = (front(x) @ w < 0).long()
    model, threat = nn.Sequential(front, rest), ThreatModel("linf", 0.1)
    assert front_end(model)[0] is front
    fair, masked = unmasked_pgd(model, x, y, threat), pgd(model, x, y, threat)
    behind = attack_behind(front, rest, x, y, threat)
    assert torch.equal(fair.robust, behind.robust)
    assert fair.robust_accuracy < masked.robust_accuracy - 0.1
    assert front_end(nn.Sequential(rest)) is None
    other = ThreatModel("l2", 0.1)
    assert torch.equal(unmasked_pgd(model, x, y, other).robust, pgd(model, x, y, other).robust)
    assert torch.equal(unmasked_pgd(rest, x, y, threat).robust, pgd(rest, x, y, threat).robust)
