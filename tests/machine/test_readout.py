"""Readouts. Oracles: autograd, scikit-learn's Ridge."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from fermibose.errors import FermiboseError, InputError
from fermibose.machine import Augmented, FermiBoseNet, Noise, Recipe, SelfSupervised, train
from fermibose.machine.inputs import Held
from fermibose.machine.local_rule import Dense
from fermibose.machine.readouts import (
    EXACT,
    KernelReadout,
    KernelRidge,
    solve_prototypes,
    solve_ridge,
)
from fermibose.machine.training import CrossEntropyReadout


def representations(seed, n, units, classes):
    generator = torch.Generator().manual_seed(seed)
    h = torch.rand(n, units, generator=generator)
    return h, torch.randint(classes, (n,), generator=generator)


def test_cross_entropy_gradient_is_that_of_autograd():
    h, y = representations(0, 20, 6, 4)
    net, generator = FermiBoseNet(6, (), 4), torch.Generator().manual_seed(1)
    net.initialise(generator)
    readout = net.readout
    weight = readout.weight.detach().clone().requires_grad_()
    torch.nn.functional.cross_entropy(h @ weight, y).backward()
    CrossEntropyReadout(net, Held(h), y, Recipe(), generator).step(torch.arange(20))
    torch.testing.assert_close(readout.weight.grad, weight.grad, rtol=1e-5, atol=1e-7)


def test_cross_entropy_readout_learns_to_the_optimum_scipy_finds():
    from sklearn.linear_model import LogisticRegression

    h, y = representations(2, 60, 5, 3)
    recipe, generator = Recipe(readout_learning_rate=0.01), torch.Generator()
    stage = CrossEntropyReadout(FermiBoseNet(5, (), 3), Held(h), y, recipe, generator)
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


def kernel_readout(h, y, spec, seed=0, classes=3):
    components, centres = spec.sizes(len(h), augmented=False)
    readout = KernelReadout(h.shape[1], classes, min(components, h.shape[1]), centres).double()
    readout.solve(h.double(), y, spec, torch.Generator().manual_seed(seed))
    return readout


@pytest.mark.parametrize(("n", "units"), [(40, 6), (15, 25)])
def test_kernel_ridge_is_that_of_scikit_learn_on_principal_components(n, units):
    from sklearn.decomposition import PCA
    from sklearn.kernel_ridge import KernelRidge as Reference

    h, y = representations(7, n, units, 3)
    spec = KernelRidge(width=1.5, penalty=0.2, components=4)
    readout = kernel_readout(h, y, spec)
    u = PCA(4, svd_solver="full").fit_transform(h.double().numpy())
    spread = np.mean([((a - b) ** 2).sum() for a in u for b in u])
    reference = Reference(alpha=0.2, kernel="rbf", gamma=1.5 / spread)
    reference.fit(u, 2.0 * np.eye(3)[y.numpy()] - 1)
    np.testing.assert_allclose(readout(h.double()).numpy(), reference.predict(u), atol=1e-9)


def test_nystrom_minimises_over_all_keys_with_a_few_centres():
    """Against least squares: |K_nm a − t|² + λ|Lᵀa|² with K_mm = LLᵀ."""
    h, y = representations(8, 50, 5, 3)
    readout = kernel_readout(h, y, KernelRidge(components=5, centres=8, penalty=0.3))
    u = readout.project(h.double()).numpy()
    centres = readout.centres.numpy()
    assert len(np.unique(centres, axis=0)) == 8
    assert all((np.abs(u - c).sum(1) < 1e-12).any() for c in centres)

    def kernel(a, b):
        return np.exp(-float(readout.gamma) * ((a[:, None] - b) ** 2).sum(2))

    factor = np.linalg.cholesky(kernel(centres, centres))
    targets = 2.0 * np.eye(3)[y.numpy()] - 1
    rows = np.vstack([kernel(u, centres), np.sqrt(0.3) * factor.T])
    best = np.linalg.lstsq(rows, np.vstack([targets, np.zeros((8, 3))]), rcond=None)[0]
    np.testing.assert_allclose(readout.coefficients.numpy(), best, atol=1e-7)


def test_the_kernel_readout_is_differentiable_for_attacks():
    h, y = representations(9, 30, 5, 3)
    readout = kernel_readout(h, y, KernelRidge(components=4))
    points = torch.rand(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(readout, points)


def test_the_nearest_prototype_is_that_of_scikit_learn():
    from sklearn.neighbors import NearestCentroid

    h, y = representations(10, 60, 5, 3)
    readout = Dense(5, 4, bias=True)  # the fourth class does not occur
    solve_prototypes(readout, h, y)
    new = torch.rand(200, 5, generator=torch.Generator().manual_seed(0))
    expected = NearestCentroid().fit(h.numpy(), y.numpy()).predict(new.numpy())
    assert np.array_equal(readout(new).argmax(1).numpy(), expected)
    own = torch.stack([h[y == k].mean(0) for k in range(3)])
    d2 = (new[:, None] - own).square().mean(2)
    logits = readout(new)[:, :3]
    torch.testing.assert_close(logits[:, :1] - logits, d2 - d2[:, :1], atol=1e-5, rtol=0)


def test_many_keys_that_float32_rounds_below_0_are_still_regressed():
    """A smooth kernel has few large eigenvalues; of the others float32 leaves only rounding."""
    g = torch.Generator().manual_seed(0)
    h = torch.rand(30_000, 2, generator=g)
    y = (h[:, 0] > h[:, 1]).long()
    spec = KernelRidge(components=2, centres=1500, penalty=1e-3)
    readout = KernelReadout(2, 2, 2, 1500)
    readout.solve(h, y, spec, g)
    assert float((readout(h).argmax(1) == y).double().mean()) > 0.98


def test_a_kernel_of_no_numbers_is_an_error_for_people():
    readout = KernelReadout(2, 2, 2, 20)
    h = torch.rand(40, 2)
    readout.mean.copy_(h.mean(0))
    with pytest.raises(FermiboseError, match="cannot be inverted"):
        readout.regress(h * torch.nan, torch.arange(40) % 2, KernelRidge(), torch.Generator())


@pytest.mark.parametrize(
    "wrong", [{"width": 0}, {"penalty": -1}, {"components": 0}, {"centres": 0}]
)
def test_a_kernel_that_cannot_be_is_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        KernelRidge(**wrong)


def test_as_many_components_as_keys_and_keys_that_are_all_the_same():
    h, y = representations(11, 8, 20, 3)
    every = kernel_readout(h, y, KernelRidge(components=8, penalty=1e-9))
    assert torch.equal(every(h.double()).argmax(1), y)  # nothing is lost: it interpolates
    one = kernel_readout(h[:1].repeat(8, 1), y, KernelRidge(components=3))
    logits = one(h[:2].double())
    counts = torch.bincount(y, minlength=3)
    assert torch.isfinite(logits).all()
    assert int(logits[0].argmax()) == int(counts.argmax())


def test_many_keys_are_read_out_by_some_of_them():
    """A kernel matrix of all keys would not fit; the sum then runs over some, learnt from all."""
    assert KernelRidge(copies=3).sizes(1000, augmented=True) == (400, 4000)
    assert KernelRidge(copies=3).sizes(1000, augmented=False) == (400, 1000)
    assert KernelRidge(copies=3).sizes(60_000, augmented=True) == (400, EXACT)
    assert KernelRidge(centres=9000).sizes(60_000, augmented=False) == (400, 9000)


@pytest.mark.parametrize("pairing", [Augmented, SelfSupervised])
def test_copies_of_labelled_inputs_are_keys_whichever_pairs_the_layers_learnt(pairing):
    x, y = torch.rand(12, 6), torch.arange(12) % 3
    readout = KernelRidge(copies=2, components=5)
    recipe = Recipe((8,), pairing=pairing((Noise(0.1),)), epochs=0, readout=readout, seed=2)
    net = train(x, y, recipe, show=False).net
    assert net.readout.centres.shape == (36, 5)
    own = net.readout.project(net.represent(x))
    torch.testing.assert_close(net.readout.centres[:12], own)
    apart = (net.readout.centres[12:24] - own).norm(dim=1)
    assert (apart > 1e-3).all()
    assert apart.mean() < (own[:, None] - own).norm(dim=2).mean()
