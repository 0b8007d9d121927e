"""How many files a reader crosses to follow a call: counted by a trace of what runs."""

import sys

import pytest

from fermibose import FermiBoseClassifier
from fermibose.attacks import ThreatModel, audit
from fermibose.cavity import amp, sample_instance
from fermibose.data import load_digits, per_class
from fermibose.theory import Problem, solve

HOT = Problem(alpha=0.5, beta=5.0)


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


def calls():
    x, y = per_class(*load_digits(), 5)
    instance = sample_instance(HOT, 50, seed=0)
    model = FermiBoseClassifier(hidden=(20,), epochs=2, readout_epochs=2, random_state=0)
    net = FermiBoseClassifier(hidden=(50,), epochs=20, random_state=0).fit(x, y).net_
    threat = ThreatModel("linf", 0.01)
    return {
        "solve": (9, lambda: solve(HOT)),
        "amp": (8, lambda: amp(instance)),
        "fit": (12, lambda: model.fit(x, y)),
        "audit": (18, lambda: audit(net, x, y, threat, square_queries=5, show=False)),
    }


@pytest.mark.parametrize("name", ["solve", "amp", "fit", "audit"])
def test_a_call_is_followed_through_few_files(name):
    most, call = calls()[name]
    found = files_crossed(call)
    assert len(found) <= most, found
