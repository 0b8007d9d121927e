"""Certified radii. Oracles: the exact radius of linear nets, a grid, autograd, PGD, AutoAttack."""

import numpy as np
import pytest
import torch

from fermibose import FermiBoseNet
from fermibose.attacks import ThreatModel, auto_attack, certified_radius, pgd
from fermibose.attacks.certificate import _Bound
from fermibose.errors import InputError

ORDER = {"linf": torch.inf, "l2": 2}
DUAL = {"linf": 1, "l2": 2}


def random_net(inputs, hidden, outputs, *, activation="half_tanh", scale=1.0, seed=0):
    net = FermiBoseNet(
        inputs, hidden, outputs, activation=activation, bias=True, readout_bias=True
    ).double()
    generator = torch.Generator().manual_seed(seed)
    for parameter in net.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.copy_(scale * noise)
    return net


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_without_hidden_layers_the_radius_is_exact(norm):
    """min_k (z_y − z_k)/‖w_y − w_k‖_*, the distance to the nearest decision boundary."""
    net = random_net(6, (), 4)
    x = torch.randn(50, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    logits = net(x)
    y = logits.argmax(1)
    expected = torch.stack(
        [
            min(
                (logits[i, y[i]] - logits[i, k])
                / (net.readout.weight[:, y[i]] - net.readout.weight[:, k]).norm(DUAL[norm])
                for k in range(4)
                if k != y[i]
            )
            for i in range(50)
        ]
    )
    radius = certified_radius(net, x, y, norm=norm).radius
    assert (radius <= expected.numpy()).all()
    np.testing.assert_allclose(radius, expected, rtol=2**-13)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize(
    ("hidden", "activation"), [((9,), "half_tanh"), ((7, 5), "tanh"), ((7, 5), "relu")]
)
def test_the_bound_holds_for_gradients_anywhere_in_the_ball(norm, hidden, activation):
    """Autograd at many points of each ball, on nets with biases and with rescaled inputs."""
    net = random_net(4, hidden, 3, activation=activation)
    gain = torch.tensor([2.0, 0.5, -1.0, 1.5]).double()
    net.take_raw_inputs(torch.full((4,), 0.3).double(), gain)
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(8, 4, generator=generator, dtype=torch.float64)
    y = net(x).argmax(1)
    for radius in (0.0, 0.1, 1.0):
        bound = _Bound(net, x, y, norm).lipschitz(torch.full((8,), radius).double())
        change = torch.randn(8, 2000, 4, generator=generator, dtype=torch.float64)
        change /= change.norm(ORDER[norm], dim=2, keepdim=True)
        points = (x[:, None] + radius * change).reshape(-1, 4).requires_grad_()
        logits = net(points)
        labels = y.repeat_interleave(2000)
        for column in range(2):
            rivals = torch.tensor([[k for k in range(3) if k != c][column] for c in labels])
            rows = torch.arange(len(labels))
            margin = logits[rows, labels] - logits[rows, rivals]
            (g,) = torch.autograd.grad(margin.sum(), points, retain_graph=True)
            steepest = g.norm(DUAL[norm], dim=1).view(8, 2000).amax(1)
            assert (bound[:, column] >= steepest * (1 - 1e-12)).all()
            if radius == 0:  # no ball, no slack: the gradient itself
                torch.testing.assert_close(bound[:, column], steepest)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("method", ["crown", "lipschitz"])
@pytest.mark.parametrize(
    ("hidden", "activation"), [((8,), "half_tanh"), ((6, 6), "half_tanh"), ((8, 6), "relu")]
)
def test_nothing_inside_the_radius_is_classified_otherwise(norm, hidden, activation, method):
    """A fine grid over the certified ball in two dimensions, and one that fails further out."""
    net = random_net(2, hidden, 3, activation=activation, scale=2.0, seed=3)
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    net.readout.bias -= net(x).mean(0)  # so that every class wins somewhere
    y = net(x).argmax(1)
    assert len(y.unique()) == 3
    radius = torch.tensor(certified_radius(net, x, y, norm=norm, method=method).radius)
    steps = torch.linspace(-1, 1, 81, dtype=torch.float64)
    unit = torch.cartesian_prod(steps, steps)
    unit = unit[unit.norm(ORDER[norm], dim=1) <= 1]

    def worst(scale):
        grid = x[:, None] + scale[:, None, None] * unit
        return (net(grid.reshape(-1, 2)).argmax(1).view(60, -1) != y[:, None]).any(1)

    assert (radius > 0).all()
    assert not worst(radius).any()
    assert worst(3 * radius).double().mean() > 0.5  # the bound is not vacuous


@pytest.mark.parametrize(("norm", "strengths"), [("linf", (0.01, 0.03, 0.06)), ("l2", (0.1, 0.3))])
def test_certified_is_never_above_attacked(net, images, norm, strengths):
    x, y = images
    certificate = certified_radius(net, x, y, norm=norm)
    for epsilon in strengths:
        attacked = pgd(net, x, y, ThreatModel(norm, epsilon), steps=20)
        certain = torch.tensor(certificate.radius >= epsilon) & attacked.correct
        assert not (certain & ~attacked.robust).any()
        assert certificate.accuracy(epsilon)[0] == certain.double().mean()
        assert certificate.accuracy(epsilon)[0] <= attacked.robust_accuracy
    assert certificate.accuracy(0.0)[0] == attacked.clean_accuracy
    assert certificate.accuracy(strengths[0])[0] > 0.3  # it certifies something


def test_certified_is_never_above_autoattack(net, images):
    x, y = images[0][::4], images[1][::4]
    certificate = certified_radius(net, x, y)
    attacked = auto_attack(net, x, y, ThreatModel("linf", 0.03), attacks=("apgd-ce", "apgd-t"))
    assert not (torch.tensor(certificate.radius >= 0.03) & ~attacked.robust).any()


def test_the_local_bound_certifies_more_than_the_global_one(net, images):
    """The global constant: slopes of (1 + tanh z)/2 are at most ½, everywhere."""
    x, y = images
    local = certified_radius(net, x, y, norm="l2").radius
    logits = net(x).detach()
    spectral = torch.linalg.matrix_norm(net.local_layers[0].weight, 2)
    rows = torch.arange(len(y))
    ratios = []
    for k in range(10):
        gap = (net.readout.weight.T[y] - net.readout.weight.T[k]).norm(dim=1)
        ratio = (logits[rows, y] - logits[:, k]) / (gap * spectral / 2)
        ratios.append(torch.where(y == k, torch.inf, ratio))
    overall = torch.stack(ratios).amin(0).clamp(min=0)
    assert (local >= overall.numpy() * (1 - 1e-3)).all()
    assert local.mean() > 1.2 * float(overall.mean())


def test_misclassified_images_have_no_radius(net, images):
    x, _ = images
    wrong = (net(x).argmax(1) + 1) % 10
    certificate = certified_radius(net, x, wrong)
    assert not certificate.radius.any()
    assert certificate.accuracy([0.0, 0.1]).tolist() == [0.0, 0.0]


def test_other_models_and_norms_are_refused(net, images):
    with pytest.raises(InputError, match="FermiBoseNet, got Linear"):
        certified_radius(torch.nn.Linear(64, 10), *images)
    with pytest.raises(InputError, match="'linf' or 'l2'"):
        certified_radius(net, *images, norm="noise")


@pytest.mark.parametrize("method", ["lipschitz", "crown"])
def test_images_that_are_not_flat_have_the_radius_of_flat_ones(net, images, method):
    x, y = images[0][:12], images[1][:12]
    flat, square = (
        certified_radius(net, some, y, method=method, show=False).radius
        for some in (x, x.view(12, 1, 8, 8))
    )
    assert flat.max() > 0
    np.testing.assert_array_equal(flat, square)
