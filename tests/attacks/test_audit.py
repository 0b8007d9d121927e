"""The audit. Oracles: honest nets must pass, nets masked in known ways must not."""

import copy
import importlib
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fermibose.attacks import (
    AttackResult,
    Audit,
    Check,
    ThreatModel,
    audit,
    auto_attack,
    masking,
    pgd,
)
from fermibose.attacks.audit import transfer
from fermibose.attacks.gradient import Ascent, pgd_ascent
from fermibose.attacks.masking import Binarisation, Probe, binarisation_test, largest_rise
from fermibose.attacks.victim import Victim, victim_of
from fermibose.errors import FermiboseError, InputError
from fermibose.machine import Recipe, train_mlp

auditing = importlib.import_module("fermibose.attacks.audit")  # which its function hides
THREAT = ThreatModel("linf", 0.08)
QUERIES = 500  # of Square: enough to catch a mask, and a tenth of the time


class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net


class Loud(Wrapped):
    """Logits × 1000: the cross-entropy has no gradient left."""

    def forward(self, x):
        return 1000 * self.net(x)


class Blocked(Wrapped):
    """The gradient stops at the input."""

    def forward(self, x):
        return self.net(x.detach())


class Staircase(Wrapped):
    """Pixels are rounded: the gradient is zero almost everywhere."""

    def forward(self, x):
        return self.net((16 * x).round() / 16)


class Decoy(Wrapped):
    """The gradient is that of another function: nonzero, and useless."""

    def forward(self, x):
        decoy = 1e-3 * torch.sin(40 * x.flatten(1)[:, ::7]).cumsum(1)[:, -10:]
        return self.net(x.detach()) + decoy - decoy.detach()


def probe_of(model, x, y, withstood, threat=THREAT):
    """The images as an audit of these classifiers would probe them."""
    return Probe(
        Victim(model, x, y, torch.ones(len(y)).bool(), 10, 1000), withstood, threat, 0.02, 0
    )


def failed(found):
    return {check.name for check in found.checks if check.outcome == "FAILED"}


@pytest.fixture(scope="module")
def few(images):
    return images[0][::3], images[1][::3]


def test_an_honest_net_is_established_with_the_worst_case_of_all_attacks(net, few):
    honest = audit(net, *few, THREAT)
    assert honest.established, honest.verdict
    assert honest.verdict.startswith("robust accuracy established: ")
    assert len(honest.checks) == 12
    reference = auto_attack(net, *few, THREAT)
    ours = pgd(net, *few, THREAT, restarts=2)
    worst = (reference.robust & ours.robust).double().mean()
    assert honest.robust_accuracy == pytest.approx(float(worst), abs=1 / len(few[1]))
    assert f"{100 * honest.robust_accuracy:.1f} ±" in honest.verdict
    assert honest.clean_accuracy == reference.clean_accuracy
    assert honest.images == len(few[1])

    record = json.loads(json.dumps(honest.as_dict(), allow_nan=False))
    assert record["established"] is True
    assert record["verdict"] == honest.verdict
    assert record["threat"]["epsilon"] == 0.08
    assert {check["name"] for check in record["checks"]} == {c.name for c in honest.checks}
    correct = round(honest.clean_accuracy * honest.images)
    assert record["parameters"] == {
        "probe": correct,
        "tolerance": 0.02,
        "square_queries": 5000,
        "seed": 0,
    }
    curve = next(c for c in record["checks"] if c["name"] == "monotone in ε")["numbers"]
    assert curve["accuracy"][0] == 1
    assert curve["accuracy"] == sorted(curve["accuracy"], reverse=True)


def test_an_honest_mlp_is_established_in_l2_too(digits, few):
    mlp = train_mlp(digits.x_train, digits.y_train, Recipe(hidden=(60,), epochs=30)).net
    found = audit(mlp, *few, ThreatModel("l2", 0.5), square_queries=QUERIES)
    assert found.established, found.verdict
    assert "within ℓ2 0.5" in found.verdict


