"""Local layers for images against loops over patches and autograd."""

import numpy as np
import pytest
import torch

from fermibose.data import load_digits
from fermibose.energy import PairEnergy
from fermibose.errors import InputError
from fermibose.machine import (
    Conv,
    FermiBoseNet,
    FreeEnergy,
    LocalConv,
    LocalDense,
    LocalPointwise,
    PairLoss,
    Pointwise,
    Recipe,
    train,
)  # fmt: skip

ACTIVATIONS = {
    "relu": lambda z: np.maximum(z, 0),
    "half_tanh": lambda z: (1 + np.tanh(z)) / 2,
    "tanh": np.tanh,
}


def images(seed, n=6, shape=(2, 7, 9)):
    g = torch.Generator().manual_seed(seed)
    return torch.rand(n, *shape, generator=g, dtype=torch.float64), g


def made(shape, filters, seed=0, **settings):
    layer = LocalConv(shape, filters, **settings).double()
    layer.initialise(torch.Generator().manual_seed(seed))
    layer.bias.normal_(generator=torch.Generator().manual_seed(seed + 1))
    return layer


def by_loop(layer, x, activation):
    """Every filter at every place of every image, then the largest of each square."""
    w, b, size, pool = layer.weight.numpy(), layer.bias.numpy(), layer.size, layer.pool
    n, _, rows, columns = x.shape
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (size // 2,) * 2, (size // 2,) * 2))
    z = np.empty((n, len(w), rows, columns))
    for i, f, r, c in np.ndindex(z.shape):
        z[i, f, r, c] = (padded[i, :, r : r + size, c : c + size] * w[f]).sum() + b[f]
    h = np.empty((n, len(w), rows // pool, columns // pool))
    for i, f, r, c in np.ndindex(h.shape):
        square = z[i, f, r * pool : (r + 1) * pool, c * pool : (c + 1) * pool]
        h[i, f, r, c] = ACTIVATIONS[activation](square).max()
    return h


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("size", "pool"), [(3, 2), (5, 1), (1, 3)])
def test_features_are_those_of_a_loop_over_patches(activation, size, pool):
    x, _ = images(0)
    layer = made((2, 7, 9), 3, size=size, pool=pool, activation=activation)
    h = layer(x)
    np.testing.assert_allclose(h.numpy(), by_loop(layer, x, activation), rtol=1e-12, atol=1e-14)
    assert layer.output_shape == h.shape[1:]
    assert torch.equal(layer(x.flatten(1)), h)


def test_the_energy_sees_features_averaged_over_places():
    x, _ = images(1, shape=(1, 8, 8))
    layer = made((8, 8), 3, pool=1, head=2)
    h = layer(x)
    expected = h.reshape(6, 3, 2, 4, 2, 4).mean((3, 5)).permute(0, 2, 3, 1).flatten(1)
    torch.testing.assert_close(layer.head(h), expected)
    assert torch.equal(made((8, 8), 3, pool=1, head=8).head(h), h.permute(0, 2, 3, 1).flatten(1))


@pytest.mark.parametrize("energy", [FreeEnergy(2.0), PairEnergy(0.4, boson_weight=0.3)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_convolution_learns_by_the_gradient_of_its_pair_energy(energy, activation):
    x, g = images(2, n=70, shape=(1, 8, 8))  # more than pass at once
    y = torch.randint(3, (70,), generator=g)
    layer = made((8, 8), 4, size=3, head=2, activation=activation)
    layer.learn_from(x, y, energy)
    twin = made((8, 8), 4, size=3, head=2, activation=activation).requires_grad_(True)
    PairLoss(energy)(twin.head(twin(x)), y).backward()
    for name in ("weight", "bias"):
        found, expected = getattr(layer, name).grad, getattr(twin, name).grad
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-10)


def test_a_filter_as_large_as_the_image_is_a_dense_unit():
    """In the middle place it sees all pixels: the rule is that of a dense layer."""
    x, g = images(3, n=20, shape=(1, 5, 5))
    y = torch.randint(2, (20,), generator=g)
    conv = made((5, 5), 3, size=5, pool=1, activation="tanh")
    dense = LocalDense(25, 3, activation="tanh", bias=True).double()
    dense.weight.copy_(conv.weight.flatten(1).T)
    dense.bias.copy_(conv.bias)
    torch.testing.assert_close(conv(x)[:, :, 2, 2], dense(x.flatten(1)))
    conv.head = lambda h: h[:, :, 2, 2]  # the energy sees that place only
    energy = PairEnergy(0.5)
    conv.learn_from(x, y, energy)
    dense.learn_from(x.flatten(1), y, energy)
    torch.testing.assert_close(
        conv.weight.grad.flatten(1).T, dense.weight.grad, atol=1e-10, rtol=1e-7
    )
    torch.testing.assert_close(conv.bias.grad, dense.bias.grad, atol=1e-10, rtol=1e-7)


def test_the_threshold_is_a_sigmoid_and_learns_by_the_gradient():
    x, g = images(4, n=12, shape=(1, 6, 6))
    y = torch.randint(3, (12,), generator=g)
    layer = LocalPointwise().double()
    layer.initialise(g)
    np.testing.assert_allclose(layer(x).numpy(), 1 / (1 + np.exp(-3 * (x.numpy() - 0.5))))
    layer.learn_from(x, y, FreeEnergy(3.0))
    log_k, t = layer.log_steepness.detach().clone(), layer.threshold.detach().clone()
    k = log_k.requires_grad_().exp()
    t.requires_grad_()
    PairLoss(FreeEnergy(3.0))(torch.sigmoid(k * (x - t)).flatten(1), y).backward()
    torch.testing.assert_close(
        (layer.log_steepness.grad, layer.threshold.grad), (log_k.grad, t.grad)
    )


def test_the_threshold_stays_in_its_range():
    layer = LocalPointwise(steepness=(2.0, 9.0), thresholds=(0.3, 0.4))
    layer.initialise(torch.Generator())
    assert float(layer.threshold) == pytest.approx(0.4)
    layer.log_steepness.fill_(20.0)
    layer.threshold.fill_(-1.0)
    layer.constrain()
    assert (float(layer.steepness), float(layer.threshold)) == pytest.approx((9.0, 0.3))


def test_an_averaged_threshold_stays_in_its_range():
    front = Pointwise(steepness=(2.0, 2.2), thresholds=(0.4, 0.45))
    recipe = Recipe(
        (front,), FreeEnergy(), epochs=2, learning_rate=1.0, averaging=0.5, readout="ridge"
    )
    x, y = load_digits()
    (layer,) = train(x[:100], y[:100], recipe, show=False).net.local_layers
    assert 2.0 <= float(layer.steepness) * (1 + 1e-6) <= 2.2 * (1 + 2e-6)
    assert np.float32(0.4) <= float(layer.threshold) <= np.float32(0.45)


def test_layers_of_all_kinds_stack_and_come_back_from_a_file(tmp_path):
    hidden = (Pointwise(), Conv(4, size=3, head=3), Conv(5, size=3, activation="tanh"), 11)
    net = FermiBoseNet(64, hidden, 3, image_shape=(8, 8), bias=True, kernel=(6, 9))
    g = torch.Generator().manual_seed(0)
    net.initialise(g)
    for buffer in net.readout.buffers():
        buffer.uniform_(generator=g)
    x = torch.rand(4, 64, generator=g)
    h = net.local_layers[2](net.local_layers[1](net.local_layers[0](x)))
    assert h.shape == (4, 5, 2, 2)
    torch.testing.assert_close(net.represent(x), net.local_layers[3](h.flatten(1)))
    assert torch.equal(net.represent(x, 3), h.flatten(1))
    net.save(tmp_path)
    again = FermiBoseNet.load(tmp_path)
    assert torch.equal(again(x), net(x))
    assert again.config == net.config
    assert again.local_layers[0].bounds == net.local_layers[0].bounds


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": 4}, "odd"),
        ({"pool": 9}, "fits into the image"),
        ({"filters": 0}, "filters"),
        ({"head": 0}, "head"),
        ({"activation": "step"}, "activation"),
        ({"image_shape": (8,)}, "image_shape"),
    ],
)
def test_a_convolution_that_cannot_be_is_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        LocalConv(**{"image_shape": (8, 8), "filters": 2} | wrong)


def test_images_of_another_size_are_refused():
    with pytest.raises(InputError, match="9 features, but images of shape"):
        made((8, 8), 2)(torch.rand(2, 9).double())
    with pytest.raises(InputError, match="give image_shape"):
        FermiBoseNet(64, (Conv(2),), 3)
    with pytest.raises(InputError, match="thresholds"):
        LocalPointwise(thresholds=(0.5, 0.2))


def test_no_images_have_no_features():
    net = FermiBoseNet(16, (Conv(2, size=3),), 3, image_shape=(4, 4))
    assert net(torch.zeros(0, 16)).shape == (0, 3)
