"""PairLoss. Oracles: a loop over pairs, autograd over all of them, finite differences."""

import math

import numpy as np
import pytest
import torch
from pair_loops import batch, loop_over_pairs
from torch.func import grad, hessian, jvp, vmap

from fermibose import FermiBoseNet, PairEnergy, PairLoss
from fermibose.errors import InputError
from fermibose.machine import LocalDense

ENERGIES = [
    PairEnergy(0.15, softness, 0.7, 1.3, coupling)
    for softness in (0.0, 0.01)
    for coupling in ("labelled", "averaged")
]
every_energy = pytest.mark.parametrize("pair", ENERGIES, ids=lambda p: f"{p.coupling} {p.softness}")


def over_all_pairs(h, labels, pair):
    """The same loss, every pair materialised, for autograd."""
    i, j = torch.triu_indices(len(h), len(h), 1)
    d2 = (h[i] - h[j]).square().mean(1)
    return pair.energy(d2, labels[i] == labels[j]).mean()


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


@pytest.mark.parametrize("labels", [[0], [0, 1, 0], [[0], [1], [0], [1]]])
def test_every_sample_needs_one_label(labels):
    with pytest.raises(InputError, match="4 samples need one label each"):
        PairLoss()(torch.rand(4, 5), torch.tensor(labels))


@every_energy
def test_second_derivatives_are_those_of_autograd_over_all_pairs(pair):
    h, labels = batch(2, 8, 5, 3)
    h[3] = h[0]  # one pair at D² = 0, whose force acts on the second derivative
    ours = torch.autograd.functional.hessian(lambda h: PairLoss(pair)(h, labels), h)
    theirs = torch.autograd.functional.hessian(lambda h: over_all_pairs(h, labels, pair), h)
    assert theirs.abs().max() > 1e-3
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14 * pair_scale(pair, labels))
    h.requires_grad_()
    assert torch.autograd.gradcheck(lambda h: PairLoss(pair)(h, labels), (h,))
    assert torch.autograd.gradgradcheck(lambda h: PairLoss(pair)(h, labels), (h,))


def test_second_derivatives_where_rounding_makes_a_distance_negative():
    """Near-duplicates: their force acts on the second derivative all the same."""
    h, labels = batch(0, 12, 5, 2)
    h[6:] = h[:6] + 1e-10 * h[6:]
    centred = h - h.mean(0)
    gram = centred @ centred.T
    assert (gram.diagonal()[:, None] + gram.diagonal() - 2 * gram).min() < 0
    pair = PairEnergy(0.15, 0.01)
    ours = torch.autograd.functional.hessian(lambda h: PairLoss(pair)(h, labels), h)
    theirs = torch.autograd.functional.hessian(lambda h: over_all_pairs(h, labels, pair), h)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-13)


def pair_scale(pair, labels):
    """How strong the forces are: the averaged coupling multiplies them by numbers of pairs."""
    return len(labels) ** 2 if pair.coupling == "averaged" else 1


@pytest.mark.parametrize("h", [[[0.0], [1.0], [0.5]], [[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]]])
def test_second_derivatives_where_the_distance_is_the_target(h):
    """D² = d_F exactly, between the two branches of the stable hinge; by the printed formula."""
    h, labels, d_f, a = torch.tensor(h, dtype=torch.float64), torch.arange(3), 1.0, 0.04

    def printed(h):
        x = d_f - torch.stack([(h[i] - h[j]).square().mean() for i, j in ((0, 1), (0, 2), (1, 2))])
        return ((x + (x * x + a).sqrt()) / 2).mean()

    loss = PairLoss(PairEnergy(d_f, a))
    ours = torch.autograd.functional.hessian(lambda h: loss(h, labels), h)
    theirs = torch.autograd.functional.hessian(printed, h)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-13)


