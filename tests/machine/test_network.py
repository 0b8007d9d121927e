"""The network and its files. Oracles: the formula in NumPy, round trips, damaged files."""

import copy
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fermibose import FermiBoseNet, files
from fermibose.errors import FermiboseError, FileFormatError, InputError
from fermibose.machine import Conv, LocalConv, network


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
        files.seal(folder / "model.json")  # nobody's damage: it was meant

    return edit


def weights(make):
    def replace(folder):
        file = folder / "model.safetensors"
        save_file(make(load_file(file)), file)
        change(sha256=hashlib.sha256(file.read_bytes()).hexdigest())(folder)

    return replace


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
        (change(format_version=True), "version True"),
        (change(hidden=[5, 400_000_000]), "do not fit"),
        (change(hidden="x"), "do not fit .*copy or train the model again"),
        (change(hidden=[5]), "do not fit"),
        (change(hidden=[5] * 50_000), "do not fit .*there are 2 hidden layers"),
        (change(inputs="6" * 10_000), "do not fit .*inputs must be a whole number"),
        (change(inputs=6.0), "inputs must be a whole number"),
        (change(bias=1), "bias must be True or False"),
        (change(activation=["tanh"]), "activation must be"),
        (change(classes="abc"), "classes must be a list"),
        (change(classes=[["a"], "b", "c"]), "classes must be a list"),
        (change(colour="blue"), "do not fit .*colour"),
        (change(classes=[0]), "do not fit"),
        (weights(lambda old: {"conv.weight": torch.zeros(2, 2)}), "do not fit"),
        (weights(lambda old: old | {"extra": torch.zeros(2)}), "'extra' does not belong there"),
        (weights(lambda old: {n: t.int() for n, t in old.items()}), "is of torch.int32, which"),
        (weights(lambda old: {n: t * math.nan for n, t in old.items()}), "holds NaN"),
        (weights(lambda old: old | {"readout.bias": torch.full((3,), math.inf)}), "or infinity"),
        (
            weights(lambda old: old | {"readout.bias": torch.zeros(3).double()}),
            "different types: torch.float32, torch.float64",
        ),
        (change(info=["x"]), r"is damaged: .*\(info\).*again"),
        (change(info=None), "is damaged"),
    ],
)
def test_damaged_or_foreign_files_are_refused_at_once_in_one_line(saved, damage, message):
    damage(saved)
    started = time.process_time()
    with pytest.raises(FileFormatError, match=message) as found:
        FermiBoseNet.load(saved)
    assert time.process_time() - started < 2
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 700


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 200_000, "nested too deeply"),
        ('{"a":' * 200_000 + "1" + "}" * 200_000, "nested too deeply"),
        ('{"format": NaN}', "holds NaN"),
        ('{"format": 1' + "0" * 10_000 + "}", "not readable as JSON"),
        ("\xff", "not readable as JSON"),
        (" " * 2**25, "bytes, more than"),
        ("", "not readable as JSON"),
    ],
    ids=["lists", "objects", "NaN", "long number", "not UTF-8", "long", "empty"],
)
def test_a_description_that_is_no_json_is_refused_at_once(saved, text, message):
    (saved / "model.json").write_bytes(text.encode("latin-1"))
    started = time.process_time()
    with pytest.raises(FileFormatError, match=message):
        FermiBoseNet.load(saved)
    assert time.process_time() - started < 2


def test_a_net_of_very_many_layers_is_refused_at_once(saved):
    def many(old):
        layers = {f"layers.{i}.weight": torch.ones(1, 1) for i in range(5_000)}
        return layers | {"readout.weight": torch.ones(1, 3)}

    shapes = {"inputs": 1, "hidden": [1] * 5_000, "bias": False, "readout_bias": False}
    weights(many)(saved)
    change(**shapes)(saved)
    started = time.process_time()
    with pytest.raises(FileFormatError, match="at most 1000 hidden layers, got 5000"):
        FermiBoseNet.load(saved)
    assert time.process_time() - started < 5


