"""Oracles: curves whose marked points are known by construction; the points the paper marks."""

import numpy as np
import pytest

from fermibose_paper import published
from fermibose_paper.fig4 import marked_points

D_F = np.arange(241) / 200


def two_peaks(d_f, valley):
    """Straight lines: up to 86 at 0.2, down to ``valley`` at 0.35, 87 at 0.45, 80 from 0.8 on."""
    return np.interp(d_f, [0, 0.2, 0.35, 0.45, 0.8, 1.2], [66, 86, valley, 87, 80, 80])


def test_points_of_straight_lines():
    marks = marked_points(D_F, two_peaks(D_F, 83.0), 84.0, noise=0.1)
    # The accuracy crosses 84 on lines of known slope; within 0.3 of 80 it is at 0.785.
    known = {"S1": 0.18, "P1": 0.2, "V": 0.35, "P2": 0.45, "S2": 0.6, "B1": 0.785}
    assert marks.positions() == pytest.approx(known, abs=0.01)
    # Smoothing rounds the corners of valley and first peak by about slope·bandwidth.
    assert marks.dip == pytest.approx(3.0, abs=0.9)


def test_second_peak_may_be_the_lower_one():
    curve = np.interp(D_F, [0, 0.2, 0.35, 0.45, 0.8, 1.2], [66, 88, 83, 86, 80, 80])
    marks = marked_points(D_F, curve, 84.0, noise=0.1)
    peaks = {name: marks.positions()[name] for name in ("P1", "V", "P2")}
    assert peaks == pytest.approx({"P1": 0.2, "V": 0.35, "P2": 0.45}, abs=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_noise_makes_no_second_peak(seed):
    noise = 0.2
    rng = np.random.default_rng(seed)
    hill = 85 - 20 * (D_F - 0.45) ** 2 + noise * rng.normal(size=D_F.shape)
    marks = marked_points(D_F, hill, 83.0, noise=noise)
    places = marks.positions()
    assert not {"P1", "V"} & set(places)
    assert places["P2"] == pytest.approx(0.45, abs=0.1)


def test_a_dip_below_the_noise_is_none_and_above_it_is_one():
    shallow = two_peaks(D_F[::5], 85.5)
    assert marked_points(D_F[::5], shallow, 84.0, noise=0.5).V is None
    assert marked_points(D_F[::5], shallow, 84.0, noise=0.05).V is not None


@pytest.mark.parametrize(
    "heights",
    [
        [31, 26.6, 40, 55, 50, 48, 46, 45],  # falls from its first point, then one maximum
        [26, 30, 55, 50, 46, 45, 47, 50],  # rises again to its last
        [60, 26, 40, 55, 50, 48, 46, 45],  # highest at its first
        [45, 46, 48, 50, 55, 40, 26, 60],  # and at its last
    ],
)
def test_the_end_of_a_curve_is_no_peak(heights):
    d_f = np.array([0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.2])
    marks = marked_points(d_f, np.array(heights, dtype=float), 79.0, noise=0.3)
    assert (marks.P1, marks.V) == (None, None)
    assert marks.dip == 0


def test_a_curve_that_stays_below_the_mlp_has_no_crossing():
    marks = marked_points(D_F, two_peaks(D_F, 83.0), 99.0, noise=0.1)
    assert (marks.S1, marks.S2) == (None, None)


def test_finds_what_the_paper_marks():
    table = published.against_d_f()
    marks = marked_points(
        table["d_F"], table["test_accuracy_percent"], published.MLP_ACCURACY, noise=0.18
    )
    # d_F of the published noise curves, which are those of the marked points, and 0.455 of Fig. 3.
    paper = {"S1": 0.09, "P1": 0.2, "V": 0.375, "P2": 0.465, "B1": 0.8}
    above = table["d_F"][table["test_accuracy_percent"] >= published.MLP_ACCURACY]
    assert marks.positions() == pytest.approx(paper | {"S2": above.max()}, abs=0.03)
