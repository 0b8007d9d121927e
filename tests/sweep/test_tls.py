"""A cluster with certificates, made by the script that the recipe shows, on loopback."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sweep_measures as measures
from sweep_common import wait_for

from fermibose.errors import InputError
from fermibose_paper import Job, run

HERE = Path(__file__).parent
SCRIPTS = HERE.parents[1] / "examples" / "cluster"

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("tls")
    subprocess.run(["sh", SCRIPTS / "certificates.sh", made], check=True, timeout=300)
    return made


@pytest.fixture
def address(folder, tmp_path):
    file = tmp_path / "scheduler.json"
    environment = os.environ | {
        "DASK_CONFIG": str(folder / "dask.yaml"),
        "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}",
    }
    options = ["--scheduler-file", str(file), "--no-dashboard"]
    commands = {
        "dask_scheduler": [*options, "--host", "127.0.0.1", "--port", "0"],
        "dask_worker": [*options, "--nthreads", "1", "--no-nanny"],
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{name}", *given],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name, given in commands.items()
    ]
    try:
        wait_for(lambda: file.exists() and file.read_text().endswith("}"))
        yield json.loads(file.read_text())["address"]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def settings(folder):
    """As a file of Dask's: beside its defaults, not in their place."""
    import dask
    import distributed  # noqa: F401  # whose defaults are known from then on
    import yaml

    made = yaml.safe_load((folder / "dask.yaml").read_text())
    return dask.config.set(dask.config.merge(dask.config.config, made))


def test_keys_are_nobody_elses(folder):
    assert (folder / "dask.key").stat().st_mode & 0o077 == 0
    assert (folder / "ca.key").stat().st_mode & 0o077 == 0


def test_a_sweep_by_tls_and_nobody_without_a_certificate(address, folder, tmp_path, monkeypatch):
    assert re.fullmatch(r"tls://127\.0\.0\.1:[0-9]+", address)
    jobs = [Job(measures.tally, {"scale": scale}, seed=0) for scale in (2.0, 3.0)]
    with settings(folder):
        rows = run(jobs, tmp_path / "tls.db", engine=address).rows
    alone = run(jobs, tmp_path / "alone.db").rows
    assert [repr(row.result) for row in rows] == [repr(row.result) for row in alone]
    monkeypatch.setattr("fermibose_paper.cluster._PATIENCE", 2.0)
    for door in (address, address.replace("tls://", "tcp://")):
        with pytest.raises(InputError, match="no Dask scheduler answers"):
            run(jobs, tmp_path / "none.db", engine=door)


def test_the_scripts_are_shell_and_the_example_is_python():
    for name in ("certificates.sh", "hosts.sh"):
        assert subprocess.run(["sh", "-n", SCRIPTS / name], check=False, timeout=60).returncode == 0
    assert compile((SCRIPTS / "slurm.py").read_text("utf-8"), "slurm.py", "exec").co_names
