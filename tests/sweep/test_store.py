"""The store. Oracles: what a second reader finds, and damage done on purpose."""

import random
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import sweep_measures as measures

from fermibose.errors import FileFormatError, InputError
from fermibose_paper import Job, Store, StoreError, run
from fermibose_paper.store import COLUMNS, Answer


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


def test_rows_can_be_read_again_by_name(copy):
    store = Store(copy)
    run([Job(measures.fails_on, {"bad": 0}, seed=0)], store)
    assert len(store.rows()) == 16
    found = store.rows("tally")
    assert [row.seed for row in found] == list(range(15))
    assert found[0].key == tallies()[0].key
    assert store.rows("tall") == []
    for other in (3, measures.tally):
        with pytest.raises(InputError, match="rows are of a measurement by its name"):
            store.rows(other)


def test_rows_are_selected_without_their_data(tmp_path):
    """By name, version, parameters and seed; a result before a failure, the newest first."""
    store, job = Store(tmp_path / "s"), Job(measures.tally, {"scale": 0.5}, seed=3)

    class Lost:
        def load(self):
            raise OSError("no such folder")

    wanted = [
        Job(measures.looks, seed=1, data=Lost()),
        Job(measures.tally, {"scale": 0.5}, seed=3),
        Job(measures.tally, {"scale": 0.5}, seed=4),
    ]
    seen = {}
    for checksum in "abc":
        looks = Job(measures.looks, seed=1, data=SimpleNamespace(load=partial(data, checksum)))
        seen[looks.key] = checksum
        result = None if checksum == "b" else f'{{"seen":"{checksum}"}}'
        store.record([(looks, answer(result, None if result else "failed"))])
    newest = min(key for key in seen if seen[key] != "b")  # which comes first in the file
    for key in seen:
        backdate(store, key, "2002" if key == newest else "2001")
    run([job], store)
    found = store.select(wanted)
    assert [row.result and row.result.get("seen") for row in found] == [seen[newest], None, None]
    assert [row.result is not None for row in found] == [True, True, False]
    assert [row.error for row in found] == [None, None, None]
    assert found[0].data == seen[newest]


def data(checksum):
    return SimpleNamespace(checksum=checksum)


def answer(result=None, error=None):
    return Answer(result, error, 1.0, {}, "text")


def backdate(store, key, finished):
    """Change when a row was finished, as its writer would have."""
    with closing(sqlite3.connect(store.path)) as connection, connection:
        query = f"SELECT {', '.join(COLUMNS)} FROM results WHERE key = ?"
        row = dict(zip(COLUMNS, connection.execute(query, (key,)).fetchone(), strict=True))
    store.insert([[*(row | {"finished": finished}).values()]])


def test_the_digest_is_of_results_and_not_of_times(filled, copy):
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("UPDATE results SET seconds = 9, finished = 'never', versions = '{}'")
    assert Store(copy).digest() == Store(filled).digest()
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("UPDATE results SET result = '{}' WHERE seed = 3")
    assert Store(copy).digest() != Store(filled).digest()


def test_a_failure_gives_way_to_a_result_and_a_result_to_nothing(tmp_path):
    store, (job,) = Store(tmp_path / "s"), tallies(1)
    store.record([(job, answer(error="first"))])
    store.record([(job, answer(error="second"))])
    assert [(row.error, row.result) for row in store.rows()] == [("second", None)]
    store.record([(job, answer('{"x":1}')), (job, answer('{"x":3}'))])
    store.record([(job, answer('{"x":2}'))])
    store.record([(job, answer(error="third"))])
    assert [(row.error, row.result) for row in store.rows()] == [(None, {"x": 1})]


def test_many_answers_are_looked_up_at_once_and_few_without_counting_all_rows(
    tmp_path, monkeypatch
):
    store, asked = Store(tmp_path / "s"), []
    store.rows()
    connect = sqlite3.connect

    def listening(*args, **options):
        connection = connect(*args, **options)
        connection.set_trace_callback(
            lambda text: (
                asked.append(text) if text.startswith("SELECT") and "results" in text else None
            )
        )
        return connection

    monkeypatch.setattr("fermibose_paper.store.sqlite3.connect", listening)
    store.record((job, answer('{"x":1}')) for job in tallies(300))
    assert len(asked) == 1
    assert "count" not in asked[0]
    assert len(store.finished()) == 300


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
        (b'"kind":"plain"', b'"kind":"plane"'),  # what looks all right but is not what was written
        (b'{"scale":0.5}', b'{"scale":0.7}'),
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
        connection.execute("PRAGMA user_version = 3")
    with pytest.raises(FileFormatError, match="format 3, this version reads 2"):
        Store(copy)
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("PRAGMA user_version = 1")
    with pytest.raises(FileFormatError, match=r"convert it with `python -m fermibose_paper\.migr"):
        Store(copy)


