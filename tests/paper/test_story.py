"""The report on a tiny reproduction. Oracles: the HTML parser, statistics by hand, Chromium."""

import re
import shutil
import sqlite3
import statistics
import time
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest
from matplotlib.image import imread
from paper_rows import row
from report_outline import Outline
from typer.testing import CliRunner

from browser import PATIENCE, Window, needs_browser
from fermibose.errors import FileFormatError, InputError
from fermibose_paper import fig4, robustness, story
from fermibose_paper import scale as scales
from fermibose_paper.cli import app
from fermibose_paper.measure import Images
from fermibose_paper.page import Badge, typeset
from fermibose_paper.registry import EXPERIMENTS, FIGURES
from fermibose_paper.run import run
from fermibose_paper.shipped import read_lines, shipped, write_lines
from fermibose_paper.store import Store
from fermibose_paper.texts import ABOUT, ERRATA
from fermibose_paper.tuning import METHODS
from fermibose_paper.verdict import Verdict

TINY = replace(scales.quick(), fine=(0.2, 0.4), coarse=(0.3,), seeds=1, hidden=5, epochs=2)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    found = Store(tmp_path_factory.mktemp("report") / "results.sqlite")
    run(fig4.plan(TINY), found)
    return found


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(story, "FIGURES", {"fig4": fig4})
    monkeypatch.setattr(scales, "quick", lambda folder: TINY)


@pytest.fixture
def page(tiny, store, tmp_path):
    return story.tell(story.gather(store, TINY), TINY, tmp_path)


def fbm(store, *options):
    arguments = ["report", "--store", str(store), *map(str, options)]
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_the_page_tells_figure_verdicts_errata_and_provenance(page, store):
    found = Outline(page)
    titles = [ABOUT["fig4"].title, "Errata of the paper", "Robustness of everything"]
    for text in (
        *titles,
        "accuracy of the MLP",
        "torch ",
        *(typeset(e.right).striptags() for e in ERRATA),
    ):
        assert text in found.text
    accuracy = next(
        row.result["test_accuracy"] for row in store.rows() if row.params["coupling"] == "mlp"
    )
    assert f"{100 * accuracy:.4g}" in found.text
    assert [image["alt"] for image in found.all("img")] == [ABOUT["fig4"].alt]


@pytest.mark.parametrize(("sweep", "told"), [(6, True), (7, False)])
def test_a_figure_with_less_than_half_of_its_runs_is_left_out(
    sweep, told, store, tmp_path, monkeypatch
):
    """The store has 4 runs of Fig. 4: the MLP, two averaged and one labelled."""
    larger = replace(TINY, fine=tuple((k + 1) / 5 for k in range(sweep)))
    monkeypatch.setattr(story, "FIGURES", {"fig4": fig4, "rho": planning(TINY)})
    monkeypatch.setattr(scales, "quick", lambda folder: larger)
    done = fbm(store.path, "--output", tmp_path / "report.html")
    left_out = f"left out, less than half is measured: fig4: 4 of {sweep + 2} runs\n"
    assert (left_out in done.stdout) is not told
    shown = Outline((tmp_path / "report.html").read_text()).text
    assert (f"{ABOUT['fig4'].title}————4 of {sweep + 2}: left out" in shown) is not told
    assert (f"Not complete: 4 of {sweep + 2} runs." in shown) is told
    assert (ABOUT["fig4"].paragraphs[0] in shown) is told
    assert ABOUT["rho"].paragraphs[0] in shown  # of which nothing is missing
    assert shown.count("Not complete") == told


def planning(scale):
    """Fig. 4 with the runs of another scale, whatever is asked for."""
    return SimpleNamespace(plan=lambda _: fig4.plan(scale), draw=fig4.draw, verdicts=fig4.verdicts)


def test_images_are_named_only_where_runs_read_them(store, tmp_path):
    rows = [row for row in store.rows() if row.result is not None]
    for data, told in (("checksum", True), ("", False)):
        runs = [replace(row, data=data) for row in rows]
        chapter = story.Chapter("fig4", runs, [], "4 of 4", complete=True)
        page = story.tell(story.Contents([chapter], {}, {}), TINY, tmp_path)
        shown = Outline(page).text
        assert ("runs, images of mnist5k" in shown, "hidden units5" in shown) == (told, told)


