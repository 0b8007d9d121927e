"""The machine on the bundled digits. Oracles: random hidden weights, the MLP, the Plotkin bound."""

import numpy as np
import pytest
import torch

from fermibose import PairEnergy
from fermibose.data import paper_split
from fermibose.machine import Noise, Recipe, SelfSupervised, Shift, train, train_mlp
from fermibose.statistics import last_epochs

SHORT = {"epochs": 30, "readout_epochs": 40}


@pytest.fixture(scope="module")
def digits():
    x, y, x_test, y_test = paper_split()
    return (x, y), (x_test, y_test)


def final_accuracy(training):
    record = training.history.get("readout") or training.history["mlp"]
    return last_epochs(record["test_accuracy"])


@pytest.fixture(scope="module")
def machine(digits):
    return train(*digits[0], Recipe(**SHORT), test=digits[1])


def test_the_machine_generalises_better_than_the_mlp(digits, machine):
    mlp = train_mlp(*digits[0], Recipe(epochs=30), test=digits[1])
    assert final_accuracy(machine) > 0.88
    assert final_accuracy(machine) > final_accuracy(mlp) + 0.005


def test_classes_part_in_the_hidden_layer(digits, machine):
    record = machine.history["layer 1"]
    assert record["fermion_distance"][-20:].mean() == pytest.approx(0.43, abs=0.03)
    assert record["boson_distance"][-20:].mean() < 0.2
    assert record["fermion_distance"][0] < 0.05  # random weights keep them together


@pytest.mark.parametrize("readout", ["cross_entropy", "ridge"])
def test_layers_trained_without_labels_beat_random_ones_under_the_same_readout(digits, readout):
    self_supervised = Recipe(
        **SHORT,
        readout=readout,
        pairing=SelfSupervised((Shift((28, 28), 2), Noise(0.2))),
        energy=PairEnergy(0.3, boson_weight=10),
    )
    untrained = Recipe(**SHORT | {"epochs": 0}, readout=readout)
    learnt, random = (
        final_accuracy(train(*digits[0], recipe, test=digits[1]))
        for recipe in (self_supervised, untrained)
    )
    assert learnt > random + 0.04


def test_strong_fermions_nearly_reach_the_plotkin_bound(digits):
    """With activations in [0, 1] and K balanced classes their mean D² is at most K/(2(K−1))."""
    (x, y), _ = digits
    recipe = Recipe(epochs=8, readout_epochs=0, energy=PairEnergy(1.2, fermion_weight=50))
    h = train(x, y, recipe).net.represent(torch.from_numpy(x)).double()
    means = torch.stack([h[y == k].mean(0) for k in range(10)])
    squares = torch.stack([h[y == k].square().mean() for k in range(10)])
    d2 = squares[:, None] + squares - 2 * means @ means.T / h.shape[1]
    mean = d2[~np.eye(10, dtype=bool)].mean().item()
    assert 0.9 * 10 / 18 < mean <= 10 / 18
