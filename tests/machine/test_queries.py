"""The free energy of pairs, and the rule between queries and keys, against loops and autograd."""

import math

import numpy as np
import pytest
import torch

from fermibose.energy import PairEnergy
from fermibose.errors import InputError
from fermibose.machine import FreeEnergy, LocalDense, PairLoss
from fermibose.machine.local_rule import LocalLayer, PairReport, count_pairs, pair_force
from fermibose.machine.queries import mean_energy, query_forces

ENERGIES = [
    FreeEnergy(2.0),
    FreeEnergy(5.0, boson_weight=0.3, fermion_weight=2.0),
    PairEnergy(0.4),
    PairEnergy(0.7, softness=0.1, boson_weight=0.2),
    PairEnergy(0.7, softness=0.1, coupling="averaged"),
]


def drawn(seed, queries=7, keys=6, units=5, classes=3):
    g = torch.Generator().manual_seed(seed)
    h = torch.randn(queries, units, generator=g, dtype=torch.float64)
    k = torch.randn(keys, units, generator=g, dtype=torch.float64)
    same = torch.randint(classes, (queries, 1), generator=g) == torch.randint(
        classes, (keys,), generator=g
    )
    pairs = torch.rand(queries, keys, generator=g) < 0.8
    return h, k, same, pairs


def distances(h, k):
    return (h[:, None] - k).square().mean(2)


def free_energy_by_loop(d2, same, pairs, energy):
    """As it is written in the docstring, entry by entry."""
    mean = np.mean([d2[i, k] for i, k in np.argwhere(pairs)])
    found = []
    for i in range(len(d2)):
        z_b = z_f = 0.0
        for k in range(d2.shape[1]):
            if pairs[i, k]:
                factor = math.exp(-energy.sharpness * d2[i, k] / mean)
                z_b += energy.boson_weight * factor * same[i, k]
                z_f += energy.fermion_weight * factor * (not same[i, k])
        if z_b:
            found.append(-math.log(z_b / (z_b + z_f)))
    return np.mean(found)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("energy", ENERGIES[:2])
def test_the_free_energy_is_the_one_in_the_formula(energy, seed):
    h, k, same, pairs = drawn(seed)
    d2 = distances(h, k)
    value, _ = energy.between(d2, same, pairs)
    expected = free_energy_by_loop(d2.numpy(), same.numpy(), pairs.numpy(), energy)
    assert float(value) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("energy", ENERGIES)
def test_forces_on_queries_and_keys_are_those_of_autograd(energy, seed):
    h, k, same, pairs = drawn(seed)
    h.requires_grad_()
    k.requires_grad_()
    value, _ = mean_energy(energy, distances(h, k), same, pairs)
    expected = torch.autograd.grad(value, (h, k))
    found = query_forces(h.detach(), k.detach(), same, pairs, energy)
    torch.testing.assert_close((found.on_queries, found.on_keys), expected, rtol=1e-9, atol=1e-12)
    d2 = distances(h, k).detach()
    sums = [value.item(), float(d2[same & pairs].sum()), float(d2[~same & pairs].sum())]
    assert found.sums.tolist() == pytest.approx(sums)


@pytest.mark.parametrize("energy", ENERGIES[2:])
def test_a_batch_against_itself_feels_what_the_rule_of_one_batch_says(energy):
    h, _, _, _ = drawn(5, queries=9)
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0, 1])
    expected, report = pair_force(h, labels, energy)
    others = ~torch.eye(9, dtype=torch.bool)
    found = query_forces(h, h, labels[:, None] == labels, others, energy, times=2)
    torch.testing.assert_close(found.on_queries + found.on_keys, expected, rtol=1e-9, atol=1e-12)
    found = query_forces(h, None, labels[:, None] == labels, others, energy, times=2)
    torch.testing.assert_close(found.on_queries, expected, rtol=1e-9, atol=1e-12)
    assert PairReport.of(*found.sums.tolist(), count_pairs(labels)) == pytest.approx(report)


def test_no_scale_is_preferred():
    """Ten times larger representations have the same free energy: the temperature goes along."""
    h, k, same, pairs = drawn(1)
    values = [FreeEnergy(3.0).between(distances(s * h, s * k), same, pairs)[0] for s in (1, 10)]
    assert float(values[0]) == pytest.approx(float(values[1]), rel=1e-12)
    # so no force points along h itself
    found = query_forces(h, k, same, pairs, FreeEnergy(3.0))
    assert abs(float((found.on_queries * h).sum() + (found.on_keys * k).sum())) < 1e-12


