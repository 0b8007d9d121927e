"""Engines. Oracles: the function called directly, and one engine against another, bit for bit."""

import copy
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import sweep_measures as measures
from sweep_common import bits, jobs_of_all_kinds, wait_for

from fermibose.errors import FermiboseError, InputError
from fermibose_paper import Job, Store, engine_named, run
from fermibose_paper.run import perform


def content(store):
    return [(row.key, bits(row.result), row.error) for row in store.rows()]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("reference") / "store.db")
    run(jobs_of_all_kinds(), store)
    return store


def test_rows_are_what_the_function_returns_bit_for_bit(reference):
    outcome = run(jobs_of_all_kinds(), reference)
    for row in outcome.rows[:8]:
        expected = measures.tally(**row.params, seed=row.seed)
        assert bits(row.result) == bits(expected)
        assert row.error is None
        assert row.seconds > 0


@pytest.mark.parametrize("name", ["local:1", "local:3"])
def test_local_processes_give_the_same_rows(name, reference, tmp_path):
    store = Store(tmp_path / "store.db")
    outcome = run(jobs_of_all_kinds(), store, engine=engine_named(name))
    assert content(store) == content(reference)
    assert store.digest() == reference.digest()
    assert [row.key for row in outcome.rows] == [job.key for job in jobs_of_all_kinds()]


def test_a_job_computes_with_one_thread_in_every_engine(tmp_path):
    job = Job(measures.gemm, {"size": 300, "torch": True}, seed=0)
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import sweep_measures as measures, torch\n"
        "from threadpoolctl import threadpool_info\n"
        "def threads():\n"
        "    return {torch.get_num_threads(), *(lib['num_threads'] for lib in threadpool_info())}\n"
        "print(threads())\n"
        "from fermibose_paper import Job, Store, run\n"
        "job = Job(measures.gemm, {'size': 300, 'torch': True}, seed=0)\n"
        f"run([job], Store({str(tmp_path / 'in-process.db')!r}))\n"
        "print(threads())"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", script]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    (there,) = run([job], Store(tmp_path / "local.db"), engine=engine_named("local:1")).rows
    assert process.communicate()[0] == "{2}\n{2}\n"  # before, and restored
    (here,) = Store(tmp_path / "in-process.db").rows()
    assert here.result["threads"] == there.result["threads"] == 1
    assert bits(here.result) == bits(there.result)


def test_a_failing_job_is_stored_with_its_traceback_and_the_others_finish(reference):
    outcome = run(jobs_of_all_kinds(), reference)
    (failure,) = outcome.failures
    assert (failure.params, failure.seed, failure.result) == ({"bad": 1}, 1, None)
    assert failure.error.startswith("Traceback")
    assert "RuntimeError: seed 1 is bad" in failure.error
    assert "perform" not in failure.error  # the traceback begins in the function
    assert sum(row.result is not None for row in outcome.rows) == 10


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("exit", "SystemExit: leaving"),
        ("generator", "GeneratorExit: gone"),
        ("array", "numpy.ndarray"),
        ("list", "not a dict"),
    ],
)
@pytest.mark.parametrize("engine", ["in-process", "local:1"])
def test_a_misbehaving_function_is_a_failed_job(how, message, engine, tmp_path):
    job = Job(measures.misbehaves, {"how": how})
    (row,) = run([job], Store(tmp_path / "s"), engine=engine_named(engine)).failures
    assert message in row.error


def test_a_worker_that_ends_by_itself_has_died(tmp_path):
    job = Job(measures.misbehaves, {"how": "vanish"})
    (row,) = run([job], Store(tmp_path / "s"), engine="local:1").failures
    assert row.error.startswith("2 workers died while computing it")


def test_a_worker_with_another_version_of_the_measurement_refuses_it():
    job = Job(measures.tally, {"scale": 1.0})
    for attribute, other in (("version", 2), ("name", "other")):
        asked = copy.copy(job)
        object.__setattr__(asked, attribute, other)
        answer = perform(asked)
        assert answer.result is None
        assert "the worker has version 1 of 'tally'" in answer.error


