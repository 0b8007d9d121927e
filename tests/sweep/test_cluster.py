"""The Dask engine on a real scheduler and workers. Oracle: the engine in this process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sweep_measures as measures
from sweep_common import jobs_of_all_kinds, wait_for

from fermibose.errors import FermiboseError, InputError
from fermibose_paper import Job, Store, engine_named, run

HERE = str(Path(__file__).parent)


def start(*command, folder):
    environment = os.environ | {"PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}
    environment["OMP_NUM_THREADS"] = "2"  # which would round otherwise
    return subprocess.Popen(
        [sys.executable, "-m", "distributed.cli." + command[0], *command[1:]],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.fixture
def cluster(tmp_path):
    file = tmp_path / "scheduler.json"
    options = ["--scheduler-file", str(file), "--no-dashboard"]
    scheduler = start("dask_scheduler", *options, "--port", "0", folder=tmp_path)
    worker = start("dask_worker", *options, "--nthreads", "2", "--no-nanny", folder=tmp_path)
    wait_for(lambda: file.exists() and file.read_text().endswith("}"))
    yield json.loads(file.read_text())["address"], scheduler
    for process in (worker, scheduler):
        process.kill()
        process.wait()


def test_the_cluster_gives_the_same_rows_and_its_loss_costs_nothing_stored(cluster, tmp_path):
    address, scheduler = cluster
    stores = [Store(tmp_path / "cluster.db"), Store(tmp_path / "here.db")]
    jobs = [*jobs_of_all_kinds(), Job(measures.gemm, {"size": 200, "torch": False})]
    outcome = run(jobs, stores[0], engine=engine_named(address))
    run(jobs, stores[1])
    assert stores[0].digest() == stores[1].digest()
    assert outcome.rows[-1].result["threads"] == 1
    assert [row.error for row in outcome.rows] == [row.error for row in stores[1].rows_of(jobs)]
    assert outcome.computed == len(jobs)

    fatal = Job(measures.die_together, {"victim": scheduler.pid})
    with pytest.raises(FermiboseError, match="What is stored is safe"):
        run([*jobs, fatal], stores[0], engine=engine_named(address))
    assert stores[0].digest() == stores[1].digest()


def test_without_a_scheduler_the_error_tells_how_to_start_one(tmp_path, monkeypatch):
    monkeypatch.setattr("fermibose_paper.cluster._PATIENCE", 1.0)
    engine = engine_named("tcp://127.0.0.1:9")
    with pytest.raises(InputError, match="dask scheduler"):
        run([Job(measures.tally, {"scale": 1.0})], Store(tmp_path / "s"), engine=engine)
    assert run([], Store(tmp_path / "s"), engine=engine).rows == []  # nothing to do needs nobody


STRANGER = """
import socket, sys, threading
sys.path.insert(0, {folder!r})
import sweep_measures as measures
from fermibose.errors import InputError
from fermibose_paper import Job, run

server = socket.create_server(("127.0.0.1", 0))

def greet():
    connection, _ = server.accept()
    connection.sendall(b"HTTP/1.1 400 Bad Request\\r\\n\\r\\n")

threading.Thread(target=greet, daemon=True).start()
try:
    engine = f"tcp://127.0.0.1:{{server.getsockname()[1]}}"
    run([Job(measures.tally, {{"scale": 1.0}})], {store!r}, engine=engine)
except InputError as error:
    print(error)
"""


def test_a_server_that_is_no_scheduler_is_told_and_the_connection_closed(tmp_path):
    script = STRANGER.format(folder=HERE, store=str(tmp_path / "s"))
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("no Dask scheduler answers at tcp://127.0.0.1:")
    assert "Traceback" not in done.stderr


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setattr("fermibose_paper.cluster.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"fermibose\[paper\]"):
        engine_named("tcp://127.0.0.1:9")


def test_a_scheduler_without_workers_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("fermibose_paper.cluster._PATIENCE", 2.0)
    file = tmp_path / "scheduler.json"
    options = ["--scheduler-file", str(file), "--no-dashboard", "--port", "0"]
    scheduler = start("dask_scheduler", *options, folder=tmp_path)
    try:
        wait_for(lambda: file.exists() and file.read_text().endswith("}"))
        address = json.loads(file.read_text())["address"]
        job = Job(measures.tally, {"scale": 1.0})
        with pytest.raises(
            FermiboseError, match="no workers for 2 s: start some with `dask worker"
        ):
            run([job], Store(tmp_path / "s"), engine=address)
    finally:
        scheduler.kill()
        scheduler.wait()
