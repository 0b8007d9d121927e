"""The command on a tiny scale. Oracles: trainings made by hand, counts of runs, a second start."""

import json
import re
import signal
import sqlite3
from contextlib import closing
from dataclasses import replace
from statistics import mean
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure
from paper_rows import row as made
from typer.testing import CliRunner

from fermibose import PairEnergy
from fermibose.errors import InputError
from fermibose.machine import Recipe, train, train_mlp
from fermibose.plotting import COLOURS
from fermibose_paper import beyond, fig3, fig4, fig5, published, scale
from fermibose_paper.cli import app
from fermibose_paper.job import Job, measurement
from fermibose_paper.measure import Images
from fermibose_paper.registry import EXPERIMENTS, FIGURES
from fermibose_paper.run import run
from fermibose_paper.series import over_seeds, series
from fermibose_paper.store import Store
from fermibose_paper.verdict import Verdict

TINY = scale.Scale(
    "tiny",
    "mnist5k",
    fine=(0.1, 0.2, 0.3, 0.4, 0.5, 1.0),
    coarse=(0.2, 0.455),
    attacked=(0.2,),
    seeds=2,
    epochs=2,
    hidden=6,
    theory_points=2,
    beyond=(0.2, 0.4),
    variations={"hidden": (4,), "imbalance": (10.0,)},
)


