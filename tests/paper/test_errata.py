"""Oracle: the page of the documentation, which must list the same corrections."""

from pathlib import Path

from fermibose_paper.texts import ERRATA

NOTES = Path(__file__).parents[2] / "docs" / "paper-notes.md"


def test_the_notes_list_every_erratum_and_no_other():
    _, _, table = NOTES.read_text(encoding="utf-8").partition("## Errata\n")
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    expected = [
        "| " + " | ".join(text.replace("|", r"\|") for text in erratum) + " |" for erratum in ERRATA
    ]
    assert rows == expected
