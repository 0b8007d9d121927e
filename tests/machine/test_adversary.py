"""The local adversary: what it climbs, where it stays, and what a layer learns from it."""

from dataclasses import replace

import pytest
import torch

from fermibose.energy import PairEnergy
from fermibose.errors import InputError
from fermibose.machine import (
    Affine,
    Augmented,
    Conv,
    FreeEnergy,
    KernelRidge,
    LocalAdversary,
    LocalDense,
    Pointwise,
    Recipe,
    train,
)  # fmt: skip
from fermibose.machine.queries import mean_energy
from fermibose.threat import ThreatModel


def batch(seed=0, n=10, inputs=9):
    g = torch.Generator().manual_seed(seed)
    x, y = torch.rand(n, inputs, generator=g), torch.randint(3, (n,), generator=g)
    layer = LocalDense(inputs, 6)
    layer.initialise(g)
    return x, y, layer, g


def energy_of(layer, x, keys, y, energy, *, own=False):
    d2 = (layer(x)[:, None] - layer(keys)).square().mean(2)
    pairs = torch.ones(len(x), len(x), dtype=torch.bool) if own else ~torch.eye(len(x)).bool()
    return mean_energy(energy, d2, y[:, None] == y, pairs)[0]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("energy", [FreeEnergy(3.0), PairEnergy(0.2)])
def test_one_step_follows_the_gradient_of_the_layers_own_energy(energy, own):
    x, y, layer, g = batch()
    moved = 0.5 * x + 0.25  # off the keys, so that no pair is at distance 0
    point = moved.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(energy_of(layer, point, moved, y, energy, own=own), point)
    threat = ThreatModel("linf", 0.1)
    adversary = LocalAdversary(threat, step_size=0.5, random_start=False, own=own)
    found = adversary.perturb(layer, moved, y, energy, g)
    clear = gradient.abs() > 1e-6  # the sign of rounding is not to be had
    torch.testing.assert_close(found[clear], (moved + 0.05 * gradient.sign())[clear])
    assert clear.float().mean() > 0.9


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_it_stays_in_ball_and_bounds_and_is_worse_than_chance(norm):
    x, y, layer, g = batch(1, n=60)
    threat = ThreatModel(norm, 0.2)
    energy = FreeEnergy(5.0)
    found = LocalAdversary(threat, steps=5, step_size=0.5).perturb(layer, x, y, energy, g)
    change = found - x
    length = change.abs().amax(1) if norm == "linf" else change.norm(dim=1)
    assert float(length.max()) <= 0.2 + 1e-6
    assert float(length.median()) > 0.19
    assert 0 <= float(found.min()) <= float(found.max()) <= 1
    chance = LocalAdversary(threat, step_size=1e-9).perturb(layer, x, y, energy, g)
    values = [float(energy_of(layer, point, x, y, energy)) for point in (x, chance, found)]
    assert values[2] > max(values[:2]) + 0.01


def test_the_adversary_of_a_second_layer_passes_through_the_first_and_moves_nothing():
    x, y, first, g = batch(2)
    second = LocalDense(6, 5)
    second.initialise(g)
    before = first.weight.clone()
    adversary = LocalAdversary(ThreatModel("linf", 0.1), random_start=False)
    found = adversary.perturb(lambda v: second(first(v)), x, y, FreeEnergy(), g)
    assert float((found - x).abs().max()) > 0.09
    assert torch.equal(first.weight, before)
    assert first.weight.grad is None


def test_inputs_beyond_its_bounds_are_refused():
    x, y, layer, g = batch(3)
    with pytest.raises(InputError, match="keeps to the bounds"):
        LocalAdversary().perturb(layer, 2 * x, y, FreeEnergy(), g)
    unbounded = LocalAdversary(ThreatModel("linf", 0.1, (-torch.inf, torch.inf)))
    assert float(unbounded.perturb(layer, 2 * x, y, FreeEnergy(), g).max()) > 1


def test_it_may_grow_during_the_training():
    adversary = LocalAdversary(ThreatModel("linf", 0.2), ramp=0.5)
    strengths = [adversary.at(progress).threat.epsilon for progress in (0.1, 0.25, 0.5, 1.0)]
    assert strengths == pytest.approx([0.04, 0.1, 0.2, 0.2])
    assert LocalAdversary().at(0.01) == LocalAdversary()