@pytest.mark.parametrize(
    ("mask", "caught_by"),
    [
        (Loud, {"gradients do not vanish", "rescaling finds no more"}),
        (
            Blocked,
            {
                "gradients do not vanish",
                "attacks raise no flag",
                "chance at large ε",
                "white box beats Square",
                "binarisation test",
            },
        ),
        (
            Staircase,
            {"gradients do not vanish", "attacks raise no flag", "chance at large ε"},
        ),
        (Decoy, {"chance at large ε", "white box beats Square", "binarisation test"}),
    ],
)
def test_masked_nets_are_caught(net, few, mask, caught_by):
    found = audit(mask(net), *few, THREAT, square_queries=QUERIES)
    assert not found.established
    assert found.verdict.startswith("not established: ")
    assert caught_by <= failed(found), found.verdict
    for name in caught_by:
        assert name in found.verdict


def test_transfer_from_a_given_rival(net, images):
    """The net as its own rival: transfer is PGD, and finds nothing PGD does not; unless told so."""
    x, y = images
    correct = net(x).argmax(1) == y
    x, y = x[correct], y[correct]
    robust = pgd(net, x, y, THREAT, losses=("cross_entropy",)).robust
    probe = probe_of(net, x, y, robust)
    found = transfer(probe, probe.victim)
    assert found.passed
    assert found.numbers["fooled"] == pytest.approx(1 - float(robust.double().mean()), abs=0.02)
    credulous = replace(probe, withstood=torch.ones_like(robust))
    assert not transfer(credulous, probe.victim).passed


class Switch(Wrapped):
    """The net in evaluation mode, and nothing to climb in training mode."""

    def forward(self, x):
        return self.net(x.detach() if self.training else x)


def test_a_rival_is_attacked_in_evaluation_mode_and_left_as_it_was(net, images):
    """A net in double precision and training mode stays so, and fools as it does in float32."""
    x, y = images
    robust = torch.ones(len(y), dtype=torch.bool)
    probe = probe_of(net, x, y, robust)
    expected = transfer(probe, probe.victim).numbers["fooled"]
    rival = Switch(copy.deepcopy(net)).double().train()
    with victim_of(rival, x, y, THREAT) as other:
        found = transfer(probe, other)
    assert found.numbers["fooled"] == pytest.approx(expected, abs=1 / len(y))
    assert found.numbers["fooled"] > 0.1 + float((net(x).argmax(1) != y).double().mean())
    assert all(module.training for module in rival.modules())
    assert next(rival.parameters()).dtype == torch.float64


def test_images_of_one_class_teach_no_rival(net, images):
    x, y = images
    one = torch.ones(int((y == 0).sum())).bool()
    probe = probe_of(net, x[y == 0], y[y == 0], one, ThreatModel("linf", 0.3))
    assert transfer(probe, None).outcome == "inconclusive"
    assert transfer(probe, probe.victim).outcome == "FAILED"  # one that is given is asked


def test_a_rival_for_other_images_is_refused_before_anything_runs(net, few, monkeypatch):
    monkeypatch.setattr(auditing, "_attack_in_turn", lambda *_: pytest.fail("worked"))
    for rival, message in (("mlp", "must be a torch module"), (nn.Linear(64, 3), "knows 3 class")):
        with pytest.raises(InputError, match=message):
            audit(net, *few, THREAT, rival=rival)


class Scripted(Probe):
    """A probe whose PGD answers from a script, keyed by one option."""

    def accuracy(self, **options):
        return next(answer for key, answer in self.victim.items() if key in options.values())


@pytest.mark.parametrize(
    ("check", "script", "passed"),
    [
        (masking.monotone_in_steps, {5: 0.6, 10: 0.5, 20: 0.4, 40: 0.4, 80: 0.4}, True),
        (masking.monotone_in_steps, {5: 0.6, 10: 0.5, 20: 0.4, 40: 0.45, 80: 0.4}, False),
        (masking.monotone_in_steps, {5: 0.6, 10: 0.5, 20: 0.4, 40: 0.4, 80: 0.3}, False),
        (masking.restarts, {4: 0.4, 5: 0.39}, True),
        (masking.restarts, {4: 0.4, 5: 0.3}, False),
        (masking.precision, {torch.float32: 0.4, torch.float64: 0.41}, True),
        (masking.precision, {torch.float32: 0.4, torch.float64: 0.3}, False),
        (masking.precision, {torch.float32: 0.3, torch.float64: 0.4}, False),
    ],
)
def test_checks_judge_the_numbers_they_are_given(check, script, passed):
    found = check(Scripted(script, torch.zeros(0), THREAT, 0.02, 0))
    assert found.passed is passed


