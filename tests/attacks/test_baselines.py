"""Baselines that can be attacked. Oracles: scikit-learn's predictions, autograd, plain Adam."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from fermibose import machine
from fermibose.attacks import Adversary, ThreatModel, pgd
from fermibose.attacks.gradient import cross_entropy
from fermibose.machine import (
    Augmented,
    Conv,
    FermiBoseNet,
    InputNoise,
    Pointwise,
    Recipe,
    train_kernel_ridge,
    train_logistic,
    train_mlp,
    train_rbf_svm,
)


@pytest.fixture(scope="module")
def data(digits):
    return digits.x_train[:300], digits.y_train[:300], digits.x_test[:100], digits.y_test[:100]


def test_the_svm_has_the_decision_values_of_scikit_learn(data):
    x, y, x_test, _ = data
    model = train_rbf_svm(x, y, gamma=0.3, c=2.0)
    logits = model(torch.tensor(x_test)).numpy()
    for k in range(10):
        machine = SVC(C=2.0, gamma=0.3).fit(x, y == k)
        np.testing.assert_allclose(logits[:, k], machine.decision_function(x_test), atol=1e-4)


def test_kernel_ridge_is_that_of_scikit_learn(data):
    x, y, x_test, _ = data
    model = train_kernel_ridge(x, y, gamma=0.3, ridge=0.5)
    oracle = KernelRidge(alpha=0.5, kernel="rbf", gamma=0.3).fit(
        x.astype(float), 2.0 * np.eye(10)[y] - 1
    )
    logits = model(torch.tensor(x_test)).numpy()
    np.testing.assert_allclose(logits, oracle.predict(x_test.astype(float)), atol=1e-4)


@pytest.mark.parametrize("classes", [10, 2])
def test_logistic_regression_has_the_probabilities_of_scikit_learn(data, classes):
    x, y, x_test, _ = data
    x, y = x[y < classes], y[y < classes]
    net = train_logistic(x, y, penalty=3.0)
    oracle = LogisticRegression(C=1 / 3, max_iter=10_000).fit(x, y)
    found = net(torch.tensor(x_test)).softmax(1).numpy()
    np.testing.assert_allclose(found, oracle.predict_proba(x_test), atol=1e-4)


@pytest.mark.parametrize("fit", [train_rbf_svm, train_kernel_ridge])
def test_kernel_machines_can_be_differentiated_and_attacked(data, fit):
    x, y, x_test, y_test = data
    model = fit(x, y, gamma=0.3)
    inputs = torch.tensor(x_test[:3]).double().requires_grad_()
    assert torch.autograd.gradcheck(model.double(), inputs)
    found = pgd(model.float(), x_test, y_test, ThreatModel("linf", 0.2), steps=10)
    assert found.robust_accuracy < found.clean_accuracy - 0.1
    assert not found.flags
    square = torch.tensor(x_test).view(-1, 1, 8, 8)
    torch.testing.assert_close(model(square), model(square.flatten(1)))


def adam_on(x, y, perturb, recipe, decay=0.0):
    """The MLP's training written out with autograd and torch's plain Adam."""
    generator = torch.Generator().manual_seed(recipe.seed)
    w = torch.randn(x.shape[1], recipe.hidden[0], generator=generator) / x.shape[1] ** 0.5
    v = torch.randn(recipe.hidden[0], 10, generator=generator) / recipe.hidden[0] ** 0.5
    weights = [w.requires_grad_(), v.requires_grad_()]

    def logits(inputs):
        return (1 + torch.tanh(inputs @ weights[0])) / 2 @ weights[1]

    adam = torch.optim.Adam(weights, lr=0.001, weight_decay=decay)
    for _ in range(recipe.epochs):
        for index in torch.randperm(len(x), generator=generator).split(recipe.batch_size):
            inputs = perturb(logits, x[index], y[index], generator)
            adam.zero_grad()
            torch.nn.functional.cross_entropy(logits(inputs), y[index]).backward()
            adam.step()
    return logits


def gradient_sign(logits, x, y):
    x = x.detach().requires_grad_()
    (g,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits(x), y), x)
    return g.sign()


def by_noise(_, x, y, generator):
    return (x + 0.2 * torch.randn(x.shape, generator=generator)).clamp(0, 1)


def by_fgsm(logits, x, y, generator):
    low, high = (x - 0.1).clamp(min=0), (x + 0.1).clamp(max=1)
    start = low + (high - low) * torch.rand(x.shape, generator=generator)
    return torch.clamp(start + 0.125 * gradient_sign(logits, start, y), low, high)


def by_pgd(logits, x, y, generator):
    low, high = (x - 0.1).clamp(min=0), (x + 0.1).clamp(max=1)
    point = low + (high - low) * torch.rand(x.shape, generator=generator)
    for _ in range(7):
        step = 0.1 * 2.5 / 7 * gradient_sign(logits, point, y)
        point = torch.clamp(point + step, low, high)
    return point


@pytest.mark.parametrize(
    ("perturb", "by_hand"),
    [
        (InputNoise(0.2), by_noise),
        (Adversary(ThreatModel("linf", 0.1)), by_fgsm),
        (Adversary(ThreatModel("linf", 0.1), steps=7), by_pgd),
    ],
)
def test_training_on_perturbed_inputs_is_what_it_says(data, perturb, by_hand):
    x, y, x_test, _ = data
    recipe = Recipe(hidden=(15,), epochs=2, batch_size=30, seed=4)
    net = train_mlp(x, y, recipe, perturb=perturb, weight_decay=0.01).net
    expected = adam_on(torch.tensor(x), torch.tensor(y), by_hand, recipe, decay=0.01)
    with torch.no_grad():
        found, wanted = net(torch.tensor(x_test)), expected(torch.tensor(x_test))
    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=2e-3)
    plain = train_mlp(x, y, recipe, weight_decay=0.01).net(torch.tensor(x_test))
    assert (found - plain).abs().max() > 0.02  # far beyond that tolerance


def test_adversarial_training_makes_robust(digits):
    threat = ThreatModel("linf", 0.1)
    recipe = Recipe(hidden=(60,), epochs=30)
    robust = []
    for perturb in (None, Adversary(threat), Adversary(threat, steps=7)):
        net = train_mlp(digits.x_train, digits.y_train, recipe, perturb=perturb).net
        robust.append(pgd(net, digits.x_test, digits.y_test, threat, steps=10).robust_accuracy)
    assert robust[1] > robust[0] + 0.05
    assert robust[2] > robust[0] + 0.05


def test_the_adversary_climbs_on_where_the_net_is_already_wrong(net, images):
    """Training needs the largest loss; an attack would stop at the first mistake."""
    x, _ = images
    wrong = (net(x).argmax(1) + 1) % 10
    adversary = Adversary(ThreatModel("linf", 0.1), steps=7)
    points = adversary(net, x, wrong, torch.Generator().manual_seed(0))
    gain = cross_entropy(net(points), wrong) - cross_entropy(net(x), wrong)
    assert (gain > 0).all()
    assert gain.mean() > 0.5
    assert ((points - x).abs().amax(1) > 0.099).all()


def test_a_convolutional_net_learns_by_backpropagation_behind_a_fixed_threshold(data):
    """Written out with torch's own layers, Adam and cosine schedule, on transformed images."""
    x, y, x_test, _ = data
    x, y = x[:120], y[:120]

    def brighter(images, generator):
        return (images + 0.2 * torch.rand(len(images), 1, generator=generator)).clamp(0, 1)

    recipe = Recipe(
        (Pointwise(steepness=(9.0, 9.0), thresholds=(0.4, 0.4)), Conv(6, size=3), 20),
        image_shape=(8, 8), pairing=Augmented((brighter,)), activation="relu", bias=True,
        epochs=3, batch_size=30, schedule="cosine", seed=1,
    )  # fmt: skip
    start = train_mlp(x, y, replace(recipe, epochs=0)).net
    net = train_mlp(x, y, recipe, learning_rate=0.01).net
    assert float(net.local_layers[0].steepness) == pytest.approx(9)
    assert float(net.local_layers[0].threshold) == pytest.approx(0.4)

    _, conv, dense = start.local_layers
    weights = [
        p.detach().clone().requires_grad_()
        for p in (conv.weight, conv.bias, dense.weight, dense.bias, start.readout.weight)
    ]

    def logits(images):
        w, b, u, c, v = weights
        h = torch.sigmoid(9 * (images - 0.4)).view(-1, 1, 8, 8)
        h = torch.nn.functional.conv2d(h, w, b, padding=1).relu()
        h = torch.nn.functional.max_pool2d(h, 2).flatten(1)
        return (h @ u + c).relu() @ v

    generator = torch.Generator().manual_seed(1)
    FermiBoseNet(64, recipe.hidden, 10, image_shape=(8, 8), bias=True).initialise(generator)
    adam = torch.optim.Adam(weights, lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, 12)
    images, labels = torch.tensor(x), torch.tensor(y)
    for _ in range(3):
        for index in torch.randperm(120, generator=generator).split(30):
            adam.zero_grad()
            seen = brighter(images[index], generator)
            torch.nn.functional.cross_entropy(logits(seen), labels[index]).backward()
            adam.step()
            schedule.step()
    test = torch.tensor(x_test)
    with torch.no_grad():
        wanted = logits(test)
    torch.testing.assert_close(net(test), wanted, rtol=1e-2, atol=2e-3)
    assert (start(test) - wanted).abs().max() > 0.1


def test_the_readout_of_a_recipe_is_none_of_backpropagation(data):
    x, y = data[0][:60], data[1][:60]
    plain = Recipe(hidden=(10,), epochs=3, seed=2)
    expected = train_mlp(x, y, plain).net.state_dict()
    for readout in ("ridge", machine.KernelRidge()):
        found = train_mlp(x, y, replace(plain, readout=readout)).net.state_dict()
        assert expected.keys() == found.keys()
        assert all(torch.equal(expected[name], found[name]) for name in found)