def fbm(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(scale, "quick", lambda folder: replace(TINY, folder=folder))


def test_command_measures_draws_and_judges_and_goes_on_where_it_was(tiny, tmp_path):
    first = fbm("fig4", "--engine", "in-process", "--output", tmp_path)
    assert "18 runs, 18 computed now" in first.stdout  # 2 of the MLP, 12 averaged, 4 labelled
    assert (tmp_path / "fig4.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (tmp_path / "fig4.svg").read_text()
    verdicts = {v["claim"]: v for v in json.loads((tmp_path / "verdicts.json").read_text())}

    # The MLP's accuracy, from two trainings made by hand.
    data, recipe = Images("mnist5k").load(), Recipe((6,), epochs=2)
    test = (data.x_test, data.y_test)
    accuracies = [
        train_mlp(data.x_train, data.y_train, replace(recipe, seed=seed), test=test)
        .history["mlp"]["test_accuracy"]
        .mean()
        for seed in (0, 1)
    ]
    verdict = verdicts["accuracy of the MLP"]
    assert verdict["measured"] == pytest.approx(100 * mean(accuracies))
    assert verdict["standard_error"] == pytest.approx(50 * abs(accuracies[0] - accuracies[1]))
    assert verdict["reproduced"] is None
    assert verdict["verdict"] == "not comparable, other images"

    # Of what is stored nothing is computed again; another figure shares the MLP, the labelled runs
    # and the averaged ones on its grid.
    written = {name: (tmp_path / name).read_bytes() for name in ("fig4.svg", "verdicts.json")}
    again = fbm("fig4", "--engine", "in-process", "--output", tmp_path)
    assert "18 runs, 0 computed now" in again.stdout
    assert (tmp_path / "verdicts.json").read_bytes() == written["verdicts.json"]
    assert (tmp_path / "fig4.svg").read_bytes() == written["fig4.svg"]
    shared = fbm("fig5", "--engine", "in-process", "--output", tmp_path)
    assert "11 runs, 3 computed now" in shared.stdout  # d_F = 0.455 averaged, and the theory
    rows = Store(tmp_path / "results.sqlite").rows("training")
    nets = [json.dumps(row.params | {"also": 0}) + str(row.seed) for row in rows]
    assert len(set(nets)) == len(nets)  # no net was trained twice


def test_every_figure_draws_with_all_and_with_no_runs(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    for figure in (fig3, beyond):
        rows = run(figure.plan(TINY), store, show=False).rows
        for some in (rows, []):
            drawing = figure.draw(some, TINY)
            drawing.savefig(tmp_path / "figure.png")
            judged = figure.verdicts(some, TINY)
            measured = [v.measured is not None and np.isfinite(v.measured) for v in judged]
            assert all(measured) if some else not any(measured)
    for figure in (fig4, fig5):
        figure.draw([], TINY).savefig(tmp_path / "figure.png")
        assert all(v.reproduced is None for v in figure.verdicts([], TINY))


def test_two_readings_of_one_published_number_are_one_claim():
    rows = [
        made(
            {"train_explained": 0.6 + seed / 50, "train_explained_of_20": 0.74 + seed / 50},
            seed,
            coupling="averaged",
        )
        for seed in (0, 1)
    ]
    claims = [v for v in fig3.verdicts(rows, TINY) if "variance" in v.claim]
    (averaged,) = [v for v in claims if v.reproduced is not None]
    assert averaged.measured == pytest.approx(75)
    assert averaged.error == pytest.approx(1)
    assert averaged.note == "of all variance 61.0 %, the other reading of the paper"
    assert [v.claim.split(":")[0] for v in claims] == ["averaged", "MLP"]


def words_in(drawing):
    """Every title and entry of a legend."""
    for ax in drawing.axes:
        yield ax.get_title()
        if ax.get_legend():
            yield from (text.get_text() for text in ax.get_legend().get_texts())


@pytest.mark.parametrize("figure", [fig3, fig4, fig5])
def test_no_two_panels_have_the_same_letter(figure):
    titles = [ax.get_title() for ax in figure.draw([], TINY).axes]
    letters = [title[:3] for title in titles if title.startswith("(")]
    assert letters == ["(a)", "(b)", "(c)", "(d)"][: len(letters)]
    assert len(letters) >= 2


def test_every_line_of_the_distances_is_in_the_legend():
    rows = [row(d_f, 0, recorded_fermion_distance=d_f) for d_f in (0.1, 0.2)]
    bottom = fig4.draw(rows, TINY).axes[1]
    named = {text.get_text() for text in bottom.get_legend().get_texts()}
    assert {line.get_label() for line in bottom.lines} == named
    assert "$D^2 = d_F$" in named


def test_pairs_have_the_same_colour_in_all_figures(monkeypatch):
    monkeypatch.setitem(COLOURS, "fermion", "red")
    course = {"fermion_distance_per_epoch": [0.1, 0.2], "boson_distance_per_epoch": [0.1, 0.2]}
    panel = fig3.draw([row(published.TRAJECTORY_D_F, 0, **course)], TINY).axes[1]
    drawn = {line.get_label(): line.get_color() for line in panel.lines}
    assert drawn["fermion pairs"] == "red"
    assert drawn["boson pairs"] == COLOURS["boson"]


@pytest.mark.parametrize("asked", [TINY, scale.full("nowhere")], ids=["tiny", "full"])
def test_the_legend_of_curves_hides_none_of_them(asked):
    """Not even where the accuracy is 100 % at every strength."""
    points = [(c, d_f) for c in ("averaged", "labelled") for d_f in (*scale.MARKED, 0.9, 1.0, 1.2)]
    result = {"noise_curve": [1.0] * 80, "fgsm_curve": [1.0] * 80}
    rows = [made(result, coupling=coupling, d_f=d_f) for coupling, d_f in [*points, ("mlp", None)]]
    drawing = fig5.draw(rows, asked)
    drawing.draw_without_rendering()
    for ax in drawing.axes[:4]:
        assert len(ax.lines) > 8
        box = ax.get_legend().get_window_extent()
        for line in ax.lines:
            drawn = ax.transData.transform(np.column_stack([*line.get_data()]))
            assert not any(box.contains(*point) for point in drawn)
    fgsm, noise = (
        {line.get_label(): line.get_color() for line in ax.lines if "d_F" in line.get_label()}
        for ax in drawing.axes[:2]
    )
    assert noise.items() < fgsm.items()  # a d_F has one colour


@pytest.mark.parametrize("asked", [TINY, replace(TINY, dataset="mnist")], ids=["other", "same"])
@pytest.mark.parametrize(("figure", "times"), [(fig3, 5), (fig4, 2), (fig5, 8)])
def test_published_points_beside_other_images_say_so(figure, times, asked):
    result = {"train_coordinates": [[0.0, 1.0, 2.0]] * 2, "train_labels": [0, 1]}
    result |= {"train_explained": 0.5, "train_explained_of_20": 0.8}
    rows = [made(result, coupling=c) for c in ("averaged", "mlp")]
    told = [text for text in words_in(figure.draw(rows, asked)) if "published" in text]
    assert len(told) == times
    assert ["other images" in text for text in told] == [asked is TINY] * times


def test_a_variation_is_drawn_from_its_own_runs_only(tmp_path):
    rows = run(beyond.plan(TINY), Store(tmp_path / "store.sqlite"), show=False).rows
    assert len(rows) == 3 * 5  # as published and two variations, 2 · 2 machines and an MLP
    energy = PairEnergy(0.4, coupling="averaged")
    for changed, units in (({}, 6), ({"hidden": 4}, 4), ({"imbalance": 10.0}, 6)):
        data = Images("mnist5k", imbalance=changed.get("imbalance", 1.0)).load()
        recipe = Recipe((units,), energy, epochs=2, readout_epochs=2)
        by_hand = train(data.x_train, data.y_train, recipe, test=(data.x_test, data.y_test))
        chosen = beyond._with(rows, TINY, changed)
        found = series(chosen, "test_accuracy", coupling="averaged")
        assert found.x.tolist() == [0.2, 0.4]
        assert found.mean[1] == pytest.approx(by_hand.history["readout"]["test_accuracy"].mean())
    assert all(verdict.reproduced is not None for verdict in beyond.verdicts(rows, TINY))
    for lost in range(5):  # any one run of the paper's setting: its two claims cannot be judged
        part = [run for k, run in enumerate(rows) if k != lost]
        words = [verdict.word for verdict in beyond.verdicts(part, TINY)]
        assert (len(words), words.count("not measured")) == (5, 1)


def test_data_that_cannot_be_had_are_left_out_and_the_verdict_says_why(monkeypatch):
    monkeypatch.setenv("FERMIBOSE_DATA", "no such folder")
    asked = replace(TINY, variations={"dataset": ("fashion-mnist",)})
    planned = beyond.plan(asked)  # which needs no data
    assert {job.params["dataset"] for job in planned} == {"mnist5k", "fashion-mnist"}
    found = asked.without_lost(planned)
    assert {job.params["dataset"] for job in beyond.plan(found)} == {"mnist5k"}
    verdict = beyond.verdicts([], found)[-1]
    assert verdict.reproduced is None
    assert "left out: FERMIBOSE_DATA is no such folder, which is not a folder" in verdict.note
    assert beyond.verdicts([], asked)[-1].note == "runs are missing"


def test_data_that_cannot_be_had_do_not_stop_the_command(monkeypatch, tmp_path):
    few = {"dataset": ("fashion-mnist",)}
    asked = replace(TINY, beyond=(0.2,), variations=few)
    monkeypatch.setattr(scale, "quick", lambda folder: asked)
    monkeypatch.setenv("FERMIBOSE_DATA", "no such folder")
    done = fbm("beyond", "--engine", "in-process", "--output", tmp_path)
    assert done.exit_code == 0
    assert "3 runs, 3 computed now" in done.stdout
    notes = [v["note"] for v in json.loads((tmp_path / "verdicts.json").read_text())]
    assert any("left out: FERMIBOSE_DATA is no such folder" in note for note in notes)


def test_other_data_are_looked_for_in_a_subfolder_of_the_one_given(tmp_path):
    alone, both = tmp_path / "alone", tmp_path / "both"
    for folder in (alone, both / "mnist", both / "fashion-mnist"):
        folder.mkdir(parents=True)
    for folder, other in ((alone, None), (both, str(both))):
        asked = scale.full(folder)
        assert asked.folder_of("mnist") == str(folder)
        assert asked.folder_of("fashion-mnist") == other
    assert scale.full().folder_of("mnist") is scale.full().folder_of("fashion-mnist") is None


def row(d_f, seed, **result):
    params = {"coupling": "averaged", "d_f": d_f}
    return made(result or None, seed, **params)


def test_series_are_means_over_seeds_and_count_a_run_once():
    rows = [row(0.2, 0, a=1.0), row(0.2, 1, a=3.0), row(0.2, 1, a=3.0, b=0), row(0.1, 0, a=7.0)]
    found = series([*rows, row(0.3, 0), row(0.4, 0, b=1.0)], "a", scale=10)
    assert found.x.tolist() == [0.1, 0.2]
    assert found.mean.tolist() == [70, 20]
    assert found.error[1] == pytest.approx(10.0)  # √2·10/√2
    assert np.isnan(found.error[0])
    assert (found.fewest, found.seeds) == (1, 2)
    assert over_seeds(rows[:2], "a", d_f=0.2)[:2] == pytest.approx((2.0, 1.0))


def published_rows(shift=0.0):
    """Rows that say what was published, with the accuracy shifted by so many points."""
    table = published.against_d_f()
    return [
        row(
            float(d_f),
            seed,
            test_accuracy=(accuracy + shift + (seed - 0.5) / 5) / 100,
            recorded_fermion_distance=float(fermion),
        )
        for seed in (0, 1)
        for d_f, accuracy, fermion in zip(
            table["d_F"],
            table["test_accuracy_percent"],
            table["recorded_fermion_distance"],
            strict=True,
        )
    ] + [made({"test_accuracy": 0.836}, coupling="mlp")]


def test_the_published_numbers_reproduce_themselves():
    full = scale.full("nowhere")
    assert all(v.reproduced for v in fig4.verdicts(published_rows(), full))
    shifted = {v.claim: v for v in fig4.verdicts(published_rows(shift=-1.0), full)}
    off = shifted["averaged: mean |difference| from the published accuracy"]
    assert off.measured == pytest.approx(1.0)
    assert off.error == pytest.approx(0.1 / 231**0.5)  # s.e. 0.1 at each of 231 points
    missed = {claim for claim, v in shifted.items() if not v.reproduced}
    assert off.claim in missed
    assert "averaged: position of P2" not in missed
    bundled = {v.claim: v for v in fig4.verdicts(published_rows(shift=-1.0), scale.quick())}
    assert bundled[off.claim].reproduced is None
    assert bundled[off.claim].measured == pytest.approx(1.0)


@pytest.mark.parametrize(("dip", "single"), [(0.0, True), (1.0, False)])
def test_a_second_maximum_is_seen_beside_a_net_that_did_not_learn(dip, single):
    """At d_F = 0 seeds differ by tens of points, which must not excuse a valley elsewhere."""
    heights = {0.0: 40, 0.1: 83, 0.2: 85, 0.3: 85 - dip, 0.4: 85, 0.6: 83, 0.8: 81, 1.2: 80}
    rows = [
        made(
            {"test_accuracy": (height + (seed - 0.5) * (60 if d_f == 0 else 0.2)) / 100},
            seed,
            coupling="labelled",
            d_f=d_f,
        )
        for seed in (0, 1)
        for d_f, height in heights.items()
    ]
    found = {v.claim: v for v in fig4.verdicts(rows, scale.full("nowhere"))}
    assert found["labelled: one maximum only, the second one rises at most"].reproduced is single


def test_an_unfinished_curve_is_not_judged():
    full, rows = scale.full("nowhere"), published_rows()
    first = [r for r in rows if r.params.get("d_f", 0.0) < 0.04]  # what an early Ctrl-C leaves
    assert [v.claim for v in fig4.verdicts(first, full)] == ["accuracy of the MLP"]
    alone = {v.claim: v.reproduced for v in fig4.verdicts(rows[:-1], full)}
    met, peak = (f"averaged: position of {mark}, {fig4.WHAT[mark]}" for mark in ("S1", "P1"))
    assert alone[met] is None  # where the MLP is met, which is not there
    assert alone[peak] is True


def test_labelled_is_compared_with_averaged_where_it_gains_least():
    def areas(coupling, values):
        return [
            made({"fgsm_area": a + seed}, seed, coupling=coupling, d_f=d_f)
            for seed in (0, 1)
            for d_f, a in values.items()
        ]

    def gain_of(last):
        rows = areas("averaged", {0.1: 5.0, 0.5: 9.0}) + areas("labelled", {0.1: 7.0, 0.5: last})
        (gain,) = [v for v in fig5.verdicts(rows, TINY) if "every d_F: gain of FGSM" in v.claim]
        return gain

    assert gain_of(8.0).reproduced  # by less than two standard errors
    gain = gain_of(7.0)
    assert (gain.measured, gain.reproduced) == (-2.0, False)
    assert gain.error == pytest.approx(0.5**0.5)  # two errors of 1/2 each
    assert gain.note.endswith("less robust at 1 of 2 d_F, 0.5 to 0.5")  # PGD is not measured


def test_the_verdict_on_fgsm_says_what_a_single_step_misses():
    def runs(coupling, step, pgd):
        for d_f, one, many in zip((0.1, 0.5), step, pgd, strict=True):
            curve = [0.9] * 10 + [one] + [0.0] * 69  # ε = 0.1 is the eleventh of 80
            for result in ({"fgsm_area": 1.0, "fgsm_curve": curve}, {"pgd_accuracy": many}):
                yield made(result, coupling=coupling, d_f=d_f)

    rows = [*runs("averaged", (0.5, 0.6), (0.4, 0.2)), *runs("labelled", (0.5, 0.5), (0.3, 0.45))]
    (gain,) = [v for v in fig5.verdicts(rows, TINY) if "every d_F: gain of FGSM" in v.claim]
    assert gain.note.endswith(
        "at ε = 0.1 FGSM misses up to 40.0 points (averaged, at d_F = 0.5) and 20.0 points "
        "(labelled, at d_F = 0.1) of what PGD finds"
    )


def test_scales():
    full = scale.full("nowhere")
    assert full.fine == pytest.approx(published.against_d_f()["d_F"])
    assert set(published.CURVES_D_F) | {0.455, 0.9, 1.1} <= set(full.coarse)
    assert (full.seeds, full.published_split) == (5, True)
    assert not scale.quick().published_split


@measurement("does", version=1)
def does(*, what, seed):
    if what == "fail":
        raise RuntimeError("no such luck")
    if what == "fail twice":
        try:
            raise RuntimeError("no such luck")
        except RuntimeError as error:
            raise ValueError("first [line]\n  second") from error
    if what == "interrupt":
        signal.raise_signal(signal.SIGINT)
    return {}


@pytest.fixture
def staged(tiny, monkeypatch):
    """Make every figure one run that does what is asked."""

    def stage(**what):
        figures = {
            name: SimpleNamespace(
                plan=lambda scale, name=name: [
                    Job(does, {"what": what[name]}, data="" if name == "rho" else name)
                ],
                draw=lambda rows, scale: Figure(),
                verdicts=lambda rows, scale, name=name: [
                    Verdict.near(name, what[name], 0.0, expected=0.0)
                ],
            )
            for name in what
        }
        monkeypatch.setattr("fermibose_paper.registry.FIGURES", figures)

    return stage


def judged(folder):
    found = json.loads((folder / "verdicts.json").read_text())
    return [(v["figure"], v["claim"], v["scale"], v["dataset"]) for v in found]


def test_failed_runs_are_told_by_the_exit_status_after_everything_is_written(staged, tmp_path):
    staged(fig3="fail", fig4="work")
    done = fbm("all", "--engine", "in-process", "--output", tmp_path)
    assert done.exit_code == 1
    assert "no such luck" in done.stdout
    assert "failed runs: 1. Figures and verdicts are of the others" in done.stdout
    assert all((tmp_path / name).exists() for name in ("fig3.png", "fig4.png", "fig4.svg"))
    assert [figure for figure, *_ in judged(tmp_path)] == ["fig3", "fig4"]
    assert fbm("fig4", "--engine", "in-process", "--output", tmp_path).exit_code == 0


def test_a_failure_is_told_with_all_lines_of_its_message_and_none_of_its_frames(staged, tmp_path):
    staged(fig3="fail twice", fig4="fail")
    told = fbm("all", "--engine", "in-process", "--output", tmp_path).stdout
    start = "failed: {'what': 'fail twice'}, seed 0: "
    assert f"\n{start}ValueError: first [line]\n      second\n" in told
    assert "\nfailed: {'what': 'fail'}, seed 0: RuntimeError: no such luck\n" in told
    assert told.count("no such luck") == 1


def test_after_ctrl_c_only_what_was_written_is_named(staged, tmp_path):
    staged(fig2="work", fig3="interrupt", fig4="work")
    done = fbm("--engine", "in-process", "--output", tmp_path)
    assert done.exit_code == 130
    assert ": fig2 as png and svg, verdicts.json" in " ".join(done.stdout.split())
    assert {path.stem for path in tmp_path.glob("*.png")} == {"fig2"}
    assert [figure for figure, *_ in judged(tmp_path)] == ["fig2"]


def test_after_ctrl_c_with_nothing_measured_nothing_is_written(staged, tmp_path):
    staged(fig3="interrupt", fig4="work")
    done = fbm("--engine", "in-process", "--output", tmp_path)
    assert done.exit_code == 130
    assert "interrupted: nothing of fig3 yet" in done.stdout
    assert "written" not in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"results.sqlite"}


def test_verdicts_stay_unless_the_same_figure_is_made_again_at_the_same_scale_and_data(
    staged, tmp_path, monkeypatch
):
    staged(fig3="work", fig4="work", rho="work")
    fbm("all", "--engine", "in-process", "--output", tmp_path)
    staged(rho="work again", fig3="work again")
    fbm("all", "--engine", "in-process", "--output", tmp_path)
    here = ("tiny", "mnist5k")
    kept = [("fig3", "work again", *here), ("fig4", "work", *here)]
    theory = ("rho", "work again", "tiny", None)  # which reads no images
    assert judged(tmp_path) == [*kept, theory]
    monkeypatch.setattr(scale, "quick", lambda folder: replace(TINY, dataset="mnist"))
    fbm("all", "--engine", "in-process", "--output", tmp_path)
    kept.insert(0, ("fig3", "work again", "tiny", "mnist"))
    assert judged(tmp_path) == [*kept, theory]
    monkeypatch.setattr(scale, "full", lambda folder: replace(TINY, name="other"))
    fbm("rho", "--full", "--engine", "in-process", "--output", tmp_path)
    assert judged(tmp_path) == [*kept, ("rho", "work again", "other", None), theory]


def test_a_verdict_on_the_theory_replaces_one_that_names_data(staged, tmp_path):
    named = {"figure": "rho", "claim": "old", "scale": "tiny", "dataset": "mnist5k"}
    (tmp_path / "verdicts.json").write_text(json.dumps([named]))
    staged(rho="work")
    fbm("rho", "--engine", "in-process", "--output", tmp_path)
    assert judged(tmp_path) == [("rho", "work", "tiny", None)]


@pytest.mark.parametrize("text", ["", "{}", "[1, {}]", '[{"scale": "tiny", "dataset": "mnist5k"}]'])
def test_a_file_of_verdicts_that_is_none_is_replaced(text, staged, tmp_path):
    (tmp_path / "verdicts.json").write_text(text)
    staged(rho="work")
    fbm("rho", "--engine", "in-process", "--output", tmp_path)
    assert judged(tmp_path) == [("rho", "work", "tiny", None)]


def test_a_folder_of_data_that_does_not_exist_is_refused_at_once(staged, tmp_path):
    staged(rho="work")
    with pytest.raises(InputError, match=r"there is no folder .*none: name the one"):
        fbm("rho", "--folder", tmp_path / "none", "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_written_is_refused_before_the_work(staged, tmp_path):
    staged(rho="work")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="nothing can be written"):
        fbm("rho", "--store", tmp_path / "store.sqlite", "--output", tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_folders_and_claims_are_printed_as_they_are(staged, tmp_path):
    staged(rho="work[/b] [bold]more")
    output = tmp_path / "a[" / "b] [red]"  # what rich would take for markup
    done = fbm("rho", "--engine", "in-process", "--output", output)
    assert f"written to {output}: rho as png and svg" in done.stdout
    assert "work[/b] [bold]more" in " ".join(done.stdout.replace("│", " ").split())


def test_a_damaged_run_is_named_and_made_again(staged, tmp_path):
    staged(fig3="work", fig4="work")
    fbm("all", "--engine", "in-process", "--output", tmp_path)
    with closing(sqlite3.connect(tmp_path / "results.sqlite")) as connection, connection:
        connection.execute("UPDATE results SET result = '{' WHERE data = 'fig4'")
    done = fbm("all", "--engine", "in-process", "--output", tmp_path)
    assert done.exit_code == 0
    assert "damaged: {'what': 'work'}, seed 0: what the store holds of it" in done.stdout
    assert "fig3: 1 runs, 0 computed now" in done.stdout
    assert "fig4: 1 runs, 1 computed now" in done.stdout
    assert "damaged:" not in fbm("all", "--engine", "in-process", "--output", tmp_path).stdout


def test_the_help_names_everything_that_can_be_made():
    told = re.sub(r"[│\s]+", " ", fbm("--help").stdout)
    names = told.partition("figures... ")[2].partition("Options")[0]
    assert set(re.findall(r"[\w-]+", names)) >= {*FIGURES, *EXPERIMENTS}


def test_unknown_figure_is_refused(tiny, tmp_path):
    with pytest.raises(InputError, match="unknown figure 'fig9'"):
        fbm("fig9", "--output", tmp_path)


def test_without_dask_one_core_computes_and_a_line_says_so(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("fermibose_paper.cluster.find_spec", lambda name: None)
    done = fbm("rho", "--output", tmp_path)
    assert done.exit_code == 0
    assert "pip install 'fermibose[paper]'" in done.stdout
    with pytest.raises(InputError, match="the engine local needs Dask"):
        fbm("rho", "--engine", "local", "--output", tmp_path)


def test_the_time_limit_reaches_the_engine(tiny, tmp_path):
    with pytest.raises(InputError, match="leave the time limit out"):
        fbm("rho", "--engine", "in-process", "--time-limit", "9", "--output", tmp_path)
