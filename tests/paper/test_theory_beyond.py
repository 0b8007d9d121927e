"""The theory beyond the paper as a figure. Oracles: patterns attacked one by one, verdicts on rows
that are right and on rows that are not."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from fermibose.cavity import ground_state, sample_instance
from fermibose.data import load_dataset
from fermibose.plotting import canvas
from fermibose.theory import Problem, solve
from fermibose_paper import real_data, scale, theory_beyond
from fermibose_paper.run import run
from fermibose_paper.store import Store
from fermibose_paper.theory_beyond import measure_all_pairs, measure_online, measure_partners

TINY = theory_beyond.Sizes(60, 4, 60, 4, 40, 3, 1, (1, theory_beyond.EVERYONE))


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setattr(theory_beyond, "QUICK", TINY)
    patch.setattr(theory_beyond, "GAMMAS", (0.5, 1.0))
    try:
        jobs = theory_beyond.plan(replace(scale.quick(), name="tiny"))
        jobs = [job for job in jobs if "dataset" not in job.params]
        store = Store(tmp_path_factory.mktemp("store") / "store.sqlite")
        yield run(jobs, store, show=False).rows
    finally:
        patch.undo()


def test_weights_are_attacked_as_patterns_are():
    """Every pattern moved to the worst point of its ball, of which the norm is measured."""
    eps, n = 0.4, 80
    found = measure_all_pairs(method="ground", n=n, samples=1.0, attacked=[0.0, eps], seed=3)
    problem = Problem(samples=1.0, pairing="all", beta=math.inf)
    instance = sample_instance(problem, n, seed=3, test_pairs=2000)
    w = ground_state(instance, restarts=1).weights
    w = w * np.sign(w.mean())
    test = instance.test
    for name, p in (("ℓ₂", 2.0), ("ℓ∞", math.inf), ("ℓ₃", 3.0)):
        worst = np.sign(w) if p == math.inf else np.sign(w) * np.abs(w) ** (1 / (p - 1))
        size = eps / n if p == math.inf else eps * n ** (1 / p - 1)
        worst = worst * size / np.linalg.norm(worst, p)
        assert np.linalg.norm(worst, p) == pytest.approx(size)
        moved = test.x - test.y[..., None] * worst
        hits = float((np.sign(moved @ w) == test.y).mean())
        assert found["attacked"][name][1] == pytest.approx(hits, abs=1e-3)
    assert found["attacked"]["ℓ₂"][0] == pytest.approx(solve(problem).accuracy, abs=0.05)


def test_runs_are_those_of_the_library():
    online = measure_online(n=50, learning_rate=1.0, batch=10, times=[0.5, 1.0], seed=1)
    assert len(online["M"]) == len(online["q"]) == 2
    alone = measure_partners(partners=1, n=40, starts=4, seed=0)
    everyone = measure_partners(partners=0, n=40, starts=4, seed=0)
    assert everyone["distinct"] < alone["distinct"]
    assert everyone["excess"] < 1.05 < alone["excess"]


def test_every_claim_has_a_verdict_and_a_panel(rows, monkeypatch):
    monkeypatch.setattr(theory_beyond, "QUICK", TINY)
    monkeypatch.setattr(theory_beyond, "GAMMAS", (0.5, 1.0))
    monkeypatch.setattr(theory_beyond, "POINTS", 3)
    asked = scale.quick()
    verdicts = theory_beyond.verdicts(rows, asked)
    claims = " ".join(v.claim for v in verdicts)
    for word in ("AMP", "ground states", "SGD", "attacks", "different minima", "stable at every"):
        assert word in claims
    panels = theory_beyond.draw(rows, asked).axes
    assert [len(ax.containers) for ax in panels[:5]] == [2, 0, 3, 3, 3]


def test_what_is_off_is_told(rows, monkeypatch):
    """The same rows with M larger by 5 at a single point: the claim on all of them fails."""
    monkeypatch.setattr(theory_beyond, "GAMMAS", (0.5, 1.0))
    for chosen, told in (
        ({"method": "amp", "samples": 1.0}, "AMP"),
        ({"method": "ground", "samples": 0.5}, "ground states"),
        ({"learning_rate": theory_beyond.RATES[0], "batch": theory_beyond.BATCHES[1]}, "SGD"),
    ):
        wrong = [
            SimpleNamespace(
                params=row.params, seed=row.seed,
                result=row.result | {"M": (5 + np.array(row.result["M"])).tolist()}
                if chosen.items() <= row.params.items() else row.result,
            )
            for row in rows
        ]  # fmt: skip
        (found,) = [v for v in theory_beyond.verdicts(wrong, scale.quick()) if told in v.claim]
        assert not found.reproduced
        where = "γ = " if "samples" in chosen else "η = "
        value = chosen.get("samples", theory_beyond.RATES[0])
        assert f"farthest at {where}{value:g}" in found.note


def test_points_are_judged_together():
    """Ten points that are right are refused as rarely as a Gaussian is two deviations off."""
    rng, refused = np.random.default_rng(4), 0
    for _ in range(400):
        drawn = rng.normal(1, 0.1, (10, 6, 2)).tolist()
        right = {f"point {k}": (values, [1.0, 1.0]) for k, values in enumerate(drawn)}
        verdict = theory_beyond._together("all", right)
        least = min(hotelling(*point) for point in right.values())
        assert verdict.measured == pytest.approx(min(1, 10 * least), rel=1e-6)
        refused += not verdict.reproduced
    assert 0.02 < refused / 400 < 0.08
    assert theory_beyond._together("all", {"none": ([], [1.0, 1.0])}).word == "not measured"


def hotelling(values, expected):
    """p of Hotelling's T² of two quantities, by the inverse of a 2 × 2 matrix written out."""
    x = np.array(values)
    n, (a, b) = len(x), x.mean(0) - expected
    (s, c), (_, t) = np.cov(x.T)
    squared = n * (a * a * t - 2 * a * b * c + b * b * s) / (s * t - c * c)
    return stats.f.sf(squared * (n - 2) / (2 * (n - 1)), 2, n - 2)


