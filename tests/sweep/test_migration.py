"""Stores of format 1. Oracle: rows written as that format had them."""

import json
import sqlite3
from contextlib import closing

import pytest

from fermibose.errors import FileFormatError, InputError
from fermibose_paper import Job, Store, run
from fermibose_paper.instances import measure_instance
from fermibose_paper.job import encode
from fermibose_paper.measure import measure_training
from fermibose_paper.migration import main, migrate

NET = {"coupling": "averaged", "d_f": 0.2, "dataset": "mnist5k", "hidden": 1000, "epochs": 100}
SUMMARY = {"test_accuracy": 0.85, "boson_distance": float("nan")}
LOOKS = {
    ("measure_training", 1): SUMMARY | {"test_accuracy_per_epoch": [0.8, float("nan")]},
    ("measure_robustness", 2): SUMMARY | {"fgsm_area": 9.0},
    ("measure_pgd", 1): {"pgd_accuracy": 0.4},
    ("measure_representation", 1): {"train_explained": 0.7},
}
POINT = {"method": "amp", "n": 200, "delta": 0.5, "beta": 50.0, "alpha": 0.5}


def old_store(path, rows):
    """rows: function, version, params, seed, data, result (None: failed)."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE results (key TEXT PRIMARY KEY, function TEXT, version INTEGER, source "
            "TEXT, params TEXT, seed INTEGER, data TEXT, result TEXT, error TEXT, seconds REAL, "
            "versions TEXT, finished TEXT) WITHOUT ROWID"
        )
        connection.execute(f"PRAGMA application_id = {0x46425357}")
        connection.execute("PRAGMA user_version = 1")
        for number, (function, version, params, seed, data, result) in enumerate(rows):
            found = (None, "failed") if result is None else (encode(result, "result"), None)
            columns = (f"fermibose.paper.runs:{function}", version, "old text")
            connection.execute(
                f"INSERT INTO results VALUES ({', '.join('?' * 12)})",
                (str(number), *columns, encode(params, "params"), seed, data, *found, 2.0,
                 json.dumps({"torch": "2.13"}), f"2026-01-01T00:00:{number:02d}"),
            )  # fmt: skip
    return path


def looks(seed, *names, data="checksum"):
    for (function, version), result in LOOKS.items():
        if function in names:
            params = NET | ({"epsilon": 0.1} if function == "measure_pgd" else {})
            yield function, version, params, seed, data, result


class Images:
    """Data whose checksum is that of the old rows."""

    checksum = "checksum"

    def load(self):
        return self


def test_the_looks_at_one_net_become_one_row_that_a_run_finds(tmp_path):
    every = [function for function, _ in LOOKS]
    rows = [
        *looks(0, *every),
        *looks(1, "measure_training", "measure_pgd"),
        *looks(2, "measure_pgd"),  # of which no summary is known
        ("measure_robustness", 1, NET, 3, "checksum", SUMMARY),  # of an earlier version
        ("measure_training", 1, NET, 4, "checksum", None),
        ("measure_instance", 3, POINT, 5, "", {"M": 0.5}),
    ]
    old = old_store(tmp_path / "old.db", rows)
    before = old.read_bytes()
    assert migrate(old, tmp_path / "new.db") == (9, 3)
    assert old.read_bytes() == before
    store = Store(tmp_path / "new.db")
    jobs = [
        Job(measure_training, NET | {"also": also}, seed=seed, data=Images())
        for seed, also in enumerate(
            (["components", "courses", "curves", "pgd"], ["courses", "pgd"])
        )
    ]
    outcome = run([*jobs, Job(measure_instance, POINT, seed=5)], store)
    assert outcome.computed == 0
    whole, part, instance = (row.result for row in outcome.rows)
    together = {key: value for result in LOOKS.values() for key, value in result.items()}
    assert encode(whole, "row") == encode(together, "row")
    assert set(part) == {*SUMMARY, "test_accuracy_per_epoch", "pgd_accuracy"}
    assert instance == {"M": 0.5}
    row = outcome.rows[0]
    assert (row.seconds, row.versions, row.finished) == (
        8.0,
        {"torch": "2.13"},
        "2026-01-01T00:00:00",
    )


def test_nets_that_differ_are_not_mixed(tmp_path):
    """Another machine rounds otherwise: what was seen of its net does not belong to this one."""
    rows = [*looks(0, "measure_training"), *looks(0, "measure_pgd", data="other images")]
    rows.append(("measure_robustness", 2, NET, 0, "checksum", {"test_accuracy": 0.86, "area": 1}))
    migrate(old_store(tmp_path / "old.db", rows), tmp_path / "new.db")
    (row,) = Store(tmp_path / "new.db").rows()
    assert row.params == NET | {"also": ["courses"]}
    assert encode(row.result, "row") == encode(LOOKS["measure_training", 1], "row")


def test_pgd_of_another_strength_is_left_out(tmp_path):
    rows = [*looks(0, "measure_training")]
    rows.append(("measure_pgd", 1, NET | {"epsilon": 0.2}, 0, "checksum", {"pgd_accuracy": 0.1}))
    migrate(old_store(tmp_path / "old.db", rows), tmp_path / "new.db")
    (row,) = Store(tmp_path / "new.db").rows()
    assert row.params["also"] == ["courses"]


def test_the_command_says_what_it_did_or_why_not(tmp_path, capsys):
    old, new = old_store(tmp_path / "old.db", looks(0, "measure_training")), tmp_path / "new.db"
    assert main([str(old), str(new)]) == 0
    assert "1 rows, of 1 rows with a result" in capsys.readouterr().out
    assert main([str(old), str(new)]) == 1
    assert "exists: name a file that does not" in capsys.readouterr().err
    assert main([]) == 2
    with pytest.raises(FileFormatError, match="format 2, not 1: nothing to convert"):
        migrate(new, tmp_path / "newer.db")
    with pytest.raises(InputError, match="there is no store"):
        migrate(tmp_path / "none.db", tmp_path / "newer.db")
    (tmp_path / "text").write_text("no database " * 100)
    with pytest.raises(FileFormatError, match="not a store"):
        migrate(tmp_path / "text", tmp_path / "newer.db")
