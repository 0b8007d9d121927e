"""The command ``fbm``. Oracles: the library called directly, the files it writes, exit codes."""

import dataclasses
import inspect
import json
import math
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fermibose import FermiBoseNet, PairEnergy, __version__
from fermibose.attacks import ThreatModel, fgsm
from fermibose.attacks.gradient import PGD_STEPS
from fermibose.cli import app, main
from fermibose.cli import cavity as cavity_command
from fermibose.cli import theory as theory_command
from fermibose.cli import train as train_command
from fermibose.cli.options import COMMANDS, with_fields
from fermibose.data import load_dataset, per_class
from fermibose.machine import Noise, Recipe, SelfSupervised, Shift, evaluate, train
from fermibose.theory import SYMBOLS, Problem, solve

QUICK = ["--data", "digits", "--epochs", "2", "--readout-epochs", "3", "--hidden", "20,10"]


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def cells(line):
    """Of a line of a printed table."""
    return line.strip("│").split("│")


def test_train_writes_what_the_library_trains(tmp_path):
    output = tmp_path / "run"
    text = run("train", *QUICK, "--seed", 3, "--output", output)
    dataset = load_dataset("digits")
    test = (dataset.x_test, dataset.y_test)
    recipe = Recipe(hidden=(20, 10), epochs=2, readout_epochs=3, seed=3)
    expected = train(dataset.x_train, dataset.y_train, recipe, test=test)
    metrics = json.loads((output / "metrics.json").read_text())
    accuracies = expected.history["readout"]["test_accuracy"]
    assert metrics["history"]["readout"]["test_accuracy"] == accuracies.tolist()
    assert metrics["final"]["test_accuracy"] == pytest.approx(accuracies.mean())
    assert metrics["recipe"] == json.loads(json.dumps(recipe.as_dict()))
    assert metrics["data"]["checksum"] == dataset.checksum
    rows = {row[0].strip(): row[1].strip() for row in map(cells, text.splitlines()) if len(row) > 1}
    assert rows["test accuracy, last 3 epochs"] == f"{100 * accuracies.mean():.2f} %"
    assert rows["test accuracy of the model"] == f"{100 * accuracies[-1]:.2f} %"
    shares = expected.history["layer 2"]["boson_share"][-20:]
    assert rows["layer 2: fraction of boson pairs"] == f"{shares.mean():.4f}"
    net = FermiBoseNet.load(output)
    assert evaluate(net, *test).accuracy == accuracies[-1]
    assert net.info["data"]["name"] == "digits"
    assert (output / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert not (output / "checkpoint.safetensors").exists()


def test_a_training_survives_a_model_that_cannot_be_saved(tmp_path):
    (tmp_path / "model.safetensors").mkdir()  # in the way
    result = CliRunner().invoke(app, ["train", *QUICK, "--output", str(tmp_path)])
    assert "could not save the model" in str(result.exception)
    assert (tmp_path / "checkpoint.safetensors").exists()
    (tmp_path / "model.safetensors").rmdir()
    run("train", *QUICK, "--output", tmp_path)
    assert not (tmp_path / "checkpoint.safetensors").exists()


def test_evaluate_prints_and_writes_the_accuracy(tmp_path):
    run("train", *QUICK, "--output", tmp_path / "run")
    text = run("evaluate", tmp_path / "run", "--data", "digits", "--output", tmp_path / "e.json")
    found = json.loads((tmp_path / "e.json").read_text())
    confusion = np.array(found["confusion"])
    assert found["accuracy"] == confusion.trace() / confusion.sum()
    assert f"{100 * found['accuracy']:.2f}" in text


def test_demo_compares_machine_and_mlp(tmp_path, monkeypatch):
    """It asks for a hundred images of each class to attack, and is given ten."""
    asked = []
    monkeypatch.setattr(
        "fermibose.data.per_class", lambda x, y, n: asked.append(n) or per_class(x, y, 10)
    )
    text = run("demo", "--epochs", 1, "--output", tmp_path)
    comparison = json.loads((tmp_path / "comparison.json").read_text())
    for name in ("machine", "MLP"):
        accuracy = comparison[name]["final"]["test_accuracy"]
        assert accuracy > 0.6
        assert f"{100 * accuracy:.2f}" in text
        net = FermiBoseNet.load(tmp_path / name.lower())
        dataset = load_dataset("mnist5k")
        assert evaluate(net, dataset.x_test, dataset.y_test).accuracy == pytest.approx(accuracy)
        curves = comparison[name]["attacks"]
        x, y = per_class(dataset.x_test, dataset.y_test, 10)
        withstood = fgsm(net, x, y, ThreatModel("linf", 0.1)).robust_accuracy
        assert curves["FGSM"]["accuracy"][10] == pytest.approx(withstood)
        assert f"{100 * withstood:.1f}" in text
        pgd_curve = dict(zip(*(curves["PGD"][k] for k in ("epsilons", "accuracy")), strict=True))
        assert pgd_curve[0.1] <= withstood
        assert len(curves["noise"]["accuracy"]) == 80
    assert asked == [100]
    assert (tmp_path / "attacks.png").read_bytes()[:4] == b"\x89PNG"


def test_self_supervised_training_from_the_command_line(tmp_path):
    run("train", *QUICK, "--pairing", "self", "--output", tmp_path)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert [t["kind"] for t in metrics["recipe"]["pairing"]["transforms"]] == ["Shift", "Noise"]


def test_a_readout_in_closed_form_has_no_epochs_to_average(tmp_path):
    text = run(
        "train",
        "--data",
        "digits",
        "--epochs",
        1,
        "--hidden",
        20,
        "--readout",
        "ridge",
        "--output",
        tmp_path,
    )
    assert "test accuracy of the model" in text
    assert "last" not in text.partition("layer 1")[0]


def test_noise_shift_and_ridge_reach_the_machine(tmp_path):
    options = ("--pairing", "self", "--noise", 0.1, "--shift", 1, "--readout", "ridge")
    quick = [*QUICK[:4], "--hidden", "20,10"]  # a ridge has no epochs
    run("train", *quick, *options, "--ridge", 0.5, "--output", tmp_path)
    data = load_dataset("digits")
    recipe = Recipe(
        hidden=(20, 10),
        epochs=2,
        readout_epochs=3,
        pairing=SelfSupervised((Shift((8, 8), 1), Noise(0.1))),
        readout="ridge",
        ridge=0.5,
    )
    expected = train(data.x_train, data.y_train, recipe).net.state_dict()
    found = FermiBoseNet.load(tmp_path).state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--data", "nowhere"], "unknown data set 'nowhere'"),
        (["train", "--d-f", "-1"], "d_f must be a finite number >= 0"),
        (["train", "--noise", "0.1"], "--noise is for --pairing self only: leave it out, or add"),
        (["train", "--shift", "1"], "--shift is for --pairing self only"),
        (["train", "--ridge", "0.1"], "--ridge is for --readout ridge only"),
        (
            ["train", "--readout-epochs", "3", "--readout", "ridge"],
            "--readout-epochs is for --readout cross_entropy only",
        ),
        (["train", "--readout-epochs", "0"], "--readout-epochs 0 leaves the readout as it was"),
        (["train", "--output", "\udcff"], "is not UTF-8, so that not everything"),
        (["train", "--ridge", "-1", "--readout", "ridge"], "ridge must be a finite number > 0"),
        (["train", "--shift", "28", "--pairing", "self"], "a shift of 28 pixels does not fit"),
        (["train", "--hidden", "10,x"], "--hidden takes widths"),
        (["train", "--batch-size", "1"], "batch_size must be"),
        (["train", "--hidden", "10,0"], "--hidden takes widths of at least 1"),
        (["train", "--hidden", "1000000000"], "GB that may be used: use fewer units"),
        (
            ["train", "--train-per-class", "101"],
            "101 training images of each class: class 0 has too few",
        ),
        (["train", "--data", "nowhere.csv"], "there is no file nowhere.csv"),
        (["theory", "--beta", "0"], "inf is zero temperature"),
        (["theory", "--samples", "5"], "samples goes with all pairs (pairing all)"),
        (["theory", "--pairing", "all", "--alpha", "2"], "leave it out and give samples"),
        (["evaluate", "nowhere"], "nowhere is not a saved model"),
        (["evaluate", __file__], "it is a file; give the folder that"),
        (["evaluate", "nowhere", "--output", "."], ". is a folder: name a file"),
        (["evaluate", "nowhere", "--output", "/proc/e.json"], "nothing can be written to /proc"),
        (["train", "--output", f"{__file__}/deeper"], "name a folder with --output"),
        (["demo", "--output", __file__], "name a folder with --output"),
        (["train", "--output", "o" * 300], "name a folder with --output"),
    ],
)
def test_errors_are_one_line_for_people(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fbm", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("train", "--seed", "-1"),
        ("train", "--seed", "99999999999999999999"),
        ("demo", "--seed", "-1"),
        ("cavity", "--seed", str(2**63)),
        ("train", "--threads", "0"),
        ("train", "--train-per-class", "0"),
        ("train", "--test-per-class", "-3"),
    ],
)
def test_impossible_numbers_are_named_by_their_option(command, option, value):
    result = CliRunner().invoke(app, [command, option, value])
    assert result.exit_code == 2
    assert f"'{option}'" in result.output


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["theory", "--temperature", "0"], "--beta"),  # whose help has the word
        (["theory", "--sweep", "delta", "1.5", "30"], "NAME FROM TO POINTS"),
    ],
)
def test_a_wrong_option_is_told_with_what_the_help_knows(arguments, hint):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert hint in result.output


