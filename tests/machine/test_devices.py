"""Everything runs where its tensors are; oracles: the same on the CPU, and a device that tells."""

import pytest
import torch
from far_device import FAR, FarTensor, SilentCopy, back, far_device

from fermibose import PairEnergy, attacks
from fermibose.compute import fraction
from fermibose.machine import (
    Affine,
    Augmented,
    Conv,
    Crop,
    Elastic,
    FermiBoseNet,
    Flip,
    FreeEnergy,
    KernelRidge,
    LocalAdversary,
    Noise,
    PairLoss,
    Pointwise,
    Recipe,
    SelfSupervised,
    Shift,
    evaluate,
    train,
    train_kernel_ridge,
    train_logistic,
    train_mlp,
    train_rbf_svm,
)
from fermibose.threat import ThreatModel

SIDE = 6
CHANGES = tuple(kind((SIDE, SIDE)) for kind in (Affine, Elastic, Crop, Flip))
COMMON = {"epochs": 2, "readout_epochs": 2, "batch_size": 10}
RECIPES = {
    "paper": Recipe(hidden=(8,), class_weight=(1.0, 2.0, 1.0), **COMMON),
    "self-supervised": Recipe(
        hidden=(8,),
        pairing=SelfSupervised((Shift((SIDE, SIDE)), Noise())),
        readout="prototype",
        **COMMON,
    ),
    "ridge": Recipe(hidden=(8,), energy=FreeEnergy(), readout="ridge", averaging=0.5, **COMMON),
    "images": Recipe(
        hidden=(Pointwise(), Conv(4, size=3), 6),
        image_shape=(SIDE, SIDE),
        energy=FreeEnergy(2.0),
        pairing=Augmented(CHANGES),
        adversary=LocalAdversary(ThreatModel("l2", 0.3), own=True),
        readout=KernelRidge(copies=1, centres=20),
        **COMMON,
    ),
}


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    y = torch.arange(24) % 3
    x = torch.rand(24, SIDE**2, generator=generator) * 0.5 + 0.2 * y[:, None]
    x[:, ::5] = 0
    return x, y


def test_the_device_refuses_what_a_gpu_refuses_or_copies_silently(monkeypatch):
    with far_device(monkeypatch) as device:
        x = torch.ones(3, 2).to(FAR)
        assert isinstance(x, FarTensor)
        for wrong in (
            lambda: x + torch.ones(3, 2),
            lambda: x[torch.tensor([0, 1])],
            lambda: torch.randn(2, generator=torch.Generator(), device=FAR),
            lambda: torch.zeros(3, 2).mul_(x),
        ):
            with pytest.raises(SilentCopy):
                wrong()
        with pytest.raises(RuntimeError, match="numpy"):
            x.numpy()
        assert device.to_host == []
        assert torch.equal(x.cpu(), torch.ones(3, 2))
        assert device.to_host == [(3, 2)]
    with far_device(monkeypatch, float64=False), pytest.raises(TypeError, match="no float64"):
        torch.ones(2).to(FAR).double()


