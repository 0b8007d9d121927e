"""The choice of a kernel readout. Oracle: a training anew with each readout, attacked by itself."""

from dataclasses import replace

import pytest
import torch

from fermibose.attacks import (
    ReadoutChoice,
    ReadoutTrial,
    ThreatModel,
    attack_behind,
    choose_readout,
    front_end,
    pgd,
)
from fermibose.errors import InputError
from fermibose.machine import (
    Affine,
    Augmented,
    FreeEnergy,
    KernelRidge,
    Pointwise,
    Recipe,
    train,
    with_readouts,
)

THREAT = ThreatModel("linf", 0.1)


@pytest.fixture(scope="module")
def data(digits):
    return (digits.x_train[:300], digits.y_train[:300]), (digits.x_test[:80], digits.y_test[:80])


def learnt(data, hidden=(40,), **changed):
    usual = {"epochs": 2, "weight_decay": 0.0, "readout": KernelRidge(components=50), "seed": 3}
    recipe = Recipe(hidden, FreeEnergy(5.0), **(usual | changed))
    return train(*data[0], recipe, show=False)


@pytest.mark.parametrize("centres", [None, 60])
def test_a_readout_solved_later_is_that_of_a_training_with_it(data, centres):
    readout = KernelRidge(components=50, centres=centres, penalty=0.1)
    training = learnt(data, readout=readout)
    recipe = training.recipe
    other = replace(recipe.readout, width=0.7, penalty=0.02)
    (found,) = with_readouts(training, *data[0], [other])
    x = torch.as_tensor(data[1][0])
    expected = train(*data[0], replace(recipe, readout=other), show=False).net
    if centres is None:
        torch.testing.assert_close(found(x), expected(x), rtol=1e-3, atol=1e-4)
    else:  # other centres are drawn, of the same keys: the sum is least on them
        read = found.readout
        h = found.represent(torch.as_tensor(data[0][0]))
        keys = read.project(h).double()
        near, own = (
            torch.exp(-read.gamma * torch.cdist(u, read.centres.double()).square())
            for u in (keys, read.centres.double())
        )
        t = 2.0 * torch.nn.functional.one_hot(torch.as_tensor(data[0][1])).double() - 1
        a = torch.linalg.solve(near.T @ near + other.penalty * own, near.T @ t)
        torch.testing.assert_close(read.forward(h).double(), near @ a, rtol=1e-2, atol=2e-2)
    torch.testing.assert_close(found.readout.gamma, expected.readout.gamma, rtol=1e-4, atol=0)
    assert found.info["recipe"]["readout"]["width"] == 0.7
    assert training.net.info["recipe"]["readout"]["width"] == 2.0  # and is itself unchanged


def test_readouts_draw_the_same_centres(data):
    training = learnt(data, readout=KernelRidge(components=50, centres=60))
    readout = training.recipe.readout
    other = replace(readout, width=0.7)
    (alone,) = with_readouts(training, *data[0], [other])
    _, second = with_readouts(training, *data[0], [readout, other])
    assert torch.equal(second.readout.centres, alone.readout.centres)
    assert torch.equal(second.readout.coefficients, alone.readout.coefficients)


def test_every_choice_is_reported_with_both_accuracies(data):
    training = learnt(data)
    found = choose_readout(training, *data, THREAT, widths=(0.5, 4.0), penalties=(0.01, 1.0))
    assert [(t.readout.width, t.readout.penalty) for t in found.trials] == [
        (0.5, 0.01), (0.5, 1.0), (4.0, 0.01), (4.0, 1.0),
    ]  # fmt: skip
    for trial in found.trials:
        net = train(*data[0], replace(training.recipe, readout=trial.readout), show=False).net
        alone = pgd(net, *data[1], THREAT, losses="margin", show=False)
        assert trial.clean_accuracy == alone.clean_accuracy
        assert abs(trial.robust_accuracy - alone.robust_accuracy) <= 1.5 / 80  # rounding
    best = max(found.trials, key=lambda t: t.clean_accuracy + t.robust_accuracy)
    assert found.best == best
    assert found.net.info["recipe"]["readout"]["width"] == best.readout.width
    lines = str(found).splitlines()
    assert len(lines) == 5
    (marked,) = (line for line in lines if line.startswith("*"))
    assert marked.split()[1:3] == [f"{best.readout.width:g}", f"{best.readout.penalty:g}"]


def test_the_best_is_accurate_and_robust():
    told = ((0.95, 0.2), (0.9, 0.5), (0.5, 0.5))
    trials = tuple(ReadoutTrial(KernelRidge(1.0 + k), *both) for k, both in enumerate(told))
    assert ReadoutChoice(trials, None).best is trials[1]


def test_behind_a_threshold_the_attack_is_behind_it(data):
    front = Pointwise(steepness=(30.0, 30.0), thresholds=(0.5, 0.5))
    training = learnt(data, (front, 40))
    found = choose_readout(training, *data, THREAT, widths=(2.0,), penalties=(0.3,))
    behind = attack_behind(*front_end(found.net), *data[1], THREAT, losses="margin", show=False)
    assert found.trials[0].robust_accuracy == behind.robust_accuracy


def test_what_cannot_be_chosen_is_refused(data):
    plain = train(*data[0], Recipe((20,), epochs=1, readout="ridge"), show=False)
    with pytest.raises(InputError, match="no kernel readout"):
        choose_readout(plain, *data, THREAT)
    with pytest.raises(InputError, match="nothing to choose from"):
        choose_readout(learnt(data), *data, THREAT, widths=())
    with pytest.raises(InputError, match="width and penalty only"):
        list(with_readouts(learnt(data), *data[0], [KernelRidge(components=7)]))


def test_copies_are_keys_of_every_readout(data):
    training = learnt(data, pairing=Augmented((Affine((8, 8), shift=0.5),)))
    (net,) = with_readouts(training, *data[0], [training.recipe.readout])
    assert len(net.readout.centres) == 4 * 300
    first = net.readout.project(training.net.represent(torch.as_tensor(data[0][0])))
    torch.testing.assert_close(net.readout.centres[:300], first, rtol=1e-4, atol=1e-4)