@pytest.mark.parametrize("engine", ["in-process", "local:1"])
def test_a_worker_computes_only_on_the_data_that_the_job_is_of(engine, tmp_path):
    file = tmp_path / "data"
    jobs = []
    for content in ("right", "wrong"):
        file.write_text(content)
        jobs.append(Job(measures.looks, data=measures.TextFile(str(file))))
        assert jobs[-1].key  # looked at by the driver now
    outcome = run(jobs, Store(tmp_path / "s"), engine=engine)
    assert [row.result for row in outcome.rows] == [None, {"seen": "wrong"}]
    assert "are not those of the run" in outcome.rows[0].error
    assert "give every worker the same files" in outcome.rows[0].error


def test_a_job_that_prints_and_reads_does_not_disturb_its_worker(tmp_path, capfd):
    job = Job(measures.misbehaves, {"how": "print"})
    (row,) = run([job], Store(tmp_path / "s"), engine=engine_named("local:1")).rows
    assert row.result == {"input": "", "path": "1"}
    assert "noise" in capfd.readouterr().err


def test_a_job_whose_worker_is_killed_is_tried_once_more(tmp_path):
    context = {"folder": str(tmp_path)}
    jobs = [Job(measures.dies, {"times": 1}, seed=seed, context=context) for seed in range(3)]
    outcome = run(jobs, Store(tmp_path / "s"), engine=engine_named("local:2"))
    assert [row.result for row in outcome.rows] == [{"seed": seed} for seed in range(3)]


def test_a_job_that_kills_every_worker_fails_and_the_others_finish(tmp_path):
    context = {"folder": str(tmp_path)}
    jobs = [Job(measures.dies, {"times": 9}, seed=7, context=context)]
    jobs += [Job(measures.dies, {"times": 0}, seed=seed, context=context) for seed in range(3)]
    outcome = run(jobs, Store(tmp_path / "s"), engine=engine_named("local:2"))
    (failure,) = outcome.failures
    assert failure.seed == 7
    assert "killed from outside, perhaps for want of memory: use fewer" in failure.error
    assert len(list(tmp_path.glob("7-*"))) == 2
    assert [row.result for row in outcome.rows[1:]] == [{"seed": seed} for seed in range(3)]


def test_the_death_of_a_worker_that_has_nothing_to_do_costs_nothing(tmp_path):
    context = {"folder": str(tmp_path)}
    jobs = [Job(measures.kills_idle, seed=seed, context=context) for seed in (0, 1)]
    outcome = run(jobs, Store(tmp_path / "s"), engine=engine_named("local:2"))
    assert [row.result for row in outcome.rows] == [{"seed": 0}, {"seed": 1}]
    assert outcome.computed == 2


def test_workers_end_when_their_parent_is_killed(tmp_path):
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import sweep_measures as measures\n"
        "from fermibose_paper import Job, Store, engine_named, run\n"
        f"jobs = [Job(measures.counts, {{'pause': 60.0}}, seed=s, context={{'folder': "
        f"{str(tmp_path)!r}}}) for s in range(2)]\n"
        f"run(jobs, Store({str(tmp_path / 's.db')!r}), engine=engine_named('local:2'))"
    )
    parent = subprocess.Popen([sys.executable, "-c", script])
    wait_for(lambda: (tmp_path / "0").exists() and (tmp_path / "1").exists())
    workers = workers_of(parent.pid)
    assert len(workers) == 2
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def workers_of(pid):
    """Children that multiprocessing has started, apart from its tracker of resources."""
    command = ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(pid)]
    lines = subprocess.check_output(command, text=True).splitlines()
    return [int(line.split()[0]) for line in lines if "spawn_main" in line]


def test_everything_that_is_started_listens_on_loopback_only(tmp_path):
    before = listening([os.getpid()])
    with engine_named("local:1") as engine:
        run([Job(measures.tally, {"scale": 1.0})], Store(tmp_path / "s"), engine=engine)
        found = listening([os.getpid(), *workers_of(os.getpid())])
    assert len(found - before) > 1
    assert {address.split(":")[0] for address in found - before} == {"0100007F"}  # 127.0.0.1


