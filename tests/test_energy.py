"""Pair energy. Oracles: the printed formula in plain Python and in mpmath, finite differences,
autograd."""

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fermibose import PairEnergy
from fermibose.errors import InputError

unit = st.floats(0.0, 2.0)
softness = st.sampled_from([0.0, 0.01, 0.3])


def printed_energy(d2, same, d_f, a, b, f):
    """σ b D² + (1−σ) f φ(d_F − D²), one pair at a time, as a human would write it."""
    if same:
        return b * d2
    x = d_f - d2
    return f * (max(x, 0.0) if a == 0 else (x + math.sqrt(x * x + a)) / 2)


@given(unit, st.booleans(), unit, softness, st.floats(0.1, 3), st.floats(0.1, 3))
def test_energy_is_the_printed_formula(d2, same, d_f, a, b, f):
    pair = PairEnergy(d_f, a, boson_weight=b, fermion_weight=f)
    assert pair.energy(d2, same) == pytest.approx(printed_energy(d2, same, d_f, a, b, f), abs=1e-14)


@given(unit, st.booleans(), unit, st.sampled_from([0.01, 0.3]))
def test_force_and_curvature_are_derivatives_of_the_energy(d2, same, d_f, a):
    pair, step = PairEnergy(d_f, a, boson_weight=0.7, fermion_weight=1.3), 1e-4
    up, here, down = (pair.energy(d2 + s, same) for s in (step, 0.0, -step))
    assert pair.force(d2, same) == pytest.approx((up - down) / (2 * step), abs=1e-5)
    assert pair.curvature(d2, same) == pytest.approx((up - 2 * here + down) / step**2, abs=1e-3)


@pytest.mark.parametrize("a", [0.0, 0.01])
@pytest.mark.parametrize("coupling", ["labelled", "averaged"])
def test_numpy_torch_and_autograd_agree(a, coupling):
    rng = np.random.default_rng(0)
    d2, same = rng.random(40), rng.random(40) < 0.3
    pair = PairEnergy(0.5, a, 0.7, 1.3, coupling)
    t = torch.tensor(d2, requires_grad=True)
    energy = pair.energy(t, torch.tensor(same))
    np.testing.assert_allclose(energy.detach().numpy(), pair.energy(d2, same), rtol=1e-14)
    (force,) = torch.autograd.grad(energy.sum(), t, create_graph=True)
    np.testing.assert_allclose(pair.force(d2, same), force.detach().numpy(), rtol=1e-13)
    if a:  # the hard hinge has no second derivative to differentiate
        (curvature,) = torch.autograd.grad(force.sum(), t)
        np.testing.assert_allclose(pair.curvature(d2, same), curvature.numpy(), rtol=1e-12)
    else:
        assert not pair.curvature(d2, same).any()


def test_averaged_coupling_is_the_outer_product_of_distances_and_labels():
    """The published code sums a [P, P] array: distance of pair i times label of pair j."""
    rng = np.random.default_rng(1)
    d2, same = rng.random(30), rng.random(30) < 0.2
    outer = d2[:, None] * same + np.maximum(0.6 - d2, 0)[:, None] * ~same
    total = PairEnergy(0.6, coupling="averaged").energy(d2, same).sum()
    assert total == pytest.approx(outer.sum(), rel=1e-13)


@pytest.mark.parametrize("a", [0.0, 0.01])
@pytest.mark.parametrize("convert", [np.float32, torch.float32, torch.float64])
def test_precision_of_the_input_is_kept(a, convert):
    torch_type = isinstance(convert, torch.dtype)
    d2 = torch.rand(5, dtype=convert) if torch_type else np.full(5, 0.3, convert)
    same = d2 > 0.5
    pair = PairEnergy(0.5, a, boson_weight=0.7)
    for value in (pair.energy(d2, same), pair.force(d2, same), pair.curvature(d2, same)):
        assert value.dtype == convert


