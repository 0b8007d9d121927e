"""How many files a reader crosses to follow a call: counted by a trace of what runs.

Of a solver, of AMP, of a classifier, of the audit, and of a figure from command to verdict. And the
page that says where things are, against what is there.
"""

import re
import sys
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fermibose import FermiBoseClassifier
from fermibose.attacks import ThreatModel, audit
from fermibose.cavity import amp, sample_instance
from fermibose.data import load_digits, per_class
from fermibose.theory import Problem, solve
from fermibose_paper import scale
from fermibose_paper.cli import app

HOT = Problem(alpha=0.5, beta=5.0)
ROOT = Path(__file__).parents[1]


def files_told():
    """The files that docs/house.md lists, as paths below src."""
    page, room = (ROOT / "docs/house.md").read_text("utf-8"), ""
    for line in page.partition("## Beside the code")[0].splitlines():
        if heading := re.match(r"## .*`src/(\w+)`", line) or re.match(r"\| \*\*(\w+)\*\* \|", line):
            room = heading[1] if heading[1].startswith("fermibose") else f"fermibose/{heading[1]}"
        elif line.startswith("| `"):
            for name in re.findall(r"`(\w+)`", line.split(" | ")[0]):
                yield f"{room}/{name}.py"


def test_the_page_of_the_house_has_every_file_once_and_no_other():
    there = (path for path in (ROOT / "src").rglob("*.py") if not path.stem.startswith("__"))
    assert sorted(files_told()) == sorted(str(p.relative_to(ROOT / "src")) for p in there)


def files_crossed(call):
    """The files of the project whose functions run in a call; imports and caches are made first."""
    call()
    files = set()

    def note(frame, event, _):
        parts = frame.f_code.co_filename.rpartition("/src/fermibose")
        if event == "call" and parts[1] and frame.f_code.co_name != "<module>":
            files.add(parts[2])

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return sorted(files)


def solving():
    return lambda: solve(HOT)


def passing():
    instance = sample_instance(HOT, 50, seed=0)
    return lambda: amp(instance)


def fitting():
    x, y = per_class(*load_digits(), 5)
    model = FermiBoseClassifier(hidden=(20,), epochs=2, readout_epochs=2, random_state=0)
    return lambda: model.fit(x, y)


def auditing():
    x, y = per_class(*load_digits(), 4)
    x, y = x[y < 3], y[y < 3]  # AutoAttack has few targets then
    net = FermiBoseClassifier(hidden=(30,), epochs=20, random_state=0).fit(x, y).net_
    threat = ThreatModel("linf", 0.01)
    return lambda: audit(net, x, y, threat, square_queries=5, show=False)


@pytest.mark.parametrize(
    ("made", "most"), [(solving, 9), (passing, 8), (fitting, 12), (auditing, 18)]
)
def test_a_call_is_followed_through_few_files(made, most):
    found = files_crossed(made())
    assert len(found) <= most, found


def test_a_figure_is_followed_through_few_files(tmp_path, monkeypatch):
    tiny = scale.Scale("tiny", "mnist5k", (0.2,), (0.2,), seeds=1, epochs=1, hidden=5)
    monkeypatch.setattr(scale, "quick", lambda folder: tiny)
    folders = (tmp_path / str(number) for number in count())

    def reproduce():
        command = ["reproduce", "fig4", "--engine", "in-process", "--output", str(next(folders))]
        done = CliRunner().invoke(app, command, catch_exceptions=False)
        assert "fig4: 3 runs, 3 computed now" in done.stdout

    found = files_crossed(reproduce)
    assert len(found) <= 30, "\n".join(found)
