"""``fbm attack`` and ``fbm audit``. Oracles: the library called directly, the files written."""

import importlib
import json
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fermibose import FermiBoseNet
from fermibose.attacks import (
    ThreatModel,
    accuracy_curve,
    audit,
    certified_radius,
    certify,
    fgsm,
    gaussian_noise,
    one_step_l2,
    pgd,
)
from fermibose.cli import app, main
from fermibose.cli.subject import origin
from fermibose.data import load_dataset, per_class
from fermibose.errors import InputError

auditing = importlib.import_module("fermibose.attacks.audit")  # which its function hides
PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def model(net, digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    net.info["data"] = origin(digits, "digits")
    net.save(folder)
    return folder


@pytest.fixture(scope="module")
def first(digits):
    return per_class(digits.x_test, digits.y_test, 20)


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.output


OPTIONS = ("--data", "digits", "--per-class", 20)


def test_attack_writes_what_the_library_finds(net, model, first, tmp_path):
    text = run("attack", model, *OPTIONS, "--eps", 0.08, "--steps", 7, "--output", tmp_path)
    threat = ThreatModel("linf", 0.08)
    expected = [fgsm(net, *first, threat), pgd(net, *first, threat, steps=7)]
    record = json.loads((tmp_path / "attack.json").read_text())
    assert [found["attack"] for found in record["results"]] == ["fgsm", "pgd"]
    for found, wanted in zip(record["results"], expected, strict=True):
        assert found["robust_accuracy"] == wanted.robust_accuracy
        assert f"{100 * wanted.robust_accuracy:.1f}" in text
    curve = accuracy_curve(net, *first, threat)
    assert record["curve"]["accuracy"] == curve.accuracy.tolist()
    assert record["data"]["name"] == "digits"
    for name in ("curve.png", "examples.png"):
        assert (tmp_path / name).read_bytes()[:4] == PNG


@pytest.mark.parametrize(("norm", "attack"), [("l2", one_step_l2), ("noise", gaussian_noise)])
def test_other_norms_have_their_own_attacks(net, model, first, tmp_path, norm, attack):
    run("attack", model, *OPTIONS, "--norm", norm, "--eps", 0.3, "--output", tmp_path)
    record = json.loads((tmp_path / "attack.json").read_text())
    found = attack(net, *first, ThreatModel(norm, 0.3))
    assert record["results"][0]["robust_accuracy"] == found.robust_accuracy
    assert record["curve"]["threat"]["norm"] == norm


def test_the_attack_named_auto_is_autoattack(model, tmp_path):
    run(
        "attack", model, "--data", "digits", "--per-class", 2, "--attack", "auto",
        "--output", tmp_path,
    )  # fmt: skip
    (found,) = json.loads((tmp_path / "attack.json").read_text())["results"]
    assert found["attack"] == "autoattack"
    assert found["parameters"]["attacks"] == ["apgd-ce", "apgd-t", "fab-t", "square"]


def test_ctrl_c_keeps_finished_attacks(net, model, first, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fermibose.attacks.pgd", interrupted)
    text = run("attack", model, *OPTIONS, "--output", tmp_path, code=130)
    assert "interrupted; finished attacks are in" in text
    (found,) = json.loads((tmp_path / "attack.json").read_text())["results"]
    assert found["robust_accuracy"] == fgsm(net, *first, ThreatModel()).robust_accuracy
    assert not (tmp_path / "curve.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--attack", "one_step_l2"),
            "one_step_l2 needs the norm l2, got linf",
        ),
        (("--attack", "noise"), "gaussian_noise needs the norm noise, got linf"),
        (("--attack", "auto", "--eps", "0"), "auto_attack needs epsilon > 0"),
    ],
)
def test_an_attack_that_cannot_run_is_refused_before_any_does(
    model, tmp_path, monkeypatch, arguments, message
):
    """Though others that can, and that are asked for before it, would do so first."""
    attacked = []
    for name in ("fgsm", "pgd", "one_step_l2", "gaussian_noise", "auto_attack"):
        monkeypatch.setattr(f"fermibose.attacks.{name}", lambda *_, **__: attacked.append(1))
    output = tmp_path / "output"
    arguments = ("--attack", "fgsm", "--attack", "pgd", *arguments, "--output", output)
    result = CliRunner().invoke(app, [str(part) for part in ("attack", model, *arguments)])
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
    assert not attacked
    assert not output.exists()