def test_every_number_of_a_problem_is_offered_to_a_sweep():
    told = " ".join(run("theory", "--help").replace("│", "").split())
    names = told.partition("NAME is one of ")[2].partition(".")[0]
    assert set(names.split(", ")) == set(SYMBOLS)


def test_a_misspelt_width_is_told_before_an_earlier_result(tmp_path):
    (tmp_path / "model.json").touch()
    result = CliRunner().invoke(app, ["train", "--hidden", "abc", "--output", str(tmp_path)])
    assert "--hidden takes widths" in str(result.exception)


def test_names_that_look_like_markup_are_printed_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "written to o[/y]" in run("train", *QUICK, "--output", "o[/y]")
    assert "o[/y] on digits" in run("evaluate", "o[/y]")


def test_an_existing_model_is_not_overwritten(tmp_path):
    run("train", *QUICK, "--output", tmp_path)
    before = (tmp_path / "model.json").read_text()
    result = CliRunner().invoke(app, ["train", *QUICK, "--seed", "9", "--output", str(tmp_path)])
    assert "already holds model.json, metrics.json" in str(result.exception)
    assert (tmp_path / "model.json").read_text() == before
    run("train", *QUICK, "--seed", 9, "--output", tmp_path, "--force")
    assert (tmp_path / "model.json").read_text() != before


