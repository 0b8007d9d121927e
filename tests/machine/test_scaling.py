"""Inputs brought to scale. Oracles: scikit-learn's scalers, and pictures and tables as they are."""

import numpy as np
import pytest
import torch
from sklearn import datasets
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler

from fermibose.data import load_digits, load_mnist5k
from fermibose.machine import FermiBoseNet, rescaling

DIGITS = load_digits()[0].astype(np.float64)
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(40, 5)) * [1e-9, 1, 3, 1e5, 1e160] + [0, -4, 1e3, 0, 1e160]


@pytest.mark.parametrize(
    ("kind", "oracle"), [("standard", StandardScaler()), ("per_feature", MinMaxScaler())]
)
def test_features_are_scaled_as_by_scikit_learn(kind, oracle):
    mild = TABLE[:, :4]
    np.testing.assert_allclose(
        rescaling(mild, kind)(mild), oracle.fit_transform(mild), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("kind", ["standard", "per_feature", "global"])
def test_no_value_is_too_large_or_too_small_and_constants_become_zero(kind):
    x = np.column_stack([TABLE, 1e-200 * TABLE[:, 1], np.full((40, 4), [0.1, 1e9, 0, 1e-320])])
    x[::2, 6] = np.nextafter(0.1, 1)  # a constant, but for rounding
    scaled = rescaling(x, kind)(x)
    assert np.isfinite(scaled).all()
    if kind == "standard":
        np.testing.assert_allclose(scaled[:, :6].std(0), 1, rtol=1e-9)
    if kind == "per_feature":
        np.testing.assert_allclose(np.ptp(scaled[:, :6], axis=0), 1, rtol=1e-9)
    if kind == "global":
        assert np.abs(scaled).max() == pytest.approx(1, rel=1e-12)
    else:
        assert np.abs(scaled[:, 6:]).max() < 1e-15


def words(rng):
    """Rows of few words out of many, of length 1."""
    return Normalizer().fit_transform(rng.poisson(0.05, (100, 400)) + 1e-9 * np.eye(100, 400))


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        (DIGITS, "none"),
        (load_mnist5k()[0][:1000], "none"),
        (0.95 * DIGITS, "none"),
        (1.0001 * DIGITS, "global"),
        (16 * DIGITS, "global"),
        (DIGITS / 10, "global"),
        (Normalizer().fit_transform(DIGITS), "global"),
        (DIGITS - 0.5, "standard"),
        (DIGITS[:, :40], "standard"),  # too few to be pixels
        (np.clip(DIGITS, 0.01, 1), "standard"),  # nothing is dark
        (np.where(np.arange(len(DIGITS))[:, None] == 0, 30 * DIGITS, DIGITS), "standard"),  # faint
        (words(RNG), "standard"),
        (MinMaxScaler().fit_transform(datasets.load_breast_cancer().data), "standard"),
        (RNG.random((100, 100)), "standard"),
        (RNG.integers(0, 2, (100, 2)).astype(float), "standard"),
        (np.zeros((10, 100)), "standard"),
    ],
)
def test_what_is_taken_for_pictures(x, kind):
    x = np.asarray(x, dtype=np.float64)
    assert rescaling(x, "auto").kind == kind
    bounded = rescaling(x, "auto", bounded=True)
    assert bounded.kind == ("per_feature" if kind == "standard" else kind)
    assert bounded(x).min() >= 0
    assert bounded(x).max() <= 1 + 1e-12


def test_a_standardised_table_meets_thresholds_as_wide_as_its_pre_activations():
    net = FermiBoseNet(30, (4000,), 3, bias=True, readout_bias=True)
    net.initialise(torch.Generator().manual_seed(0))
    x = datasets.load_breast_cancer().data
    z = torch.tensor(rescaling(x, "auto")(x)).float() @ net.layers[0].weight
    assert float(z.std()) == pytest.approx(1, abs=0.05)
    assert float(net.layers[0].bias.std()) == pytest.approx(1, abs=0.05)
    assert not net.readout.bias.any()


def test_without_biases_the_first_weights_are_those_drawn_one_after_another():
    net = FermiBoseNet(30, (40,), 3, readout_bias=True)
    net.initialise(torch.Generator().manual_seed(0))
    stream = torch.Generator().manual_seed(0)
    for layer, shape in ((net.layers[0], (30, 40)), (net.readout, (40, 3))):
        drawn = torch.empty(shape).normal_(0, shape[0] ** -0.5, generator=stream)
        assert torch.equal(layer.weight, drawn)