@pytest.mark.parametrize("name", ["fig4", "fig5"])
def test_charts_say_that_published_points_are_of_other_images(name):
    for scale, told in ((TINY, True), (replace(TINY, dataset="mnist"), False)):
        (chart,) = story._charts_of(name, [], scale)
        assert chart.html.count('"name":"published') == 1
        assert ("other images" in chart.html) is told


def test_every_figure_has_its_words():
    assert set(FIGURES) <= set(ABOUT)


def test_a_verdict_that_fails_says_by_how_much():
    table = story.verdict_table(
        [
            Verdict.near("f", "a", 1.0, expected=3.0, tolerance=0.5, note="why"),
            Verdict.near("f", "b", 3.1, expected=3.0, tolerance=0.5),
            Verdict.near("f", "c", None, expected=3.0),
            Verdict.near("f", "d", 1.0, expected=3.0, unlike=True),
            Verdict.near("f", "e", None, expected=3.0, absent=True, note="why"),
        ]
    )
    assert table.head[:2] == ("verdict", "claim")
    badges, remarks = [row[0] for row in table.rows], [row[4] for row in table.rows]
    assert badges == [
        Badge("not reproduced", False),
        Badge("reproduced", True),
        Badge("not measured", None),
        Badge("not comparable", None),
        Badge("not reproduced", False),
    ]
    remarked = ["off by 1.5 more than allowed; why", "", "", "other images"]
    assert remarks == [*remarked, "there is no such point; why"]


def attacked(method, seed, clean=0.8, **looks):
    params = {"method": METHODS[method], "dataset": "mnist", "also": sorted(looks)}
    return row({"clean": clean} | looks, seed, name="robustness", data="checksum", **params)


def test_robustness_rows_are_means_and_standard_errors_over_complete_seeds():
    values = [0.30, 0.36, 0.33]
    areas = {"noise_area": 50.0}
    rows = [
        attacked("MLP", seed, 0.8 + 0.01 * seed, areas=areas,
                 pgd=dict.fromkeys(robustness.STRENGTHS, value))
        for seed, value in enumerate(values)
    ]  # fmt: skip
    rows.append(attacked("MLP", 3, pgd={"linf 0.1": 0.9}))  # an unfinished seed
    ((name, clean, *robust, area, seeds),) = robustness.table(rows, "pgd")
    error = 100 * statistics.stdev(values) / 3**0.5
    assert (name, area, seeds) == ("MLP", "50.0 ± 0.0", "3")
    assert clean == "81.0 ± 0.6"
    assert robust == [f"{100 * statistics.mean(values):.1f} ± {error:.1f}"] * 4


def test_a_seed_that_one_method_lacks_is_not_reported_and_one_seed_without_randomness_is_enough():
    def every(value):
        return dict.fromkeys(robustness.STRENGTHS, value)

    areas = {"noise_area": 50.0}
    rows = [attacked("MLP", seed, areas=areas, pgd=every(0.2 + 0.1 * seed)) for seed in range(3)]
    rows += [attacked("MLP, weight decay 0.03", k, areas=areas, pgd=every(0.5)) for k in range(2)]
    rows.append(attacked("kernel ridge", 0, areas=areas, pgd=every(0.6)))
    assert robustness.complete(rows, "pgd") == [0, 1]
    found = {name: cells for name, *cells in robustness.table(rows, "pgd")}
    assert list(found) == ["MLP", "MLP, weight decay 0.03", "kernel ridge"]
    assert (found["MLP"][1], found["MLP"][-1]) == ("25.0 ± 5.0", "2")
    assert (found["kernel ridge"][1], found["kernel ridge"][-1]) == ("60.0", "1")