def test_help_is_quick_and_names_the_commands():
    """No heavy library may be imported just to print the help."""
    script = (
        "import sys; from fermibose.cli import app; from typer.testing import CliRunner;"
        "print(CliRunner().invoke(app, ['--help']).output);"
        "assert not {'torch', 'sklearn', 'matplotlib', 'scipy'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for command in ("train", "evaluate", "attack", "audit", "demo"):
        assert command in done.stdout
    assert run("version").strip() == __version__


def test_python_finds_the_command_without_a_path():
    command = [sys.executable, "-m", "fermibose"]
    done = subprocess.run([*command, "version"], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == __version__
    wrong = subprocess.run(
        [*command, "evaluate", "nowhere"], check=False, capture_output=True, text=True
    )
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("error: nowhere is not a saved model")


def test_the_memory_of_a_training_is_that_of_its_largest_part(tmp_path, monkeypatch):
    """Digits, 64-300-10: weights, and then what 1797 images excite in 300 units, in float32."""
    need = 4 * (64 * 300 + 1797 * 300)
    monkeypatch.setattr("fermibose.checks.free_memory", lambda: need - 1)
    options = ["train", "--data", "digits", "--hidden", "300", "--output", str(tmp_path / "run")]
    result = CliRunner().invoke(app, options)
    assert f"takes at least {need / 1e9:.3f} GB" in str(result.exception)
    monkeypatch.setattr("fermibose.checks.free_memory", lambda: need)
    run(*options, "--epochs", 1, "--readout-epochs", 1)


class Taken(Exception):
    """Ends a command that has handed over what it was asked for."""


ENERGY = {"d_f": 0.7, "boson_weight": 2.0, "coupling": "averaged"}
TRAINING = {
    "activation": "tanh", "activity": 0.1, "readout": "cross_entropy", "epochs": 3,
    "readout_epochs": 4,
    "batch_size": 20, "learning_rate": 0.02, "weight_decay": 0.03, "seed": 5, "threads": 2,
}  # fmt: skip
PROBLEM = {
    "alpha": 1.5, "delta": 0.6, "beta": 20.0, "d_f": 0.8, "weight_decay": 0.1, "m": 2.0,
    "rho": 0.4, "softness": 0.02,
}  # fmt: skip


def written(options):
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


@pytest.mark.parametrize(
    ("command", "taker", "options", "expected"),
    [
        ("train", "fermibose.machine.train", [], Recipe()),
        (
            "train",
            "fermibose.machine.train",
            written({"hidden": "30,20", **ENERGY, **TRAINING}),
            Recipe(hidden=(30, 20), energy=PairEnergy(**ENERGY), **TRAINING),
        ),
        (
            "train",
            "fermibose.machine.train",
            ["--pairing=self"],
            Recipe(pairing=SelfSupervised((Shift((28, 28)), Noise()))),
        ),
        ("theory", "fermibose.theory.solve", [], Problem()),
        (
            "theory",
            "fermibose.theory.solve",
            [*written(PROBLEM), "--activation=half_tanh"],
            Problem(**PROBLEM, activation="half_tanh"),
        ),
        ("cavity", "fermibose.cavity.sample_instance", [], Problem(alpha=0.5)),
        ("cavity", "fermibose.cavity.sample_instance", written(PROBLEM), Problem(**PROBLEM)),
        (
            "cavity",
            "fermibose.cavity.sample_instance",
            ["--method=ground"],
            Problem(alpha=0.5, beta=math.inf),
        ),
    ],
)
def test_options_are_the_fields(command, taker, options, expected, tmp_path, monkeypatch):
    """Given or left out: what the room is handed is the dataclass made in Python."""
    found = []

    def take(*arguments, **_):
        found.extend(argument for argument in arguments if isinstance(argument, type(expected)))
        raise Taken

    monkeypatch.setattr(taker, take)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [command, *options])
    assert isinstance(result.exception, Taken), result.output
    assert found == [expected]


@pytest.mark.parametrize(
    ("command", "kind", "not_offered"),
    [
        (
            train_command,
            Recipe,
            {
                "energy",
                "bias",
                "readout_learning_rate",
                "image_shape",
                "adversary",
                "class_weight",
            },
        ),
        (train_command, PairEnergy, {"softness", "fermion_weight"}),
        (theory_command, Problem, {"hinge"}),
        (cavity_command, Problem, {"hinge", "activation"}),
    ],
)
def test_a_new_field_is_offered_or_left_out_on_purpose(command, kind, not_offered):
    options = set(inspect.signature(with_fields(command)).parameters)
    assert {field.name for field in dataclasses.fields(kind)} - options == not_offered


@pytest.mark.parametrize("option", ["--coupling", "--readout", "--activation", "--pairing"])
def test_a_choice_is_refused_before_anything_is_loaded(option):
    result = CliRunner().invoke(app, ["train", option, "other", "--data", "nowhere"])
    assert result.exit_code == 2
    assert f"'{option}'" in result.output


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (["train", *QUICK], "The same command goes on from there."),
        (["demo", "--epochs", "2"], "interrupted while training the machine"),
    ],
)
def test_ctrl_c_in_a_training_ends_the_command(command, word, tmp_path, monkeypatch):
    energy_and_force = PairEnergy.energy_and_force
    pressed = []

    def press_once(*arguments):
        if not pressed:
            pressed.append(True)
            os.kill(os.getpid(), signal.SIGINT)
        return energy_and_force(*arguments)

    monkeypatch.setattr(PairEnergy, "energy_and_force", press_once)
    result = CliRunner().invoke(app, [*command, "--output", str(tmp_path / "run")])
    assert result.exit_code == 130
    assert word in result.output.replace("\n", " ")
    assert not (tmp_path / "run" / "model.json").exists()
    if command[0] == "train":
        run(*command, "--output", tmp_path / "run")  # goes on
        run("train", *QUICK, "--output", tmp_path / "whole")
        found, expected = (json.loads((tmp_path / name / "metrics.json").read_text())
                           for name in ("run", "whole"))  # fmt: skip
        assert found["history"] == expected["history"]


