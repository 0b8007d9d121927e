"""Ctrl-C while a command trains. Oracle: the same command, left in peace."""

import json
import os
import signal

import pytest
import torch
from typer.testing import CliRunner

from fermibose import FermiBoseNet
from fermibose.cli import app
from fermibose.machine import loop

QUICK = ["--data", "digits", "--hidden", "20", "--epochs", "2", "--readout-epochs", "3"]


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def press(monkeypatch, when):
    """Ctrl-C, once, as soon as ``when(records)``."""
    record, presses = loop._record, iter([True])

    def press_and_record(records, stage, values):
        record(records, stage, values)
        if when(records) and next(presses, False):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(loop, "_record", press_and_record)


def same_model(one, other):
    first, second = (FermiBoseNet.load(folder).state_dict() for folder in (one, other))
    return all(torch.equal(first[name], second[name]) for name in first)


def test_train_stops_after_the_epoch_and_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    run("train", *QUICK, "--output", tmp_path / "peace")
    with monkeypatch.context() as patch:
        press(patch, lambda records: len(records["layer 1"]["energy"]) == 5)
        text = run("train", *QUICK, "--output", tmp_path / "stopped", code=130)
    assert "interrupted; " in text
    assert "The same command goes on from there." in text
    assert [path.name for path in (tmp_path / "stopped").iterdir()] == ["checkpoint.safetensors"]
    run("train", *QUICK, "--output", tmp_path / "stopped")
    assert same_model(tmp_path / "peace", tmp_path / "stopped")


def test_train_that_is_done_is_saved(tmp_path, monkeypatch):
    """Ctrl-C in the last epoch."""
    press(monkeypatch, lambda records: len(records.get("readout", {}).get("loss", ())) == 3)
    assert "written to" in run("train", *QUICK, "--output", tmp_path)
    assert not json.loads((tmp_path / "metrics.json").read_text())["interrupted"]
    FermiBoseNet.load(tmp_path)


@pytest.mark.parametrize(("stage", "net"), [("layer 1", "machine"), ("mlp", "MLP")])
def test_demo_ends(tmp_path, monkeypatch, stage, net):
    press(monkeypatch, lambda records: stage in records)
    text = run("demo", "--epochs", 2, "--output", tmp_path, code=130)
    assert f"interrupted while training the {net}" in text
    assert not (tmp_path / net.lower()).exists()