def test_auto_attack_has_the_images_of_every_seed_also_without_randomness():
    rows = []
    for seed, value in enumerate((0.3, 0.4)):
        auto = {threat: {"robust": value} for threat in robustness.STRENGTHS}
        also = {"areas": {"noise_area": 50.0}} if seed == 0 else {}
        rows.append(attacked("kernel ridge", seed, auto=auto, **also))
    ((_, clean, *_, attacked_by_all, area, seeds),) = robustness.table(rows, "auto")
    assert (clean, attacked_by_all, area, seeds) == ("80.0", "35.0 ± 5.0", "50.0", "2")


def test_the_shipped_results_say_where_they_come_from(page):
    versions = {item for row in shipped("robustness") for item in row.versions.items()}
    told = "Computed with " + ", ".join(" ".join(item) for item in sorted(versions))
    section = Outline(page).text.partition("The tables of this section travel with")[2]
    assert "fbm reproduce robustness --full" in section.partition("AutoAttack")[0]
    assert f"{told}." in section.partition("AutoAttack")[0]
    for each in shipped("robustness"):
        assert each.data == "8ba765bc208b35df"  # the published split
        assert {"torch", "python", "fermibose"} <= set(each.versions)


def test_the_shipped_results_are_those_that_a_full_reproduction_plans():
    """Found again by name and parameters, as in a store."""
    planned = {job.spec for job in robustness.plan(scales.full("nowhere"))}
    rows = shipped("robustness")
    assert {(r.name, r.version, r.params_text, r.seed) for r in rows} <= planned
    assert read_lines(write_lines(rows)) == rows


def test_the_shipped_results_make_a_full_table():
    rows = list(robustness.table(shipped("robustness"), "pgd"))
    assert len(rows) >= 10
    assert all(re.match(r"^\d", cell) for row in rows for cell in row[1:])


def test_the_command_says_what_is_missing(tmp_path):
    with pytest.raises(InputError, match="run `fbm reproduce` first"):
        fbm(tmp_path / "no.sqlite")
    Store(tmp_path / "empty.sqlite")
    with pytest.raises(InputError, match="less than half of the runs of any figure of the quick"):
        fbm(tmp_path / "empty.sqlite")


def test_an_empty_file_is_refused_and_stays_empty(tmp_path):
    (tmp_path / "empty.sqlite").touch()
    with pytest.raises(FileFormatError, match=r"empty\.sqlite is empty"):
        fbm(tmp_path / "empty.sqlite")
    assert [(path.name, path.stat().st_size) for path in tmp_path.iterdir()] == [
        ("empty.sqlite", 0)
    ]


@pytest.mark.parametrize("name", ["a[/b].html", "r[bold].html"])
def test_the_output_is_named_as_it_is(name, tiny, store, tmp_path):
    output = tmp_path / name  # what rich would take for markup
    done = fbm(store.path, "--output", output)
    assert done.stdout.startswith(f"written to {output}: ")
    assert "</html>" in output.read_text()


def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    tiny, store, tmp_path, monkeypatch
):
    monkeypatch.setattr(story, "gather", None)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a folder: name a file with --output"):
        fbm(store.path, "--output", tmp_path)
    with pytest.raises(InputError, match="nothing can be written"):
        fbm(store.path, "--output", tmp_path / "file" / "report.html")


def test_a_damaged_run_is_left_out_and_named(tiny, store, tmp_path):
    copy = shutil.copy(store.path, tmp_path / "copy.sqlite")
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute(
            "UPDATE results SET result = substr(result, 2) WHERE params LIKE '%\"mlp\"%'"
        )
    done = fbm(copy, "--output", tmp_path / "report.html")
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("damaged, left out: ")]
    assert "'coupling': 'mlp'" in told
    assert "seed 0: what the store holds of it cannot be read" in told
    shown = Outline((tmp_path / "report.html").read_text()).text
    assert f"{len(fig4.plan(TINY)) - 1} runs" in shown


