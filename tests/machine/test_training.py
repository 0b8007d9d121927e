"""Training. Oracles: a hand-written Adam loop with autograd, bit-wise comparison of two runs."""

import dataclasses
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import types
from functools import partial

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from scipy.sparse import csr_array

from fermibose import PairEnergy, files
from fermibose.attacks import ThreatModel, audit, black_box
from fermibose.compute import Interrupted
from fermibose.errors import FermiboseError, FileFormatError, InputError
from fermibose.machine import (
    Noise,
    RangeWarning,
    Recipe,
    SelfSupervised,
    Shift,
    checkpoint,
    loop,
    train_kernel_ridge,
    train_logistic,
    train_mlp,
    train_rbf_svm,
)
from fermibose.machine.checkpoint import Checkpoint
from fermibose.machine.inputs import Held
from fermibose.machine.training import LayerStage, new_net, train

SMALL = Recipe(hidden=(12, 9), epochs=4, batch_size=8, readout_epochs=5, energy=PairEnergy(0.2))
SELF = SelfSupervised((Shift((4, 5), 1), Noise(0.1)))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 40)
    x = np.clip(rng.random((3, 20))[y] + 0.1 * rng.normal(size=(40, 20)), 0, 1)
    return x.astype(np.float32), y


def with_(recipe, **changes):
    from dataclasses import replace

    return replace(recipe, **changes)


def weights(training):
    return training.net.state_dict()


def press_at(monkeypatch, step):
    """Press Ctrl-C once, when so many things have been recorded."""
    steps, record = 0, loop._record

    def press(records, stage, values):
        nonlocal steps
        steps += 1
        if steps == step:
            os.kill(os.getpid(), signal.SIGINT)
        record(records, stage, values)

    monkeypatch.setattr(loop, "_record", press)


def same_bits(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.values(), other.values(), strict=True))


@pytest.fixture(scope="module")
def dark_data(data):
    """Six of the inputs are 0 in every sample."""
    x = data[0].copy()
    x[:, [0, 3, 4, 9, 10, 19]] = 0
    return x, data[1]


@pytest.mark.parametrize("which", ["data", "dark_data"])
@pytest.mark.filterwarnings("ignore::fermibose.machine.CollapseWarning")  # it is meant to
def test_training_a_layer_is_adam_on_the_printed_loss(which, request):
    """Autograd over all pairs of each batch, torch's plain Adam, the same shuffles."""
    data = request.getfixturevalue(which)
    x, y = torch.from_numpy(data[0]), torch.from_numpy(data[1])
    recipe = with_(SMALL, hidden=(12,), weight_decay=3.0, readout_epochs=0)
    training = train(*data, recipe)

    generator = torch.Generator().manual_seed(recipe.seed)
    weight = (torch.randn(20, 12, generator=generator) / 20**0.5).requires_grad_()
    torch.randn(12, 3, generator=generator)  # the readout's first weights
    adam = torch.optim.Adam([weight], lr=recipe.learning_rate)
    losses = []
    for _ in range(recipe.epochs):
        for index in torch.randperm(40, generator=generator).split(8):
            h = (1 + torch.tanh(x[index] @ weight)) / 2
            i, j = torch.triu_indices(len(index), len(index), 1)
            same = y[index][i] == y[index][j]
            d2 = (h[i] - h[j]).square().mean(1)
            pair = recipe.energy.energy(d2, same).mean()
            losses.append(pair.item())
            adam.zero_grad()
            (pair + 3.0 / (2 * 12) * weight.square().sum()).backward()
            adam.step()
    np.testing.assert_allclose(training.history["layer 1"]["energy"], losses, rtol=2e-4)
    torch.testing.assert_close(
        training.net.local_layers[0].weight, weight.detach(), rtol=1e-3, atol=2e-4
    )


def test_no_gradient_crosses_a_layer(data):
    """Training the second of three layers moves that layer and nothing else."""
    x, y = torch.from_numpy(data[0]), torch.from_numpy(data[1])
    recipe = with_(SMALL, hidden=(12, 9, 7))
    net, generator = new_net(x, y, recipe)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    loop.train_stages(
        net,
        [lambda: LayerStage(net, 1, Held(x), y, recipe, generator)],
        batch_size=8,
        generator=generator,
        records={},
    )
    moved = {
        name for name, value in net.state_dict().items() if not torch.equal(value, before[name])
    }
    assert moved == {"layers.1.weight"}


@pytest.mark.parametrize("changes", [{}, {"pairing": SELF}, {"readout": "ridge", "bias": True}])
def test_one_seed_determines_every_bit(data, changes):
    recipe = with_(SMALL, **changes)
    first, again = train(*data, recipe), train(*data, recipe)
    other = train(*data, with_(recipe, seed=1))
    assert same_bits(weights(first), weights(again))
    assert not same_bits(weights(first), weights(other))


