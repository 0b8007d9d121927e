"""The local rule. Oracles: a loop over pairs, autograd, pytorch-metric-learning, invariances."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.losses import ContrastiveLoss
from pytorch_metric_learning.reducers import MeanReducer

from fermibose import PairEnergy, PairLoss
from fermibose.errors import InputError
from fermibose.machine import LocalDense, local_rule
from fermibose.machine.local_rule import count_pairs, pair_force

energies = st.builds(
    PairEnergy,
    d_f=st.floats(0.01, 1.0),
    softness=st.sampled_from([0.0, 0.01]),
    boson_weight=st.floats(0.1, 2.0),
    fermion_weight=st.floats(0.1, 2.0),
    coupling=st.sampled_from(["labelled", "averaged"]),
)
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


def batch(seed, size, units, classes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    h = torch.rand(size, units, generator=generator, dtype=dtype)
    return h, torch.randint(classes, (size,), generator=generator)


def hinge(x, a):
    return max(x, 0.0) if a == 0 else (x + math.sqrt(x * x + a)) / 2


def hinge_slope(x, a):
    return float(x > 0) if a == 0 else (1 + x / math.sqrt(x * x + a)) / 2


def loop_over_pairs(h, labels, pair):
    """Energy and its gradient, one pair and one unit at a time, in plain Python numbers."""
    rows, kinds = h.double().tolist(), labels.tolist()
    pairs = list(itertools.combinations(range(len(rows)), 2))
    n_boson = sum(kinds[i] == kinds[j] for i, j in pairs)
    n_fermion = len(pairs) - n_boson
    gradient = [[0.0] * len(rows[0]) for _ in rows]
    total = 0.0
    for i, j in pairs:
        difference = [a - b for a, b in zip(rows[i], rows[j], strict=True)]
        d2 = sum(d * d for d in difference) / len(difference)
        if pair.coupling == "averaged":
            boson, fermion = n_boson, n_fermion
        else:
            boson, fermion = (1, 0) if kinds[i] == kinds[j] else (0, 1)
        boson, fermion = boson * pair.boson_weight, fermion * pair.fermion_weight
        total += boson * d2 + fermion * hinge(pair.d_f - d2, pair.softness)
        slope = boson - fermion * hinge_slope(pair.d_f - d2, pair.softness)
        for k, d in enumerate(difference):
            gradient[i][k] += slope * 2 * d / len(difference) / len(pairs)
            gradient[j][k] -= slope * 2 * d / len(difference) / len(pairs)
    return total / len(pairs), torch.tensor(gradient, dtype=torch.float64)


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
    st.sampled_from(["half_tanh", "tanh"]),
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
    offset = torch.zeros(units, dtype=torch.float64, requires_grad=True)
    z = x @ weight + offset
    h = (1 + torch.tanh(z)) / 2 if activation == "half_tanh" else torch.tanh(z)
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


@pytest.mark.parametrize("labels", [[0], [0, 1, 0], [[0], [1], [0], [1]]])
def test_every_sample_needs_one_label(labels):
    with pytest.raises(InputError, match="4 samples need one label each"):
        PairLoss()(torch.rand(4, 5), torch.tensor(labels))


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


def test_pair_loss_trains_a_module_like_autograd_over_all_pairs():
    x, labels = batch(11, 14, 12, 3)
    model = torch.nn.Conv1d(1, 2, 3).double()
    h = torch.tanh(model(x[:, None]))
    PairLoss(PairEnergy(0.3, softness=0.01))(h, labels).backward()
    ours = [p.grad.clone() for p in model.parameters()]

    model.zero_grad()
    flat = torch.tanh(model(x[:, None])).flatten(1)
    i, j = torch.triu_indices(14, 14, 1)
    d2 = (flat[i] - flat[j]).square().mean(1)
    loss = PairEnergy(0.3, softness=0.01).energy(d2, labels[i] == labels[j]).mean()
    loss.backward()
    for gradient, parameter in zip(ours, model.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-10, atol=1e-14)


def test_a_second_derivative_is_refused_instead_of_wrong():
    """By autograd over all pairs it is not zero, which the saved force would make of it."""
    h, labels = batch(2, 8, 5, 3)
    h.requires_grad_()
    i, j = torch.triu_indices(8, 8, 1)
    pair = PairEnergy(0.3, softness=0.01)
    over_pairs = pair.energy((h[i] - h[j]).square().mean(1), labels[i] == labels[j]).mean()
    (slope,) = torch.autograd.grad(over_pairs, h, create_graph=True)
    assert torch.autograd.grad(slope.square().sum(), h)[0].abs().max() > 1e-4
    (slope,) = torch.autograd.grad(PairLoss(pair)(h, labels) * h.sum(), h, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        slope.square().sum().backward()


@pytest.mark.parametrize("offset", [0.0, 1e3, -1e5])
@pytest.mark.parametrize("coupling", ["labelled", "averaged"])
def test_pair_loss_keeps_its_digits_far_from_the_origin(offset, coupling):
    """Against the loop over pairs in float64, for the very float32 numbers that PairLoss gets."""
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(24, 30, generator=generator).add_(offset).requires_grad_()
    labels = torch.randint(3, (24,), generator=generator)
    pair = PairEnergy(2.5, coupling=coupling)
    energy, gradient = loop_over_pairs(h, labels, pair)
    loss = PairLoss(pair)(h, labels)
    loss.backward()
    assert loss.item() == pytest.approx(energy, rel=1e-6)
    assert (h.grad - gradient).abs().max() <= 1e-6 * gradient.abs().max()


@pytest.mark.parametrize(
    ("dtype", "resolution"), [(torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)]
)
def test_pair_loss_of_half_precision_is_computed_in_float32(dtype, resolution):
    h, labels = batch(4, 20, 12, 3)
    h = h.to(dtype).requires_grad_()
    energy, gradient = loop_over_pairs(h, labels, PairEnergy(0.2))
    loss = PairLoss(PairEnergy(0.2))(h, labels)
    (2 * loss).backward()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(energy, rel=1e-6)
    assert h.grad.dtype == dtype  # the gradient is rounded once to the last digit of h, no more
    error = (h.grad.double() - 2 * gradient).abs()
    assert (error <= resolution * 2 * gradient.abs() + 1e-7).all()


def test_what_pair_loss_cannot_compare_is_named():
    h, whole = torch.rand(3, 4), torch.tensor([0, 1, 0])
    for labels in (torch.tensor([0.5, 1.0, math.nan]), whole.double(), whole.cfloat()):
        with pytest.raises(InputError, match="labels must be whole numbers"):
            PairLoss()(h, labels)
        with pytest.raises(InputError, match="labels must be whole numbers"):
            LocalDense(4, 2).learn_from(h, labels, PairEnergy())
    for bad in (h[:, 0], h.long(), h.cfloat(), h[:, :0]):
        with pytest.raises(InputError, match="must be real numbers of shape"):
            PairLoss()(bad, whole)
    pair = PairEnergy(0.2)
    assert PairLoss(pair)(h, whole == 1).item() == PairLoss(pair)(h, whole).item()
