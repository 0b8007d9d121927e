"""The local rule. Oracles: a loop over pairs, autograd, pytorch-metric-learning, invariances."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_loops import batch, loop_over_pairs
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.losses import ContrastiveLoss
from pytorch_metric_learning.reducers import MeanReducer

from fermibose import PairEnergy
from fermibose.errors import InputError
from fermibose.machine import FreeEnergy, LocalConv, LocalDense, local_rule
from fermibose.machine.local_rule import Columns, count_pairs, pair_force
from fermibose.machine.loop import ALONE, Adam, Sharing

energies = st.builds(
    PairEnergy,
    d_f=st.floats(0.01, 1.0),
    softness=st.sampled_from([0.0, 0.01]),
    boson_weight=st.floats(0.1, 2.0),
    fermion_weight=st.floats(0.1, 2.0),
    coupling=st.sampled_from(["labelled", "averaged"]),
)
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


@settings(max_examples=60)
@given(
    energies,
    st.integers(2, 12),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(0, 10**6),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_force_is_that_of_the_loop_over_pairs(pair, size, units, classes, seed, dtype):
    h, labels = batch(seed, size, units, classes, dtype)
    energy, gradient = loop_over_pairs(h, labels, pair)
    force, report = pair_force(h, labels, pair)
    scale = gradient.abs().max().item() or 1.0
    assert force.dtype == dtype
    assert (force - gradient).abs().max().item() <= TOLERANCE[dtype] * scale
    assert report.energy == pytest.approx(energy, rel=TOLERANCE[dtype], abs=TOLERANCE[dtype])


@settings(max_examples=40)
@given(
    energies,
    st.integers(2, 40),
    st.integers(1, 30),
    st.sampled_from(["half_tanh", "tanh", "relu"]),
    st.booleans(),
    st.sampled_from([0.0, 0.3]),
    st.integers(0, 10**6),
)
def test_layer_gradient_is_that_of_autograd(pair, size, units, activation, bias, activity, seed):
    x, labels = batch(seed, size, 7, 3)
    layer = LocalDense(7, units, activation=activation, bias=bias).double()
    layer.initialise(torch.Generator().manual_seed(seed))
    layer.learn_from(x, labels, pair, activity=activity)

    weight = layer.weight.detach().clone().requires_grad_()
    offset = layer.bias.detach().clone() if bias else torch.zeros(units, dtype=torch.float64)
    z = x @ weight + offset.requires_grad_()
    maps = {"half_tanh": lambda z: (1 + torch.tanh(z)) / 2, "tanh": torch.tanh, "relu": torch.relu}
    h = maps[activation](z)
    i, j = torch.triu_indices(size, size, 1)
    d2 = (h[i] - h[j]).square().mean(1)
    loss = pair.energy(d2, labels[i] == labels[j]).mean() + activity * h.abs().mean()
    loss.backward()
    scale = weight.grad.abs().max().item() or 1.0
    assert (layer.weight.grad - weight.grad).abs().max().item() <= 1e-12 * scale
    if bias:
        assert (layer.bias.grad - offset.grad).abs().max().item() <= 1e-12 * scale


def test_agrees_with_the_contrastive_loss_of_pytorch_metric_learning():
    """Theirs is mean(D² of positives) + mean(relu(m − D²) of negatives): ours with weights P/n."""
    h, labels = batch(3, 30, 17, 4)
    n_boson, n_fermion = count_pairs(labels.numpy())
    pairs = n_boson + n_fermion
    ours = PairEnergy(0.2, boson_weight=pairs / n_boson, fermion_weight=pairs / n_fermion)
    force, report = pair_force(h, labels, ours)

    contrastive = ContrastiveLoss(
        pos_margin=0,
        neg_margin=0.2,
        distance=LpDistance(normalize_embeddings=False, p=2, power=2),
        reducer=MeanReducer(),
    )
    leaf = h.clone().requires_grad_()
    loss = contrastive(leaf / 17**0.5, labels)
    loss.backward()
    assert report.energy == pytest.approx(loss.item(), rel=1e-12)
    torch.testing.assert_close(force, leaf.grad, rtol=1e-9, atol=1e-12)


def test_two_zeros_and_eight_ones_make_29_boson_and_16_fermion_pairs():
    labels = torch.tensor([0] * 2 + [1] * 8)
    assert count_pairs(labels.numpy()) == (29, 16)


@pytest.mark.parametrize("coupling", ["labelled", "averaged"])
@pytest.mark.parametrize(
    ("labels", "n_boson", "n_fermion"), [([0, 0, 0], 3, 0), ([0, 1, 2], 0, 3), ([4], 0, 0)]
)
def test_batches_that_lack_a_kind_of_pair(labels, n_boson, n_fermion, coupling):
    h, labels = torch.rand(len(labels), 5), torch.tensor(labels)
    force, report = pair_force(h, labels, PairEnergy(0.9, coupling=coupling))
    assert (report.n_boson, report.n_fermion) == (n_boson, n_fermion)
    assert torch.isfinite(force).all()
    assert math.isfinite(report.energy)
    assert math.isnan(report.boson_distance) == (n_boson == 0)
    assert math.isnan(report.fermion_distance) == (n_fermion == 0)
    if len(labels) == 1:
        assert report.energy == 0
        assert not force.any()
    else:
        assert force.abs().max() > 0.01


def test_reported_distances_are_means_over_pairs_of_each_kind():
    h, labels = batch(5, 15, 8, 3)
    i, j = torch.triu_indices(15, 15, 1)
    d2, same = (h[i] - h[j]).square().mean(1), labels[i] == labels[j]
    _, report = pair_force(h, labels, PairEnergy())
    assert report.boson_distance == pytest.approx(d2[same].mean().item(), rel=1e-12)
    assert report.fermion_distance == pytest.approx(d2[~same].mean().item(), rel=1e-12)


@given(st.integers(0, 10**6))
def test_force_ignores_translation_and_follows_permutation(seed):
    h, labels = batch(seed, 9, 6, 3)
    pair = PairEnergy(0.3, softness=0.01)
    force, _ = pair_force(h, labels, pair)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(pair_force(h + 5.0, labels, pair)[0], force, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(pair_force(h[order], labels[order], pair)[0], force[order])
    assert force.sum(0).abs().max() < 1e-14  # every action has its reaction


@pytest.mark.parametrize("entries", [1, 23 * 5, 23 * 22])
def test_blocks_of_rows_change_nothing(entries, monkeypatch):
    h, labels = batch(7, 23, 6, 4)
    for coupling in ("labelled", "averaged"):
        pair = PairEnergy(0.2, coupling=coupling)
        force, report = pair_force(h, labels, pair)
        with monkeypatch.context() as patch:
            patch.setattr(local_rule, "BLOCK", entries)
            blocked, blocked_report = pair_force(h, labels, pair)
        torch.testing.assert_close(blocked, force, rtol=1e-12, atol=1e-15)
        assert blocked_report.energy == pytest.approx(report.energy, rel=1e-12)
        assert blocked_report.boson_distance == pytest.approx(report.boson_distance, rel=1e-12)
        assert blocked_report.fermion_distance == pytest.approx(report.fermion_distance, rel=1e-12)


@pytest.mark.parametrize("offset", [0.5, -0.9])
@pytest.mark.parametrize("coupling", ["labelled", "averaged"])
def test_near_duplicates_keep_their_digits_in_float32(offset, coupling):
    """Against the loop in float64, for the very float32 numbers, which differ by some 1e-5."""
    h, labels = batch(6, 12, 40, 3)
    h = (offset + 1e-5 * h).float()
    pair = PairEnergy(1e-11, coupling=coupling)
    energy, gradient = loop_over_pairs(h, labels, pair)
    force, report = pair_force(h, labels, pair)
    assert report.energy == pytest.approx(energy, rel=1e-5)
    assert (force - gradient).abs().max() <= 1e-5 * gradient.abs().max()


@pytest.mark.parametrize(
    "layer",
    [  # products with few columns are turned
        lambda: LocalDense(42, 9, bias=True),
        lambda: LocalDense(42, 20, bias=True),
        lambda: LocalConv((1, 6, 7), 4),
    ],
)
def test_a_layer_learns_the_same_under_autocast(layer):
    x, labels = batch(8, 20, 42, 3, torch.float32)
    layers = []
    for _ in range(2):
        layers.append(layer())
        layers[-1].initialise(torch.Generator().manual_seed(0))
    report = layers[0].learn_from(x, labels, PairEnergy(), activity=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = layers[1].learn_from(x, labels, PairEnergy(), activity=0.1)
    assert again == report
    assert torch.equal(layers[0].weight.grad, layers[1].weight.grad)


@pytest.mark.parametrize("told", ["the next", "another", "nothing"])  # of what comes after
@pytest.mark.parametrize("activation", ["half_tanh", "relu"])
@pytest.mark.parametrize("number", [1, 3])
def test_blocks_of_units_learn_as_the_whole_layer_does(number, activation, told):
    """Against the layer's own rule and Adam on all of it; dead inputs, one batch of twins."""
    batches = [batch(seed, size, 42, 3) for seed, size in ((1, 20), (2, 20), (3, 20), (4, 7))]
    lit = torch.arange(42) % 5 > 0
    batches = [(x * lit, labels) for x, labels in batches]
    batches[1] = 0.5 * lit + 1e-6 * batches[1][0], batches[1][1]
    layers = [LocalDense(42, 37, activation=activation, bias=True).double() for _ in range(2)]
    for layer in layers:
        layer.initialise(torch.Generator().manual_seed(0))
    whole, apart = layers
    how = {"learning_rate": 0.05, "weight_decay": 0.1, "averaging": 0.9}
    adam = Adam(whole.parameters(), **how)
    columns = Columns(apart, lit, number, **how)
    assert len(columns.blocks) == number
    assert len(columns.dead) == 9
    for (x, labels), after in pairwise([*batches, None]):
        report = whole.learn_from(x, labels, PairEnergy(), activity=0.3)
        adam.step()
        live = columns.seen if told == "the next" and columns.seen is not None else x[:, lit]
        following = after[0][:, lit] if after is not None and told == "the next" else None
        following = batches[0][0][:, lit] if told == "another" else following
        blocked = columns.learn(live, labels, PairEnergy(), activity=0.3, following=following)
        assert blocked == pytest.approx(report, rel=1e-9, abs=0)
        columns.join()
        for ours, theirs in zip(apart.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    adam.finish()
    columns.optimiser.finish()
    columns.join()
    for ours, theirs in zip(apart.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_a_layer_is_cut_where_that_is_worthwhile():
    layer = LocalDense(784, 1000)
    rows = torch.arange(784) >= 172  # as many as the paper's digits light
    few, none = torch.arange(784) >= 10, torch.zeros(784, dtype=torch.bool)

    def of(lit, size=50, energy=None, ranks=ALONE):
        return Columns.of(layer, lit, energy or PairEnergy(), size, ranks, learning_rate=0.1)

    assert [len(of(rows, size).blocks) for size in (10, 50, 100, 1000)] == [1, 2, 4, 4]
    assert len(of(rows).live) == 612
    assert len(of(few).dead) == len(of(none).dead) == len(of(None).dead) == 0
    for other in ({"energy": FreeEnergy()}, {"ranks": Sharing(0, 2)}, {"size": 4097}):
        assert of(few, **other) is None
        apart = of(rows, **other)
        assert (len(apart.blocks), len(apart.dead), apart.closed) == (1, 172, False)


def test_a_batch_needs_samples():
    with pytest.raises(InputError, match="no samples to learn from"):
        LocalDense(4, 3).learn_from(torch.rand(0, 4), torch.arange(0), PairEnergy())


@pytest.mark.parametrize(
    "kind", [{"dtype": torch.bfloat16}, {"dtype": torch.half}, {"device": "meta"}]
)
def test_a_layer_that_cannot_learn_says_so(kind):
    layer, x = LocalDense(4, 3).to(**kind), torch.rand(5, 4).to(**kind)
    with pytest.raises(InputError, match=r"from numbers in float32 or float64, got .*PairLoss"):
        layer.learn_from(x, torch.arange(5), PairEnergy())