def test_global_state_is_left_alone(data):
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    threads, handler = torch.get_num_threads(), signal.getsignal(signal.SIGINT)
    train(*data, with_(SMALL, threads=2))
    assert torch.equal(torch_state, torch.get_rng_state())
    assert (numpy_state == np.random.get_state()[1]).all()
    assert torch.get_num_threads() == threads
    assert signal.getsignal(signal.SIGINT) is handler
    tiny = torch.tensor(1e-308, dtype=torch.float64) * 0.01
    assert tiny > 0  # denormals are back


@pytest.mark.parametrize("changes", [{}, {"pairing": SELF}, {"bias": True, "hidden": (15, 14, 13)}])
@pytest.mark.parametrize("at_step", [1, 7, 30, 47])
@pytest.mark.parametrize("which", ["data", "dark_data"])
def test_interrupted_and_resumed_training_gives_the_same_bits(
    which, changes, at_step, tmp_path, monkeypatch, capfd, request
):
    data = request.getfixturevalue(which)
    recipe = with_(SMALL, **changes)
    whole = train(*data, recipe, test=data)

    press_at(monkeypatch, at_step)
    file = tmp_path / "checkpoint.safetensors"
    with pytest.raises(Interrupted) as stop:
        train(*data, recipe, test=data, checkpoint=file)
    so_far = stop.value.done
    assert so_far.interrupted
    assert file.exists()
    assert "stopping after this epoch" in capfd.readouterr().err
    assert not same_bits(weights(so_far), weights(whole))
    # What is trained is kept and usable: the readout was solved in closed form if not reached.
    assert so_far.history["readout"]["train_accuracy"][-1] > 0.5

    resumed = train(*data, recipe, test=data, checkpoint=file)
    assert not resumed.interrupted
    assert same_bits(weights(resumed), weights(whole))
    for stage, quantities in whole.history.items():
        for name, values in quantities.items():
            np.testing.assert_array_equal(resumed.history[stage][name], values)


def test_a_second_ctrl_c_stops_at_once(data, monkeypatch):
    def impatient(records, stage, values):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(loop, "_record", impatient)
    with pytest.raises(KeyboardInterrupt):
        train(*data, SMALL)


def test_killed_training_resumes_from_its_last_checkpoint(data, tmp_path):
    """kill -9 in another process, then resume here: the same bits as without the kill."""
    file, x = tmp_path / "checkpoint.safetensors", tmp_path / "data.npz"
    np.savez(x, x=data[0], y=data[1])
    script = f"""
import os, signal, numpy as np
from fermibose import PairEnergy
from fermibose.machine import Recipe, checkpoint, train
saves = 0
save = checkpoint.save_file
def save_then_die(*args, **kwargs):
    global saves
    save(*args, **kwargs)
    saves += 1
    if saves == 2:  # after the second file is written, before it replaces the first
        os.kill(os.getpid(), signal.SIGKILL)
checkpoint.save_file = save_then_die
data = np.load({str(x)!r})
recipe = Recipe(hidden=(12, 9), epochs=4, batch_size=8, readout_epochs=5, energy=PairEnergy(0.2))
train(data["x"], data["y"], recipe, checkpoint={str(file)!r})
"""
    killed = subprocess.run([sys.executable, "-c", script], check=False)
    assert killed.returncode == -signal.SIGKILL
    resumed = train(*data, SMALL, checkpoint=file)
    assert same_bits(weights(resumed), weights(train(*data, SMALL)))


def test_a_finished_checkpoint_gives_the_training_back(data, tmp_path, monkeypatch):
    file = tmp_path / "checkpoint.safetensors"
    first = train(*data, SMALL, test=data, checkpoint=file)
    monkeypatch.setattr(LayerStage, "step", None)  # nothing may be trained any more
    again = train(*data, SMALL, test=data, checkpoint=file)
    assert same_bits(weights(first), weights(again))
    for stage, quantities in first.history.items():
        for name, values in quantities.items():
            np.testing.assert_array_equal(again.history[stage][name], values)


def test_ctrl_c_in_the_last_epoch_interrupts_nothing(data, monkeypatch, capfd):
    record = loop._record

    def press(records, stage, values):
        record(records, stage, values)
        if len(records.get("readout", {}).get("loss", ())) == SMALL.readout_epochs:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(loop, "_record", press)
    with pytest.raises(Interrupted) as stop:  # the training is whole, but Ctrl-C is not lost
        train(*data, SMALL)
    training = stop.value.done
    assert not training.interrupted
    monkeypatch.undo()
    assert same_bits(weights(training), weights(train(*data, SMALL)))


