"""The store. Oracles: what a second reader finds, and damage done on purpose."""

import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import sweep_measures as measures

from fermibose.errors import FileFormatError, InputError
from fermibose.sweep import Job, Store, StoreError, run


def tallies(number=15):
    return [Job(measures.tally, {"scale": 0.5}, seed=seed) for seed in range(number)]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    path = tmp_path_factory.mktemp("filled") / "new folder" / "store.db"
    run(tallies(), Store(path))
    assert path.stat().st_size > 10000
    return path


@pytest.fixture
def copy(filled, tmp_path):
    return shutil.copy(filled, tmp_path / "copy.db")


def test_a_finished_store_is_one_file(filled):
    assert [path.name for path in filled.parent.iterdir()] == ["store.db"]


def test_rows_can_be_read_again_by_function(copy):
    store = Store(copy)
    run([Job(measures.fails_on, {"bad": 0}, seed=0)], store)
    assert len(store.rows()) == 16
    found = store.rows(measures.tally)
    assert [row.seed for row in found] == list(range(15))
    assert store.rows("sweep_measures:tally")[0].key == found[0].key == tallies()[0].key
    assert store.rows("sweep_measures:tall") == []
    for other in (3, partial(measures.tally, scale=0.5)):
        with pytest.raises(InputError, match="rows are of a function"):
            store.rows(other)


def test_the_digest_is_of_results_and_not_of_times(filled, copy):
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("UPDATE results SET seconds = 9, finished = 'never', versions = '{}'")
    assert Store(copy).digest() == Store(filled).digest()
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("UPDATE results SET result = '{}' WHERE seed = 3")
    assert Store(copy).digest() != Store(filled).digest()


def test_a_failure_gives_way_to_a_result_and_a_result_to_nothing(tmp_path):
    store, (job,) = Store(tmp_path / "s"), tallies(1)
    answer = {"result": None, "error": "first", "seconds": 1.0, "versions": {}}
    store.record(job, answer)
    store.record(job, answer | {"error": "second"})
    assert [(row.error, row.result) for row in store.rows()] == [("second", None)]
    store.record(job, answer | {"error": None, "result": '{"x":1}'})
    store.record(job, answer | {"error": None, "result": '{"x":2}'})
    store.record(job, answer | {"error": "third"})
    assert [(row.error, row.result) for row in store.rows()] == [(None, {"x": 1})]


@pytest.mark.parametrize("size", [1, 50, 4096, 8192, 10000])
def test_a_truncated_store_is_refused(copy, size):
    with open(copy, "r+b") as file:
        file.truncate(size)
    with pytest.raises(FileFormatError, match="damaged"):
        Store(copy)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"sum":', b'"sum";'),
        (b'"kind":"plain"', b'"kind":"pl\xffin"'),
        (b'"$float":"nan"', b'"$float":"nun"'),
        (b'{"scale":0.5}', b'{"scale":0.5]'),
        (b'"numpy": ', b'"numpy", '),
    ],
)
def test_a_damaged_row_is_computed_again_and_costs_no_other(filled, copy, old, new):
    victim, *others = tallies()
    before, key, *after = Path(copy).read_bytes().partition(victim.key.encode())
    Path(copy).write_bytes(before + key + after[0].replace(old, new, 1))
    store = Store(copy)
    found = store.rows_of(tallies())
    assert [row.seed for row in found if row.damaged] == [victim.seed]
    assert found[0].result is None
    assert found[0].params == victim.params
    assert "cannot be read" in found[0].error
    assert store.finished() == {job.key for job in others}
    assert run(tallies(), store).computed == 1
    assert store.digest() == Store(filled).digest()
    assert [row.params for row in store.rows() if not row.damaged] == [{"scale": 0.5}] * 15


@pytest.mark.parametrize("used", [False, True])
def test_who_only_reads_makes_no_store(tmp_path, used):
    with pytest.raises(InputError, match="there is no store"):
        Store(tmp_path / "folder" / "none.db", create=False)
    assert not list(tmp_path.iterdir())
    empty = tmp_path / "empty.db"
    empty.touch()
    if used:  # a database that holds nothing any more
        with closing(sqlite3.connect(empty)) as connection:
            connection.executescript("CREATE TABLE a (b); DROP TABLE a")
    before = empty.read_bytes()
    with pytest.raises(FileFormatError, match="empty, and not a store"):
        Store(empty, create=False)
    assert empty.read_bytes() == before


def test_other_files_are_refused_and_left_alone(tmp_path):
    other = tmp_path / "results.csv"
    other.write_text("seed,accuracy\n" * 100)
    with pytest.raises(FileFormatError, match="not a store"):
        Store(other)
    assert other.read_text() == "seed,accuracy\n" * 100
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as connection, connection:
        connection.execute("CREATE TABLE results (key)")
    before = foreign.read_bytes()
    with pytest.raises(FileFormatError, match="another program"):
        Store(foreign)
    assert foreign.read_bytes() == before


def test_a_store_of_a_later_version_is_refused(copy):
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(FileFormatError, match="format 2, this version reads 1"):
        Store(copy)


def test_a_finished_store_can_be_read_where_nothing_can_be_written(copy, monkeypatch):
    real = sqlite3.connect
    monkeypatch.setattr(
        sqlite3,
        "connect",
        lambda path, **options: real(f"file:{path}?mode=ro", uri=True, **options),
    )
    outcome = run(tallies(), Store(copy))
    assert outcome.computed == 0
    assert all(row.result for row in outcome.rows)
    with pytest.raises(StoreError, match="allow writing"):
        run(tallies(16), Store(copy))


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="folder"):
        Store(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file"):
        Store(tmp_path / "file" / "store.db")


@pytest.mark.parametrize("path", [None, 3, "a\0b", ["s.db"]])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(InputError, match=r"the path of one file, say results\.db, not"):
        Store(path)


def test_where_no_file_can_be_made_there_is_nothing_to_be_safe(tmp_path):
    with pytest.raises(InputError, match="no store can be made"):
        Store(tmp_path / ("long" * 100))
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "store.db")
    with pytest.raises(StoreError, match=r"there is no store at .*: name another file") as caught:
        Store(tmp_path / "dangling")
    assert "safe" not in str(caught.value)


def test_on_a_full_disk_finished_rows_are_kept_and_the_rest_is_computed_later(
    tmp_path, monkeypatch
):
    jobs, store = tallies(30), Store(tmp_path / "s.db")
    real = sqlite3.connect

    def connect_to_small_disk(*args, **options):
        connection = real(*args, **options)
        connection.execute("PRAGMA max_page_count = 6")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect_to_small_disk)
        with pytest.raises(StoreError, match="make room on the disk"):
            run(jobs, store)
    kept = len(store.rows())
    assert 5 < kept < 30
    assert run(jobs, store).computed == 30 - kept
    run(jobs, whole := Store(tmp_path / "whole.db"))
    assert store.digest() == whole.digest()


def test_a_locked_store_is_an_error_that_says_so(copy, monkeypatch):
    monkeypatch.setattr("fermibose.sweep.store._WAIT", 0.1)
    store = Store(copy)
    with closing(sqlite3.connect(copy)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="locked"):
            run(tallies(16), store)
    assert run(tallies(16), store).computed == 1