FILES = {  # what a command writes that another run would replace
    "theory": ["theory", "--sweep", "d-f", "0.5", "1", "2", "--alpha", "0.5", "--beta", "5"],
    "cavity": ["cavity", "--n", "50", "--beta", "5"],
    "dynamics": ["dynamics", "--t", "0.1"],
}


@pytest.mark.parametrize("command", FILES.values(), ids=FILES)
def test_results_are_not_overwritten_unasked(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(*command)
    folder = tmp_path / f"fbm-{command[0]}"  # by default named like the command
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    result = CliRunner().invoke(app, command)
    assert f"{folder.name} already holds" in str(result.exception)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    run(*command, "--force")
    assert all(path.stat().st_mtime_ns > time for path, time in before.items())


def test_every_command_writes_where_its_name_says():
    for name, command in COMMANDS.items():
        output = inspect.signature(command).parameters.get("output")
        if output is not None and output.default is not None:
            assert output.default.stem == f"fbm-{name}"


def test_json_is_all_that_is_printed(tmp_path):
    """Oracle: the library. Numbers that JSON does not know are null."""
    options = ["--alpha", "0.5", "--beta", "inf"]
    result = CliRunner().invoke(app, ["theory", *options, "--json"])
    found, expected = json.loads(result.stdout), solve(Problem(alpha=0.5, beta=math.inf))
    assert found["M"] == pytest.approx(expected.M)
    assert (found["beta"], found["entropy"]) == (None, None)
    assert "mean weight M" in result.stderr
    train_options = [*QUICK, "--output", str(tmp_path / "run")]
    final = json.loads(CliRunner().invoke(app, ["train", *train_options, "--json"]).stdout)["final"]
    judged = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), "--json"])
    confusion = np.array(json.loads(judged.stdout)["confusion"])
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert final == metrics["final"]
    last = metrics["history"]["readout"]["test_accuracy"][-1]
    assert confusion.trace() / confusion.sum() == pytest.approx(last)