@pytest.mark.parametrize("changes", [{"learning_rate": 1e38}, {"readout_learning_rate": 1e38}])
def test_divergence_is_an_error_not_a_result(data, changes):
    with pytest.raises(FermiboseError, match=r"training of .* diverged in epoch 1"):
        train(*data, with_(SMALL, **changes))


def test_checkpoints_of_other_trainings_and_damaged_ones_are_refused(data, tmp_path):
    file = tmp_path / "checkpoint.safetensors"
    train(*data, SMALL, checkpoint=file)
    with pytest.raises(FermiboseError, match="other settings, data or version"):
        train(*data, with_(SMALL, weight_decay=0.5), checkpoint=file)
    with pytest.raises(FermiboseError, match="other settings, data or version"):
        train(data[0] * 0.5, data[1], SMALL, checkpoint=file)
    with pytest.raises(FermiboseError, match="other settings, data or version"):
        train(*data, SMALL, test=data, checkpoint=file)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(FileFormatError, match="not a readable checkpoint"):
        train(*data, SMALL, checkpoint=file)


def test_a_full_disk_leaves_the_previous_checkpoint_intact(data, tmp_path, monkeypatch):
    file = tmp_path / "checkpoint.safetensors"
    calls = 0
    save = checkpoint.save_file

    def disk_fills_up(tensors, path, metadata):
        nonlocal calls
        calls += 1
        if calls == 2:
            path.write_bytes(b"half a file")
            raise OSError(28, "No space left on device")
        save(tensors, path, metadata=metadata)

    monkeypatch.setattr(checkpoint, "save_file", disk_fills_up)
    with pytest.raises(
        FermiboseError, match=r"No space left.*previous one, if any, is intact: make room"
    ):
        train(*data, SMALL, checkpoint=file)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    resumed = train(*data, SMALL, checkpoint=file)
    assert same_bits(weights(resumed), weights(train(*data, SMALL)))


def test_room_is_asked_for_only_where_it_is_missing(data, tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(FermiboseError, match="a folder that can be written to and resume") as found:
        train(*data, SMALL, checkpoint=tmp_path / "notes" / "checkpoint.safetensors")
    assert "make room" not in str(found.value)


@pytest.mark.parametrize("fit", [train, train_mlp])
def test_a_net_that_cannot_fit_into_memory_is_refused(data, fit):
    with pytest.raises(InputError, match="do not fit into memory: use fewer"):
        fit(*data, with_(SMALL, hidden=(10**15,)))


@pytest.mark.filterwarnings("ignore::fermibose.machine.CollapseWarning")  # it is meant to
def test_activity_penalty_makes_representations_sparser(data):
    x = torch.from_numpy(data[0])
    recipe = with_(SMALL, hidden=(12,), epochs=30)
    means = [
        train(*data, with_(recipe, activity=activity)).net.represent(x).mean().item()
        for activity in (0.0, 0.1, 1.0)
    ]
    assert means[0] > 1.3 * means[1] > 1.3 * means[2]


def test_fermions_part_to_the_target_distance_and_bosons_close_up(data):
    recipe = with_(SMALL, hidden=(50,), epochs=150, energy=PairEnergy(0.3), weight_decay=0.0)
    history = train(*data, recipe).history["layer 1"]
    fermions, bosons = history["fermion_distance"], history["boson_distance"]
    assert fermions[:5].mean() < 0.1
    assert 0.3 < fermions[-20:].mean() < 0.5  # past the target nothing pushes any more
    assert bosons[-20:].mean() < 0.02
    assert history["energy"][-20:].mean() < 0.05 * history["energy"][:5].mean()


def test_single_left_over_sample_trains(data):
    x, y = data[0][:33], data[1][:33]  # batches of 8, 8, 8, 8 and 1
    history = train(x, y, SMALL).history["layer 1"]
    assert np.isnan(history["fermion_distance"]).sum() == SMALL.epochs
    assert np.isfinite(history["energy"]).all()


def test_mlp_is_backpropagation_with_adam(data):
    x, y = torch.from_numpy(data[0]), torch.from_numpy(data[1])
    recipe = with_(SMALL, hidden=(12,), epochs=3)
    training = train_mlp(*data, recipe, weight_decay=0.1, learning_rate=0.01)

    generator = torch.Generator().manual_seed(recipe.seed)
    first = torch.randn(20, 12, generator=generator) / 20**0.5
    second = torch.randn(12, 3, generator=generator) / 12**0.5
    layers = [w.requires_grad_() for w in (first, second)]
    adam = torch.optim.Adam(layers, lr=0.01)
    for _ in range(3):
        for index in torch.randperm(40, generator=generator).split(8):
            logits = (1 + torch.tanh(x[index] @ first)) / 2 @ second
            penalty = 0.05 * (first.square().sum() + second.square().sum())
            adam.zero_grad()
            (torch.nn.functional.cross_entropy(logits, y[index]) + penalty).backward()
            adam.step()
    torch.testing.assert_close(training.net.readout.weight, second.detach(), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(
        training.net.local_layers[0].weight, first.detach(), rtol=1e-3, atol=1e-4
    )
    assert not any(p.requires_grad for p in training.net.parameters())


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"hidden": ()}, "hidden"),
        ({"hidden": (10, 0)}, "hidden"),
        ({"hidden": "12"}, "hidden"),
        ({"hidden": 12}, "hidden"),
        ({"hidden": (10.7,)}, "hidden"),
        ({"bias": "no"}, "bias"),
        ({"learning_rate": "fast"}, "learning_rate"),
        ({"seed": 2**70}, "seed"),
        ({"epochs": -1}, "epochs"),
        ({"batch_size": 1}, "batch_size"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"weight_decay": float("nan")}, "weight_decay"),
        ({"readout": "svm"}, "'cross_entropy' or 'ridge'"),
        ({"activation": "step"}, "activation"),
        ({"seed": -1}, "seed"),
        ({"threads": 0}, "threads"),
        ({"energy": 0.4}, "energy must be a PairEnergy"),
        ({"pairing": "self"}, "pairing must be"),
        ({"pairing": SelfSupervised}, "pairing must be"),
    ],
)
def test_impossible_recipes_are_named(bad, message):
    with pytest.raises(InputError, match=message):
        Recipe(**bad)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros(4), [0, 1, 0, 1], "shape"),
        (np.zeros((2, 3)), [0, 1, 1], "one whole number"),
        (np.zeros((2, 3)), [0.5, 1.5], "one whole number"),
        (np.zeros((2, 3)), [-1, 1], "one whole number"),
        (np.full((2, 3), np.nan), [0, 1], "NaN"),
        (csr_array(np.eye(2)), [0, 1], r"x is sparse; give x\.toarray"),
        (torch.eye(2).to_sparse(), [0, 1], "x is not an array of numbers"),
        (torch.eye(2, device="meta"), [0, 1], "x is not an array of numbers"),
        ([[1.0], [1.0, 2.0]], [0, 1], "x is not an array of numbers"),
        ([["a"], ["b"]], [0, 1], "x is not an array of numbers"),
        (np.eye(2) * 1j, [0, 1], "x is not an array of numbers .complex"),
        (np.eye(2), [[0], [0, 1]], "y is not an array of numbers"),
        (np.eye(2), np.array([0, 2**63], dtype=np.uint64), "up to 9223"),
    ],
)
def test_unusable_data_are_named(x, y, message):
    with pytest.raises(InputError, match=message):
        train(x, y, SMALL)