def test_a_unit_on_real_digits_meets_its_prediction():
    """3 against 8, 200 of the bundled images: within the scatter of three draws."""
    data = real_data.Classes("mnist5k", 3, 8, None).load()
    assert set(np.unique(data.y_train)) == {3, 8}
    assert len(data.x_train) == 800
    pool, bundled = {r.tobytes() for r in data.x_train}, load_dataset("mnist5k")
    assert pool.isdisjoint({r.tobytes() for r in data.x_test})
    assert pool <= {r.tobytes() for r in bundled.x_test}
    where = {"dataset": "mnist5k", "pair": [3, 8], "data": data}
    predicted = real_data.measure_prediction(sizes=[200], **where)["predicted"]
    units = [real_data.measure_unit(n=200, source="real", seed=s, **where) for s in range(3)]
    accuracy = np.array([unit["accuracy"] for unit in units])
    assert all(unit["converged"] for unit in units)
    assert abs(accuracy.mean() - predicted["accuracy"][0]) < 0.02
    distance = np.mean([unit["fermion_distance"] for unit in units])
    assert distance == pytest.approx(predicted["fermion_distance"][0], rel=0.1)


def pair_rows():
    """Two pairs of classes; images are 2, then 6 points below theory, surrogates 0.5 above."""
    sizes, predicted, made = [100, 200, 500], [0.8, 0.9, 0.95], []
    curves = {name: [(k + 1) * p for p in predicted] for k, name in enumerate(real_data.QUANTITIES)}
    for (dataset, pair), gap in {("mnist", (3, 8)): 0.02, ("fashion-mnist", (0, 6)): 0.06}.items():
        where = {"dataset": dataset, "pair": list(pair)}
        made.append((where | {"sizes": sizes}, 0, {"predicted": curves}))
        for source, shift in (("real", -gap), ("gaussian", 0.005)):
            made += [
                (
                    where | {"n": n, "source": source},
                    seed,
                    {name: c[i] + shift + (-1) ** seed * 1e-3 for name, c in curves.items()},
                )
                for i, n in enumerate(sizes)
                for seed in range(2)
            ]
    return [SimpleNamespace(params=p, seed=s, result=r) for p, s, r in made]


def test_pairs_of_classes_are_judged_from_200_images_on():
    found = {v.claim: v for v in real_data.verdicts(pair_rows(), scale.full())}
    gaps = {claim.removesuffix(": mean gap of accuracy"): v.measured for claim, v in found.items()}
    assert list(gaps.values()) == pytest.approx([2, 0.5, 6, 0.5])
    assert next(iter(gaps)) == "mnist, 3 against 8, real images"
    assert [v.reproduced for v in found.values()] == [False, True, False, True]
    overall = real_data.overall_verdicts(pair_rows(), "theory-beyond")
    assert [v.measured for v in overall] == pytest.approx([4, 0.5])
    first = [
        row for row in pair_rows() if row.params.get("n") != 500 or row.params["pair"] == [3, 8]
    ]
    overall = real_data.overall_verdicts(first, "theory-beyond")  # two sizes and one of them
    assert overall[0].measured == pytest.approx((2 + 2 + 6) / 3)


def test_every_quantity_of_every_pair_has_its_panel():
    """Lines are what was predicted, bars the mean and the error of two draws, in the units told."""
    axes = np.array(real_data.draw(pair_rows(), scale.full()).axes).reshape(4, 2)
    for k, (row, (_, unit, _)) in enumerate(zip(axes, real_data.QUANTITIES.values(), strict=True)):
        for ax, gap in zip(row, (0.02, 0.06), strict=True):
            line = ax.lines[0].get_ydata()
            assert line == pytest.approx((k + 1) * unit * np.array([0.8, 0.9, 0.95]))
            for bars, shift in zip(ax.containers, (-gap, 0.005), strict=True):
                mean, (low, high), _ = bars.lines
                assert mean.get_ydata() == pytest.approx(line + unit * shift)
                half = (high.get_ydata() - low.get_ydata()) / 2
                assert half == pytest.approx(unit * 1e-3)  # ±1e-3, so an error of 1e-3·√2/√2
    with canvas() as (_, panel):
        real_data.draw_first(panel, pair_rows())
    assert panel.lines[0].get_ydata() == pytest.approx([80, 90, 95])


def test_data_that_are_not_there_are_left_out():
    asked = replace(scale.full(), lost={"fashion-mnist": "no such folder"})
    sets = {job.params.get("dataset") for job in theory_beyond.plan(asked)} - {None}
    assert sets == {"mnist"}
