"""The data a saved model is judged on by default. Oracles: the files written, the library called
directly, and which images of MNIST are where (known, not computed)."""

import json
import shutil

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fermibose import FermiBoseClassifier, FermiBoseNet
from fermibose.cli import app
from fermibose.data import datasets, load_dataset
from fermibose.errors import FermiboseError, FileFormatError, InputError
from fermibose.machine import evaluate

QUICK = ("--epochs", 1, "--readout-epochs", 2, "--hidden", 4)


def run(*arguments):
    arguments = [str(argument) for argument in arguments]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def judged(model, *arguments):
    """What ``fbm evaluate`` prints and writes."""
    file = model.parent / "found.json"
    text = run("evaluate", model, *arguments, "--output", file, "--force")
    return text, json.loads(file.read_text())


def model_of(folder, **record):
    """A net of 784 inputs with this record of its training data; none: it says nothing."""
    net = FermiBoseNet(784, (3,), 10)
    net.initialise(torch.Generator().manual_seed(0))
    if record:
        net.info = {"data": {"checksum": "0" * 16} | record}
    net.save(folder)
    return folder


def mnist_like(folder, write_folder):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (20, 28, 28), np.uint8), np.arange(20) % 10
    parts = {"images": images, "labels": labels.astype(np.uint8)}
    return write_folder(
        folder, {f"{k}_{p}": v for k, v in parts.items() for p in ("train", "test")}
    )


def test_by_default_a_model_is_judged_on_what_it_was_trained_on(tmp_path):
    model = tmp_path / "run"
    run("train", "--data", "digits", *QUICK, "--train-per-class", 20, "--output", model)
    text, found = judged(model)
    data = load_dataset("digits")
    expected = evaluate(FermiBoseNet.load(model), data.x_test, data.y_test).accuracy
    assert found["data"] == {"name": "digits", "checksum": data.checksum}
    assert found["accuracy"] == expected
    assert "note:" not in text
    run("attack", model, "--per-class", 2, "--output", tmp_path / "attack")
    record = json.loads((tmp_path / "attack" / "attack.json").read_text())
    assert record["data"]["name"] == "digits"


def test_a_model_is_judged_on_the_test_images_it_was_scored_on(tmp_path):
    model = tmp_path / "run"
    counts = ("--train-per-class", 20, "--test-per-class", 10)
    run("train", "--data", "digits", *QUICK, *counts, "--output", model)
    metrics = json.loads((model / "metrics.json").read_text())
    text, found = judged(model)
    assert "100 test images" in text
    assert "note:" not in text
    assert found["accuracy"] == metrics["history"]["readout"]["test_accuracy"][-1]
    assert "50 test images" in judged(model, "--test-per-class", 5)[0]
    assert "200 test images" in judged(model, "--test-per-class", 20)[0]
    assert "355 test images" in judged(model, "--data", "digits")[0]
    assert "100 test images" in run("attack", model, "--output", tmp_path / "attack")


def test_a_model_names_a_folder_but_does_not_choose_it(tmp_path, small, write_folder, monkeypatch):
    folder = write_folder(tmp_path / "letters", small)
    monkeypatch.chdir(tmp_path)
    run("train", "--data", "letters", *QUICK, "--output", tmp_path / "run")
    monkeypatch.chdir("/")  # the path was relative
    for command in ("evaluate", "attack", "audit"):
        with pytest.raises(InputError, match=rf"in {folder}, and .*name that folder.* --data"):
            run(command, tmp_path / "run")
    text, found = judged(tmp_path / "run", "--data", folder)
    assert found["data"]["checksum"] == load_dataset(folder).checksum
    assert "note:" not in text
    folder.rename(tmp_path / "moved")
    text, _ = judged(tmp_path / "run", "--data", tmp_path / "moved")
    assert "note:" not in text  # the same images under another name
    text, _ = judged(tmp_path / "run", "--folder", tmp_path / "moved")
    assert "note:" not in text


def test_mnist_comes_from_the_folder_given_or_from_the_environment(
    tmp_path, small, write_folder, monkeypatch
):
    folder = write_folder(tmp_path / "files", small)
    run("train", "--data", "mnist", "--folder", folder, *QUICK, "--output", tmp_path / "run")
    with pytest.raises(InputError, match=rf"on mnist from {folder}, and .* --folder.*FERMIBOSE_D"):
        judged(tmp_path / "run")
    text, found = judged(tmp_path / "run", "--folder", folder)
    assert found["data"] == {"name": "mnist", "checksum": load_dataset(folder).checksum}
    assert "note:" not in text
    folder.rename(tmp_path / "elsewhere")

    def unreachable(name):
        raise FermiboseError("no network.")

    monkeypatch.setattr(datasets, "read_openml", unreachable)
    with pytest.raises(FermiboseError, match="no network"):
        judged(tmp_path / "run", "--data", "mnist")
    monkeypatch.setenv("FERMIBOSE_DATA", str(tmp_path / "run"))  # which has no such files
    with pytest.raises(InputError, match=r"trained on mnist.*no network.*--folder"):
        judged(tmp_path / "run")
    monkeypatch.setenv("FERMIBOSE_DATA", str(tmp_path / "elsewhere"))
    _, found = judged(tmp_path / "run")
    assert found["data"]["name"] == "mnist"