def test_audit_prints_the_verdict_and_writes_the_evidence(model, tmp_path):
    text = run("audit", model, "--per-class", 6, "--eps", 0.08, "--output", tmp_path)
    record = json.loads((tmp_path / "audit.json").read_text())
    assert record["established"]
    assert record["verdict"] in " ".join(text.split())
    assert record["images"] == 60
    net, data = FermiBoseNet.load(model), load_dataset("digits")
    proof = certify(net, *per_class(data.x_test, data.y_test, 6), ThreatModel("linf", 0.08))
    assert record["certified_accuracy"] == proof.accuracy <= record["robust_accuracy"]
    assert f"proved: {100 * proof.accuracy:.1f} %" in text
    assert record["data"]["name"] == "digits"
    outcomes = [check["passed"] for check in record["checks"]]
    assert len(outcomes) == 17
    assert text.count("passed") == outcomes.count(True) >= 14
    assert text.count("inconclusive") == outcomes.count(None) + (None in outcomes)
    assert (tmp_path / "audit.png").read_bytes()[:4] == PNG


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--eps", "-1"), "epsilon must be a finite number >= 0"),
        (("--norm", "l2", "--attack", "fgsm"), "fgsm needs the norm linf, got l2"),
        (("--data", "mnist5k"), "784 features, but the net takes 64"),
        (("--norm", "l2", "--eps", "1e300"), "and <= 1e+15, got 1e+300"),
        (("--output", "notes"), "nothing can be written to notes (File exists)"),
        (("--output", "/proc"), "nothing can be written to /proc"),
    ],
)
def test_errors_are_one_line_for_people(model, arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "fermibose.attacks.gradient.attack_by_gradient", lambda *_, **__: pytest.fail("worked")
    )
    (tmp_path / "notes").write_text("mine")
    arguments = ("attack", str(model), "--data", "digits", *arguments)
    monkeypatch.setattr(sys, "argv", ["fbm", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("attack", "--threads", "0"),
        ("audit", "--threads", "-1"),
        ("attack", "--seed", "-1"),
        ("audit", "--seed", str(2**63)),
        ("attack", "--per-class", "0"),
        ("attack", "--steps", "0"),
        ("attack", "--restarts", "0"),
    ],
)
def test_impossible_numbers_are_named_by_their_option(model, command, option, value):
    text = run(command, model, option, value, code=2)
    assert f"'{option}'" in text


