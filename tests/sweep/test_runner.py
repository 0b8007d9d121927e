"""Runs that are killed, interrupted, repeated and shared. Oracle: an undisturbed run."""

import gc
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import sweep_measures as measures
from sweep_common import wait_for
from sweep_victim import plan

from fermibose.cli import main
from fermibose.compute import pace, progress_bar
from fermibose.errors import InputError
from fermibose_paper import Job, Store, engine_named, run
from fermibose_paper.store import Answer

HERE = Path(__file__).parent
JOBS = 40


def start(path, engine, pause):
    command = [sys.executable, HERE / "sweep_victim.py", path, engine, str(JOBS), str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("undisturbed") / "store.db")
    run(plan(JOBS), store)
    return store


def check(store, undisturbed):
    assert [(row.key, row.error) for row in store.rows()] == [
        (row.key, row.error) for row in undisturbed.rows()
    ]
    assert store.digest() == undisturbed.digest()
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_killed_five_times_and_resumed_the_store_is_that_of_an_undisturbed_run(
    undisturbed, tmp_path
):
    path = tmp_path / "store.db"
    Store(path)
    chance = random.Random(0)
    for number in range(5):
        process = start(path, ["local:2", "in-process"][number % 2], pause=0.2)
        wait_until_written(path)
        time.sleep(chance.uniform(0, 0.5))
        process.kill()
        process.communicate()
    kept = len(Store(path).finished())
    assert 0 < kept < 32
    outcome = run(plan(JOBS), Store(path), engine="local:2")
    assert outcome.computed == JOBS - kept  # the failed ones again
    check(Store(path), undisturbed)


def wait_until_written(path):
    before = path.stat().st_mtime_ns
    wait_for(lambda: path.stat().st_mtime_ns > before)


def test_two_processes_with_one_plan_corrupt_nothing(undisturbed, tmp_path):
    path = tmp_path / "store.db"
    processes = [start(path, engine, pause=0.1) for engine in ("local:2", "in-process")]
    outputs = [process.communicate()[0].split() for process in processes]
    computed = [int(number) for number, _ in outputs]
    assert all(process.returncode == 0 for process in processes)
    # What one has finished the other does not begin; what both began is written once.
    assert JOBS <= sum(computed) < 2 * JOBS
    check(Store(path), undisturbed)


def test_what_another_process_finishes_meanwhile_is_not_computed(tmp_path):
    store, context = Store(tmp_path / "s.db"), {"folder": str(tmp_path)}
    jobs = [Job(measures.counts, seed=seed, context=context) for seed in range(3)]
    real = Store.record

    def record(self, answers):
        """After the first row, another process turns out to have finished the second job."""
        real(self, answers)
        real(self, [(jobs[1], Answer('{"seed":1}', None, 0.0, {}, ""))])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "record", record)
        outcome = run(jobs, store)
    assert outcome.computed == 2
    assert [row.result for row in outcome.rows] == [{"seed": seed} for seed in range(3)]
    assert {path.name for path in tmp_path.iterdir()} == {"0", "2", "s.db"}


def test_nothing_finished_is_computed_again_and_equal_jobs_are_computed_once(tmp_path):
    context = {"folder": str(tmp_path)}
    jobs = [Job(measures.counts, seed=seed, context=context) for seed in (0, 1, 0, 2, 1)]
    store = Store(tmp_path / "s")
    first, second = run(jobs, store), run(jobs, store, engine=engine_named("local:2"))
    assert (first.computed, second.computed) == (3, 0)
    assert [row.seed for row in first.rows] == [0, 1, 0, 2, 1]
    assert second.rows == first.rows
    assert [(tmp_path / str(seed)).read_text() for seed in range(3)] == ["x", "x", "x"]


@pytest.mark.parametrize("collected", [True, False])
def test_garbage_is_collected_after_a_run_as_before_it(tmp_path, collected):
    jobs = [Job(measures.tally, {"scale": 1.0}, seed=0)]
    try:
        if not collected:
            gc.disable()
        run(jobs, tmp_path / "store.db")
        assert gc.isenabled() == collected
    finally:
        gc.enable()


def test_store_and_engine_may_be_given_by_name_and_jobs_one_by_one(tmp_path):
    path, context = tmp_path / "s.db", {"folder": str(tmp_path)}
    jobs = [Job(measures.counts, seed=seed, context=context) for seed in range(3)]
    outcome = run(iter(jobs), str(path), engine="local:1")
    assert [row.result for row in outcome.rows] == [{"seed": seed} for seed in range(3)]
    assert run(jobs, path, engine="in-process").rows == outcome.rows == Store(path).rows_of(jobs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": "loca"}, "there is no engine 'loca'"),
        ({"engine": 4}, "an engine has a name, say local, not 4"),
        ({"store": None}, "the path of one file"),
        ({"jobs": Job(measures.fails_on, {"bad": 0})}, "a list of jobs, not Job"),
        ({"jobs": None}, "a list of jobs, not None"),
        ({"jobs": [measures.tally]}, "one of them is <function tally"),
    ],
)
def test_a_run_of_something_else_is_refused_before_a_store_is_made(changes, message, tmp_path):
    with pytest.raises(InputError, match=message):
        run(**({"jobs": [], "store": tmp_path / "s", "engine": "in-process"} | changes))
    assert list(tmp_path.iterdir()) == []


def test_of_equal_jobs_the_context_of_the_first_counts(tmp_path):
    folders = [tmp_path / name for name in ("a", "b")]
    jobs = [Job(measures.counts, context={"folder": str(folder)}) for folder in folders]
    folders[0].mkdir()
    assert run(jobs, Store(tmp_path / "s")).failures == []