@pytest.mark.parametrize("wrong", [{"threat": "linf"}, {"threat": ThreatModel("noise", 0.1)}])
def test_what_is_no_ball_is_refused(wrong):
    with pytest.raises(InputError, match="ThreatModel"):
        LocalAdversary(**wrong)


def digits(n=40):
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return x[:n] / 16, y[:n]


RECIPE = Recipe(
    hidden=(Pointwise(), Conv(4, size=3, head=2), 20), image_shape=(8, 8), energy=FreeEnergy(2.0),
    pairing=Augmented((Affine((8, 8), shift=0.5),)),
    adversary=LocalAdversary(own=True, extra=True, ramp=0.5),
    epochs=3, batch_size=16, learning_rate=0.005, weight_decay=0.0, schedule="cosine",
    averaging=0.9, readout=KernelRidge(components=10, copies=1),
)  # fmt: skip


def test_a_training_with_everything_is_resumed_to_the_same_bits(tmp_path, monkeypatch):
    from fermibose.machine import checkpoint as room
    from fermibose.machine.training import LayerStage

    x, y = digits()
    whole = train(x, y, RECIPE, show=False).net
    file = tmp_path / "checkpoint"
    monkeypatch.setattr(room, "INTERVAL", 0.0, raising=False)
    steps = 0
    step = LayerStage.step

    def fail(self, *batches):
        nonlocal steps
        steps += 1
        if steps == 14:  # in the second epoch of the second layer
            raise ZeroDivisionError
        return step(self, *batches)

    monkeypatch.setattr(LayerStage, "step", fail)
    with pytest.raises(ZeroDivisionError):
        train(x, y, RECIPE, show=False, checkpoint=file)
    assert file.exists()
    resumed = train(x, y, RECIPE, show=False, checkpoint=file)
    again = train(x, y, RECIPE, show=False, checkpoint=file)  # finished: at once
    for net in (resumed.net, again.net):
        for name, value in whole.state_dict().items():
            assert torch.equal(net.state_dict()[name], value), name
    assert [len(resumed.history[f"layer {n}"]["energy"]) for n in (1, 2, 3)] == [9, 9, 9]


def test_a_net_with_everything_tells_digits_apart_and_its_description_is_plain(tmp_path):
    import json

    x, y = digits(400)
    net = train(x[:300], y[:300], RECIPE, show=False).net
    right = net(torch.tensor(x[300:]).float()).argmax(1) == torch.tensor(y[300:])
    assert float(right.float().mean()) > 0.75
    assert json.loads(json.dumps(RECIPE.as_dict()))["hidden"][1]["kind"] == "conv"
    steepness = float(net.local_layers[0].steepness)
    assert 1 <= steepness <= 50
    assert steepness != 3.0


def test_each_layer_may_have_a_lesson_of_its_own():
    x, y = digits()
    energies = (FreeEnergy(2.0), PairEnergy(0.3), FreeEnergy(4.0))
    adversaries = (LocalAdversary(), None, LocalAdversary(own=True))
    each = {"energy": energies, "adversary": adversaries, "learning_rate": (0.1, 0.01, 1e-9)}
    recipe = replace(RECIPE, epochs=(1, 2, 4), averaging=0.0, **each)
    training = train(x, y, recipe, show=False)
    batches = [len(training.history[f"layer {n}"]["energy"]) for n in (1, 2, 3)]
    assert batches == [3, 6, 12]
    assert [recipe.lesson(n).energy for n in range(3)] == list(energies)
    twin = train(x, y, replace(recipe, epochs=(1, 2, 0)), show=False).net
    last, untaught = (net.local_layers[2].weight for net in (training.net, twin))
    torch.testing.assert_close(last, untaught, atol=1e-6, rtol=0)  # at a rate of 10⁻⁹
    with pytest.raises(InputError, match="epochs has 2 entries, but there are 3 hidden layers"):
        replace(RECIPE, epochs=(1, 2))
    with pytest.raises(InputError, match="learning_rate"):
        replace(RECIPE, learning_rate=(0.1, 0.0, 0.1))
