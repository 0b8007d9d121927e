"""Robustness, tuning, accuracies. Oracles: the library called directly, means by hand."""

import json
from dataclasses import replace
from statistics import mean, stdev

import numpy as np
import pytest
from paper_rows import row
from typer.testing import CliRunner

from fermibose import PairEnergy
from fermibose.attacks import Adversary, ThreatModel, accuracy_curve, certified_radius, pgd
from fermibose.data import Dataset, per_class
from fermibose.errors import InputError
from fermibose.machine import (
    InputNoise,
    Recipe,
    train,
    train_kernel_ridge,
    train_logistic,
    train_mlp,
    train_rbf_svm,
)
from fermibose_paper import accuracies, beyond, fig4, fig5, robustness, scale, tuning
from fermibose_paper.cli import app
from fermibose_paper.measure import Images
from fermibose_paper.registry import EXPERIMENTS
from fermibose_paper.tuning import METHODS, fit, is_random

TINY = scale.Scale("tiny", "mnist5k", (0.4,), (0.4,), seeds=2, hidden=5, epochs=2)


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Few images: a training of a thousand units takes no time."""
    return Images("mnist5k", per_class=2).load()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("machine, averaged, d_F 0.465",
         lambda *xy: train(*xy, Recipe(energy=PairEnergy(0.465, coupling="averaged"), seed=3)).net),
        ("MLP", lambda *xy: train_mlp(*xy, Recipe(seed=3)).net),
        ("MLP, weight decay 0.03",
         lambda *xy: train_mlp(*xy, Recipe(seed=3), weight_decay=0.03).net),
        ("MLP, input noise 0.7",
         lambda *xy: train_mlp(*xy, Recipe(seed=3), perturb=InputNoise(0.7)).net),
        ("MLP, PGD-7 training 0.15",
         lambda *xy: train_mlp(*xy, Recipe(seed=3),
                               perturb=Adversary(ThreatModel("linf", 0.15), steps=7)).net),
        ("logistic regression", lambda *xy: train_logistic(*xy, penalty=100)),
        ("RBF-SVM", lambda *xy: train_rbf_svm(*xy, gamma=0.05, c=10)),
        ("kernel ridge", lambda *xy: train_kernel_ridge(*xy, gamma=0.07, ridge=0.03)),
    ],
)  # fmt: skip
def test_a_method_is_trained_as_its_name_says(name, expected, data):
    net = fit(METHODS[name], data, seed=3)
    other = expected(data.x_train, data.y_train)
    for key, value in other.state_dict().items():
        assert np.array_equal(net.state_dict()[key], value)
    moved = fit(METHODS[name], data, seed=4).state_dict()
    same = all(np.array_equal(moved[key], value) for key, value in other.state_dict().items())
    assert same is not is_random(METHODS[name])


def test_an_unknown_method_is_refused(data):
    with pytest.raises(InputError, match="there is no method 'magic': choose machine, MLP"):
        fit({"kind": "magic"}, data, seed=0)


def test_a_method_is_attacked_on_the_first_images_of_each_class(data):
    also = ["areas", "certificate", "pgd"]
    found = robustness.measure_robustness(
        method=METHODS["MLP"], dataset="mnist5k", per_class=3, also=also, data=data, seed=1
    )
    net = train_mlp(data.x_train, data.y_train, Recipe(seed=1)).net
    first = per_class(data.x_test, data.y_test, 3)
    threat = ThreatModel("l2", 1.0)
    assert found["pgd"]["l2 1.0"] == pgd(net, *first, threat, seed=1).robust_accuracy
    assert set(found["pgd"]) == set(robustness.STRENGTHS)
    noise = accuracy_curve(net, *first, ThreatModel("noise"), seed=1)
    assert found["areas"]["clean"] == noise.accuracy[0]
    lines = (noise.accuracy[1:] + noise.accuracy[:-1]) / 2
    assert found["areas"]["noise_area"] == pytest.approx(lines.sum())  # 100 % · 0.01
    proved = certified_radius(net, *first, norm="linf").accuracy((0.01, 0.02, 0.03))
    assert found["certificate"]["linf"]["certified"] == proved.tolist()
    proved = certified_radius(net, *first, norm="l2", method="lipschitz").accuracy((0.2, 0.3, 0.5))
    assert found["certificate"]["l2"]["lipschitz"] == proved.tolist()
    every = accuracy_curve(net, data.x_test, data.y_test, ThreatModel("linf"), epsilons=(0.0,))
    assert found["clean"] == every.accuracy[0]


def test_auto_attack_gives_every_seed_other_images(monkeypatch):
    seen = []
    monkeypatch.setattr(robustness, "_auto", lambda net, images, threat, seed: seen.append(images))
    x = np.repeat(np.arange(40.0)[:, None], 2, 1)
    images = (x, np.repeat([0, 1], 20))
    for seed in range(10):
        robustness.under_auto_attack(None, images, seed)
    drawn = [taken[0][:, 0].tolist() for taken in seen[:: len(robustness.THREATS)]]
    assert drawn[0] == [0, 1, 20, 21]
    assert sorted(image for taken in drawn for image in taken) == x[:, 0].tolist()


def test_what_is_looked_at_in_the_full_table():
    jobs = robustness.plan(scale.full("nowhere"))
    names = {json.dumps(method, sort_keys=True): name for name, method in METHODS.items()}
    nets = {
        (names[json.dumps(job.params["method"], sort_keys=True)], job.seed): job
        for job in jobs
        if job.name == "robustness"
    }
    assert len(nets) == 50  # every net once
    looks = {key: job.params["also"] for key, job in nets.items()}
    assert looks["kernel ridge", 0] == ["areas", "auto", "pgd"]
    assert looks["kernel ridge", 4] == ["auto"]  # other images, the same net
    assert looks["MLP", 4] == ["areas", "audit", "auto", "auto all", "pgd"]
    assert sum("certificate" in also for also in looks.values()) == 3
    assert {job.params["per_class"] for job in nets.values()} == {100}


def test_tables_of_robustness_tell_everything_that_was_measured():
    auto = {
        name: {"pgd": 0.5, "robust": 0.4, "clean": 0.9, "images": 10, "flags": ["odd"]}
        for name in robustness.STRENGTHS
    }
    looks = {
        "areas": {"noise_area": 50.0},
        "audit": {"established": False, "verdict": "not so"},
        "auto": auto,
        "auto all": auto["linf 0.1"],
        "certificate": {
            n: {"certified": [0.5], "lipschitz": [0.25], "pgd": [0.75]}
            for n in robustness.CERTIFIED
        },
        "pgd": dict.fromkeys(robustness.STRENGTHS, 0.6),
    }
    rows = [row({"clean": 0.8} | looks, name="robustness", method=METHODS["MLP"])]
    trained = {"fgsm_curve": [0.85], "fgsm_area": 4.0, "noise_area": 40.0}
    rows += [row(trained, seed, coupling="mlp", d_f=None) for seed in (0, 1)]
    told = {table.caption.split(",")[0]: table.rows for table in robustness.tables(rows, TINY)}
    assert told["AutoAttack (standard)"][0][2:6] == ("40.0",) * 4
    assert told["PGD minus AutoAttack on the same images"] == [("4", "10.00", "10", "odd")]
    published = told["The nets of which areas are published"]
    assert published == [("MLP", "85.0 ± 0.0", "4.00 ± 0.00", "40.00 ± 0.00")]
    assert told["The paper's comparison"] == [("MLP", "90.0", "40.0", "1")]
    assert told["The audit"][0][0].passed is False
    assert told["Certified accuracy / accuracy under PGD"] == [("MLP", "25.0 / 50.0 / 75.0")]
    assert robustness.tables([], TINY) == []


def test_tuning_is_on_training_images_that_were_not_learnt():
    data = Images("mnist5k").load()
    method = tuning.GRIDS["logistic regression"]["penalty 30"]
    found = tuning.measure_held_out(method=method, data=data)
    net = train_logistic(data.x_train, data.y_train, penalty=30)
    held_out = per_class(data.x_test, data.y_test, 100)
    by_hand = pgd(net, *held_out, ThreatModel("linf", 0.1))
    assert found == {"clean": by_hand.clean_accuracy, "robust": by_hand.robust_accuracy}


@pytest.mark.parametrize(("best", "holds"), [("0.7", True), ("0.5", False)])
def test_the_value_in_use_is_held_against_the_best_of_its_grid(best, holds):
    grid = tuning.GRIDS["MLP, input noise"]
    rows = [
        row({"clean": 0.8, "robust": 0.4 if value == best else 0.3}, method=method)
        for value, method in grid.items()
    ]
    (verdict,) = tuning.verdicts(rows, TINY)
    assert verdict.reproduced is holds
    assert verdict.measured == pytest.approx(0 if holds else 10)
    assert verdict.note == f"best: {best}"
    (table,) = tuning.tables(rows, TINY)
    assert table.rows[0] == (best, "80.0", "40.0", "120.0")
    assert tuning.verdicts(rows[1:], TINY) == []  # a grid with a gap is not judged


def test_every_accuracy_is_planned_and_most_are_nets_of_the_figures():
    full = scale.full("nowhere")
    jobs = accuracies.plan(full)
    assert len(jobs) == 5 * len(accuracies.EXPECTED | accuracies.OTHERS) == 5 * 20
    assert sum(job.name == "variant" for job in jobs) == 5 * 5
    shared = {job.spec for figure in (fig4, fig5, beyond) for job in figure.plan(full)}
    assert sum(job.spec in shared for job in jobs) == 5 * 14 + 3  # two layers: three seeds beyond


def test_accuracies_are_means_over_seeds_of_their_own_runs():
    whole = replace(TINY, sample=False, dataset="mnist")
    values = {}
    rows = []
    for k, job in enumerate(accuracies.plan(whole)):
        values.setdefault(k // 2, []).append(0.8 + 0.001 * k)
        rows.append(row({"test_accuracy": 0.8 + 0.001 * k}, job.seed, name=job.name, **job.params))
    (table,) = accuracies.tables(rows, whole)
    for line, runs in zip(table.rows, values.values(), strict=True):
        assert line[2] == f"{100 * mean(runs):.2f} ± {100 * stdev(runs):.2f}"
    first = accuracies.verdicts(rows, whole)[0]
    assert first.claim == "accuracy, labelled, d_F = 0.4"
    assert first.measured == pytest.approx(80.05)
    assert (first.expected, first.tolerance, first.reproduced) == (85.5, 0.7, False)
    assert accuracies.verdicts(rows, replace(whole, dataset="mnist5k"))[0].reproduced is None


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"readout": "ridge"}, {"readout": "ridge"}),
        ({"learnt": False}, {"epochs": 0}),
        ({"pairing": "self"},
         {"pairing": accuracies.SELF, "energy": PairEnergy(0.3, boson_weight=10)}),
    ],
)  # fmt: skip
def test_a_variant_is_the_machine_with_one_change(options, changed, data):
    settings = {"d_f": 0.3, "dataset": "mnist5k", "hidden": 5, "epochs": 2, "seed": 1}
    found = accuracies.measure_variant(**settings, **options, data=data)
    recipe = Recipe((5,), PairEnergy(0.3), epochs=2, readout_epochs=2, seed=1)
    test = (data.x_test, data.y_test)
    history = train(data.x_train, data.y_train, replace(recipe, **changed), test=test).history
    assert found == {"test_accuracy": history["readout"]["test_accuracy"].mean()}


def test_the_command_prints_and_writes_the_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "quick", lambda folder: TINY)
    options = ["--engine", "in-process", "--output", str(tmp_path)]
    done = CliRunner().invoke(app, ["reproduce", "accuracies", *options], catch_exceptions=False)
    assert done.exit_code == 0
    assert "accuracies: 5 runs, 5 computed now" in done.stdout
    (table,) = json.loads((tmp_path / "accuracies.json").read_text())
    assert table["head"][:3] == ["net", "d_F", "accuracy (%)"]
    labelled = next(line for line in table["rows"] if line[0] == "labelled")
    assert labelled[2] in done.stdout
    verdicts = json.loads((tmp_path / "verdicts.json").read_text())
    assert {v["verdict"] for v in verdicts} == {"not comparable, other images"}
    assert "accuracies.json, verdicts.json" in done.stdout
    again = CliRunner().invoke(app, ["reproduce", "accuracies", *options], catch_exceptions=False)
    assert "5 runs, 0 computed now" in again.stdout


def test_all_are_the_figures_and_the_help_names_the_experiments():
    shown = CliRunner().invoke(app, ["reproduce", "--help"]).stdout
    assert ", ".join(EXPERIMENTS) in " ".join(shown.replace("│", " ").split())