def test_failed_jobs_are_tried_again_by_the_next_run(tmp_path):
    context = {"folder": str(tmp_path)}
    job, store = Job(measures.dies, {"times": 2}, seed=0, context=context), Store(tmp_path / "s")
    failed = run([job], store, engine=engine_named("local:1"))
    assert failed.failures
    assert str(failed) == "0 of 1 jobs finished, 1 computed now, 1 failed"
    outcome = run([job], store, engine=engine_named("local:1"))
    assert outcome.failures == []
    assert str(outcome) == "1 of 1 jobs finished, 1 computed now"
    assert outcome.rows[0].result == {"seed": 0}


@pytest.mark.parametrize("engine", ["local:2", "in-process"])
def test_ctrl_c_returns_promptly_with_what_is_finished(engine, undisturbed, tmp_path):
    path = tmp_path / "store.db"
    Store(path)
    process = start(path, engine, pause=0.2)
    wait_until_written(path)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    pressed = time.monotonic()
    computed, interrupted = process.communicate()[0].split()
    assert time.monotonic() - pressed < 60
    assert (process.returncode, interrupted) == (0, "True")
    assert 0 < len(Store(path).rows()) == int(computed) < JOBS
    run(plan(JOBS), Store(path))
    check(Store(path), undisturbed)


@pytest.mark.parametrize("swallow", [False, True])
def test_half_a_result_after_ctrl_c_is_not_stored(swallow, tmp_path):
    params = {"after": 2, "swallow": swallow}
    jobs = [Job(measures.interrupted, params, seed=seed) for seed in range(4)]
    before = signal.getsignal(signal.SIGINT)
    outcome = run(jobs, Store(tmp_path / "s"))
    assert signal.getsignal(signal.SIGINT) is before
    assert outcome.interrupted
    assert [row.result for row in outcome.rows] == [{"whole": True}, {"whole": True}, None, None]
    assert outcome.failures == []


def test_ctrl_c_while_a_row_is_written_lets_it_be_written(tmp_path, monkeypatch):
    real = Store.record

    def record(store, answers):
        signal.raise_signal(signal.SIGINT)
        real(store, answers)

    monkeypatch.setattr(Store, "record", record)
    outcome = run(plan(3), Store(tmp_path / "s"))
    assert outcome.interrupted
    assert [row.result is not None for row in outcome.rows] == [True, False, False]


def test_the_function_sees_lists_for_tuples_in_every_engine(tmp_path):
    for engine in ("in-process", "local:1"):
        job = Job(measures.tally, {"scale": 1.0, "kind": ("a", {"b": (1, 2)})})
        (row,) = run([job], Store(tmp_path / engine), engine=engine_named(engine)).rows
        assert row.result["kind"] == ["a", {"b": [1, 2]}]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0, 10, 0.0, 5.0), "0:00:05 passed"),
        ((4, 10, 2.0), "0:00:03 left, 2/s"),
        ((4, 10, 2.0, 1.0), "0:00:02 left, 2/s"),
        ((4, 10, 2.0, 2.9), "0:00:05 passed, 2/s"),
        ((9, 10, 90.0, 3600.0), "1:01:30 passed, 6/min"),
        ((3, 123, 60.0), "0:40:00 left, 3/min"),
        ((1, 3, 7200.0), "4:00:00 left, 0.5/h"),
    ],
)
def test_rate_and_time_left(arguments, text):
    assert pace(*arguments) == text


def test_the_bar_shows_how_far_how_fast_and_what_failed(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    run(plan(10), Store(tmp_path / "s"), text="fig4 (3 of 7)", show=True)
    shown = capfd.readouterr().err
    assert "10/10" in shown
    assert "fig4 (3 of 7)" in shown
    assert "2 failed" in shown
    run(plan(5), Store(tmp_path / "other"))  # not a terminal
    assert capfd.readouterr().err == ""


def test_another_text_of_the_function_only_warns(tmp_path):
    store, jobs = Store(tmp_path / "s"), [Job(measures.tally, {"scale": 1.0})]
    store.record([(jobs[0], Answer('{"x":1}', None, 0.0, {}, "another text"))])
    with pytest.warns(UserWarning, match="'tally' were computed by another text .* its version"):
        outcome = run(jobs, store)
    assert (outcome.computed, outcome.rows[0].result) == (0, {"x": 1})


def test_at_80_columns_bars_are_whole_and_only_the_status_is_cut(capfd, monkeypatch):
    """Work inside work is a line below; what does not fit is the end of the status."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    with progress_bar("layer 1, epoch", 100, show=True) as advance:
        time.sleep(0.2)
        advance(12, status="D²_B 0.158, D²_F 0.430 and more that nobody reads")
        with progress_bar("inside", 7, show=True) as inner:
            inner(3)
            time.sleep(0.3)  # the screen is drawn ten times a second
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", capfd.readouterr().err)
    parts = " ".join(shown.split("\n"))
    assert re.search(
        r"layer 1, epoch +━.* 12/100 +0:00:0\d left, [\d.]+/s +D²_B 0.158, D.*…", parts
    )
    assert "3/7" in parts


@pytest.mark.parametrize("slow", [True, False])
def test_off_a_terminal_a_command_says_once_that_it_is_at_work(slow, capfd, monkeypatch):
    """The library by itself stays silent; so does a command that is quick."""
    monkeypatch.setattr("fermibose.compute._QUIET", 0.2 if slow else 60)

    def work():
        with progress_bar("outside", 7) as advance, progress_bar("inside", 3) as inner:
            advance(2)
            inner()
            time.sleep(0.6 if slow else 0)

    work()
    assert capfd.readouterr().err == ""
    monkeypatch.setattr("fermibose.cli.app", work)
    main()
    told = "outside: 2 of 7 done after 0.2 s, still at work\n"
    assert capfd.readouterr().err == (told if slow else "")
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
