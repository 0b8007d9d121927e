"""The audit. Oracles: honest nets must pass, nets masked in known ways must not."""

import copy
import importlib
import json
import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

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
    binarisation,
    masking,
    pgd,
)
from fermibose.attacks.binarisation import Binarisation, binarisation_test, features_of
from fermibose.attacks.black_box import finite_differences, square, transfer
from fermibose.attacks.faithful import Witness
from fermibose.attacks.gradient import Ascent, pgd_ascent
from fermibose.attacks.masking import Probe, largest_rise
from fermibose.attacks.victim import Victim, victim_of
from fermibose.errors import FermiboseError, FileFormatError, InputError
from fermibose.files import as_json
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
    assert len(honest.checks) == 17
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


FALSE = "gradient is that of the answers"


@pytest.mark.parametrize(
    ("mask", "caught_by"),
    [
        (Loud, {"gradients do not vanish"}),
        (
            Blocked,
            {
                FALSE,
                "gradients do not vanish",
                "attacks raise no flag",
                "white box beats Square",
                "white box beats finite differences",
                "binarisation test",
            },
        ),
        (Staircase, {FALSE, "gradients do not vanish"}),
        (Decoy, {FALSE, "white box beats Square", "binarisation test"}),
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


class Foreign(nn.Module):
    """A net of another kind, in units of its own: inputs from −100 to 155, answers alike."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return 1e4 * self.net(((x + 100) / 255).detach())


def test_a_pupil_finds_what_a_blocked_gradient_hides(net, images, recwarn):
    """In the units of the data, and without a word about them."""
    x, y = images
    model, threat = Foreign(net), ThreatModel("linf", 0.12 * 255, (-100.0, 155.0))
    correct = model(255 * x - 100).argmax(1) == y
    x, y = x[correct][:60], y[correct][:60]
    oracle = pgd(net, x, y, ThreatModel("linf", 0.12)).robust
    for check in (lambda probe: transfer(probe, None), finite_differences):
        probe = probe_of(model, 255 * x - 100, y, torch.ones(len(y)).bool(), threat)
        found = check(probe)
        assert found.outcome == "FAILED", found.evidence
        assert found.numbers["missed"] == pytest.approx(float(probe.fooled.double().mean()))
        # What is found is real, and a good part of what there is to find
        assert not (probe.fooled & oracle).double().mean() > 0.02
        assert probe.fooled.double().mean() > 0.4 * (~oracle).double().mean()
    assert not recwarn.list


def test_what_a_check_finds_is_judged_in_the_ball_and_noted(net, images):
    x, y = images
    correct = net(x).argmax(1) == y
    x, y = x[correct], y[correct]
    withstood = torch.arange(len(y)) % 2 == 0
    probe = probe_of(net, x, y, withstood)
    far = pgd(net, x, y, ThreatModel("linf", 0.5)).examples
    inside = torch.minimum(torch.maximum(far, x - THREAT.epsilon), x + THREAT.epsilon).clamp(0, 1)
    wrong = net(inside).argmax(1) != y
    assert 0 < wrong.sum() < (net(far).argmax(1) != y).sum()
    assert probe.missed(far) == pytest.approx(float((wrong & withstood).double().mean()))
    assert torch.equal(probe.fooled, wrong)
    assert probe.missed(x) == 0
    assert torch.equal(probe.fooled, wrong)


def test_what_a_check_finds_lowers_the_stated_accuracy(net, few, monkeypatch):
    """Attacks that do nothing leave all for the checks to find."""

    def idle(victim, left, *_):
        return left.clone(), {}

    monkeypatch.setattr(auditing, "_attack_in_turn", idle)
    found = audit(net, *few, THREAT)
    assert not found.established
    best = pgd(net, *few, THREAT, restarts=5).robust_accuracy
    assert found.robust_accuracy == pytest.approx(best, abs=0.03)
    assert found.clean_accuracy > found.robust_accuracy + 0.1


@pytest.mark.parametrize(
    ("images", "missed", "allowed"),
    [(10, 1, True), (10, 2, False), (49, 1, True), (100, 2, True), (100, 3, False), (200, 4, True)],
)
def test_one_image_or_the_tolerance_may_differ(images, missed, allowed):
    left = torch.ones(images).bool()
    assert Probe(None, left, THREAT, 0.02, 0).allows(missed / images) is allowed
    assert square(left, torch.arange(images) >= missed, 0.02).passed is allowed


def test_a_rival_for_other_images_is_refused_before_anything_runs(net, few, monkeypatch):
    monkeypatch.setattr(auditing, "_attack_in_turn", lambda *_: pytest.fail("worked"))
    for rival, message in (("mlp", "must be a torch module"), (nn.Linear(64, 3), "knows 3 class")):
        with pytest.raises(InputError, match=message):
            audit(net, *few, THREAT, rival=rival)


class Scripted(Probe):
    """A probe whose PGD answers from a script, keyed by one option."""

    def missed_by_pgd(self, **options):
        return next(answer for key, answer in self.victim.items() if key in options.values())


@pytest.mark.parametrize(
    ("check", "script", "passed"),
    [
        (masking.monotone_in_steps, {10: 0.0, 20: 0.02, 80: 0.0, 160: 0.02}, True),
        (masking.monotone_in_steps, {10: 0.03, 20: 0.0, 80: 0.0, 160: 0.0}, False),
        (masking.monotone_in_steps, {10: 0.0, 20: 0.0, 80: 0.0, 160: 0.03}, False),
        (masking.restarts, {masking.RESTARTS: 0.02}, True),
        (masking.restarts, {masking.RESTARTS: 0.03}, False),
        (masking.iterated_beats_one_step, {1: 0.02}, True),
        (masking.iterated_beats_one_step, {1: 0.03}, False),
    ],
)
def test_checks_judge_the_numbers_they_are_given(check, script, passed):
    found = check(Scripted(script, torch.ones(100).bool(), THREAT, 0.02, 0))
    assert found.passed is passed


class Curved(Probe):
    """A probe whose PGD leaves at each strength what a script says."""

    def pgd(self, *, threat):
        n = len(self.withstood)
        robust = torch.arange(n) < self.victim[threat.epsilon] * n
        return AttackResult("", threat, torch.zeros(n, 1), torch.ones(n).bool(), robust)

    def missed(self, points):
        return 0.0


@pytest.mark.parametrize(("accuracy", "passed"), [([4, 3, 2], True), ([4, 2, 3], False)])
def test_a_curve_that_rises_with_strength_is_suspicious(accuracy, passed):
    epsilons = [ratio * THREAT.epsilon for ratio in masking.EPSILON_RATIOS]
    script = dict(zip(epsilons[1:], (np.repeat(accuracy, 2) / 5).tolist(), strict=True))
    found = masking.monotone_in_epsilon(Curved(script, torch.ones(100).bool(), THREAT, 0.02, 0))
    assert found.passed is passed
    assert found.numbers["accuracy"] == pytest.approx([1, *script.values()])
    assert found.numbers["epsilons"] == epsilons


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
    ascent = pgd_ascent(losses=("cross_entropy", "margin"), random_start=False)
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
        (50, 45, 50, None),
        (50, 44, 0, False),
        (50, 44, 50, False),  # worse than chance: no excuse
        (0, 0, 0, False),
    ],
)
def test_problems_that_chance_solves_prove_nothing(
    monkeypatch, net, images, problems, solved, by_chance, passed
):
    found = Binarisation(problems, solved, by_chance)
    monkeypatch.setattr(binarisation, "binarisation_test", lambda *_, **__: found)
    x, y = images
    probe = probe_of(net, x, y, torch.ones(len(y)).bool())
    check = binarisation.binarised(probe, None, 50)
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
        (ThreatModel("noise"), {}, "audit needs the norm linf or l2, got noise"),
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
def test_an_audit_makes_a_victim_of_each_net_once(net, few, given, monkeypatch, request):
    """The net and the rival that is given: whatever is behind the door takes the victim."""
    entered = []
    if not given:  # then transfer trains a pupil, and the ensemble has been asked already
        request.getfixturevalue("by_pgd")

    def counted(model, *rest, **options):
        entered.append(model)
        return victim_of(model, *rest, **options)

    for module in ("gradient", "curves", "auto", "audit", "certificate"):
        monkeypatch.setattr(
            importlib.import_module(f"fermibose.attacks.{module}"), "victim_of", counted
        )
    rival = nn.Linear(64, 10) if given else None
    found = audit(net, *few, THREAT, rival=rival, square_queries=1)
    assert entered == ([net, rival] if given else [net])
    (asked,) = (check for check in found.checks if check.name == "white box beats transfer")
    assert ("examples of an independent net" in asked.evidence) is given


def test_features_are_what_enters_the_last_product_whatever_it_is_called(net, images):
    x = images[0][:7]
    torch.testing.assert_close(features_of(net, x, 10)(x), net.represent(x))

    class Misnamed(nn.Module):
        """Its features have no name, and what has the name is no use."""

        def __init__(self):
            super().__init__()
            self.first, self.last = torch.randn(64, 30), torch.randn(30, 10)

        def represent(self, x):
            return x[:, :1]

        def forward(self, x):
            return torch.addmm(torch.ones(10), (x @ self.first).relu(), self.last)

    model = Misnamed()
    assert torch.equal(features_of(model, x, 10)(x), (x @ model.first).relu())
    one = features_of(model, x, 10)(x[:1])
    torch.testing.assert_close(one, (x[:1] @ model.first).relu())
    assert torch.equal(features_of(nn.Softmax(1), x, 10)(x), x.softmax(1))

    class Divided(Misnamed):
        """The first product in two parts, unless a gradient is asked for."""

        def forward(self, x):
            parts = self.first.split(30 if x.requires_grad else 15, dim=1)
            return torch.cat([x @ part for part in parts], 1).relu() @ self.last

    divided = Divided()
    with torch.no_grad():
        found = features_of(divided, x, 10)(x)
    torch.testing.assert_close(found, (x @ divided.first).relu())


@pytest.mark.usefixtures("by_pgd")
def test_a_check_that_cannot_run_says_why_and_leaves_the_others_alone(net, few, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("out of order\nand more")

    monkeypatch.setattr(masking, "chance", broken)
    found = audit(net, *few, THREAT, square_queries=1)
    (check,) = (check for check in found.checks if check.name == "chance at large ε")
    assert check.outcome == "inconclusive"
    assert check.evidence == "could not be checked: RuntimeError: out of order"
    assert found.established
    assert len(found.checks) == 17
    assert found.verdict.endswith(f"chance at large ε ({check.evidence})")
    monkeypatch.setattr(auditing, "true_gradient", broken)
    assert not audit(net, *few, THREAT, square_queries=1).established  # it rests on this one


def test_checks_go_by_the_names_they_are_asked_by(net, few):
    with victim_of(net, *few, THREAT) as victim:
        part = victim.part(victim.correct.nonzero()[:, 0])
        witness = Witness.of(part, THREAT, 0)
        probe = Probe(part, torch.ones(len(part.y)).bool(), THREAT, 0.02, 0)
        questions = auditing._questions(witness, part, None)
        assert all(question(probe).name == name for name, question in questions.items())


def test_a_checkpoint_knows_rival_and_features_by_what_they_answer(net, few):
    """Lambdas have one name, and rivals may classify the same images correctly."""
    x, y = few
    with ExitStack() as stack:
        victim, same, other = (
            stack.enter_context(victim_of(model, x, y, THREAT))
            for model in (net, copy.deepcopy(net), Loud(net))
        )
        witness = Witness.of(victim, THREAT, 0)

        def known(rival, features):
            return auditing._fingerprint([], victim, rival, witness, features)

        assert torch.equal(same.correct, other.correct)
        names = {known(rival, None) for rival in (victim, same)}
        assert len(names) == 1
        assert known(other, None) not in names
        assert known(None, lambda x: x) == known(None, partial(torch.mul, 1.0))
        assert known(None, lambda x: x) != known(None, lambda x: 2 * x)
        assert known(None, lambda x: 1 / 0) == known(None, None)  # its check says why


def test_an_attack_that_cannot_run_is_a_flag(net, few, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("out of order")

    monkeypatch.setattr(auditing, "attack_by_ensemble", broken)
    found = audit(net, *few, THREAT)
    assert not found.established
    assert "AutoAttack fab-t could not be run: RuntimeError: out of order" in found.verdict
    assert found.robust_accuracy < found.clean_accuracy  # PGD has been


@pytest.mark.usefixtures("by_pgd")
def test_ctrl_c_ends_an_audit(net, few, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(masking, "chance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        audit(net, *few, THREAT, square_queries=1)


def test_an_audit_without_the_extra_is_refused_before_anything_runs(net, few, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    monkeypatch.setattr(auditing, "_attack_in_turn", lambda *_: pytest.fail("worked"))
    with pytest.raises(FermiboseError, match=r"pip install 'fermibose\[attacks\]'"):
        audit(net, *few, THREAT)


def test_an_interrupted_audit_goes_on_to_the_same_evidence(net, few, tmp_path, monkeypatch):
    """Ctrl-C in the ninth turn; what was done is not done again. Oracle: an audit left in peace."""
    path, options = tmp_path / "audit.json", {"square_queries": 20}
    whole = audit(net, *few, THREAT, **options)
    asked, names = auditing._asked, []

    def interrupted(name, *rest):
        names.append(name)
        if len(names) == 4:
            raise KeyboardInterrupt
        return asked(name, *rest)

    monkeypatch.setattr(auditing, "_asked", interrupted)
    with pytest.raises(KeyboardInterrupt):
        audit(net, *few, THREAT, checkpoint=path, **options)
    attacked = []
    monkeypatch.setattr(auditing, "_attacked", lambda *_: attacked.append(True))
    told, kept = [], len(json.loads(path.read_text())["turns"])
    found = audit(
        net, *few, THREAT, checkpoint=path, **options, progress=lambda *turn: told.append(turn)
    )
    assert not attacked
    assert [turn[:2] for turn in told] == [(done, 20) for done in range(kept, 20)]
    assert [turn[2] for turn in told] == names[-len(told) :]
    assert len(names) == len(set(names)) + 1  # only the one that was interrupted came twice
    assert json.loads(as_json(found.as_dict())) == json.loads(as_json(whole.as_dict()))
    with pytest.raises(FermiboseError, match="belongs to an audit with another model"):
        audit(net, *few, replace(THREAT, epsilon=0.07), checkpoint=path, **options)
    with monkeypatch.context() as patch:  # who withstood is kept by number among those left
        attacks = auditing._white_box(10, 0, False)
        patch.setattr(auditing, "_white_box", lambda *_: {"first": attacks["PGD"]} | attacks)
        with pytest.raises(FermiboseError, match="belongs to an audit with another model"):
            audit(net, *few, THREAT, checkpoint=path, **options)
    path.write_text("{}")
    with pytest.raises(FileFormatError, match="not a readable checkpoint of an audit"):
        audit(net, *few, THREAT, checkpoint=path, **options)