@pytest.mark.parametrize("float64", [True, False])
@pytest.mark.parametrize("energy", [PairEnergy(), FreeEnergy()], ids=["hinge", "free"])
def test_the_pair_loss(energy, float64, monkeypatch):
    x, y = data()
    expected = x.clone().requires_grad_()
    value = PairLoss(energy)(expected, y)
    value.backward()
    with far_device(monkeypatch, float64=float64) as device:
        h = x.to(FAR).requires_grad_()
        loss = PairLoss(energy)(h, y.to(FAR))
        (gradient,) = torch.autograd.grad(loss, h)
        assert device.to_host == []
    torch.testing.assert_close(back(loss), value.detach(), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(back(gradient), expected.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("float64", [True, False])
def test_a_machine_learns_where_its_inputs_are(name, float64, monkeypatch, tmp_path):
    """As on the CPU, up to rounding; only the labels are looked at there."""
    x, y = data()
    here = train(x, y, RECIPES[name], test=(x[:5], y[:5]))
    with far_device(monkeypatch, float64=float64) as device:
        there = train(x.to(FAR), y.to(FAR), RECIPES[name], test=(x[:5].to(FAR), y[:5].to(FAR)))
        assert device.to_host == [(24,), (5,)]
        assert all(isinstance(tensor, FarTensor) for tensor in there.net.state_dict().values())
        logits = there.net(x.to(FAR))
    if RECIPES[name].class_weight and not float64:
        return  # samples are drawn by numbers of another precision
    torch.testing.assert_close(back(logits), here.net(x), rtol=1e-3, atol=1e-3)
    for stage, record in here.history.items():
        for quantity, values in record.items():
            assert there.history[stage][quantity] == pytest.approx(
                values, rel=1e-3, abs=1e-5, nan_ok=True
            )


def test_a_checkpoint_brings_a_machine_to_any_device(monkeypatch, tmp_path):
    x, y = data()
    path = tmp_path / "checkpoint"
    with far_device(monkeypatch):
        there = train(x.to(FAR), y.to(FAR), RECIPES["ridge"], checkpoint=path)
    here = train(x, y, RECIPES["ridge"], checkpoint=path)  # finished there: only the readout is new
    torch.testing.assert_close(here.net.layers[0].weight, back(there.net.layers[0].weight))
    with far_device(monkeypatch):
        again = train(x.to(FAR), y.to(FAR), RECIPES["ridge"], checkpoint=path)
        again.net.save(tmp_path / "net")
        kept = {name: back(value) for name, value in again.net.state_dict().items()}
    assert isinstance(again.net.layers[0].weight, FarTensor)
    saved = FermiBoseNet.load(tmp_path / "net").state_dict()
    assert all(torch.equal(value, saved[name]) for name, value in kept.items())


def test_evaluation_and_baselines(monkeypatch):
    x, y = data()
    kinds = [
        lambda x, y: train_mlp(x, y, RECIPES["paper"]).net,
        train_kernel_ridge,
        train_logistic,
        train_rbf_svm,
    ]
    here = [fit(x, y)(x) for fit in kinds]
    net = train(x, y, RECIPES["ridge"]).net
    expected = evaluate(net, x, y)
    with far_device(monkeypatch):
        far = [fit(x.to(FAR), y.to(FAR))(x.to(FAR)) for fit in kinds]
        found = evaluate(net.to(FAR), x.to(FAR), y.to(FAR))
    for logits, others in zip(far, here, strict=True):
        torch.testing.assert_close(back(logits), others.detach(), rtol=1e-4, atol=1e-4)
    assert (found.confusion == expected.confusion).all()
    assert found.accuracy == expected.accuracy


@pytest.mark.parametrize("float64", [True, False])
@pytest.mark.parametrize(
    ("attack", "threat"),
    [
        (attacks.fgsm, ThreatModel("linf", 0.1)),
        (attacks.pgd, ThreatModel("linf", 0.1)),
        (attacks.pgd, ThreatModel("l2", 0.5)),
        (attacks.gaussian_noise, ThreatModel("noise", 0.3)),
    ],
)
def test_attacks_stay_where_the_model_is(attack, threat, float64, monkeypatch):
    x, y = data()
    net = train(x, y, RECIPES["paper"]).net
    expected = attack(net, x, y, threat)
    with far_device(monkeypatch, float64=float64) as device:
        found = attack(net.to(FAR), x.to(FAR), y.to(FAR), threat)
        assert device.to_host == []
        assert found.robust_accuracy == expected.robust_accuracy
    assert torch.equal(back(found.examples), expected.examples)


def test_certificates(monkeypatch):
    x, y = data()
    net = train(x, y, RECIPES["paper"]).net
    expected = attacks.certified_radius(net, x, y, norm="l2").radius
    proof = attacks.certify(net, x, y, ThreatModel("l2", 0.1))
    with far_device(monkeypatch):
        given = net.to(FAR), x.to(FAR), y.to(FAR)
        found = attacks.certified_radius(*given, norm="l2").radius
        margin = attacks.certify(*given, ThreatModel("l2", 0.1)).margin
    assert margin == pytest.approx(proof.margin, rel=1e-9)
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_fraction_is_exact():
    assert fraction(torch.tensor([True, False, False])) == 1 / 3
    assert fraction(torch.zeros(0, dtype=torch.bool)) != fraction(torch.zeros(0, dtype=torch.bool))
