"""Oracle: relations that the published numbers must obey among themselves."""

import numpy as np
import pytest

from fermibose_paper import published


def test_recorded_distances_have_the_ratio_of_pair_counts_at_every_d_f():
    table = published.against_d_f()
    known = table["recorded_boson_distance"] > 0.004  # four digits are recorded
    ratio = table["recorded_boson_distance"][known] / table["recorded_fermion_distance"][known]
    # 100 images in each of 10 classes: 49 500 boson and 450 000 fermion pairs
    assert ratio == pytest.approx(0.11, rel=0.02)


@pytest.mark.parametrize(
    ("kind", "d_f"), [("noise", 0.2), ("noise", 0.8), ("fgsm", 0.9), ("fgsm", 1.1)]
)
def test_areas_are_those_under_straight_lines(kind, d_f):
    curve = published.curve(kind, d_f)
    lines = (curve["accuracy_percent"][1:] + curve["accuracy_percent"][:-1]) / 2
    area = (lines * np.diff(curve["epsilon"])).sum()
    listed = published.at(d_f, f"{kind}_area", published.areas())
    assert area == pytest.approx(float(listed), rel=1e-3)  # the sum of points is 1.2 to 3 % higher


def test_area_of_the_mlp():
    curve = published.curve("noise", None)
    area = np.sum(curve["accuracy_percent"][1:] + curve["accuracy_percent"][:-1]) * 0.01 / 2
    assert area == pytest.approx(published.MLP_NOISE_AREA, abs=0.005)


def test_grids():
    assert published.against_d_f()["d_F"] == pytest.approx(np.arange(241) / 200)
    assert published.areas()["d_F"] == pytest.approx(np.arange(121) / 100)
    assert published.trajectories()["epoch"].tolist() == list(range(1, 101))
    assert len(published.curve("fgsm", 0.2)["epsilon"]) == 0