def test_weights_are_degeneracies():
    """Counting bosons three times is having each of them three times, at the same temperature."""
    h, k, same, pairs = drawn(2, queries=1)
    d2 = distances(h, k)
    pairs = torch.ones_like(pairs)
    same[0, 0], same[0, 1] = True, False
    mean = d2.mean()
    copies = torch.cat([d2, d2[:, same[0]], d2[:, same[0]]], 1)
    alike = torch.cat([same, same[:, same[0]], same[:, same[0]]], 1)
    sharper = FreeEnergy(2.0 * float(copies.mean() / mean))  # so that the temperature stays
    expected, _ = sharper.between(copies, alike, torch.ones_like(alike))
    found, _ = FreeEnergy(2.0, boson_weight=3.0).between(d2, same, pairs)
    assert float(found) == pytest.approx(float(expected), rel=1e-12)


def test_a_query_without_a_boson_pair_is_left_out_and_one_point_feels_nothing():
    h, k, same, pairs = drawn(3)
    same[2] = False
    _, s = FreeEnergy().between(distances(h, k), same, pairs)
    value, _ = FreeEnergy().between(distances(h, k), same, pairs)
    rest = torch.arange(7) != 2
    kept = FreeEnergy(
        2.0 * float(distances(h, k)[rest][pairs[rest]].mean() / distances(h, k)[pairs].mean())
    )
    expected, _ = kept.between(distances(h, k)[rest], same[rest], pairs[rest])
    assert float(value) == pytest.approx(float(expected), rel=1e-12)
    nothing = query_forces(h * 0, k * 0, same, pairs, FreeEnergy())
    assert float(nothing.on_queries.abs().max()) == 0
    none, s = FreeEnergy().between(distances(h, k), same & False, pairs)
    assert float(none) == 0
    assert float(s.abs().max()) == 0


@pytest.mark.parametrize("energy", ENERGIES)
def test_the_loss_for_your_own_model_has_the_forces_as_gradient(energy):
    h, _, _, _ = drawn(4, queries=9)
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0, 1])
    h.requires_grad_()
    (expected,) = torch.autograd.grad(PairLoss(energy)(h, labels), h)
    others = ~torch.eye(9, dtype=torch.bool)
    found = query_forces(h.detach(), None, labels[:, None] == labels, others, energy, times=2)
    torch.testing.assert_close(found.on_queries, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("energy", ENERGIES)
@pytest.mark.parametrize(
    ("extra", "own"), [(False, False), (True, False), (False, True), (True, True)]
)
def test_a_layer_learns_from_perturbed_queries(energy, extra, own):
    """Against autograd through an energy written out pair by pair."""
    g = torch.Generator().manual_seed(0)
    x = torch.rand(6, 8, generator=g, dtype=torch.float64)
    moved = x + 0.1 * torch.randn(6, 8, generator=g, dtype=torch.float64)
    y = torch.tensor([0, 1, 0, 1, 2, 2])
    layer = LocalDense(8, 5, bias=True).double()
    layer.initialise(g)
    report = layer.learn_from(x, y, energy, perturbed=moved, extra=extra, own=own, activity=0.1)
    weight, bias = (p.detach().clone().requires_grad_() for p in (layer.weight, layer.bias))
    h, k = (torch.sigmoid(2 * (inputs @ weight + bias)) for inputs in (moved, x))
    rows = [(h[i], i, own) for i in range(6)] + [(k[i], i, False) for i in range(6) if extra]
    d2 = torch.stack([(row - k).square().mean(1) for row, _, _ in rows])
    same = torch.stack([y[i] == y for _, i, _ in rows])
    pairs = torch.stack([(torch.arange(6) != i) | self_too for _, i, self_too in rows])
    value, _ = mean_energy(energy, d2, same, pairs)
    total = value + 0.1 * torch.cat([h, k]).abs().mean()
    expected = torch.autograd.grad(total, (weight, bias))
    torch.testing.assert_close(
        (layer.weight.grad, layer.bias.grad), expected, rtol=1e-8, atol=1e-11
    )
    counts = int((same & pairs).sum()), int((~same & pairs).sum())
    d2 = d2.detach()
    distances = float(d2[same & pairs].mean()), float(d2[~same & pairs].mean())
    assert report == pytest.approx((value.item(), *distances, *counts))
    assert not layer.weight.requires_grad


@pytest.mark.parametrize("energy", ENERGIES[2:])
def test_the_chain_rule_and_the_rule_in_place_agree(energy):
    g = torch.Generator().manual_seed(1)
    x, y = torch.rand(70, 8, generator=g).double(), torch.randint(3, (70,), generator=g)
    layer = LocalDense(8, 5, bias=True).double()
    layer.initialise(g)
    fast = layer.learn_from(x, y, energy, activity=0.2)
    gradients = layer.weight.grad.clone(), layer.bias.grad.clone()
    slow = LocalLayer.learn_from(layer, x, y, energy, activity=0.2)
    torch.testing.assert_close(
        (layer.weight.grad, layer.bias.grad), gradients, rtol=1e-8, atol=1e-12
    )
    assert slow == pytest.approx(fast)


@pytest.mark.parametrize("name", ["sharpness", "boson_weight", "fermion_weight"])
def test_numbers_that_mean_nothing_are_refused(name):
    with pytest.raises(InputError, match=name):
        FreeEnergy(**{name: 0.0})