def test_names_that_look_like_markup_are_printed_as_they_are(net, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    odd = tmp_path / "m[bold]"
    net.save(odd)
    text = run("attack", odd, "--per-class", 2, "--steps", 1, "--output", "o[/y]")
    assert "m[bold]: digits" in text
    assert "written to o[/y]" in text


def test_flags_and_verdicts_are_printed_as_they_are(model, tmp_path, monkeypatch):
    from dataclasses import replace

    from fermibose.attacks import Audit, Check

    def flagged(*args, **options):
        return replace(fgsm(*args, **options), flags=("odd [/flag]",))

    check = Check("a check", False, "odd [/evidence]", {})
    found = Audit(ThreatModel(), 20, 1.0, 0.5, (check,), {})
    monkeypatch.setattr("fermibose.attacks.fgsm", flagged)
    monkeypatch.setattr("fermibose.attacks.audit", lambda *_, **__: found)
    monkeypatch.setattr("fermibose.attacks.draw_audit", lambda *_: None)
    options = (model, "--per-class", 2, "--output", tmp_path)
    assert "fgsm: odd [/flag]" in run("attack", *options, "--attack", "fgsm")
    assert run("audit", *options).count("odd [/evidence]") == 2


def test_a_net_without_a_certificate_is_audited_all_the_same(digits, tmp_path, monkeypatch):
    from fermibose.attacks import Audit
    from fermibose.machine import KernelRidge, Recipe, train

    recipe = Recipe((8,), epochs=1, readout=KernelRidge(1.0, 0.1))
    folder = tmp_path / "kernel"
    train(digits.x_train[:60], digits.y_train[:60], recipe).net.save(folder)
    found = Audit(ThreatModel(), 20, 1.0, 0.5, (), {})
    monkeypatch.setattr("fermibose.attacks.audit", lambda *_, **__: found)
    monkeypatch.setattr("fermibose.attacks.draw_audit", lambda *_: None)
    options = (folder, "--data", "digits", "--per-class", 2, "--output", tmp_path / "out")
    text = run("audit", *options)
    assert "Nothing is proved: certificates are for dense layers under a linear readout" in text
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["certified_accuracy"] is None
    monkeypatch.setattr("fermibose.attacks.fgsm", lambda *_, **__: pytest.fail("it attacks first"))
    result = CliRunner().invoke(app, ["attack", *map(str, options), "--certify"])
    assert isinstance(result.exception, InputError)
    assert "certificates are for dense layers" in str(result.exception)


def test_the_largest_strength_is_still_an_attack(net, first):
    """At the bound nothing overflows: every direction of an ℓ2 step leaves the box of images."""
    from fermibose.attacks import LARGEST

    found = pgd(net, *first, ThreatModel("l2", LARGEST), steps=5)
    assert torch.isfinite(found.examples).all()
    assert found.robust_accuracy == 0
    with pytest.raises(InputError, match=r"epsilons must be at most 1e\+15"):
        accuracy_curve(net, *first, ThreatModel("l2"), epsilons=[0, 1e16])
    with pytest.raises(InputError, match=r"<= 1e\+15, got 2000000000000000"):
        audit(net, *first, ThreatModel("l2", LARGEST))


def test_pictures_show_one_image_of_each_class_fooled_if_possible(net, digits):
    from fermibose.attacks.figures import _one_of_each_class

    labels = torch.tensor(digits.y_test)
    found = fgsm(net, digits.x_test, labels, ThreatModel("linf", 0.1))
    rows = _one_of_each_class(labels, found)
    assert labels[rows].tolist() == list(range(10))
    fooled = (found.correct & ~found.robust).numpy()
    for row, label in zip(rows, range(10), strict=True):
        assert fooled[row] or not np.any(fooled & (digits.y_test == label))


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_what_is_proved_stands_beside_the_attacks(net, model, first, tmp_path, norm):
    text = run("attack", model, *OPTIONS, "--norm", norm, "--eps", 0.03, "--steps", 3,
               "--certify", "--output", tmp_path)  # fmt: skip
    proved = certified_radius(net, *first, norm=norm)
    record = json.loads((tmp_path / "attack.json").read_text())["certificate"]
    assert record["radius"] == proved.radius.tolist()
    assert record["method"] == "crown"
    assert f"proved: {100 * proved.accuracy(0.03)[0]:.1f} % withstand any attack" in text


def test_noise_has_no_certificate(model, tmp_path):
    output = tmp_path / "output"
    arguments = ["attack", model, "--norm", "noise", "--certify", "--output", output]
    result = CliRunner().invoke(app, [str(part) for part in arguments])
    assert isinstance(result.exception, InputError)
    assert "a certificate needs the norm linf or l2" in str(result.exception)
    assert not output.exists()


def test_ctrl_c_before_anything_is_done_promises_nothing(model, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    for name in ("fgsm", "pgd", "audit"):
        monkeypatch.setattr(f"fermibose.attacks.{name}", interrupted)
    text = run("attack", model, *OPTIONS, "--output", tmp_path / "attack", code=130)
    assert "interrupted; nothing is written" in text
    text = run("audit", model, *OPTIONS, "--output", tmp_path / "audit", code=130)
    assert "interrupted; nothing is done yet" in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("by_pgd")
def test_an_audit_says_how_to_go_on_and_tidies_up(model, tmp_path, monkeypatch):
    asked = auditing._asked

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(auditing, "_asked", interrupted)
    command = ("audit", model, "--data", "digits", "--per-class", 2, "--output", tmp_path)
    text = run(*command, code=130)
    assert "audit.checkpoint.json keeps what is done. The same command goes on from there" in text
    monkeypatch.setattr(auditing, "_asked", asked)
    monkeypatch.setattr(auditing, "_attacked", interrupted)  # not again
    run(*command)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.json", "audit.png"]
    result = CliRunner().invoke(app, [str(part) for part in command])
    assert "already holds audit.json" in str(result.exception)


def test_numbers_are_on_disk_before_they_are_printed(model, tmp_path, monkeypatch):
    from fermibose.attacks import Audit

    def closed(*_, **__):
        raise BrokenPipeError

    found = Audit(ThreatModel(), 20, 1.0, 0.5, (), {})
    monkeypatch.setattr("fermibose.attacks.audit", lambda *_, **__: found)
    monkeypatch.setattr("fermibose.attacks.draw_audit", lambda *_: None)
    monkeypatch.setattr("fermibose.cli.options.console.print", closed)
    for command in ("attack", "audit"):
        options = (model, "--data", "digits", "--per-class", 2, "--output", tmp_path / command)
        CliRunner().invoke(app, [command, *map(str, options)])
        record = json.loads((tmp_path / command / f"{command}.json").read_text())
        assert ("curve" in record) == (command == "attack")