def test_a_gradient_penalty_trains_like_that_over_all_pairs():
    """|∂L/∂h|² as a part of the loss, with weights below h: the use of second derivatives."""
    x, labels = batch(3, 12, 6, 3)
    pair, gradients = PairEnergy(0.2, 0.01), []
    for loss in (PairLoss(pair), lambda h, y: over_all_pairs(h, y, pair)):
        weight = torch.linspace(-1, 1, 24, dtype=torch.float64).view(6, 4).requires_grad_()
        h = torch.tanh(x @ weight)
        value = loss(h, labels)
        (slope,) = torch.autograd.grad(value, h, create_graph=True)
        (value + 100 * slope.square().sum()).backward()
        gradients.append(weight.grad)
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-14)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own use
@every_energy
def test_mapped_and_forward_differentiated_like_one_batch_at_a_time(pair):
    loss = PairLoss(pair)
    h = torch.stack([batch(seed, 7, 4, 3)[0] for seed in range(3)])
    labels = torch.stack([batch(seed, 7, 4, 3)[1] for seed in range(3)])
    mapped, slopes = vmap(loss)(h, labels), vmap(grad(loss))(h, labels)
    curved = vmap(hessian(loss), in_dims=(0, None))(h, labels[0])
    for k in range(3):
        energy, gradient = loop_over_pairs(h[k], labels[k], pair)
        assert mapped[k].item() == pytest.approx(energy, rel=1e-12)
        torch.testing.assert_close(slopes[k], gradient, rtol=1e-9, atol=1e-12)
        theirs = torch.autograd.functional.hessian(
            lambda h: over_all_pairs(h, labels[0], pair), h[k]
        )
        torch.testing.assert_close(curved[k], theirs, rtol=1e-9, atol=1e-12)
    along = torch.ones_like(h[0]).cumsum(0)
    _, change = jvp(lambda h: loss(h, labels[0]), (h[0],), (along,))
    _, gradient = loop_over_pairs(h[0], labels[0], pair)
    assert change.item() == pytest.approx((gradient * along).sum().item(), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@every_energy
def test_compiled_in_one_graph_it_is_the_same(pair, backend):
    torch._dynamo.reset()
    compiled = torch.compile(PairLoss(pair), backend=backend, fullgraph=True)
    for size in (9, 14):  # the second makes the shape a variable
        h, labels = batch(size, size, 6, 3)
        h.requires_grad_()
        energy, gradient = loop_over_pairs(h, labels, pair)
        loss = compiled(h, labels)
        loss.backward()
        assert loss.item() == pytest.approx(energy, rel=1e-12)
        torch.testing.assert_close(h.grad, gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_autocast_rounds_no_distance(dtype, offset):
    """What is cast is the layer below; the loss of its output is that of the loop in float64."""
    x, labels = batch(5, 16, 8, 3, torch.float32)
    below = torch.nn.Linear(8, 12)
    with torch.autocast("cpu", dtype=dtype):
        for h in (below(x), x + offset):  # of half precision, and of float32
            h = h.detach().requires_grad_()
            loss = PairLoss(PairEnergy(0.1, 0.01))(h, labels)
            energy, gradient = loop_over_pairs(h, labels, PairEnergy(0.1, 0.01))
            assert loss.dtype == torch.float32
            assert loss.item() == pytest.approx(energy, rel=1e-6)
            loss.backward()
            resolution = 2 * torch.finfo(h.dtype).eps
            assert (h.grad - gradient).abs().max() <= resolution * gradient.abs().max()


def test_clusters_of_near_duplicates_keep_their_digits_in_float32():
    """Bosons 1e-4 apart, fermions far beyond the hinge: all of the energy is in tiny distances."""
    generator = torch.Generator().manual_seed(0)
    centres = 3.0 * torch.randn(3, 20, generator=generator) + 10.0
    labels = torch.arange(12) % 3
    h = centres[labels] + 1e-4 * torch.randn(12, 20, generator=generator)
    h.requires_grad_()
    energy, gradient = loop_over_pairs(h, labels, PairEnergy(0.4))
    loss = PairLoss(PairEnergy(0.4))(h, labels)
    loss.backward()
    assert loss.item() == pytest.approx(energy, rel=1e-6)
    assert (h.grad - gradient).abs().max() <= 1e-6 * gradient.abs().max()


def test_tensors_without_content_give_a_loss_without_content():
    h = torch.empty(6, 4, 3, device="meta", requires_grad=True)
    for labels in (torch.arange(6), torch.arange(6, device="meta"), [0, 1, 2, 0, 1, 2]):
        loss = PairLoss(PairEnergy(0.2, 0.01))(h, labels)
        (slope,) = torch.autograd.grad(loss, h)
        assert (loss.device.type, loss.shape, loss.dtype) == ("meta", (), torch.float32)
        assert (slope.device.type, slope.shape) == ("meta", h.shape)
    with pytest.raises(InputError, match="device meta, which holds no numbers"):
        PairLoss()(torch.rand(6, 4), torch.arange(6, device="meta"))


def test_what_is_no_energy_or_no_tensor_is_refused_in_words():
    with pytest.raises(InputError, match=r"like PairEnergy\(0.4\), or a FreeEnergy, got 0.4"):
        PairLoss(0.4)
    with pytest.raises(InputError, match="must be a torch tensor, got ndarray"):
        PairLoss()(np.zeros((3, 2)), [0, 1, 0])
    with pytest.raises(InputError, match="inputs must be a torch tensor, got ndarray"):
        FermiBoseNet(4, (3,), 2)(np.zeros((2, 4)))
