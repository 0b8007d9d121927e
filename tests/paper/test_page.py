"""The page. Oracle: the standard library's HTML parser."""

import pytest
from markupsafe import Markup
from report_outline import Outline

from fermibose.errors import InputError
from fermibose.plotting import figure
from fermibose_paper.page import Badge, Picture, Section, Table, Text, render, typeset


@pytest.fixture
def picture(tmp_path):
    with figure(tmp_path / "a.png") as (_, axes):
        axes.plot([0, 1])
    return Picture(tmp_path / "a.png", 'a line & "more"', "One line.")


def page(*blocks):
    return render("Title", "lead", "facts", [Section("First part", blocks)])


def test_every_block_is_in_the_page(picture):
    table = Table(("what", "value"), [("a < b", "1.5 ± 0.1"), ("c", "—")], "Numbers")
    found = Outline(page(Text("x < y"), Text(Markup("<em>so</em>")), picture, table))
    for text in ("x < y", "a < b", "Numbers"):
        assert text in found.text
    assert found.all("em")
    assert found.all("img")[0]["alt"] == 'a line & "more"'
    assert found.all("img")[0]["src"].startswith("data:image/png;base64,")


def test_contents_lead_to_the_sections():
    found = Outline(render("T", "l", "f", [Section("The errata", ()), Section("Fig. 4: d_F", ())]))
    links = [a["href"] for a in found.all("a")]
    assert links == ["#the-errata", "#fig-4-d-f"]
    assert [s["id"] for s in found.all("section")] == [link[1:] for link in links]


def test_nothing_is_fetched_from_elsewhere(picture):
    found = Outline(page(picture))
    for _, attributes in found.elements:
        for name in ("src", "href"):
            assert attributes.get(name, "#").startswith(("#", "data:"))


def test_columns_of_numbers_and_only_they_are_aligned_as_numbers():
    rows = [("1.5 ± 0.1", "text", "−3", Badge("yes", True)), ("2 %", "4", "", Badge("no", False))]
    assert Table(("a", "b", "c", "d"), rows).numeric == {0, 2}
    rows = [("≤ 0.5 points", "8 of 10"), ("≥ -1e-06", "3"), ("0.2 ± 0.03 in d_F", "∞"), ("∞", "—")]
    assert Table(("a", "b"), rows).numeric == {0}


def test_rows_that_are_stacked_name_their_cells_after_the_title():
    rows = [(Badge("yes", True), "claim", "1", "note")]
    table = Table(("verdict", "what", "number", "remark"), rows, stack=True)
    found = Outline(page(table))
    assert [cell.get("data-head") for cell in found.all("td")] == [None, None, "number", "remark"]
    assert [cell.get("class") for cell in found.all("td")] == [None, "title", "number", None]
    plain = Outline(page(Table(("what", "number"), [("a", "1")])))
    assert [cell.get("data-head") for cell in plain.all("td")] == [None, None]
    assert "stack" not in {table.get("class") for table in plain.all("table")}


def test_badges_say_how_it_went():
    rows = [(Badge("reproduced", True),), (Badge("not reproduced", False),), (Badge("open", None),)]
    found = Outline(page(Table(("verdict",), rows)))
    styles = [span["class"] for span in found.all("span")]
    assert styles == ["badge yes", "badge no", "badge open"]


def test_a_picture_needs_words_and_a_known_kind(tmp_path):
    with pytest.raises(InputError, match="cannot see"):
        Picture(tmp_path / "a.png", " ")
    with pytest.raises(InputError, match=r"\.png"):
        Picture(tmp_path / "a.gif", "words")


def test_symbols_are_set_as_they_are_written_by_hand():
    assert typeset("d_F < 1, e^{−βL}") == "d<sub>F</sub> &lt; 1, e<sup>−βL</sup>"
    assert typeset("half_tanh of pair_force, S1") == "half_tanh of pair_force, S1"
    assert typeset(Markup("<b>d_F</b>")) == "<b>d<sub>F</sub></b>"