@pytest.mark.parametrize(
    "form",
    [
        lambda x, y: (x[::-1].copy()[::-1], y[::-1].copy()[::-1]),
        lambda x, y: (np.asfortranarray(x), y.astype(np.uint8)),
        lambda x, y: (x.astype(">f4"), y.astype(">i8")),
        lambda x, y: (x.astype(np.float64), y.tolist()),
        lambda x, y: (torch.tensor(x, requires_grad=True), torch.tensor(y)),
        lambda x, y: (x.tolist(), torch.tensor(y, dtype=torch.int32)),
    ],
)
def test_the_form_of_the_data_changes_no_bit(data, form):
    expected = train(*data, SMALL, test=data)
    found = train(*form(*data), SMALL, test=form(*data))
    assert same_bits(weights(found), weights(expected))
    accuracy = [t.history["readout"]["test_accuracy"] for t in (found, expected)]
    np.testing.assert_array_equal(*accuracy)


def test_inputs_of_half_precision_are_taken_as_they_are(data):
    x = torch.tensor(data[0]).bfloat16()
    found, expected = (train(given, data[1], SMALL) for given in (x, x.float().numpy()))
    assert same_bits(weights(found), weights(expected))


@pytest.mark.parametrize("stray", [5000, 20241101, 2**40])
@pytest.mark.parametrize(
    "fit", [train, train_mlp, train_rbf_svm, train_kernel_ridge, train_logistic]
)
def test_a_stray_label_is_blamed_at_once(data, stray, fit):
    x, y = data[0], data[1].copy()
    y[7] = stray
    settings = {"recipe": SMALL} if fit in (train, train_mlp) else {}
    message = rf"labels go up to {stray}, but only 4 different .*np\.unique"
    with pytest.raises(InputError, match=message):
        fit(x, y, **settings)


@pytest.mark.parametrize(("y", "outputs"), [([0, 999], 1000), (range(0, 2700, 9), 2692)])
def test_classes_may_be_missing_from_the_training_set(y, outputs):
    """Two images of a thousand classes, or every ninth of 2692."""
    images = np.random.default_rng(0).random((len(y), 5))
    recipe = with_(SMALL, hidden=(6,), epochs=1, batch_size=50, readout_epochs=1)
    assert train(images, np.array(y), recipe).net.config["outputs"] == outputs


