"""Breaks the source in named ways and demands that the tests notice: ``python tests/mutants/run.py``.

The files beside this one list the mutants of a room. Each replaces one piece of text in a copy of
the package and runs the tests that should turn red. A mutant that survives, or whose text is no
longer found, makes the script fail. Arguments select mutants whose room or name contains one.
"""

import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PATIENCE = 200.0  # seconds; the slowest tests of a mutant take half of that on two busy cores


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


def survives(mutant: Mutant) -> str | None:
    """Why the mutant is not killed, or None if the tests turn red."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        path = source / mutant.file
        text = path.read_text(encoding="utf-8")
        if mutant.old not in text:
            return "its text is no longer in the source"
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        try:
            run = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "pytest",
                    "-x",
                    "-q",
                    "-p",
                    "no:cacheprovider",
                    mutant.tests,
                ],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(source)},
                capture_output=True,
                check=False,
                timeout=PATIENCE,
            )
        except subprocess.TimeoutExpired:
            return None  # tests that hang are as good as red
    if run.returncode == 1:
        return None
    return "the tests stayed green" if run.returncode == 0 else "the tests did not run"


def main(selected: list[str]) -> int:
    """Try the selected mutants (all by default), one a core; returns how many survive."""
    chosen = [
        mutant
        for mutant in mutants()
        if not selected or any(word in f"{mutant.room}: {mutant.name}" for word in selected)
    ]
    survivors = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, reason in zip(chosen, pool.map(survives, chosen), strict=True):
            survivors += reason is not None
            outcome = f"SURVIVES ({reason})" if reason else "killed"
            print(f"{mutant.room:8s} {mutant.name}: {outcome}", flush=True)
    print(f"{len(chosen)} mutants, {survivors} survive")
    return survivors


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
