"""The report on a tiny reproduction. Oracles: the HTML parser, statistics by hand, Chromium."""

import re
import shutil
import sqlite3
import statistics
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fermibose.paper import fig3, fig4, fig5, figures
from fermibose.paper import scale as scales
from fermibose.paper.errata import ERRATA
from fermibose.paper.verdict import Verdict
from fermibose.report import robustness, story
from fermibose.report.charts import charts_of
from fermibose.report.page import Badge
from fermibose.report.texts import ABOUT
from matplotlib.image import imread
from report_browser import CHROMIUM, HEIGHT, show
from report_outline import Outline
from typer.testing import CliRunner

from fermibose.cli import app
from fermibose.errors import FileFormatError, InputError
from fermibose.sweep import Store, run

TINY = replace(scales.quick(), sweep=(0.2, 0.4), coarse=(0.3,), seeds=1, hidden=5, epochs=2)


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
    for text in (*titles, "accuracy of the MLP", "torch ", *(e.right for e in ERRATA)):
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
    larger = replace(TINY, sweep=tuple((k + 1) / 5 for k in range(sweep)))
    monkeypatch.setattr(story, "FIGURES", {"fig4": fig4, "rho": planning(TINY)})
    monkeypatch.setattr(scales, "quick", lambda folder: larger)
    done = fbm(store.path, "--output", tmp_path / "report.html")
    left_out = f"left out, less than half is measured: fig4: 4 of {sweep + 2} runs\n"
    assert (left_out in done.stdout) is not told
    shown = Outline((tmp_path / "report.html").read_text()).text
    assert (f"{ABOUT['fig4'].title}———4 of {sweep + 2}: left out" in shown) is not told
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
        chapter = story.Chapter("fig4", runs, [], "4 of 4", whole=True)
        page = story.tell(story.Contents([chapter], {}, {}, {}), TINY, tmp_path)
        shown = Outline(page).text
        assert ("runs, images of mnist5k" in shown, "hidden units5" in shown) == (told, told)


@pytest.mark.parametrize("name", ["fig4", "fig5"])
def test_charts_say_that_published_points_are_of_other_images(name):
    for scale, told in ((TINY, True), (replace(TINY, dataset="mnist"), False)):
        (chart,) = charts_of(name, [], scale)
        assert chart.html.count('"name":"published') == 1
        assert ("other images" in chart.html) is told


def test_every_figure_has_its_words():
    assert set(figures.FIGURES) <= set(ABOUT)