def test_neither_images_nor_network_are_needed(tiny, store, tmp_path, monkeypatch):
    def load(self):
        raise InputError("no images")

    monkeypatch.setattr(Images, "load", load)
    assert fbm(store.path, "--output", tmp_path / "report.html").exit_code == 0
    assert ABOUT["fig4"].paragraphs[0] in Outline((tmp_path / "report.html").read_text()).text
    other = replace(TINY, dataset="mnist", folder="elsewhere")
    monkeypatch.setattr(scales, "quick", lambda folder: other)
    with pytest.raises(InputError, match="less than half of the runs of any figure of the quick"):
        fbm(store.path, "--folder", "elsewhere", "--output", tmp_path / "report.html")


@pytest.mark.parametrize("scale", [scales.quick(), scales.full("nowhere")], ids=["quick", "full"])
def test_every_plan_is_made_without_data(scale, monkeypatch):
    monkeypatch.setattr(Images, "load", lambda self: pytest.fail("data were asked for"))
    for planned in (*FIGURES.values(), *EXPERIMENTS.values()):
        jobs = planned.plan(scale)
        assert len({job.spec for job in jobs}) == len(jobs) > 0


def test_the_help_says_which_folder():
    shown = CliRunner().invoke(app, ["report", "--help"]).stdout
    assert "same --quick, --full and --folder as to fbm reproduce" in " ".join(
        shown.replace("│", " ").split()
    )


# Where the first verdict is, once plotly has drawn; the badge is brought into sight.
MEASURED = """
const badge = document.querySelector("td .badge");
badge.scrollIntoView({block: "center", behavior: "instant"});
return {
  overflow: document.documentElement.scrollWidth - arguments[0],
  boxes: [badge, ...badge.closest("tr").cells].map((e) => e.getBoundingClientRect().toJSON()),
  colour: getComputedStyle(badge).backgroundColor.match(/\\d+/g).map(Number),
};"""


@needs_browser
@pytest.mark.parametrize("width", [1200, 390])
def test_a_browser_shows_it_whole_and_without_a_complaint(width, page, tmp_path):
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    with Window((tmp_path / "page.html").as_uri(), width=width, height=844) as window:
        end = time.monotonic() + PATIENCE
        while not window.run("return document.querySelectorAll('.main-svg').length"):
            assert time.monotonic() < end, "plotly has drawn nothing"
            time.sleep(0.1)
        report = window.run(MEASURED, width)
        shot = tmp_path / "shot.png"
        assert window.driver.get_screenshot_as_file(str(shot))
        assert window.complaints() == []
    assert report["overflow"] <= 0
    badge, *cells = report["boxes"]
    for box in (badge, *cells):  # nothing of the first verdict is beside the screen
        assert 0 <= box["left"] <= box["right"] <= width
        assert 0 <= box["top"] <= box["bottom"] <= 844
    assert badge["width"] > 20
    seen = imread(shot)[round(badge["top"] + badge["height"] / 2), round(badge["left"]) + 2]
    assert (255 * seen[:3]).round().tolist() == report["colour"]


def test_the_page_begins_with_what_came_out_and_shows_no_figure_twice(page, store):
    """Oracle: the verdicts counted by hand, and the tables that travel with the package."""
    found = Outline(page).text
    verdicts = [v for c in story.gather(store, TINY).chapters for v in c.verdicts]
    hold = sum(v.reproduced is True for v in verdicts)
    assert f"1 claim: {hold} hold, " in found  # that of the MLP
    assert len(verdicts) == 1
    assert found.index("In short") < found.index("What the machine is")
    mlp = next(row for row in robustness.table(shipped("robustness"), "auto") if row[0] == "MLP")
    short = found[found.rindex("In short") : found.rindex("What the machine is")]
    assert f"MLP {mlp[3]} % ({mlp[1]} % without)" in short
    assert "travel with the package" in short
    # Of how many the former is a fraction: right images, of all that were attacked.
    runs = [
        r.result["auto"]["linf 0.1"]
        for r in shipped("robustness")
        if r.params["method"] == METHODS["MLP"] and "auto" in (r.result or {})
    ]
    of_all = 100 * statistics.mean(round(r["robust"] * r["images"]) / r["images"] for r in runs)
    assert mlp[3].startswith(f"{of_all:.1f}")
    assert "of those" not in short
    assert page.count('<div class="interactive"') == page.count("<details ")  # folded
