"""Breaks the source in named ways and demands that the tests notice: ``python tests/mutants/run.py``.

The files beside this one list the mutants of a room. Each replaces one piece of text in a copy of
the package and runs the tests that should turn red. A mutant that survives, or whose text is no
longer found, makes the script fail. Arguments select mutants whose room or name contains one.
"""

import multiprocessing
import os
import runpy
import shutil
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
JUDGED = 100  # a process that dies before its tests ends with a small number
PATIENCE = 400.0  # seconds; the slowest tests of a mutant take less than half on two busy cores
KILLED, HUNG = "killed", "killed (its tests did not end)"
GREEN = "SURVIVES (the tests stayed green)"
# Everything but the package itself is loaded once, by the process that those of the mutants are
# forked from: it takes as long as the tests of many a mutant.
FORKS = multiprocessing.get_context("forkserver")
LOADED = [
    "pytest", "torch", "scipy.integrate", "scipy.optimize", "scipy.stats", "pandas",
    "sklearn.svm", "sklearn.ensemble", "matplotlib.pyplot", "typer.testing", "distributed",
]  # fmt: skip


class Mutant(NamedTuple):
    """One way to break the package."""

    room: str
    name: str
    file: str  # below src
    old: str
    new: str
    tests: str  # what must turn red


def mutants() -> list[Mutant]:
    """All of them, room by room."""
    rooms = sorted(path for path in HERE.glob("*.py") if path != Path(__file__).resolve())
    return [Mutant(path.stem, *m) for path in rooms for m in runpy.run_path(str(path))["MUTANTS"]]


def judged(mutant: Mutant) -> str:
    """KILLED if the tests turn red, HUNG if they do not end in time, else why it survives."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        path = source / mutant.file
        text = path.read_text(encoding="utf-8")
        if mutant.old not in text:
            return "SURVIVES (its text is no longer in the source)"
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        run = FORKS.Process(target=judge, args=(source, mutant.tests))
        run.start()
        run.join(PATIENCE)
        if run.is_alive():
            os.killpg(run.pid, signal.SIGKILL)
            return HUNG
    if run.exitcode == JUDGED + 1:
        return KILLED
    return GREEN if run.exitcode == JUDGED else "SURVIVES (the tests did not run)"


def judge(source: Path, tests: str) -> None:
    """Run the tests on this copy of the package; ends the process with JUDGED + their exit code."""
    os.setpgrp()  # so that what the tests start ends with them
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = str(source)  # of processes that tests start
    sys.path.insert(0, str(source))
    import pytest

    os._exit(JUDGED + pytest.main(["-x", "-q", "-p", "no:cacheprovider", tests]))


def main(selected: list[str]) -> int:
    """Try the selected mutants (all by default), one a core; returns how many survive."""
    chosen = [
        mutant
        for mutant in mutants()
        if not selected or any(word in f"{mutant.room}: {mutant.name}" for word in selected)
    ]
    survivors = 0
    os.environ["OMP_NUM_THREADS"] = "1"  # a mutant a core
    FORKS.set_forkserver_preload(LOADED)
    control = chosen[0]._replace(new=chosen[0].old)  # red means something if whole is green
    if judged(control) != GREEN:
        print(f"{control.tests} is red or does not run on the source as it is")
        return 1
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, outcome in zip(chosen, pool.map(judged, chosen), strict=True):
            survivors += outcome not in (KILLED, HUNG)
            print(f"{mutant.room:8s} {mutant.name}: {outcome}", flush=True)
    print(f"{len(chosen)} mutants, {survivors} survive")
    return survivors


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