@pytest.mark.parametrize("fit", [train_rbf_svm, train_logistic])
def test_baselines_with_a_fit_for_each_class_need_examples_of_all(data, fit):
    """scikit-learn would leave class 1 out, and its outputs would stand for 0 and 2."""
    some = data[1] != 1
    with pytest.raises(InputError, match=r"no example of class 1, .*np\.unique"):
        fit(data[0][some], data[1][some])
    with pytest.raises(InputError, match="all examples are of one class"):
        fit(data[0], 0 * data[1])
    logits = fit(*data)(torch.from_numpy(data[0]))
    assert logits.shape == (40, 3)
    assert (logits.argmax(1).numpy() == data[1]).mean() > 0.9


@pytest.mark.parametrize("fit", [train, train_mlp])
@pytest.mark.parametrize("change", [lambda x: 255 * x, lambda x: 2 * x - 1])
def test_inputs_in_another_range_are_used_with_a_warning(data, fit, change):
    x = change(data[0])
    with pytest.warns(RangeWarning, match=r"x / 255") as found:
        training = fit(x, data[1], SMALL)
    assert found[0].filename == __file__
    assert f"from {x.min():g} to {x.max():g}" in str(found[0].message)
    assert not same_bits(weights(training), weights(fit(*data, SMALL)))
    fit(data[0] * (1 + 1e-6), data[1], SMALL)  # rounding is no other range


@pytest.mark.parametrize("fit", [train, train_mlp])
def test_test_inputs_of_another_width_are_refused_before_any_training(data, fit, monkeypatch):
    monkeypatch.setattr("fermibose.machine.training.train_stages", None)
    monkeypatch.setattr("fermibose.machine.baselines.train_stages", None)
    with pytest.raises(InputError, match=r"test inputs have 19 features, but .* 20"):
        fit(*data, SMALL, test=(data[0][:, 1:], data[1]))


@pytest.mark.parametrize("fit", [train, train_mlp])
def test_ctrl_c_ends_the_work_that_a_training_is_part_of(data, fit, monkeypatch, capfd):
    """Nobody who asked for a net gets half a one; whoever wants it finds it in ``done``."""
    press_at(monkeypatch, 3)
    with pytest.raises(Interrupted) as stop:
        fit(*data, SMALL)
    half = stop.value.done
    assert half.interrupted
    assert not same_bits(weights(half), weights(fit(*data, SMALL)))
    assert not any(p.requires_grad for p in half.net.parameters())


def test_ctrl_c_in_the_pupil_of_an_audit_ends_the_audit(data, monkeypatch, capfd):
    net = train(*data, with_(SMALL, readout="ridge")).net
    learn = black_box._Pupil.forward

    def pressed(self, x):
        signal.raise_signal(signal.SIGINT)
        return learn(self, x)

    monkeypatch.setattr(black_box._Pupil, "forward", pressed)
    with pytest.raises(KeyboardInterrupt):
        audit(net, *data, ThreatModel("linf", 0.1), show=False)


SIGMA = 0.1


def shaken(x, generator):
    return torch.clamp(x + SIGMA * torch.randn(x.shape, generator=generator), 0, 1)


def shaker(sigma):
    def shake(x, generator):
        return torch.clamp(x + sigma * torch.randn(x.shape, generator=generator), 0, 1)

    return shake


def dimmer(rule):
    @dataclasses.dataclass(frozen=True)
    class Dim:
        factor: float = 0.5
        __call__ = rule

    return Dim()


def attributed(value):
    @dataclasses.dataclass(frozen=True)
    class Dim:
        strength = value  # no field

        def __call__(self, x, generator):
            return x * self.strength

    return Dim()


def propertied(rule):
    @dataclasses.dataclass(frozen=True)
    class Dim:
        strength = property(rule)

        def __call__(self, x, generator):
            return x * self.strength

    return Dim()


def shifted(by):
    return lambda x, _: x.roll(by[1], 1)


@dataclasses.dataclass(frozen=True)
class Added:
    what: torch.Tensor

    def __call__(self, x, generator):
        return x + self.what


def listed(x, generator):
    return torch.stack([row * SIGMA for row in x])  # a function inside reads it, before Python 3.12


ADDED = torch.zeros(1)


def with_a_tensor(x, generator):
    return x + ADDED


class Faded:
    def __init__(self, by):
        self.by = by

    def __call__(self, x, generator):
        return x * torch.as_tensor(self.by, dtype=x.dtype)


def scaled(x, generator, *, by=0.5):
    return x * by