@pytest.mark.parametrize(("accuracy", "passed"), [([4, 3, 2], True), ([4, 2, 3], False)])
def test_a_curve_that_rises_with_strength_is_suspicious(accuracy, passed):
    epsilons = [ratio * THREAT.epsilon for ratio in masking.EPSILON_RATIOS]
    stronger = [replace(THREAT, epsilon=epsilon) for epsilon in epsilons if epsilon > 0]
    script = dict(zip(stronger, (np.repeat(accuracy, 2) / 5).tolist(), strict=True))
    found = masking.monotone_in_epsilon(Scripted(script, torch.zeros(0), THREAT, 0.02, 0))
    assert found.passed is passed
    assert found.numbers == {"epsilons": epsilons, "accuracy": [1, *script.values()]}


@pytest.mark.parametrize(
    ("by_many", "by_one", "passed"),
    [([1, 0, 0, 0], [1, 1, 0, 0], True), ([1, 1, 0, 0], [1, 0, 1, 0], False)],
)
def test_one_step_that_fools_whom_many_do_not_is_suspicious(monkeypatch, by_many, by_one, passed):
    """Example by example: equal accuracies do not hide it."""

    def result(robust):
        robust = torch.tensor(robust).bool()
        return AttackResult("", THREAT, torch.zeros(4, 1), torch.ones(4).bool(), robust)

    def scripted(name, victim, threat, ascent, **_):
        return result(by_one if ascent == Ascent() else by_many)

    monkeypatch.setattr(masking, "attack_by_gradient", scripted)
    probe = Probe(nn.Identity(), torch.zeros(0), THREAT, 0.02, 0)
    assert masking.iterated_beats_one_step(probe).passed is passed


def test_binarisation_tells_a_working_attack_from_a_broken_one(net, images):
    x = images[0][:20]
    good = Ascent(("margin",), 40, 2.5 / 40)
    found = binarisation_test(net.represent, x, THREAT, inner=30, ascent=good)
    assert found.problems == 20
    assert found.success == 1
    weak = Ascent(("margin",), 1, 0.01)
    assert binarisation_test(net.represent, x, THREAT, inner=30, ascent=weak).success < 0.5
    blocked = binarisation_test(
        lambda z: net.represent(z.detach()), x, THREAT, inner=30, ascent=good
    )
    assert blocked.success == 0


def test_random_points_solve_problems_in_few_features_only():
    """In two dimensions every direction is tried; in 200 none of 40 points comes near the one."""
    x = torch.full((20, 200), 0.5, dtype=torch.float64)
    ascent = pgd_ascent(random_start=False)
    for norm, epsilon in (("linf", 0.1), ("l2", 1.0)):
        threat = ThreatModel(norm, epsilon)
        easy = binarisation_test(lambda z: z[:, :2], x, threat, inner=2, ascent=ascent)
        hard = binarisation_test(lambda z: z, x, threat, inner=100, ascent=ascent)
        assert (easy.problems, easy.solved) == (hard.problems, hard.solved) == (20, 20)
        assert easy.by_chance >= 19
        assert hard.by_chance <= 1


@pytest.mark.parametrize(
    ("problems", "solved", "by_chance", "passed"),
    [
        (50, 50, 25, True),
        (50, 50, 26, None),
        (50, 48, 50, None),
        (50, 47, 0, False),
        (50, 47, 50, False),  # worse than chance: no excuse
        (0, 0, 0, False),
    ],
)
def test_problems_that_chance_solves_prove_nothing(
    monkeypatch, net, images, problems, solved, by_chance, passed
):
    found = Binarisation(problems, solved, by_chance)
    monkeypatch.setattr(masking, "binarisation_test", lambda *_, **__: found)
    x, y = images
    probe = probe_of(net, x, y, torch.ones(len(y)).bool())
    check = masking.binarised(probe, None, 50)
    assert check.passed is passed
    assert f"random points {by_chance}" in check.evidence