def test_other_files_of_the_same_name_are_told_apart(tmp_path, small, write_folder):
    folder = write_folder(tmp_path / "letters", small)
    run("train", "--data", folder, *QUICK, "--output", tmp_path / "run")
    shutil.rmtree(folder)
    write_folder(folder, small | {"images_train": small["images_train"][::-1].copy()})
    text, _ = judged(tmp_path / "run", "--data", folder)
    assert "trained on other files called letters (their checksums differ); images" in text
    assert "may be among those it was trained on" in text


@pytest.mark.parametrize(
    ("trained", "scored", "seen"),
    [
        ("mnist", "mnist5k", True),  # whose test images are training images of MNIST
        ("letters", "mnist5k", True),  # unknown: may hold MNIST
        ("mnist5k", "mnist", False),  # MNIST's own test images
        ("mnist5k", "letters", True),
        ("fashion-mnist", "mnist5k", False),
    ],
)
def test_other_data_are_announced(tmp_path, write_folder, trained, scored, seen):
    model = model_of(tmp_path / "run", name=trained)
    folder = mnist_like(tmp_path / "letters", write_folder)
    options = {"mnist": ("mnist", "--folder", folder), "letters": (folder,)}
    text, _ = judged(model, "--data", *options.get(scored, (scored,)))
    assert f"run was trained on {trained} and is judged on {scored}" in text
    assert ("may be among those it was trained on" in text) is seen


def test_a_model_that_does_not_say_is_judged_on_mnist5k(tmp_path):
    text, found = judged(model_of(tmp_path / "run"))
    assert "does not say what it was trained on; it is judged on mnist5k" in text
    assert found["data"]["name"] == "mnist5k"
    text, _ = judged(tmp_path / "run", "--data", "mnist5k")
    assert "note:" not in text
    net = FermiBoseNet.load(tmp_path / "run")
    net.info = {"data": "letters of my own"}
    net.save(tmp_path / "run")
    text, _ = judged(tmp_path / "run")
    assert "does not say what it was trained on" in text


@pytest.mark.parametrize(
    "damage",
    [
        {"name": 5},
        {"load": [1]},
        {"load": None},
        {"checksum": None},
        {"load": {}},
        {"load": {"name": "digits", "folder": ["x"]}},
        {"load": {"name": "digits", "test_per_class": "ten"}},
        {"load": {"name": ["digits"]}},
        {"name": "\x1b[2Jdigits"},  # would clear the screen
        {"load": {"name": "mnist", "folder": "a\nb"}},
    ],
)
def test_a_damaged_record_of_the_data_is_refused(tmp_path, damage):
    record = {"name": "digits", "checksum": "0" * 16, "load": {"name": "digits"}} | damage
    model = model_of(tmp_path / "run", **record)
    for options in ((), ("--data", "mnist5k")):
        with pytest.raises(FileFormatError, match=r"run is damaged: .*training data.*again"):
            judged(model, *options)


NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@pytest.mark.parametrize("command", ["evaluate", "attack", "audit"])
def test_classes_that_are_not_the_labels_are_refused(tmp_path, command):
    """Alphabetically, output 0 stands for "eight": scored by position it would be wrong."""
    data = load_dataset("digits", train_per_class=10)
    settings = {"hidden": (30,), "epochs": 2, "readout": "ridge", "random_state": 0}
    model = FermiBoseClassifier(**settings).fit(data.x_train, np.array(NAMES)[data.y_train])
    assert model.score(data.x_test, np.array(NAMES)[data.y_test]) > 0.7
    model.net_.save(tmp_path / "run")
    options = () if command == "evaluate" else ("--output", tmp_path / "found")
    with pytest.raises(InputError, match=r"stand for 'eight', 'five', .*labels 0 … 9"):
        run(command, tmp_path / "run", "--data", "digits", *options)


def test_names_of_the_labels_themselves_are_classes_too(tmp_path):
    data = load_dataset("digits", train_per_class=10)
    settings = {"hidden": (30,), "epochs": 2, "readout": "ridge", "random_state": 0}
    model = FermiBoseClassifier(**settings).fit(data.x_train, data.y_train.astype(str))
    model.net_.save(tmp_path / "run")
    _, found = judged(tmp_path / "run", "--data", "digits")
    assert found["accuracy"] == model.score(data.x_test, data.y_test.astype(str)) > 0.7
    model.fit(data.x_train[data.y_train > 3], data.y_train[data.y_train > 3])
    model.net_.save(tmp_path / "run")
    with pytest.raises(InputError, match=r"stand for 4, 5, 6, 7 ….*labels 0 … 5"):
        judged(tmp_path / "run", "--data", "digits")


def test_a_folder_for_bundled_data_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"^a folder goes with"):
        judged(model_of(tmp_path / "run", name="mnist5k"), "--folder", tmp_path)


def test_images_of_another_size_are_refused_with_the_option(tmp_path):
    with pytest.raises(InputError, match=r"64 features, but the net takes 784: .*--data"):
        judged(model_of(tmp_path / "run", name="mnist5k"), "--data", "digits")


def test_subsets_are_named_by_what_was_asked_for():
    with pytest.raises(
        InputError, match=r"^101 training images of each class: .*101 are needed, 100 are"
    ):
        load_dataset("mnist5k", train_per_class=101)
    with pytest.raises(InputError, match=r"^0 test images of each class: "):
        load_dataset("digits", test_per_class=0)
