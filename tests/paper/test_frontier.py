"""The frontier: contenders are what they say, and the tables count what was measured."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from paper_rows import row
from torch import nn

from fermibose.attacks import Adversary, ThreatModel, front_end, pgd
from fermibose.data import Dataset, load_dataset
from fermibose.errors import InputError
from fermibose.machine import (
    Affine,
    Augmented,
    Conv,
    KernelRidge,
    Pointwise,
    Recipe,
    train,
    train_kernel_ridge,
    train_mlp,
)
from fermibose.statistics import summary
from fermibose_paper import frontier
from fermibose_paper import scale as scales
from fermibose_paper.contenders import CONTENDERS, GRIDS, LEARNT, OURS, Contender
from fermibose_paper.shipped import read_lines, shipped, write_lines

SHAPE = (28, 28)
FULL = scales.full("nowhere")


@pytest.fixture(scope="module")
def few() -> Dataset:
    return load_dataset("mnist5k", train_per_class=5, test_per_class=8)


def found(name, look, seed=0, **result):
    """A row of the measurement, as a store would have it."""
    params = frontier._job(FULL, name, look, seed).params
    return row(result, seed, name="frontier", **params)


def strengths(name, seed=0, *, clean=0.9, robust=0.5):
    rest = dict.fromkeys(("ℓ∞ 0.2", "ℓ∞ 0.3", "ℓ2 1.5"), 0.25)
    return found(name, "strengths", seed, clean=clean, **{"ℓ∞ 0.1": robust}, **rest)


def audit(name, seed=0, *, robust=0.4, established=True):
    return found(
        name, "audit", seed, robust_accuracy=robust, established=established, verdict="so it is"
    )


def test_a_kernel_machine_learns_the_copies_too_behind_its_threshold(few):
    pairing = Augmented((Affine(SHAPE),))
    options = {"copies": 2, "gamma": 0.03, "ridge": 0.3, "threshold": [20.0, 0.4]}
    contender = Contender("threshold", "kernel ridge", 1, Recipe(pairing=pairing), options)
    model = contender.fit(few, seed=5)
    x, y = torch.as_tensor(few.x_train), torch.as_tensor(few.y_train)
    generator = torch.Generator().manual_seed(5)
    copies = [x, *(Affine(SHAPE)(x, generator) for _ in range(2))]
    seen = torch.sigmoid(20 * (torch.cat(copies) - 0.4))
    alone = train_kernel_ridge(seen, y.repeat(3), gamma=0.03, ridge=0.3)
    test = torch.as_tensor(few.x_test)
    torch.testing.assert_close(model(test), alone(torch.sigmoid(20 * (test - 0.4))))
    assert isinstance(model, nn.Sequential)
    assert front_end(model)[0] is model[0]


def test_nets_are_trained_by_their_recipe_with_the_seed(few):
    small = Recipe((Conv(4), 10), image_shape=SHAPE, epochs=1, activation="relu", bias=True)
    test = torch.as_tensor(few.x_test)
    by_pairs = Contender("raw", "local", 1, small).fit(few, seed=3)
    expected = train(few.x_train, few.y_train, Recipe(**vars(small) | {"seed": 3}), show=False)
    torch.testing.assert_close(by_pairs(test), expected.net(test), rtol=0, atol=0)
    options = {"adversary": 0.2, "steps": 2}
    together = Contender("raw", "backpropagation", 1, small, options).fit(few, seed=3)
    expected = train_mlp(
        few.x_train, few.y_train, Recipe(**vars(small) | {"seed": 3}), show=False,
        perturb=Adversary(ThreatModel("linf", 0.2), steps=2),
    )  # fmt: skip
    torch.testing.assert_close(together(test), expected.net(test), rtol=0, atol=0)


def test_every_baseline_of_a_track_has_its_augmentation_and_its_threshold():
    for name, contender in CONTENDERS.items():
        ours = next(c for c in OURS.values() if c.track == contender.track)
        if name in OURS:
            continue
        assert contender.recipe.pairing == ours.recipe.pairing, name
        first = contender.recipe.hidden[0]
        if contender.track == "raw":
            assert not isinstance(first, Pointwise), name
            assert "threshold" not in contender.options
        elif contender.kind in ("local", "backpropagation"):
            k, t = LEARNT[contender.track]
            assert first == Pointwise(steepness=(k, k), thresholds=(t, t)), name
        else:
            assert tuple(contender.options["threshold"]) == LEARNT[contender.track], name


def test_settings_tell_contenders_apart_and_are_those_of_the_grid():
    for name, grid in GRIDS.items():
        settings = [str(each.settings) for each in grid.values()]
        assert len(set(settings)) == len(settings), name
        assert str(CONTENDERS[name].settings) in settings
        assert {each.tried for each in grid.values()} == {len(grid)}, name
    changed = Contender("raw", "local", 1, Recipe(readout=KernelRidge(width=3.0)))
    assert changed.settings["recipe"] == {
        "readout": Recipe(readout=KernelRidge(width=3.0)).as_dict()["readout"]
    }


def test_the_measurement_is_of_the_contender_and_of_the_images_it_says(few, monkeypatch):
    small = Contender("raw", "kernel ridge", 1, CONTENDERS["kernel ridge"].recipe,
                      {"copies": 0, "gamma": 0.03, "ridge": 0.3})  # fmt: skip
    monkeypatch.setitem(frontier.CONTENDERS, "small", small)
    params = {"method": "small", "look": "strengths", "per_class": 4}
    told = frontier.measure_frontier(**params, settings=small.settings, data=few)
    net = train_kernel_ridge(few.x_train, few.y_train, gamma=0.03, ridge=0.3)
    right = net(torch.as_tensor(few.x_test)).argmax(1).numpy() == few.y_test
    assert told["clean"] == pytest.approx(right.mean())
    first = np.concatenate([np.flatnonzero(few.y_test == k)[:4] for k in range(10)])
    for strength, threat in frontier.STRENGTHS.items():
        alone = pgd(net, few.x_test[first], few.y_test[first], threat, show=False)
        assert told[strength] == pytest.approx(alone.robust_accuracy, abs=1.1 / 40), strength
    with pytest.raises(InputError, match="other settings"):
        frontier.measure_frontier(**params, settings={"kind": "kernel ridge"}, data=few)


def test_validation_images_are_the_next_ones_of_the_training_set():
    data = frontier.HeldOut("mnist").load()
    whole = load_dataset("mnist5k", train_per_class=100)
    np.testing.assert_array_equal(data.x_train, whole.x_train)
    for digit in range(10):
        mine = data.x_test[data.y_test == digit]
        assert len(mine) == 100
        np.testing.assert_array_equal(mine, whole.x_test[whole.y_test == digit][:100])


def test_an_image_must_withstand_the_audit_and_the_attack_behind_the_threshold():
    name = "local convolutions, threshold"
    rows = [strengths(name, 0, robust=0.9), strengths(name, 1, robust=0.8)]
    rows += [audit(name, 0, robust=0.85), audit(name, 1, robust=0.95)]
    standing = frontier.standings(rows)[name]
    assert standing.accuracy["ℓ∞ 0.1"].mean == pytest.approx((85 + 80) / 2)
    assert standing.accuracy["clean"].mean == pytest.approx(90)
    assert len(standing.audits) == standing.seeds == 2


def test_claims_are_judged_by_the_mean_and_audits_by_the_worst():
    name = "local convolutions"
    rows = [strengths(name, s, clean=0.96, robust=0.9) for s in range(3)]
    rows += [audit(name, 0, robust=0.765), audit(name, 1, robust=0.775)]
    judged = {v.claim: v for v in frontier.verdicts(rows, FULL)}
    assert judged[f"{name}: accuracy, clean"].reproduced
    assert judged[f"{name}: accuracy, ℓ∞ 0.1"].measured == pytest.approx(77)
    assert judged[f"{name}: accuracy, ℓ∞ 0.1"].reproduced
    assert judged[f"{name}: audits that do not establish it"].reproduced
    rows[-2:] = [audit(name, s, robust=0.7 + 0.01 * s, established=s < 2) for s in range(3)]
    judged = {v.claim: v for v in frontier.verdicts(rows, FULL)}
    assert judged[f"{name}: accuracy, ℓ∞ 0.1"].reproduced is False
    assert judged[f"{name}: audits that do not establish it"].reproduced is False


def test_a_baseline_that_does_not_have_its_best_setting_is_found_out():
    name, grid = next(iter(GRIDS.items()))
    values = list(grid)
    rows = [found(v, "validation", clean=0.9, robust=0.5 + 0.01 * k) for k, v in enumerate(values)]
    (verdict,) = frontier.verdicts(rows, FULL)
    used = values.index(next(v for v in values if grid[v] == CONTENDERS[name]))
    assert verdict.measured == pytest.approx(len(values) - 1 - used)
    (table,) = frontier.tables(rows, FULL)
    assert table.rows[0][0] == values[-1]
    assert table.rows[0][1:] == ("90.0", f"{50 + len(values) - 1:.1f}")


def test_other_settings_are_another_contender():
    known = strengths("local convolutions")
    params = dict(known.params)
    params["settings"] = params["settings"] | {"kind": "backpropagation"}
    stale = row(known.result, name="frontier", **params)
    assert "local convolutions" in frontier.standings([known])
    assert "local convolutions" not in frontier.standings([stale])


def test_every_contender_has_a_mark_and_a_line():
    rows = [strengths(name, clean=0.5 + k / 100) for k, name in enumerate(CONTENDERS)]
    rows.append(audit("local convolutions"))
    figure = frontier.draw(rows, FULL)
    raw = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert raw[0] == "1  local convolutions"
    assert any(text.endswith("  CNN, FGSM") for text in raw)
    assert sum(len(ax.texts) for ax in figure.axes) == len(CONTENDERS)
    assert len(figure.axes) == 3
    (alone,) = frontier.draw(rows[:1], FULL).axes  # of what is not measured there is no panel
    assert alone.get_title() == "MNIST, raw pixels"
    lines = [line for table in frontier.tables(rows, FULL)[:3] for line in table.rows]
    assert sorted(line[0] for line in lines) == sorted(CONTENDERS)
    by_name = {line[0]: line for line in lines}
    assert by_name["local convolutions"][2] == "40.0"  # of the audit, which found more
    assert by_name["local convolutions"][-2:] == ("1", "23")
    assert math.isclose(float(by_name["CNN, FGSM"][2]), 50)


def test_what_travels_with_the_package_is_planned_and_is_what_the_guide_says():
    rows = shipped("frontier")
    planned = {job.spec for job in frontier.plan(FULL)}
    assert {(r.name, r.version, r.params_text, r.seed) for r in rows} <= planned
    assert read_lines(write_lines(rows)) == rows
    images = {"published": "8ba765bc208b35df", "held out": "96a9f0bef426bdb3"}
    images["fashion"] = "4e85debd47363e57"
    for each in rows:
        kind = "held out" if each.params["look"] == "validation" else "published"
        fashion = CONTENDERS.get(each.params["method"], CONTENDERS["CNN"]).track == "fashion"
        assert each.data == images["fashion" if fashion else kind]
    guide = (Path(__file__).parents[2] / "docs" / "few-labels.md").read_text("utf-8")
    lines = [
        [c.strip() for c in line.split("|")[1:-1]] for line in guide.splitlines() if line[:1] == "|"
    ]
    told = {line[0]: line[1:] for line in lines if len(line) == 9}
    for name, standing in frontier.standings(rows).items():
        looks = frontier._results(rows, name, "strengths").values()
        pgd = str(summary((look["ℓ∞ 0.1"] for look in looks), scale=100))
        audited = str(standing.accuracy["ℓ∞ 0.1"]) if standing.audits else "—"
        if len(standing.audits) < standing.seeds and standing.audits:
            audited += f" ({len(standing.audits)} seed{'s' * (len(standing.audits) > 1)})"
        others = (str(standing.accuracy[key]) for key in ("ℓ∞ 0.2", "ℓ∞ 0.3", "ℓ2 1.5"))
        expected = [str(standing.seeds), str(standing.accuracy["clean"]), audited, pgd, *others]
        assert told[name] == [*expected, str(CONTENDERS[name].tried)], name
    assert all(each["established"] for s in frontier.standings(rows).values() for each in s.audits)


def test_data_that_are_not_there_are_left_out():
    here = replace(FULL, lost={"fashion-mnist": "no such folder"})
    left = {job.spec for job in frontier.plan(here)}
    assert left == {j.spec for j in frontier.plan(FULL) if "Fashion" not in j.params["method"]}
