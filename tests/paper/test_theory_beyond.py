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
from fermibose.theory import Problem, solve
from fermibose_paper import real_pairs, scale, theory_beyond
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
    data = real_pairs.Classes("mnist5k", 3, 8, None).load()
    assert set(np.unique(data.y_train)) == {3, 8}
    assert len(data.x_train) == 800
    pool, bundled = {r.tobytes() for r in data.x_train}, load_dataset("mnist5k")
    assert pool.isdisjoint({r.tobytes() for r in data.x_test})
    assert pool <= {r.tobytes() for r in bundled.x_test}
    where = {"dataset": "mnist5k", "pair": [3, 8], "data": data}
    predicted = real_pairs.measure_prediction(sizes=[200], **where)["predicted"]
    units = [real_pairs.measure_unit(n=200, source="real", seed=s, **where) for s in range(3)]
    accuracy = np.array([unit["accuracy"] for unit in units])
    assert all(unit["converged"] for unit in units)
    assert abs(accuracy.mean() - predicted["accuracy"][0]) < 0.02
    distance = np.mean([unit["fermion_distance"] for unit in units])
    assert distance == pytest.approx(predicted["fermion_distance"][0], rel=0.1)


def test_data_that_are_not_there_are_left_out():
    asked = replace(scale.full(), lost={"fashion-mnist": "no such folder"})
    sets = {job.params.get("dataset") for job in theory_beyond.plan(asked)} - {None}
    assert sets == {"mnist"}
