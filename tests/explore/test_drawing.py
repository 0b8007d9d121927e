"""Charts. Oracles: arithmetic of the axes, an XML parser, PNG read back by matplotlib."""

import base64
import io
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.image import imread

from fermibose.explore import drawing
from fermibose.explore.drawing import Axes, Line, Mark, bars, chart, heat, letters, ticks


def test_axes_map_linearly():
    axes = Axes((0, 10), (-1, 1), labels=("", ""))
    left, right, middle = (float(axes.x(v)) for v in (0, 10, 5))
    assert middle == pytest.approx((left + right) / 2)
    low, high = float(axes.y(-1)), float(axes.y(1))
    assert low > high  # pixels count from above
    assert float(axes.y(0)) == pytest.approx((low + high) / 2)


def test_ticks_are_round_and_few():
    assert ticks(0, 1.5) == pytest.approx([0, 0.5, 1.0, 1.5])
    assert ticks(-3, 3) == pytest.approx([-2, 0, 2])
    for low, high in ((0, 1e-6), (-1e5, 3e7), (0.999, 1.001)):
        found = ticks(low, high)
        assert 2 <= len(found) <= 6
        assert low <= found[0] + 1e-9 * high
        assert found[-1] <= high * (1 + 1e-9)


def test_charts_are_sound_xml_with_a_name_for_readers():
    line = Line("a<b", [0, 1, 2], [1, np.nan, 3])
    made = [
        chart("t & u", [line], labels=("x", "y"), marks=[Mark(1, 2, "<m>")]),
        heat("h", np.ones((3, 3)), (-1, 1), labels=("x", "y"), rings=[(0, 0, 0.5, "<r>")]),
        letters("l", np.zeros((1, 2)), ["<0>"], path=np.ones((2, 2))),
        bars("b", ["<c>"], [0.0], chosen=0),
    ]
    for one in made:
        root = ET.fromstring(one)
        assert root.get("role") == "img"
        assert root.get("aria-label")


def test_classes_have_colours_of_their_own_unless_one_is_meant():
    names = [str(k % 10) for k in range(20)]
    points = np.random.default_rng(0).normal(size=(20, 2))
    every = re.findall(r'fill="(#\w+)" fill-opacity="0.9">(\d)<', letters("l", points, names))
    assert len(every) == 20
    assert len({colour for colour, _ in every}) == len(set(every)) == 10
    one = re.findall(
        r'fill="(\w+)" fill-opacity="0.35">(\d)<', letters("l", points, names, own="3")
    )
    assert len(one) == 18


def test_what_is_not_finite_is_a_gap():
    made = chart("t", [Line("", [0, 1, 2, 3], [0, 1, np.nan, 1])], labels=("", ""))
    (path,) = re.findall(r'<path d="([^"]*)" fill="none" stroke="currentColor" stroke-w', made)
    assert re.sub("[0-9. ]", "", path) == "MLM"  # the pen is lifted


def test_pictures_keep_their_values():
    values = np.array([[0.0, 0.5], [1.0, 0.25]])
    address = drawing.picture(values, "x").split('src="')[1].split('"')[0]
    back = imread(io.BytesIO(base64.b64decode(address.split(",")[1])))
    np.testing.assert_allclose(back[..., 0], values, atol=1 / 255)


def test_maps_have_the_second_axis_upwards():
    values = np.array([[0.0, 0.0], [1.0, 1.0]])  # bright at large y
    address = heat("h", values, (-1, 1), labels=("", "")).split('href="')[1].split('"')[0]
    back = imread(io.BytesIO(base64.b64decode(address.split(",")[1])))
    assert back[0].mean() > back[1].mean()