def listening(pids):
    """Addresses (hexadecimal, with ports) on which these processes accept connections."""
    links = [link for pid in pids for link in Path(f"/proc/{pid}/fd").iterdir()]
    sockets = {os.readlink(link)[8:-1] for link in links if os.path.islink(link)}
    tables = [path for path in map(Path, ("/proc/net/tcp", "/proc/net/tcp6")) if path.exists()]
    lines = [line.split() for table in tables for line in table.read_text().splitlines()]
    return {line[1] for line in lines if line[3] == "0A" and line[9] in sockets}


def test_a_job_beyond_the_time_limit_fails_and_the_others_finish(tmp_path):
    jobs = [
        Job(measures.tally, {"scale": 1.0}, seed=seed, context={"pause": 600.0 * (seed == 1)})
        for seed in range(6)
    ]
    started = time.monotonic()
    outcome = run(jobs, Store(tmp_path / "s"), engine="local:2", time_limit=4.0)
    assert time.monotonic() - started < 300
    assert [row.seed for row in outcome.failures] == [1]
    assert outcome.failures[0].error == "it took longer than the time limit of 4 s"
    assert not outcome.interrupted


def test_the_time_limit_holds_while_other_workers_are_busy_and_for_jobs_that_travel(tmp_path):
    """Quick jobs come in all the time, and the slow ones stand among quick ones."""
    jobs = [
        Job(measures.tally, {"scale": 1.0}, seed=seed, context={"pause": pause})
        for seed, pause in enumerate([0.0] * 30 + [600.0] + [0.02] * 150)
    ]
    outcome = run(jobs, Store(tmp_path / "s"), engine="local:2", time_limit=4.0)
    assert [row.seed for row in outcome.failures] == [30]
    assert sum(row.result is not None for row in outcome.rows) == 180


def test_slow_jobs_behind_a_quick_one_are_stored_one_by_one(tmp_path):
    """A chunk ends after a tenth of a second, whatever the first job made us expect."""
    pauses = [0.0] * 4 + [1.0] * 4
    jobs = [
        Job(measures.tally, {"scale": 1.0}, seed=seed, context={"pause": pause})
        for seed, pause in enumerate(pauses)
    ]
    counts = []
    real = Store.record
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Store, "record", lambda self, some: (counts.append(len(some)), real(self, some))
        )
        outcome = run(jobs, Store(tmp_path / "s"), engine="local:1")
    assert [row.seed for row in outcome.rows if row.result is None] == []
    assert sum(counts) == 8
    assert max(counts[-3:]) == 1