def test_a_verdict_that_fails_says_by_how_much():
    table = story.verdict_table(
        [
            Verdict("f", "a", 1.0, 3.0, 0.5, note="why"),
            Verdict("f", "b", 3.1, 3.0, 0.5),
            Verdict("f", "c", None, 3.0),
            Verdict("f", "d", 1.0, 3.0, unlike=True),
            Verdict("f", "e", None, 3.0, absent=True, note="why"),
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


def test_robustness_rows_are_means_and_standard_errors_over_complete_seeds():
    values = [0.30, 0.36, 0.33]
    results = {
        f"pgd | net | {threat} | seed {seed}": {"robust": value}
        for threat in robustness.STRENGTHS
        for seed, value in enumerate(values)
    }
    results["pgd | net | linf 0.1 | seed 3"] = {"robust": 0.9}  # an unfinished seed
    results |= {
        f"areas | net | seed {seed}": {"clean_4000": 0.8 + 0.01 * seed, "noise_area": 50.0}
        for seed in range(3)
    }
    ((name, clean, *robust, area, seeds),) = robustness.table(results, "pgd")
    error = 100 * statistics.stdev(values) / 3**0.5
    assert (name, area, seeds) == ("net", "50.0 ± 0.0", "3")
    assert clean == "81.0 ± 0.6"
    assert robust == [f"{100 * statistics.mean(values):.1f} ± {error:.1f}"] * 4


def test_several_blocks_of_a_seed_are_averaged_first():
    results = {
        f"table | net | {threat} | seed {seed} | block {block}": {"robust": value}
        for threat in robustness.STRENGTHS
        for seed, pair in enumerate([(0.2, 0.4), (0.3, 0.5)])
        for block, value in enumerate(pair)
    } | {f"pgd | net | {t} | seed 0": {"robust": 0.1} for t in robustness.STRENGTHS}
    results["areas | net | seed 0"] = {"clean_4000": 0.8, "noise_area": 50.0}
    ((*_, attacked, _, seeds),) = robustness.table(results, "table")
    assert (attacked, seeds) == ("35.0 ± 5.0", "2")


def test_the_shipped_results_say_where_they_come_from(page):
    versions = robustness.shipped()["versions"]
    told = "Computed with " + ", ".join(f"{name} {versions[name]}" for name in sorted(versions))
    section = Outline(page).text.partition("The tables of this section travel with")[2]
    assert "by an earlier state of the training code" in section.partition("AutoAttack")[0]
    assert f"{told}." in section.partition("AutoAttack")[0]


def test_the_shipped_results_make_a_full_table():
    rows = list(robustness.table(robustness.shipped(), "pgd"))
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


def test_only_figures_whose_data_cannot_be_loaded_are_left_out(store, tmp_path, monkeypatch):
    needy = {"fig3": fig4, "rho": planning(TINY), "fig4": fig4}
    monkeypatch.setattr(story, "FIGURES", needy)
    monkeypatch.setattr(
        scales, "full", lambda folder: replace(TINY, name="full", dataset="mnist", folder=folder)
    )
    monkeypatch.setenv("FERMIBOSE_DATA", str(tmp_path / "none"))
    scales._checksum.cache_clear()
    done = fbm(store.path, "--full", "--output", tmp_path / "report.html")
    (told,) = [line for line in done.stdout.splitlines() if "left out" in line]
    assert told.startswith("fig3, fig4 left out, since the data")
    assert "FERMIBOSE_DATA is" in told
    shown = Outline((tmp_path / "report.html").read_text()).text
    assert ABOUT["rho"].title in shown
    assert f"{ABOUT['fig4'].title}———unknown: no data" in shown
    monkeypatch.setattr(story, "FIGURES", {"fig4": fig4})
    with pytest.raises(InputError, match="less than half of the runs of any figure of the full"):
        fbm(store.path, "--full", "--output", tmp_path / "report.html")


def test_data_that_cannot_be_loaded_are_asked_for_once(store, monkeypatch):
    asked = []

    def load(dataset, **options):
        asked.append(dataset)
        raise InputError("no network")

    monkeypatch.setattr(scales, "images", load)
    monkeypatch.setattr(story, "FIGURES", {"fig3": fig3, "fig4": fig4, "fig5": fig5})
    scales._checksum.cache_clear()
    for times in (1, 2):  # asked again, it tries again
        found = story.gather(store, replace(TINY, dataset="mnist", folder="elsewhere"))
        assert found.unknown == dict.fromkeys(("fig3", "fig4", "fig5"), "no network")
        assert asked == ["mnist"] * times


def test_the_help_says_which_folder():
    shown = CliRunner().invoke(app, ["report", "--help"]).stdout
    assert "same --quick, --full and --folder as to fbm reproduce" in " ".join(
        shown.replace("│", " ").split()
    )


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [1200, 390])
def test_a_browser_shows_it_whole_and_without_a_complaint(width, page, tmp_path):
    report, console, shot = show(page, width, tmp_path)
    assert console == []
    assert report["charts"]  # plotly has drawn
    assert report["overflow"] <= 0
    badge, *cells = report["boxes"]
    for box in (badge, *cells):  # nothing of the first verdict is beside the screen
        assert 0 <= box["left"] <= box["right"] <= width
        assert 0 <= box["top"] <= box["bottom"] <= HEIGHT
    assert badge["width"] > 20
    seen = imread(shot)[round(badge["top"] + badge["height"] / 2), round(badge["left"]) + 2]
    assert (255 * seen[:3]).round().tolist() == report["colour"]
