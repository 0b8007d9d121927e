"""A layer that falls into one point says so; one that learns does not. Oracle: its distances."""

import warnings

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fermibose import FermiBoseClassifier, FermiBoseTransformer, PairEnergy
from fermibose.cli import app
from fermibose.data import load_digits, per_class
from fermibose.machine import CollapseWarning, Recipe, SelfSupervised, train
from fermibose.machine.inputs import Held
from fermibose.machine.training import _warn_of_collapse

QUICK = {"hidden": (100,), "epochs": 40, "readout_epochs": 5}
X, Y = per_class(*load_digits(), 20)


def mean_distance(net, x):
    """⟨D²⟩ over all pairs of samples, by its definition."""
    h = net.represent(x).double().numpy()
    return ((h[:, None] - h) ** 2).mean(2).mean()


COLLAPSING = {
    "attraction": (X, {"energy": PairEnergy(boson_weight=300)}),
    "decay": (X, {"weight_decay": 10.0}),
    "small inputs": (X / 10, {}),
    "little activity": (X, {"activity": 3.0}),
    "nothing repels": (X, {"energy": PairEnergy(fermion_weight=0)}),
    "no distance asked for": (X, {"energy": PairEnergy(d_f=0)}),
}


@pytest.mark.parametrize("why", COLLAPSING)
def test_a_collapse_warns_and_names_what_to_change(why):
    x, changes = COLLAPSING[why]
    with pytest.warns(CollapseWarning) as caught:
        training = train(x, Y, Recipe(**QUICK, **changes))
    assert mean_distance(training.net, torch.tensor(x)) < 0.02
    (message,) = [str(warning.message) for warning in caught]
    for word in ("layer 1", "boson_weight", "weight_decay", "d_f", "root mean square"):
        assert word in message
    assert ("activity (now 3)" in message) == (why == "little activity")
    assert caught[0].filename == __file__  # where train was called


def test_only_the_layer_that_shrank_is_named():
    """From records by hand, two mini-batches an epoch: of the third layer no pair is a boson."""
    nan = float("nan")
    layers = {
        "layer 1": {"fermion_distance": [0.3, 0.3, 0.3, 0.3], "boson_distance": [0.1] * 4},
        "layer 2": {"fermion_distance": [0.3, 0.2, nan, 0.01], "boson_distance": [0.1, 0, 0, nan]},
        "layer 3": {"fermion_distance": [nan, 0.3, 0.02, 0.05], "boson_distance": [nan] * 4},
        "layer 4": {"fermion_distance": [0.01, 0.01, 0.02, 0.03], "boson_distance": [0.0] * 4},
        "layer 5": {"fermion_distance": [0.3, 0.1, 0.01, 0.01], "boson_distance": [0.1] * 4},
    }
    recipe = Recipe(hidden=(5, 5, 5, 5, 5, 5), batch_size=10)
    with pytest.warns(CollapseWarning) as caught:
        _warn_of_collapse(layers, recipe, Held(torch.ones(20, 3)))
    assert [str(w.message).split(" has")[0] for w in caught] == ["layer 2", "layer 3"]
    assert "mean D² of 0.01," in str(caught[0].message)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"energy": PairEnergy(coupling="averaged")},
        {"energy": PairEnergy(d_f=1.0)},
        {"energy": PairEnergy(d_f=0.05)},
        {"energy": PairEnergy(boson_weight=10)},
        {"energy": PairEnergy(0.3, boson_weight=10), "pairing": SelfSupervised()},
        {"hidden": (50, 50)},
        {"epochs": 1},
        {"epochs": 0},
        {"batch_size": 2},  # many batches lack one kind of pair
    ],
)
def test_a_healthy_layer_does_not_warn(changes):
    assert warned(Y, changes) == []


def test_one_class_has_no_fermions_to_miss():
    assert warned(np.zeros_like(Y), {}) == []


def warned(y, changes):
    """Every warning of a training, as text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(X, y, Recipe(**(QUICK | changes)))
    return [str(warning.message) for warning in caught]


def test_estimators_pass_the_warning_on_and_scale_small_inputs_themselves():
    settings = {"hidden": (100,), "epochs": 20, "random_state": 0}
    scale = f"root mean square is {np.sqrt(np.mean(X.astype(float) ** 2)) / 10:.2g};"
    for kind in (FermiBoseClassifier, FermiBoseTransformer):
        with pytest.warns(CollapseWarning, match="boson_weight .now 300"):
            kind(**settings, boson_weight=300.0).fit(X, Y)
        with pytest.warns(CollapseWarning, match=scale):
            kind(**settings, scaling="none").fit(X / 10, Y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kind(**settings).fit(X / 10, Y)


@pytest.mark.filterwarnings("always::fermibose.machine.CollapseWarning")
def test_the_command_prints_it_in_a_line(tmp_path):
    options = ["--data", "digits", "--hidden", "50", "--epochs", "10", "--readout-epochs", "1"]
    result = CliRunner().invoke(
        app, ["train", *options, "--boson-weight", "300", "--output", str(tmp_path / "run")]
    )
    assert result.exit_code == 0
    (line,) = [text for text in result.output.splitlines() if "collapsed" in text]
    assert line.startswith("warning: layer 1 has collapsed")
    assert (tmp_path / "run" / "model.json").exists()
    healthy = CliRunner().invoke(app, ["train", *options, "--output", str(tmp_path / "other")])
    assert "collapsed" not in healthy.output