def test_an_engine_that_was_interrupted_can_be_used_again(tmp_path):
    slow = [Job(measures.tally, {"scale": 1.0}, seed=n, context={"pause": 300.0}) for n in range(2)]
    timer = threading.Timer(5.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    with engine_named("local:2") as engine:
        timer.start()
        assert run(slow, Store(tmp_path / "s"), engine=engine).interrupted
        started = time.monotonic()
        quick = [Job(measures.tally, {"scale": 2.0}, seed=n) for n in range(2)]
        assert run(quick, Store(tmp_path / "s"), engine=engine).computed == 2
        assert time.monotonic() - started < 150  # and did not wait for the slow ones


def test_workers_that_die_as_they_start_are_started_again_and_not_for_ever(tmp_path, monkeypatch):
    import distributed

    jobs, real = [Job(measures.tally, {"scale": 1.0})], distributed.LocalCluster
    starts = []

    def die(**options):
        starts.append(options)
        if len(starts) < 3 or len(starts) > 3:
            raise RuntimeError("Nanny failed to start.")
        return real(**options)

    monkeypatch.setattr(distributed, "LocalCluster", die)
    assert run(jobs, Store(tmp_path / "s"), engine="local:1").computed == 1
    with pytest.raises(FermiboseError, match=r"do not start .*engine in-process"):
        run(jobs, Store(tmp_path / "other"), engine="local:1")
    assert len(starts) == 6


def test_two_functions_under_one_name_are_refused(tmp_path):
    with pytest.raises(InputError, match="tally and other_tally, are both the measurement 'tally'"):
        run(
            [Job(measures.tally, {"scale": 1.0}), Job(measures.other_tally, {"scale": 1.0})],
            Store(tmp_path / "s"),
        )


def test_a_function_that_changes_its_arguments_changes_nothing_else(tmp_path):
    job = Job(measures.tally, {"scale": 1.0, "kind": ["b", "a"]})
    spoilt = Job(measures.spoils, {"values": [3, 1, 2]})
    rows = [run([spoilt], Store(tmp_path / name)).rows[0].result for name in ("a", "b")]
    assert rows == [{"first": 3}] * 2
    assert (spoilt.params, job.params["kind"]) == ({"values": [3, 1, 2]}, ["b", "a"])


def test_a_time_limit_that_cannot_be_kept_is_refused(tmp_path):
    jobs = [Job(measures.tally, {"scale": 1.0})]
    with pytest.raises(InputError, match="cannot be ended from outside"):
        run(jobs, Store(tmp_path / "s"), time_limit=1.0)
    with pytest.raises(InputError, match="time_limit must be a finite number > 0"):
        run(jobs, Store(tmp_path / "s"), engine="local:1", time_limit=0)


def test_jobs_that_travel_together_are_tried_alone_when_their_worker_dies(tmp_path):
    """Fifty quick jobs go in chunks; the one that kills its worker is found, the others finish."""
    context = {"folder": str(tmp_path)}
    jobs = [Job(measures.dies, {"times": 0}, seed=seed, context=context) for seed in range(50)]
    jobs[30] = Job(measures.dies, {"times": 9}, seed=30, context=context)
    outcome = run(jobs, Store(tmp_path / "s"), engine="local:1")
    assert [row.seed for row in outcome.failures] == [30]
    assert len(list(tmp_path.glob("30-*"))) == 2
    assert sum(row.result is not None for row in outcome.rows) == 49


def test_a_text_that_no_file_can_hold_is_stored_as_far_as_it_goes(tmp_path):
    jobs = [Job(measures.unspeakable), Job(measures.tally, {"scale": 1.0})]
    outcome = run(jobs, Store(tmp_path / "s"))
    assert r"half \ud800 of it" in outcome.rows[0].error
    assert outcome.rows[1].result is not None


LOCAL = ["", "loca", "local:", "local:0", "local:-1", "local:two", f"local:{'9' * 5000}", "host:8"]
REMOTE = [
    f"{scheme}://{place}"
    for scheme, place in [
        *(
            ("tcp", place)
            for place in ("", "h", ":1", "h:", "h:x", "h:0", "h:65536", "h:1/x", "::1")
        ),
        *((scheme, "h:1") for scheme in ("http", "foo", "", "tcps", "inproc")),
    ]
]


@pytest.mark.parametrize("name", [*LOCAL, *REMOTE])
def test_an_unknown_engine_is_refused_with_the_names_there_are(name):
    with pytest.raises(InputError, match="in-process"):
        engine_named(name)


@pytest.mark.parametrize("name", [None, 4])
def test_what_is_no_name_is_no_engine(name):
    with pytest.raises(InputError, match="an engine has a name"):
        engine_named(name)


@pytest.mark.parametrize("name", ["tcp://h:1", "tls://10.0.0.1:65535", "ws://[::1]:8786"])
def test_addresses_of_schedulers_are_taken_as_they_are(name):
    assert engine_named(name).address == name


def test_local_takes_the_number_of_processes():
    assert engine_named("local:04").workers == 4


def test_local_uses_every_core():
    assert engine_named("local").workers == len(os.sched_getaffinity(0))


def test_rows_carry_what_computed_them(reference):
    import numpy as np

    versions = reference.rows()[0].versions
    assert set(versions) == {"fermibose", "numpy", "torch", "python", "platform"}
    assert versions["numpy"] == np.__version__
    assert json.dumps(versions)
