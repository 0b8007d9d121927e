"""Every named way to break the source is still possible: its text is where the list says."""

import runpy
from pathlib import Path

RUNNER = runpy.run_path(str(Path(__file__).parent / "mutants" / "run.py"))


def test_the_texts_of_all_mutants_are_in_the_source():
    root = RUNNER["ROOT"]
    gone = [
        mutant.name
        for mutant in RUNNER["mutants"]()
        if mutant.old not in (root / "src" / mutant.file).read_text(encoding="utf-8")
        or not (root / mutant.tests.split("::")[0]).exists()
    ]
    assert not gone