def test_what_is_inconclusive_stands_in_the_verdict_and_decides_nothing():
    good, bad = Check("one", True, "1"), Check("two", False, "2")
    open_ = Check("three", None, "3")
    assert [check.outcome for check in (good, bad, open_)] == ["passed", "FAILED", "inconclusive"]
    whole = Audit(THREAT, 100, 0.9, 0.5, (good,), {})
    partly = Audit(THREAT, 100, 0.9, 0.5, (good, open_), {})
    assert whole.verdict == whole.headline
    assert partly.established
    assert partly.verdict == f"{whole.verdict}; inconclusive: three (3)"
    not_at_all = Audit(THREAT, 100, 0.9, 0.5, (good, open_, bad), {})
    assert not not_at_all.established
    assert not_at_all.verdict == "not established: two (2)"


def test_the_largest_rise():
    assert largest_rise([1.0, 0.5, 0.2]) == 0
    assert largest_rise([1.0, 0.5, 0.55, 0.4, 0.7]) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("threat", "options", "message"),
    [
        (ThreatModel("noise"), {}, "audit needs a threat model"),
        (ThreatModel("linf", 0.0), {}, "epsilon > 0"),
        (THREAT, {"probe": 3}, "probe must be a whole number of at least 10"),
        (THREAT, {"tolerance": 1.0}, "tolerance"),
    ],
)
def test_impossible_audits_are_refused(net, few, threat, options, message):
    with pytest.raises(InputError, match=message):
        audit(net, *few, threat, **options)


def test_nothing_correct_leaves_nothing_to_audit(net, images):
    x, _ = images
    with pytest.raises(InputError, match="no image is classified correctly"):
        audit(net, x, (net(x).argmax(1) + 1) % 10, THREAT)


def test_precisions_are_compared_in_two_precisions(net, images):
    asked = set()

    class Recording(Wrapped):
        def forward(self, x):
            asked.add((x.dtype, next(self.parameters()).dtype))
            return self.net(x)

    x, y = images[0][:20], images[1][:20]
    probe = probe_of(Recording(net), x, y, torch.ones(20).bool())
    masking.precision(probe)
    assert asked == {(kind, kind) for kind in (torch.float32, torch.float64)}
    assert next(net.parameters()).dtype == torch.float32


@pytest.mark.parametrize("given", [False, True])
def test_an_audit_makes_a_victim_of_each_net_once(net, few, given, monkeypatch):
    """The net and its rival: whatever is behind the door takes the victim."""
    entered = []

    def counted(model, *rest, **options):
        entered.append(model)
        return victim_of(model, *rest, **options)

    for module in ("gradient", "curves", "auto", "audit", "certificate"):
        monkeypatch.setattr(
            importlib.import_module(f"fermibose.attacks.{module}"), "victim_of", counted
        )
    rival = nn.Linear(64, 10) if given else None
    audit(net, *few, THREAT, rival=rival, square_queries=1)
    assert len(entered) == 2
    assert entered[0] is net
    assert not given or entered[1] is rival


def test_a_rival_that_is_half_trained_is_never_used(net, few, monkeypatch):
    """Ctrl-C while the rival learns ends the audit."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(auditing, "train_mlp", interrupted)
    with pytest.raises(KeyboardInterrupt):
        audit(net, *few, THREAT, square_queries=1)


def test_an_audit_without_the_extra_is_refused_before_anything_runs(net, few, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    monkeypatch.setattr(auditing, "_attack_in_turn", lambda *_: pytest.fail("worked"))
    with pytest.raises(FermiboseError, match=r"pip install 'fermibose\[attacks\]'"):
        audit(net, *few, THREAT)
