"""The audit as a page. Oracle: the record that it shows, as ``audit`` makes it."""

import re

import pytest

from fermibose.attacks import ThreatModel, audit
from fermibose.errors import FileFormatError, InputError
from fermibose.explore import audit_page
from fermibose.explore.machine_page import contest
from fermibose.files import write_json


@pytest.fixture(scope="module")
def record(settings):
    between = contest(settings)
    x, y = between.images[::10], between.labels[::10]
    found = audit(
        between.nets["machine"], x, y, ThreatModel("linf", 0.1),
        probe=10, square_queries=5, show=False,
    )  # fmt: skip
    return found.as_dict()


def test_what_fbm_audit_wrote_is_shown(record, tmp_path):
    write_json(tmp_path / "audit.json", {"model": "m<b>", "certified_accuracy": 0.25} | record)
    html = audit_page.page(audit_page.stored(str(tmp_path)))
    assert "m&lt;b&gt;" in html
    assert "25.0 %, which is proved" in html
    for check in record["checks"]:
        word = {True: "✓ passed", False: "✗ FAILED", None: "? inconclusive"}[check["passed"]]
        assert html.count(word) == sum(c["passed"] == check["passed"] for c in record["checks"])
    assert f"{100 * record['robust_accuracy']:.1f} % stay right" in html
    assert html.count("<tr>") == 1 + len(record["checks"])


def test_numbers_that_are_none_cost_the_curve_only(record):
    assert "Accuracy under PGD" in audit_page.page(record)
    for numbers in (3, {"epsilons": "ab", "accuracy": "cd"}, {"epsilons": [1], "accuracy": []}):
        bad = record | {"checks": [c | {"numbers": numbers} for c in record["checks"]]}
        html = audit_page.page(audit_page.check(bad, "here"))
        assert "Accuracy under PGD" not in html
        assert record["checks"][0]["name"] in html


def test_verdict_and_plot_tell_one_number(record):
    html = audit_page.page(record)
    assert f"every attack: {100 * record['robust_accuracy']:.1f} %" in html
    assert ">ε (ℓ∞)<" in html
    (numbers,) = (c["numbers"] for c in record["checks"] if c["name"] == "monotone in ε")
    way = re.search(r'<path d="M([^"]*)" fill="none" stroke="#0072B2"', html)[1]
    heights = [float(p.split()[1]) for p in way.split("L")]
    top, bottom = (float(v) for v in re.search(r'd="M\d+ (\d+)V(\d+)H', html).groups())
    drawn = [105 * (bottom - h) / (bottom - top) for h in heights]
    wanted = [100 * record["clean_accuracy"] * a for a in numbers["accuracy"]]
    assert drawn == pytest.approx(wanted, abs=0.1)


def test_without_an_audit_the_page_says_what_one_is():
    html = audit_page.invitation("<here>")
    assert "There is no audit in &lt;here&gt; yet." in html
    assert "`" not in html


def test_one_failed_check_changes_the_colour(record):
    passed = record | {"checks": [c | {"passed": True} for c in record["checks"]]}
    failed = passed | {"checks": [record["checks"][0] | {"passed": False}]}
    assert 'class="fbm-good"' in audit_page.page(passed)
    assert 'class="fbm-good"' not in audit_page.page(failed)


@pytest.mark.parametrize(
    ("content", "error", "word"),
    [(None, InputError, "fbm audit MODEL"), ("{", FileFormatError, "JSON"),
     ("[]", FileFormatError, "not what"), ('{"checks": [1]}', FileFormatError, "not what"),
     ("[" * 10**5, FileFormatError, "deeply"), (" " * (1 << 23), FileFormatError, "too long")],
)  # fmt: skip
def test_anything_else_is_refused_with_the_reason(tmp_path, content, error, word):
    if content is not None:
        (tmp_path / "audit.json").write_text(content, encoding="utf-8")
    with pytest.raises(error, match=word):
        audit_page.stored(str(tmp_path))