@pytest.mark.parametrize("convert", [np.float32, np.float64, torch.float32, torch.float64])
@pytest.mark.parametrize("a", [1e-12, 1e-4, 0.01, 0.3, 10.0])
def test_the_smooth_hinge_keeps_its_digits_at_any_distance(a, convert):
    """Value, force and curvature of fermion pairs against 60 digits, at x = d_F − D² as rounded."""
    single = "float32" in str(convert)
    sizes = np.concatenate([10.0 ** np.arange(-6, 9), np.linspace(0.5, 1.5, 11)])
    d2 = np.concatenate([[0.0, 0.4], sizes]).astype(np.float32 if single else np.float64)
    given = torch.tensor(d2) if isinstance(convert, torch.dtype) else d2
    pair = PairEnergy(0.4, a, fermion_weight=1.0)
    x = d2.dtype.type(0.4) - d2  # as the energy sees it: how it rounds is not the hinge's matter
    found = [np.asarray(f(given, False)) for f in (pair.energy, pair.force, pair.curvature)]
    softness = mpmath.mpf(float(d2.dtype.type(a)))
    with mpmath.workdps(60):
        for k, value in enumerate(map(float, x)):
            root = mpmath.sqrt(mpmath.mpf(value) ** 2 + softness)
            hinge = (mpmath.mpf(value) + root) / 2
            true = (hinge, -hinge / root, softness / (2 * root**3))
            for number, want in zip(found, true, strict=True):
                assert number.dtype == d2.dtype
                error = abs(mpmath.mpf(float(number[k])) / want - 1)
                assert error < 8 * float(np.finfo(d2.dtype).eps)


@pytest.mark.parametrize("d2", [0.4, 0.0, 3.0])
def test_every_derivative_of_the_smooth_hinge_by_autograd(d2):
    """Also at x = d_F − D² = 0, where two branches of the formula meet; mpmath differentiates."""
    t = torch.tensor(d2, dtype=torch.float64, requires_grad=True)
    value, a = PairEnergy(0.4, 0.09).energy(t, False), mpmath.mpf("0.09")
    for order in range(4):
        x = mpmath.mpf(0.4) - mpmath.mpf(d2)
        want = mpmath.diff(lambda x: (x + mpmath.sqrt(x * x + a)) / 2, x, order) * (-1) ** order
        assert value.item() == pytest.approx(float(want), rel=1e-8)
        if order < 3:
            (value,) = torch.autograd.grad(value, t, create_graph=True)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.uint8])
@pytest.mark.parametrize("a", [0.0, 1.0])
def test_scalars_of_numpy_are_plain_numbers(kind, a):
    """An np.float64 would widen every float32 array it meets."""
    pair = PairEnergy(kind(1), kind(a), kind(2), kind(3))
    assert pair == PairEnergy(1.0, a, 2.0, 3.0)
    assert all(type(getattr(pair, name)) is float for name in ("d_f", "softness", "boson_weight"))
    d2 = np.linspace(0, 2, 5, dtype=np.float32)
    assert pair.energy(d2, d2 > 1).dtype == pair.curvature(d2, d2 > 1).dtype == np.float32


def test_smooth_hinge_tends_to_the_hard_one():
    d2 = np.linspace(0, 1, 11)
    hard, soft = PairEnergy(0.55), PairEnergy(0.55, softness=1e-14)
    np.testing.assert_allclose(soft.energy(d2, False), hard.energy(d2, False), atol=1e-7)
    np.testing.assert_allclose(soft.force(d2, False), hard.force(d2, False), atol=1e-9)


@pytest.mark.parametrize(
    ("bad", "names"),
    [
        ({"d_f": -0.1}, "d_f"),
        ({"d_f": math.nan}, "d_f"),
        ({"softness": -1.0}, "softness"),
        ({"boson_weight": math.inf}, "boson_weight"),
        ({"boson_weight": 0, "fermion_weight": 0}, "nothing to learn"),
        ({"coupling": "avaraged"}, "'labelled' or 'averaged'"),
    ],
)
def test_impossible_parameters_are_named(bad, names):
    with pytest.raises(InputError, match=names):
        PairEnergy(**bad)
