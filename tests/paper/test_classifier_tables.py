"""The classifier beside scikit-learn's on tables: splits, gaps and the verdict."""

import numpy as np
import pytest
from paper_rows import row
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from fermibose_paper import scale as scales
from fermibose_paper import tables

FULL = scales.full()


def found(table, method, accuracy, seed=0):
    return row({"accuracy": accuracy}, seed, name="table", table=table, method=method)


def test_a_run_learns_each_half_and_is_judged_on_the_other():
    told = tables.measure_table(table="wine", method="SVC", seed=4)["accuracy"]
    x, y = tables.TABLES["wine"]()
    scores = []
    for learnt, judged in StratifiedKFold(2, shuffle=True, random_state=4).split(x, y):
        scaler = StandardScaler().fit(x[learnt])
        model = SVC().fit(scaler.transform(x[learnt]), y[learnt])
        scores.append((model.predict(scaler.transform(x[judged])) == y[judged]).mean())
    assert told == pytest.approx(np.mean(scores))
    assert told != tables.measure_table(table="wine", method="SVC", seed=5)["accuracy"]


def test_ours_is_the_preset_for_tables_and_as_good_as_the_others_on_wine():
    told = {m: tables.measure_table(table="wine", method=m)["accuracy"] for m in tables.METHODS}
    assert tables.METHODS[tables.OURS](3).get_params()["preset"] == "table"
    assert told[tables.OURS] > max(told.values()) - 0.03


def test_the_tables_have_classes_and_are_the_same_for_all():
    for name, make in tables.TABLES.items():
        (x, y), (again, labels) = make(), make()
        np.testing.assert_array_equal(x, again, err_msg=name)
        np.testing.assert_array_equal(y, labels, err_msg=name)
        assert len(x) == len(y) >= 150
        assert np.bincount(np.unique(y, return_inverse=True)[1]).min() > 0.15 * len(y) / 4, name


def test_the_gap_is_to_the_best_other_of_each_table():
    rows = [found("iris", m, 0.9) for m in tables.METHODS if m not in ("SVC", "MLP")]
    rows += [found("iris", "SVC", 0.92), found("iris", "SVC", 0.94, 1), found("iris", "MLP", 0.5)]
    rows += [found("wine", m, 0.8 + 0.1 * (m == tables.OURS)) for m in tables.METHODS]
    rows += [found("moons", tables.OURS, 0.1)]  # without the others it counts for nothing
    (verdict,) = tables.verdicts(rows, FULL)
    assert verdict.measured == pytest.approx((-3 + 10) / 2)
    assert verdict.note == "2 tables"
    (table,) = tables.tables(rows, FULL)
    lines = {line[0]: line for line in table.rows}
    assert lines["iris"][1:4] == ("90.0", "90.0", "93.0 ± 1.0")
    assert [lines[name][-1] for name in ("iris", "wine", "moons")] == ["-3.0", "+10.0", "—"]


def test_more_than_a_point_below_on_average_does_not_hold():
    for ours, holds in ((0.895, True), (0.885, False)):
        rows = [found("iris", m, ours if m == tables.OURS else 0.9) for m in tables.METHODS]
        assert tables.verdicts(rows, FULL)[0].reproduced is holds