def with_default(by):
    copy = types.FunctionType(scaled.__code__, globals(), "scaled")
    copy.__kwdefaults__ = {"by": by}
    return copy


@pytest.mark.parametrize(
    ("transform", "again", "another"),
    [
        (shaken, shaken, scaled),
        (shaker(0.1), shaker(0.1), shaker(0.2)),
        (lambda x, _: x / 2, lambda x, _: x / 2, lambda x, _: x / 4),
        (with_default(0.5), with_default(0.5), with_default(0.25)),
        (
            dimmer(lambda self, x, _: x * self.factor),
            dimmer(lambda self, x, _: x * self.factor),
            dimmer(lambda self, x, _: x / self.factor),
        ),
        (attributed(0.1), attributed(0.1), attributed(0.2)),
        (propertied(lambda _: 0.5), propertied(lambda _: 0.5), propertied(lambda _: 0.25)),
        (shifted((1, 2)), shifted((1, 2)), shifted((1, 3))),
    ],
    ids=["plain", "closure", "lambda", "default", "dataclass", "attribute", "property", "tuple"],
)
def test_a_checkpoint_knows_the_users_own_transformation(data, tmp_path, transform, again, another):
    """By its code and by what it carries, not by its name."""
    file = tmp_path / "checkpoint.safetensors"
    first = train(*data, with_(SMALL, pairing=SelfSupervised((transform,))), checkpoint=file)
    resumed = train(*data, with_(SMALL, pairing=SelfSupervised((again,))), checkpoint=file)
    assert same_bits(weights(first), weights(resumed))
    with pytest.raises(FermiboseError, match="other settings, data or version"):
        train(*data, with_(SMALL, pairing=SelfSupervised((another,))), checkpoint=file)
    json.dumps(first.recipe.as_dict())  # no address in memory, nothing JSON does not know
    assert " at 0x" not in json.dumps(first.net.info)


def test_a_checkpoint_knows_the_constants_of_a_function(data, tmp_path, monkeypatch):
    file, recipe = tmp_path / "checkpoint", with_(SMALL, pairing=SelfSupervised((shaken,)))
    train(*data, recipe, checkpoint=file)
    monkeypatch.setitem(globals(), "SIGMA", 0.2)
    with pytest.raises(FermiboseError, match="other settings, data or version"):
        train(*data, recipe, checkpoint=file)
    file, recipe = tmp_path / "another", with_(SMALL, pairing=SelfSupervised((listed,)))
    train(*data, recipe, checkpoint=file)
    monkeypatch.setitem(globals(), "SIGMA", 0.3)
    with pytest.raises(FermiboseError, match="other settings, data or version"):
        train(*data, recipe, checkpoint=file)


@pytest.mark.parametrize("transform", [Added(torch.zeros(1)), with_a_tensor])
def test_a_checkpoint_refuses_what_it_cannot_tell_from_another(data, tmp_path, transform):
    recipe = with_(SMALL, pairing=SelfSupervised((transform,)))
    with pytest.raises(InputError, match="holds a Tensor"):
        train(*data, recipe, checkpoint=tmp_path / "checkpoint")