def small_saved(folder):
    made = FermiBoseNet(2, (2,), 2)
    made.initialise(torch.Generator().manual_seed(0))
    made.info = {"rate": 1e-05, "name": "é"}  # where a bit may flip in vain: JSON reads E as e
    made.save(folder)
    return folder


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_every_bit_of_a_saved_model_counts(tmp_path, name):
    """One bit of every byte, in turn; each is as likely to be missed as its neighbours."""
    file = small_saved(tmp_path) / name
    content = file.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        file.write_bytes(damaged)
        with pytest.raises(FileFormatError):
            FermiBoseNet.load(tmp_path)
    for length in range(0, len(content), 5):
        file.write_bytes(content[:length])
        with pytest.raises(FileFormatError):
            FermiBoseNet.load(tmp_path)
    file.write_bytes(content + b"\n")
    with pytest.raises(FileFormatError):
        FermiBoseNet.load(tmp_path)
    file.write_bytes(content)
    FermiBoseNet.load(tmp_path)


def test_a_model_of_the_version_without_a_checksum_is_read_with_a_warning(net, saved):
    config = json.loads((saved / "model.json").read_text())
    del config["checksum"]
    (saved / "model.json").write_text(json.dumps(config))
    with pytest.raises(FileFormatError, match=r"checksum is missing\); copy or train"):
        FermiBoseNet.load(saved)
    (saved / "model.json").write_text(json.dumps(config | {"format_version": 1}))
    with pytest.warns(UserWarning, match="without a checksum.*Save the net again") as noticed:
        back = FermiBoseNet.load(saved)
    assert noticed[0].filename == __file__
    back.save(saved)
    again = FermiBoseNet.load(saved)  # warnings are errors here
    assert all(torch.equal(again.state_dict()[n], t) for n, t in net.state_dict().items())


def test_a_diverged_net_is_not_saved(net, saved):
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    net.readout.weight[0, 0] = math.nan
    with pytest.raises(FermiboseError, match=r"not saved in .*readout.weight holds NaN"):
        net.save(saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before


def test_what_is_too_long_to_be_read_is_not_written(net, saved):
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    net.info = {"notes": "x" * 2**24}
    with pytest.raises(FermiboseError, match="keep less in its info"):
        net.save(saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before


def test_numbers_of_numpy_come_back_as_numbers(tmp_path):
    made = FermiBoseNet(np.int64(3), (np.int32(2),), np.int64(2), classes=np.array([7, 9]))
    made.info = {"score": np.float32(0.5), "counts": np.arange(3)}
    made.save(tmp_path)
    back = FermiBoseNet.load(tmp_path)
    assert back.config == made.config
    assert back.config["classes"] == [7, 9]
    assert back.info == {"score": 0.5, "counts": [0, 1, 2]}


def test_it_is_in_evaluation_mode(net, saved):
    for each in (net, FermiBoseNet.load(saved)):
        assert not any(module.training for module in each.modules())


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


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own
def test_maps_of_torch_func_go_through_a_net(net):
    """Against derivatives by the tape, one output at a time."""
    x = torch.rand(3, net.config["inputs"])
    x.requires_grad_()
    logits = net(x)
    rows = [torch.autograd.grad(z.sum(), x, retain_graph=True)[0] for z in logits.unbind(1)]
    expected, x = torch.stack(rows, 1), x.detach()
    one_by_one = torch.func.vmap(lambda each: net(each[None])[0])
    torch.testing.assert_close(one_by_one(x), logits)
    for jacobian in (torch.func.jacfwd, torch.func.jacrev):
        each = torch.func.vmap(jacobian(lambda v: net(v[None])[0]))(x)
        torch.testing.assert_close(each, expected, rtol=1e-4, atol=1e-6)


def test_many_images_pass_convolutions_a_part_at_a_time(monkeypatch):
    """Against one at a time, also on the way back."""
    net = FermiBoseNet(36, (Conv(4, size=3), 5), 3, image_shape=(6, 6)).double()
    net.initialise(torch.Generator().manual_seed(0))
    x = torch.rand(11, 36, dtype=torch.float64, requires_grad=True)
    monkeypatch.setattr(network, "CHUNK", 4)
    logits = net(x)
    torch.testing.assert_close(logits, torch.cat([net(each[None]) for each in x]))
    (found,) = torch.autograd.grad(logits.square().sum(), x)
    alone = [torch.autograd.grad(net(each[None]).square().sum(), each)[0] for each in x.unbind()]
    torch.testing.assert_close(found, torch.stack(alone))
    seen = []
    monkeypatch.setattr(LocalConv, "forward", seen_by(LocalConv.forward, seen))
    net.represent(x)
    assert seen == [4, 4, 3]


def seen_by(forward, seen):
    def noted(layer, x):
        seen.append(len(x))
        return forward(layer, x)

    return noted