def test_a_finished_store_can_be_read_where_nothing_can_be_written(copy, monkeypatch):
    real = sqlite3.connect
    monkeypatch.setattr(
        sqlite3,
        "connect",
        lambda path, **options: real(f"file:{copy}?mode=ro", **(options | {"uri": True})),
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
    monkeypatch.setattr("fermibose_paper.store._WAIT", 0.1)
    store = Store(copy)
    with closing(sqlite3.connect(copy)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="locked"):
            run(tallies(16), store)
    assert run(tallies(16), store).computed == 1


def test_single_flipped_bits_never_give_another_result(filled, tmp_path):
    """Any bit of the file: the result that was written, damage that is told, or no store at all."""
    whole = filled.read_bytes()
    truth = {row.key: row.result_text for row in Store(filled).rows()}
    chance = random.Random(0)
    refused = damaged = 0
    for number in range(300):
        place = chance.randrange(len(whole))
        flipped = bytearray(whole)
        flipped[place] ^= 1 << chance.randrange(8)
        path = tmp_path / f"{number}.db"
        path.write_bytes(flipped)
        try:
            rows = Store(path).rows_of(tallies())
        except (FileFormatError, StoreError):
            refused += 1
            continue
        for job, row in zip(tallies(), rows, strict=True):
            assert row.params == job.params
            assert row.result_text in (None, truth[job.key])
        damaged += any(row.damaged for row in rows)
    assert damaged > 50
    assert refused < 150


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE results SET seconds = 'long' WHERE seed = 3",
        "UPDATE results SET result = x'00ff' WHERE seed = 3",
        "UPDATE results SET seed = 2.5 WHERE seed = 3",
        "UPDATE results SET params = 7 WHERE seed = 3",
        "UPDATE results SET versions = 'x', error = 'y' WHERE seed = 3",
    ],
)
def test_a_row_of_wrong_types_is_damaged_and_costs_no_other(copy, change):
    with closing(sqlite3.connect(copy)) as connection, connection:
        assert connection.execute(change).rowcount == 1
    store = Store(copy)
    assert [row.damaged for row in store.rows()].count(True) == 1
    rows = store.rows_of(tallies())
    assert [row.seed for row in rows if row.damaged] == [3]
    assert [row.result is None for row in rows].count(True) == 1
    assert run(tallies(), store).computed == 1


def test_a_store_that_is_replaced_or_emptied_meanwhile_is_told(filled, copy, tmp_path):
    other = tmp_path / "other.db"
    Store(other)
    for number, change in enumerate(
        (
            lambda path: Path(path).write_bytes(b""),
            lambda path: shutil.copy(other, path),
            lambda path: Path(path).unlink(),
        )
    ):
        path = shutil.copy(filled, tmp_path / f"{number}.db")
        store = Store(path)
        change(path)
        told = "is no longer there" if number == 2 else "is no longer the store that was opened"
        with pytest.raises(StoreError, match=told):
            run(tallies(16), store)
        if Path(path).exists():  # and nothing was written to what lies there now
            assert not Path(path).stat().st_size or Store(path).rows() == []


def test_damaged_and_failed_rows_do_not_keep_others_from_being_selected(copy):
    store = Store(copy)
    run([Job(measures.fails_on, {"bad": 0}, seed=0)], store)
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("UPDATE results SET seconds = 7 WHERE name = 'tally' AND seed = 3")
    rows = store.select(tallies())
    assert [row.seed for row in rows if row.result is None] == [3]
    assert len(store.digest()) == 64


def test_a_job_without_a_row_is_of_its_data_all_the_same(tmp_path):
    job = Job(measures.looks, data=SimpleNamespace(load=partial(data, "images")))
    assert Store(tmp_path / "s").rows_of([job])[0].data == "images"