def test_a_checkpoint_of_a_function_is_known_in_another_process(data, tmp_path):
    """Names, sets and addresses differ between processes; what a function does does not."""
    np.savez(tmp_path / "data.npz", x=data[0], y=data[1])
    (tmp_path / "mine.py").write_text(
        "import torch, numpy as np\n"
        "from fermibose.machine import Recipe, SelfSupervised, train\n"
        "KEPT = frozenset({'red', 'green', 'blue'})\n"
        "def shift(x, generator):\n"
        "    return torch.roll(x, len(KEPT & {'red', 'blue', 'grey'}), 1)\n"
        "data = np.load('data.npz')\n"
        "recipe = Recipe((9,), epochs=2, readout_epochs=2, pairing=SelfSupervised((shift,)))\n"
        "train(data['x'], data['y'], recipe, checkpoint='checkpoint')\n"
    )
    ends = [
        subprocess.run(
            [sys.executable, "mine.py"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=False,
        ).returncode
        for seed in ("1", "2")
    ]
    assert ends == [0, 0]  # the second resumes what the first has left


@pytest.mark.parametrize(
    ("transform", "kind"),
    [
        (shaker(torch.tensor(0.1)), "Tensor"),
        (partial(scaled, by=0.5), "partial"),
        (Faded(0.5), "Faded"),
        (Faded(0.5).__call__, "method"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_transformation_that_no_checkpoint_can_know_is_refused(data, tmp_path, transform, kind):
    recipe = with_(SMALL, pairing=SelfSupervised((transform,)))
    with pytest.raises(InputError, match=rf"a {kind}: .*frozen dataclass.*without a checkpoint"):
        train(*data, recipe, checkpoint=tmp_path / "checkpoint")
    train(*data, recipe)  # without one it is as good as any


def test_an_energy_of_ones_own_is_known_by_its_kind_and_its_formula(data, tmp_path):
    """Resumed as another, the weights would be those of the wrong energy."""

    @dataclasses.dataclass(frozen=True)
    class Stronger(PairEnergy):
        def energy_and_force(self, d2, same, counts=None):
            energy, force = super().energy_and_force(d2, same, counts)
            return 2.0 * energy, 2.0 * force

    first, file = Stronger(), tmp_path / "checkpoint"
    train(*data, with_(SMALL, energy=first), checkpoint=file)
    again = train(*data, with_(SMALL, energy=first), checkpoint=file)
    assert same_bits(weights(again), weights(train(*data, with_(SMALL, energy=first))))
    assert again.net.info["recipe"]["energy"]["kind"] == "Stronger"

    @dataclasses.dataclass(frozen=True)
    class Stronger(PairEnergy):  # the same name with another formula
        def energy_and_force(self, d2, same, counts=None):
            energy, force = super().energy_and_force(d2, same, counts)
            return 3.0 * energy, 3.0 * force

    for other in (PairEnergy(), Stronger()):
        with pytest.raises(FermiboseError, match="with other settings, data or"):
            train(*data, with_(SMALL, energy=other), checkpoint=file)


def test_half_a_training_survives_the_way_from_a_worker(data, monkeypatch, capfd):
    press_at(monkeypatch, 3)
    with pytest.raises(Interrupted) as stop:
        train(*data, SMALL)
    arrived = pickle.loads(pickle.dumps(stop.value))
    assert same_bits(weights(arrived.done), weights(stop.value.done))


def damaged(content, position):
    flipped = bytearray(content)
    flipped[position // 8] ^= 1 << position % 8
    return bytes(flipped)


def test_every_bit_of_a_checkpoint_counts(data, tmp_path):
    """Each byte of the header, and bits anywhere: refused in one line, by what would resume."""
    file = tmp_path / "checkpoint.safetensors"
    recipe = with_(SMALL, hidden=(2,), epochs=1, readout_epochs=1)
    train(*data, recipe, checkpoint=file)
    content = file.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    rng = np.random.default_rng(0)
    positions = [8 * byte + byte % 8 for byte in range(header)]
    positions += rng.integers(8 * header, 8 * len(content), 200).tolist()
    keeper = Checkpoint(file, "")  # damage is noticed before the fingerprint is looked at
    for position in positions:
        file.write_bytes(damaged(content, position))
        with pytest.raises(FileFormatError, match=r"not a readable checkpoint .*start afresh$"):
            keeper.restore(torch.nn.Identity(), torch.Generator(), {}, stages=2)
    for length in rng.integers(0, len(content), 50):
        file.write_bytes(content[:length])
        with pytest.raises(FileFormatError, match="not a readable checkpoint"):
            keeper.restore(torch.nn.Identity(), torch.Generator(), {}, stages=2)
    file.write_bytes(damaged(content, 8 * len(content) - 1))
    with pytest.raises(FileFormatError, match="its checksum differs"):
        train(*data, recipe, checkpoint=file)
    file.write_bytes(content)
    train(*data, recipe, checkpoint=file)


def rewrite(file, tensors=None, header=None, *, sealed=True):
    """The checkpoint with other content, and a checksum that fits."""
    with safe_open(file, framework="pt") as old:
        metadata = {k: v for k, v in (old.metadata() | (header or {})).items() if v is not None}
        kept = {key: old.get_tensor(key) for key in old.keys()} | (tensors or {})  # noqa: SIM118
    save_file({k: t for k, t in kept.items() if t is not None}, file, metadata=metadata)
    if sealed:
        files.seal(file)


def test_a_checkpoint_of_the_version_without_a_checksum_is_read_with_a_warning(
    data, tmp_path, monkeypatch
):
    file = tmp_path / "checkpoint.safetensors"
    press_at(monkeypatch, 7)
    with pytest.raises(Interrupted):
        train(*data, SMALL, checkpoint=file)
    rewrite(file, header={"checksum": None}, sealed=False)
    with pytest.raises(FileFormatError, match="its checksum is missing"):
        train(*data, SMALL, checkpoint=file)
    rewrite(file, header={"format": None}, sealed=False)
    with pytest.warns(UserWarning, match="without a checksum.*gets one with") as noticed:
        resumed = train(*data, SMALL, checkpoint=file)
    assert same_bits(weights(resumed), weights(train(*data, SMALL)))
    assert files.is_sealed(file)
    assert noticed[0].filename == __file__


@pytest.mark.parametrize(
    ("tensors", "header", "says"),
    [
        ({}, {"position": "{}"}, "how far it came is not told"),
        ({}, {"position": None}, "how far it came is not told"),
        ({}, {"position": "[0, -1]"}, "how far it came is not told"),
        ({}, {"position": "[0, 1, 2]"}, "positional argument"),
        ({}, {"position": "[" * 200_000}, "nested too deeply"),
        ({}, {"position": "[7, 0]"}, "stage 8 of 3"),
        ({}, {"position": "[2, 9]"}, "epoch 9 of 5"),
        ({"generator": None}, {}, "generator is missing"),
        ({"generator": torch.zeros(5056, dtype=torch.uint8)}, {}, r"\(.*[Ii]nvalid.*\)"),
        ({"generator": torch.zeros(5056)}, {}, "generator is of torch.float32 instead"),
        ({"net.readout.weight": torch.zeros(9, 9)}, {}, "shape"),
        ({"net.readout.weight": torch.zeros(9, 3, dtype=torch.int32)}, {}, "of torch.int32"),
        ({"net.readout.weight": torch.full((9, 3), math.nan)}, {}, "readout.weight holds NaN"),
        ({"optimiser.first.0": None}, {}, "first.0 is missing"),
        ({"optimiser.count": torch.tensor(math.inf)}, {}, "count holds NaN or infinity"),
        ({"more": torch.zeros(1)}, {}, "'more' does not belong there"),
        ({"records.layer": torch.zeros(1)}, {}, "not enough values"),
    ],
)
def test_a_checkpoint_whose_content_is_wrong_is_refused(data, tmp_path, tensors, header, says):
    file = tmp_path / "checkpoint.safetensors"
    train(*data, SMALL, checkpoint=file)
    rewrite(file, tensors, header)
    with pytest.raises(FileFormatError, match=rf"{says}.*remove it to start afresh") as found:
        train(*data, SMALL, checkpoint=file)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("fit", [train, train_mlp])
def test_numbers_of_numpy_are_numbers(data, fit):
    numbers = {
        "hidden": (np.int64(12), np.uint8(9)),
        "bias": np.bool_(False),
        "epochs": np.int32(4),
        "batch_size": np.int64(8),
        "readout_epochs": np.uint16(5),
        "seed": np.int64(3),
        "threads": np.int64(1),
        "learning_rate": np.float64(0.01),
        "weight_decay": np.float32(0.0),
        "activity": np.int64(0),
        "energy": PairEnergy(np.float64(0.2)),
    }
    recipe = Recipe(**numbers)
    for name, value in dataclasses.asdict(with_(SMALL, seed=3)).items():
        assert type(getattr(recipe, name)) is type(value) or name in ("energy", "pairing")
    plain = with_(SMALL, seed=3, weight_decay=0.0)
    assert recipe == plain
    assert same_bits(weights(fit(*data, recipe)), weights(fit(*data, plain)))


@pytest.mark.parametrize("fit", [train, train_mlp])
def test_nets_come_out_frozen_and_in_evaluation_mode(data, fit, tmp_path, monkeypatch):
    def ready(net):
        return not any(p.requires_grad for p in net.parameters()) and not any(
            module.training for module in net.modules()
        )

    how = {"checkpoint": tmp_path / "checkpoint"} if fit is train else {"perturb": back_to_training}
    assert ready(fit(*data, SMALL, **how).net)
    assert ready(fit(*data, SMALL, **how).net)  # resumed
    assert ready(fit(*data, with_(SMALL, readout="ridge")).net)
    assert ready(train_logistic(*data))
    assert ready(train_rbf_svm(*data))
    assert ready(train_kernel_ridge(*data))
    press_at(monkeypatch, 3)
    with pytest.raises(Interrupted) as stop:
        fit(*data, SMALL)
    assert ready(stop.value.done.net)


def back_to_training(net, x, y, generator):
    net.train()
    return x


def test_training_under_autocast_gives_the_same_bits(data):
    for fit in (train, train_mlp):
        plain = fit(*data, SMALL)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast = fit(*data, SMALL)
        assert same_bits(weights(cast), weights(plain))


@pytest.mark.parametrize(
    ("fit", "settings"),
    [
        (train_mlp, {"learning_rate": 0.0}),
        (train_mlp, {"weight_decay": -1.0}),
        (train_mlp, {"learning_rate": math.nan}),
        (train_logistic, {"penalty": 0}),
        (train_rbf_svm, {"gamma": -1.0}),
        (train_rbf_svm, {"c": 0.0}),
        (train_kernel_ridge, {"ridge": 0.0}),
        (train_kernel_ridge, {"gamma": 10**400}),
    ],
)
def test_impossible_settings_of_baselines_are_named(data, fit, settings):
    with pytest.raises(InputError, match=rf"{next(iter(settings))} must be a finite number"):
        fit(*data, **settings)
