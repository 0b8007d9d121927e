"""Oracle: the arithmetic of tolerances, by hand."""

import json

import pytest

from fermibose_paper.verdict import Verdict, total


@pytest.mark.parametrize(
    ("sense", "measured", "reproduced", "excess"),
    [
        ("near", 10.4, True, -0.1),
        ("near", 9.4, False, 0.1),
        ("near", 10.6, False, 0.1),
        ("at most", 10.4, True, -0.1),
        ("at most", 10.6, False, 0.1),
        ("at most", 3.0, True, -7.5),
        ("at least", 9.6, True, -0.1),
        ("at least", 9.4, False, 0.1),
        ("at least", 30.0, True, -20.5),
    ],
)
def test_tolerance(sense, measured, reproduced, excess):
    given = {"tolerance": 0.5, "expected" if sense == "near" else "bound": 10.0}
    verdict = getattr(Verdict, sense.replace(" ", "_"))("fig4", "a claim", measured, **given)
    assert verdict.sense == sense
    assert verdict.reproduced is reproduced
    assert verdict.excess == pytest.approx(excess)
    assert ("NOT" in verdict.word) is not reproduced


def test_what_the_paper_does_not_claim_holds_or_not():
    for measured, word in ((1.0, "holds"), (2.0, "does NOT hold, by 1")):
        verdict = Verdict.near(
            "fig5", "labelled does better", measured, expected=1.0, unpublished=True
        )
        assert (verdict.word, verdict.reproduced) == (word, measured == 1.0)


def test_the_bound_itself_is_allowed():
    assert Verdict.near("fig4", "peak", 0.23, expected=0.2, tolerance=0.03).reproduced


def test_what_was_not_measured_is_neither():
    for nothing in (None, float("nan")):
        verdict = Verdict.near("fig4", "a claim", nothing, expected=1.0)
        assert verdict.reproduced is None
        assert verdict.word == "not measured"
        assert json.loads(json.dumps(verdict.as_dict(), allow_nan=False))["measured"] is None


def test_text_says_measured_asked_and_by_how_much():
    verdict = Verdict.near(
        "fig5", "area", 5.0, expected=4.0, tolerance=0.5, error=0.25, unit="%", note="why"
    )
    told = (verdict.measured_text(), verdict.expected_text(), verdict.word)
    assert told == ("5 ± 0.25 %", "4 ± 0.5 %", "NOT reproduced, by 0.5")
    bound = Verdict.at_most("fig4", "dip", 0.1, bound=0.0, tolerance=0.6)
    assert bound.expected_text() == "≤ 0.6"


def test_what_is_not_there_is_not_reproduced():
    verdict = Verdict.near(
        "fig4", "position of V", None, expected=0.38, tolerance=0.03, absent=True
    )
    assert verdict.reproduced is False
    assert "no such point" in verdict.word
    assert verdict.as_dict()["reproduced"] is False


@pytest.mark.parametrize(
    ("error", "counted", "reproduced", "word"),
    [
        (0.1, False, False, "NOT reproduced, by 0.5"),
        (0.26, False, None, "inconclusive, outside by 1.9 standard errors"),
        (0.26, True, False, "NOT reproduced, by 0.5"),  # the tolerance has them already
        (None, False, False, "NOT reproduced, by 0.5"),
    ],
)
def test_outside_by_less_than_two_errors_is_inconclusive(error, counted, reproduced, word):
    verdict = Verdict.near(
        "fig5", "area", 5.0, expected=4.0, tolerance=0.5, error=error, counted=counted
    )
    assert (verdict.reproduced, verdict.word) == (reproduced, word)


def test_the_total_counts_every_verdict_once():
    values = (1.0, 1.0, 3.0, 1.6, None)
    found = [
        Verdict.near("fig4", "a", value, expected=1.0, tolerance=0.5, error=0.1) for value in values
    ]
    assert total(found) == (2, 1, 1, 1)
    assert str(total(found)).startswith("5 claims: 2 hold, 1 do not, 1 are inconclusive")
