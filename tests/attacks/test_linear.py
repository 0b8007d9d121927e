"""Linear models, where the worst case is known. Oracles: closed forms, bisection, SciPy's SLSQP."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fermibose.attacks import ThreatModel, accuracy_curve, fgsm, one_step_l2, pgd
from fermibose.threat import ball_around

ORDER = {"linf": np.inf, "l2": 2}


def best_gain(w, x, epsilon, norm, bounds=(0.0, 1.0)):
    """max of w·δ over ball and bounds: closed form for ℓ∞, bisection on clip(s·w) for ℓ2."""
    low, high = bounds[0] - x, bounds[1] - x
    if norm == "linf":
        change = np.clip(epsilon * np.sign(w), low, high)
        return (w * change).sum(-1)
    corner = np.where(w > 0, high, np.where(w < 0, low, 0))
    unit = w / np.maximum(np.abs(w).max(-1, keepdims=True), 1e-300)
    below, above = np.full((len(x), 1), -99.0), np.full((len(x), 1), 99.0)  # logarithms of s
    for _ in range(100):
        middle = (below + above) / 2
        fits = np.linalg.norm(np.clip(np.exp(middle) * unit, low, high), axis=-1) <= epsilon
        below = np.where(fits[:, None], middle, below)
        above = np.where(fits[:, None], above, middle)
    change = np.clip(np.exp(below) * unit, low, high)
    whole = np.linalg.norm(corner, axis=-1, keepdims=True) <= epsilon
    return (w * np.where(whole, corner, change)).sum(-1)


def withstands(weight, bias, x, y, epsilon, norm, bounds=(0.0, 1.0)):
    """Who is right and stays right whatever the attacker does."""
    logits = x @ weight.T + bias
    robust = logits.argmax(1) == y
    for k in range(len(weight)):
        gain = best_gain(weight[k] - weight[y], x, epsilon, norm, bounds)
        lost = logits[:, k] - logits[np.arange(len(y)), y] + gain >= 0
        robust &= (y == k) | ~lost
    return robust


def problem(classes, seed=0, images=150, inputs=30):
    """Images with many inputs at their bounds, as digits have, and a linear model."""
    rng = np.random.default_rng(seed)
    x = np.clip(rng.normal(0.2, 0.6, (images, inputs)), 0, 1)
    weight, bias = rng.normal(size=(classes, inputs)), rng.normal(size=classes)
    return weight, bias, x, (x @ weight.T + bias).argmax(1)


STRENGTHS = {"linf": (0.0, 1e-6, 0.003, 0.02, 0.05, 0.1, 0.3, 2.0),
             "l2": (0.0, 1e-6, 0.02, 0.1, 0.3, 0.6, 1.5, 20.0)}  # fmt: skip


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_pgd_misses_nobody(linear, norm, classes):
    """From ε = 0 to balls that hold the whole box, with bounds that bind."""
    weight, bias, x, y = problem(classes)
    model, partly = linear(weight, bias), 0
    for epsilon in STRENGTHS[norm]:
        expected = withstands(weight, bias, x, y, epsilon, norm)
        found = pgd(model, x, y, ThreatModel(norm, epsilon))
        np.testing.assert_array_equal(found.robust.numpy(), expected)
        assert not found.flags
        partly += 0.1 < expected.mean() < 0.9
    assert partly >= 2
    curve = accuracy_curve(
        model, x, y, ThreatModel(norm), epsilons=STRENGTHS[norm][:5], attack="pgd"
    )
    for robust, epsilon in zip(curve.robust, STRENGTHS[norm], strict=False):
        np.testing.assert_array_equal(robust, withstands(weight, bias, x, y, epsilon, norm))


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_pgd_misses_nobody_in_other_bounds_shapes_and_precisions(linear, norm):
    weight, bias, x, _ = problem(4, seed=1)
    bounds, epsilon = (-3.0, 5.0), {"linf": 0.6, "l2": 2.0}[norm]
    x = 8 * x - 3
    bias = np.zeros(4)
    y = (x @ weight.T).argmax(1)
    expected = withstands(weight, bias, x, y, epsilon, norm, bounds)
    assert 0.1 < expected.mean() < 0.9
    for dtype in (torch.float32, torch.float64):
        found = pgd(
            linear(weight), x.reshape(-1, 2, 3, 5), y,
            ThreatModel(norm, epsilon, bounds), dtype=dtype, steps=5,
        )  # fmt: skip
        np.testing.assert_array_equal(found.robust.numpy(), expected)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_images_at_the_corners_of_the_box(linear, norm):
    rng = np.random.default_rng(2)
    x = rng.integers(0, 2, (100, 12)).astype(float)
    weight, bias = rng.normal(size=(3, 12)), np.zeros(3)
    y = (x @ weight.T).argmax(1)
    for epsilon in (0.1, 0.5, 1.2):
        expected = withstands(weight, bias, x, y, epsilon, norm)
        found = pgd(linear(weight), x, y, ThreatModel(norm, epsilon))
        np.testing.assert_array_equal(found.robust.numpy(), expected)


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_fgsm_is_exact_for_two_classes(linear, scale):
    """Climbing the margin at any size of the logits; the cross-entropy saturates at large ones."""
    weight, bias, x, y = problem(2, seed=3)
    for epsilon in STRENGTHS["linf"]:
        expected = withstands(weight, bias, x, y, epsilon, "linf")
        threat, model = ThreatModel("linf", epsilon), linear(scale * weight, scale * bias)
        found = fgsm(model, x, y, threat, loss="margin")
        np.testing.assert_array_equal(found.robust.numpy(), expected)
        if scale <= 1:
            found = fgsm(model, x, y, threat)
            np.testing.assert_array_equal(found.robust.numpy(), expected)


def test_leaps_alone_settle_who_is_fooled(linear):
    """And climbs alone do not: the margin over the nearest rival has local maxima."""
    weight, bias, x, y = problem(10, seed=4, images=400)
    threat = ThreatModel("l2", 0.35)
    expected = withstands(weight, bias, x, y, 0.35, "l2")
    model = linear(weight, bias)
    alone = pgd(model, x, y, threat, losses="targeted")
    np.testing.assert_array_equal(alone.robust.numpy(), expected)
    climbs = pgd(model, x, y, threat, losses=("cross_entropy", "margin"))
    assert not (torch.tensor(expected) & ~climbs.robust).any()
    assert climbs.robust.sum() > expected.sum()


def test_one_step_takes_no_targets(linear):
    weight, bias, x, y = problem(3)
    for attack, norm in ((fgsm, "linf"), (one_step_l2, "l2")):
        with pytest.raises(ValueError, match="got 'targeted'"):
            attack(linear(weight, bias), x, y, ThreatModel(norm), loss="targeted")


@settings(max_examples=25)
@given(st.integers(0, 2**31), st.floats(0.05, 2.5))
def test_the_furthest_point_of_ball_and_box(seed, epsilon):
    """Against SciPy's solver, and the bisection against it too."""
    rng = np.random.default_rng(seed)
    centre, gradient = np.clip(rng.normal(0.5, 0.6, 5), 0, 1), rng.normal(size=5)
    ball = ball_around(torch.tensor(centre)[None], ThreatModel("l2", epsilon))
    point = ball.furthest(torch.tensor(gradient)[None])[0].numpy()
    assert np.linalg.norm(point - centre) <= epsilon * (1 + 1e-9)
    assert (point >= 0).all()
    assert (point <= 1).all()
    found = minimize(
        lambda z: -gradient @ z, centre, jac=lambda z: -gradient, method="SLSQP",
        bounds=[(0, 1)] * 5, options={"maxiter": 500, "ftol": 1e-14},
        constraints={"type": "ineq", "fun": lambda z: epsilon**2 - ((z - centre) ** 2).sum(),
                     "jac": lambda z: -2 * (z - centre)},
    )  # fmt: skip
    gain = gradient @ (point - centre)
    assert gain >= gradient @ (found.x - centre) - 1e-5
    expected = best_gain(gradient[None], centre[None], epsilon, "l2")[0]
    assert gain == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_directions_and_strengths_of_any_size(norm, dtype):
    """Tiny and huge gradients, entries that are 0, no gradient at all, tiny and huge balls."""
    centre = torch.tensor([[0.0, 0.5, 1.0, 0.3]], dtype=dtype)
    for epsilon in (0.0, 1e-20, 0.2, 1e15):
        ball = ball_around(centre, ThreatModel(norm, epsilon))
        for size in (1e-37, 1.0, 1e30):
            gradient = size * torch.tensor([[-1.0, 0.0, 0.5, 1.0]], dtype=dtype)
            point = ball.furthest(gradient)
            expected = best_gain(gradient.double().numpy(), centre.double().numpy(), epsilon, norm)[
                0
            ]
            gain = float(((point - centre).double() * gradient.double()).sum())
            assert gain == pytest.approx(expected, rel=1e-5, abs=1e-7 * size)
        still = ball.furthest(torch.zeros_like(centre))
        assert ((still >= 0) & (still <= 1)).all()
        assert float((still - centre).norm(ORDER[norm])) <= epsilon * (1 + 1e-6)
