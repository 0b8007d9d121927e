"""Constants that were found by experiment. This is the experiment: a solution stays where it is,
within its errors, when one of them is doubled or halved."""

import importlib
import math

import pytest

from fermibose.theory import Problem, solve

WARM = Problem(alpha=0.5, beta=5.0)
STATES = Problem(alpha=3.05, delta=0.278, beta=29.3, d_f=0.785, weight_decay=0.0181, m=0.737,
                 rho=0.915, softness=0.00017)  # fmt: skip
COLD = Problem(alpha=0.5, beta=math.inf)

GRIDS = {
    "channel": ("_BLUR", "THIN"),
    "disjoint": ("_PLAIN", "_NARROW", "_GRADING", "_LADDER", "_PAYS", "_TAIL", "_REACH", "_WHOLE"),
    "errors": ("_MOVE", "_PART", "_POLISHINGS", "_STALE", "_NOTHING"),
    "replica": ("_NARROWEST", "_PROBE", "_NARROW", "_AT_TOLERANCE"),
}
SEARCH = {
    "fixed_point": ("_PATIENCE", "_ASTRAY"),
    "search": ("COARSE", "ROUGH", "_SAME", "_TINY", "_UNSURE", "_SOFT", "STRIDE", "_MOST"),
    "solve": ("_UNDECIDED", "_EQUAL", "_SECOND", "_HANDOVER", "_CLOSE", "_SHORT"),
}
AT_ZERO = {
    "moreau": ("_POLISHINGS", "_LAST", "_NEAR", "_JUMP"),
    "replica": ("_SMALLEST", "_VANISHING"),
}
CASES = [
    (module, name, problem)
    for problem, rooms in ((WARM, GRIDS), (STATES, SEARCH), (COLD, AT_ZERO))
    for module, names in rooms.items()
    for name in names
]
KNOWN = {}


def scaled(value, factor):
    if isinstance(value, tuple):
        return tuple(scaled(v, factor) for v in value)
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize(("module", "name", "problem"), CASES)
def test_a_solution_does_not_hang_on_a_constant(monkeypatch, module, name, problem, factor):
    if problem not in KNOWN:
        KNOWN[problem] = solve(problem)
    expected = KNOWN[problem]
    module = importlib.import_module(f"fermibose.theory.{module}")
    monkeypatch.setattr(module, name, scaled(getattr(module, name), factor))
    found = solve(problem)
    for quantity in ("M", "q", "chi", "free_energy"):
        off = abs(getattr(found, quantity) - getattr(expected, quantity))
        assert off <= found.errors[quantity] + expected.errors[quantity], quantity
