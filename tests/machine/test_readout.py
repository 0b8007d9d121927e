"""Readouts. Oracles: autograd, scikit-learn's Ridge."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from fermibose.machine import Recipe
from fermibose.machine.local_rule import Dense
from fermibose.machine.training import CrossEntropyReadout, solve_ridge


def representations(seed, n, units, classes):
    generator = torch.Generator().manual_seed(seed)
    h = torch.rand(n, units, generator=generator)
    return h, torch.randint(classes, (n,), generator=generator)


def test_cross_entropy_gradient_is_that_of_autograd():
    h, y = representations(0, 20, 6, 4)
    readout = Dense(6, 4)
    readout.initialise(torch.Generator().manual_seed(1))
    weight = readout.weight.detach().clone().requires_grad_()
    torch.nn.functional.cross_entropy(h @ weight, y).backward()
    CrossEntropyReadout(readout, h, y, Recipe()).step(torch.arange(20))
    torch.testing.assert_close(readout.weight.grad, weight.grad, rtol=1e-5, atol=1e-7)


def test_cross_entropy_readout_learns_to_the_optimum_scipy_finds():
    from sklearn.linear_model import LogisticRegression

    h, y = representations(2, 60, 5, 3)
    readout = Dense(5, 3)
    stage = CrossEntropyReadout(readout, h, y, Recipe(readout_learning_rate=0.01))
    for _ in range(6000):
        stage.step(torch.arange(60))
    best = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-8, max_iter=10_000)
    best.fit(h.numpy(), y.numpy())
    logits = torch.tensor(best.decision_function(h.numpy()))
    optimum = torch.nn.functional.cross_entropy(logits, y).item()
    assert stage.end_epoch()["loss"] == pytest.approx(optimum, abs=1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("n", "units"), [(40, 6), (10, 25)])
def test_ridge_is_that_of_scikit_learn(n, units, bias):
    h, y = representations(3, n, units, 3)
    readout = Dense(units, 3, bias=bias)
    solve_ridge(readout, h, y, ridge=0.02)
    targets = 2.0 * np.eye(3)[y.numpy()] - 1
    oracle = Ridge(alpha=0.02 * n, fit_intercept=bias, solver="svd").fit(
        h.double().numpy(), targets
    )
    np.testing.assert_allclose(readout.weight.numpy(), oracle.coef_.T, rtol=1e-5, atol=1e-6)
    if bias:
        np.testing.assert_allclose(readout.bias.numpy(), oracle.intercept_, rtol=1e-5, atol=1e-6)
