"""Every named way to break the source is still possible: its text is where the list says."""

from mutants import MUTANTS, ROOT


def test_the_texts_of_all_mutants_are_in_the_source():
    gone = [
        mutant.name
        for mutant in MUTANTS
        if mutant.old not in (ROOT / "src" / "fermibose" / mutant.file).read_text(encoding="utf-8")
        or not (ROOT / mutant.tests.split("::")[0]).exists()
    ]
    assert not gone