def test_version_and_flags_in_the_help():
    assert run("--version").strip() == __version__
    text = run("train", "--help")
    assert "<bool>" not in text
    assert "--force" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_breaks_no_word_at_80_columns(command):
    """A choice that is too long for its column would go on in the next line."""
    wide, narrow = (help_at(width, command) for width in (300, 80))
    types = r"<[^<>\s]*>"
    assert set(re.findall(types, wide)) == set(re.findall(types, narrow))
    assert "9223372036854775807" not in wide


def help_at(width, command):
    """As it is printed on a terminal of so many columns."""
    with pytest.MonkeyPatch.context() as terminal:
        terminal.setattr("typer.rich_utils.MAX_WIDTH", width)
        return run(command, "--help")


def test_the_steps_of_pgd_in_the_help_are_those_it_takes():
    assert f"Steps of PGD (default {PGD_STEPS})" in " ".join(help_at(300, "attack").split())


def test_a_terminal_without_greek_gets_words():
    script = (
        "import sys; from fermibose.cli import main; "
        "sys.argv = ['fbm', 'theory', '--alpha', '0.5', '--beta', '5']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert b"alpha = 0.5, Delta = 0.5, beta = 5" in done.stdout.replace(b"delta", b"Delta")
    assert b"lambda_w = 0.05" in done.stdout
    assert b"D_F2" in done.stdout
