"""The network and its files. Oracles: the formula in NumPy, round trips, damaged files."""

import copy
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fermibose import FermiBoseNet, files
from fermibose.errors import FermiboseError, FileFormatError, InputError


@pytest.fixture
def net():
    made = FermiBoseNet(6, (5, 4), 3, bias=True, readout_bias=True, classes=["a", "b", "c"])
    made.initialise(torch.Generator().manual_seed(0))
    made.info = {"seed": 7}
    return made


@pytest.fixture
def saved(net, tmp_path):
    net.save(tmp_path / "model")
    return tmp_path / "model"


def test_forward_is_the_formula(net):
    x = np.random.default_rng(0).random((8, 6)).astype(np.float32)
    h = x
    for layer in net.local_layers:
        h = (1 + np.tanh(h @ layer.weight.numpy() + layer.bias.numpy())) / 2
    logits = h @ net.readout.weight.numpy() + net.readout.bias.numpy()
    np.testing.assert_allclose(net(torch.from_numpy(x)).numpy(), logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(net(torch.from_numpy(x).view(8, 1, 2, 3)).numpy(), logits, atol=1e-5)


def test_it_is_frozen_but_differentiable_in_its_input(net):
    assert not any(p.requires_grad for p in net.parameters())
    assert torch.autograd.gradcheck(net.double(), torch.rand(3, 6).double().requires_grad_())


def test_raw_inputs_are_rescaled_inside(net, tmp_path):
    x = torch.rand(4, 6)
    expected = net(x)
    offset, gain = torch.full((6,), -3.0).double(), torch.full((6,), 0.25).double()
    net.take_raw_inputs(offset, gain)
    torch.testing.assert_close(net((x.double() / gain + offset).float()), expected)
    net.save(tmp_path / "raw")
    torch.testing.assert_close(FermiBoseNet.load(tmp_path / "raw")(4 * x - 3), net(4 * x - 3))


def test_saving_and_loading_gives_the_same_net(net, saved):
    back = FermiBoseNet.load(saved)
    x = torch.rand(5, 6)
    assert torch.equal(back(x), net(x))
    assert back.config == net.config
    assert back.config["classes"] == ["a", "b", "c"]
    assert back.info == {"seed": 7}
    assert not any(p.requires_grad for p in back.parameters())
    assert sorted(path.name for path in saved.iterdir()) == ["model.json", "model.safetensors"]


def test_inputs_of_another_precision_are_taken(net):
    x = torch.rand(3, 6)
    assert torch.equal(net(x.double()), net(x))


def test_what_cannot_be_described_replaces_nothing(net, saved):
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    net.info = {"loss": float("nan")}
    net.initialise(torch.Generator().manual_seed(9))
    with pytest.raises(ValueError, match="JSON compliant"):
        net.save(saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before


def test_wrong_width_is_named(net):
    with pytest.raises(InputError, match="must have shape"):
        net(torch.rand(6))
    with pytest.raises(InputError, match="7 features, but the net takes 6"):
        net(torch.rand(2, 7))


def test_making_a_net_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    FermiBoseNet(4, (3,), 2).initialise(torch.Generator().manual_seed(0))
    assert torch.equal(before, torch.get_rng_state())


def truncate(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-9])


def flip_a_bit(folder):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def change(**values):
    def edit(folder):
        config = json.loads((folder / "model.json").read_text())
        (folder / "model.json").write_text(json.dumps(config | values))

    return edit


def foreign_weights(folder):
    import hashlib

    save_file({"conv.weight": torch.zeros(2, 2)}, folder / "model.safetensors")
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    change(sha256=digest)(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, "truncated or corrupt"),
        (flip_a_bit, "truncated or corrupt"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no model.safetensors"),
        (lambda folder: (folder / "model.json").unlink(), "not a saved model"),
        (lambda folder: (folder / "model.json").write_text("{"), r"not readable as JSON .*again"),
        (
            lambda folder: (folder / "model.json").write_text("[1]"),
            "does not describe.*give the folder",
        ),
        (change(format="other"), "does not describe"),
        (change(format_version=99), "version 99"),
        (change(hidden=[5, 400_000_000]), "do not fit"),
        (change(hidden="x"), "do not fit .*copy or train the model again"),
        (change(classes=[0]), "do not fit"),
        (foreign_weights, "do not fit"),
        (change(info=["x"]), r"is damaged: .*\(info\).*again"),
        (change(info=None), "is damaged"),
    ],
)
def test_damaged_or_foreign_files_are_refused(saved, damage, message):
    damage(saved)
    with pytest.raises(FileFormatError, match=message):
        FermiBoseNet.load(saved)


def test_a_folder_that_cannot_be_written_is_named(net, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FermiboseError, match="could not save the model"):
        net.save(tmp_path / "file")


class Killed(BaseException):
    """As good as a kill: nothing after it is written."""


def die_at(monkeypatch, number):
    """The process ends just before the file with this number takes its place."""
    replaced, replace = [], os.replace

    def die(draft, path):
        replaced.append(path)
        if len(replaced) == number:
            raise Killed
        replace(draft, path)

    monkeypatch.setattr(files.os, "replace", die)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_save_that_is_cut_short_leaves_the_old_model(net, saved, number, monkeypatch):
    before = copy.deepcopy(net.state_dict())
    net.initialise(torch.Generator().manual_seed(9))
    with monkeypatch.context() as patch:
        die_at(patch, number)
        with pytest.raises(Killed):
            net.save(saved)
    old = FermiBoseNet.load(saved).state_dict()
    assert all(torch.equal(old[name], value) for name, value in before.items())
    for seed in (9, 10):  # and the next saves go through, leaving nothing behind
        net.initialise(torch.Generator().manual_seed(seed))
        net.save(saved)
        new = FermiBoseNet.load(saved).state_dict()
        assert all(torch.equal(new[name], value) for name, value in net.state_dict().items())
        assert sorted(path.name for path in saved.iterdir()) == ["model.json", "model.safetensors"]


def test_saving_removes_nothing_of_the_users(net, saved):
    mine = [saved / "model.best.safetensors", saved / "model.2026.safetensors"]
    for path in mine:
        path.write_text("mine")
    net.save(saved)
    assert all(path.read_text() == "mine" for path in mine)


def test_a_process_killed_between_the_two_files_leaves_the_old_model(net, saved):
    script = f"""
import os, signal, torch
from fermibose import FermiBoseNet
net = FermiBoseNet.load({str(saved)!r})
net.initialise(torch.Generator().manual_seed(9))
replace = os.replace
def replace_then_die(draft, path):
    replace(draft, path)
    if path.name == "model.safetensors":
        os.kill(os.getpid(), signal.SIGKILL)
os.replace = replace_then_die
net.save({str(saved)!r})
"""
    killed = subprocess.run([sys.executable, "-c", script], check=False)
    assert killed.returncode == -signal.SIGKILL
    old = FermiBoseNet.load(saved).state_dict()
    assert all(torch.equal(old[name], value) for name, value in net.state_dict().items())
