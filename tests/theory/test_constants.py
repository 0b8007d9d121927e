"""Constants that were found by experiment. This is the experiment: a result stays where it is,
within its errors, when one of them is doubled or halved."""

import importlib
import math

import numpy as np
import pytest

from fermibose.theory import DataTheory, Problem, dynamics, solve, solve_broken
from fermibose.theory.crowd import Group, gather
from fermibose.theory.escape import _arrival, _collected_noise
from fermibose.theory.flow import Flow

WARM = Problem(alpha=0.5, beta=5.0)
STATES = Problem(alpha=3.05, delta=0.278, beta=29.3, d_f=0.785, weight_decay=0.0181, m=0.737,
                 rho=0.915, softness=0.00017)  # fmt: skip
COLD = Problem(alpha=0.5, beta=math.inf)
EVERY = Problem(samples=1.0, pairing="all", beta=5.0)  # all pairs
GLASS = Problem(alpha=2.0, delta=0.6, beta=20.0)  # replica symmetry is broken
ONLINE = Problem(weight_decay=0.02, softness=0.1)

GRIDS = {
    "channel": ("_BLUR", "THIN"),
    "disjoint": (
        "_PLAIN",
        "_NARROW",
        "_GRADING",
        "_LADDER",
        "_PAYS",
        "_TAIL",
        "_REACH",
        "_TOGETHER",
    ),
    "precision": ("_MOVE", "_PART", "_POLISHINGS", "_STALE", "_NOTHING"),
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
ALL_PAIRS = {
    "exhaustive": ("_TAIL", "_REACH", "_CORE", "_SMOOTH", "_COMPETING", "_FELT", "_NOISE", "_ROOM",
                   "_COARSE", "_ROUGHLY", "_SEARCHED", "_CLOSE", "_DAMPING", "_DENSE", "_MEMORY",
                   "_MOVE"),
}  # fmt: skip
SAMPLES_AT_ZERO = {
    "crowd": ("_REACH", "_RESOLVED", "_COARSE", "_FOLLOWS", "_DEPTH", "_MANNERS",
              "_LOST", "_SPILT", "_MARGIN", "_POINTS", "_NUDGE"),
    "panels": ("_ACROSS", "_FINEST", "_LONG", "_LONGER", "_SCAN"),
    "hull": ("_POLISHINGS", "_LAST", "_LEAST"),
}  # fmt: skip
BROKEN = {
    "rsb": ("_INSIDE", "_FIELD", "_TAIL", "_WIDTHS", "_ROOM", "_SMALLEST", "_LEAST_GAP"),
    "broken": ("_SECOND",),
    "broken_search": ("_TOP", "_RATIO"),
}
MOTION = {"flow": ("_TAIL", "_FIRST", "_GROWTH", "_RTOL", "_ATOL")}
RATE = {"steady": ("_SMALL", "_WIDTHS", "_ROUGH")}
RESTING = {"steady": ("_LOGITS", "_SAME", "_STEP", "_VANISHING")}
ESCAPE = {"escape": ("_FORGOTTEN", "_RESTING", "_PATIENCE")}
LEARNING = {"learning": ("_FIRST", "_APART", "_ALIKE")}
# The other way a ratio would cross 1, a damping exceed it, or a grid be too coarse, as it must.
ONE_WAY = {
    ("crowd", "_MANNERS"): 0.5,
    ("rsb", "_INSIDE"): 2.0,
    ("rsb", "_TAIL"): 2.0,
    ("broken_search", "_RATIO"): 0.5,
    ("flow", "_TAIL"): 2.0,
    ("flow", "_GROWTH"): 2.0,
}


def solved(problem):
    found = solve(problem)
    names = ("M", "q", "chi", "free_energy")
    return [getattr(found, n) for n in names], [found.errors[n] for n in names]


def crowded():
    """Samples stiff enough for their forces to jump; errors a hundred times those of potentials."""
    problem = Problem(samples=1.0, pairing="all", beta=math.inf)
    groups = [Group(0.5, label, mean, 0.4, 4.0) for label, mean in ((0, -0.4), (1, 0.4))]
    found = gather(problem, groups).averages[1]
    assert len(found.jumps) == 1
    values = [found.F, found.force, found.force2, found.slope, found.growth, found.energy]
    return values, [1e-8]


def broken():
    found = solve_broken(GLASS, y=10.0)
    values = [found.M, found.q0, found.q1, found.q, found.free_energy]
    return values, [1e-8 + found.error]


def moved():
    found = dynamics.evolve(ONLINE, learning_rate=1.0, t=[1.0, 3.0], batch=10, start=(0.1, 1.0))
    return [*found.M, *found.q], [1e-7]


def rated():
    return [math.log(dynamics.critical_rate(ONLINE, batch=10))], [1e-6]


def rested():
    found = dynamics.steady_states(ONLINE, learning_rate=1.0, batch=10)
    return [x for s in found for x in (s.M, s.q, *np.real(s.eigenvalues))], [1e-5]


def escaped():
    """What noise adds to M = 0, and how long one M takes to a threshold, relative."""
    flow = Flow(ONLINE, 10)
    noise = _collected_noise(flow, 1.0, 1.0)
    return np.log([noise, _arrival(flow, 1.0, 0.03, 1.0, 0.3)]), [1e-6]


def learnt():
    problem = Problem(pairing="all", beta=math.inf, weight_decay=1.0)
    means, covariances = 0.7 * np.array([[-1.0, 0], [1.0, 0]]), np.array([0.5 * np.eye(2)] * 2)
    found = DataTheory(problem, np.array([0.5, 0.5]), means, covariances).predict(20)
    return [found.accuracy, found.fermion_distance, found.energy], [1e-6]


EXPERIMENTS = {
    "warm": (lambda: solved(WARM), GRIDS),
    "states": (lambda: solved(STATES), SEARCH),
    "cold": (lambda: solved(COLD), AT_ZERO),
    "all pairs": (lambda: solved(EVERY), ALL_PAIRS),
    "all pairs, cold": (crowded, SAMPLES_AT_ZERO),
    "broken": (broken, BROKEN),
    "motion": (moved, MOTION),
    "rate": (rated, RATE),
    "rest": (rested, RESTING),
    "escape": (escaped, ESCAPE),
    "learning": (learnt, LEARNING),
}
CASES = [
    (experiment, module, name, factor)
    for experiment, (_, rooms) in EXPERIMENTS.items()
    for module, names in rooms.items()
    for name in names
    for factor in (0.5, 2.0)
    if factor == ONE_WAY.get((module, name), factor)
]
KNOWN = {}


def scaled(value, factor):
    if isinstance(value, tuple):
        return tuple(scaled(v, factor) for v in value)
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor


@pytest.mark.parametrize(("experiment", "module", "name", "factor"), CASES)
def test_a_result_does_not_hang_on_a_constant(monkeypatch, experiment, module, name, factor):
    measure = EXPERIMENTS[experiment][0]
    if experiment not in KNOWN:
        KNOWN[experiment] = measure()
    expected, errors = KNOWN[experiment]
    module = importlib.import_module(f"fermibose.theory.{module}")
    monkeypatch.setattr(module, name, scaled(getattr(module, name), factor))
    found, others = measure()
    off = np.abs(np.subtract(found, expected))
    assert np.all(off <= np.add(errors, others)), (off, found)
