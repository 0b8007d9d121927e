"""Constants that were found by experiment. This is the experiment: a result stays where it is,
within its errors, when one of them is doubled or halved. And it is none if it does not use them."""

import importlib
import inspect
import math
import pkgutil
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fermibose import theory
from fermibose.theory import (
    DataTheory,
    Overlaps,
    Problem,
    SaddleEquations,
    critical_point,
    dynamics,
    population,
    solve,
    solve_broken,
    susceptibility,
    trace,
)
from fermibose.theory.crowd import Group, gather
from fermibose.theory.escape import _arrival, _collected_noise
from fermibose.theory.flow import Flow
from fermibose.theory.replica import to_vector
from fermibose.theory.rsb import ClusterEquations, Clusters
from fermibose.theory.rsb import to_vector as to_cluster_vector
from fermibose.theory.solution import distances, generalization_loss
from fermibose.theory.solve import neighbour

WARM = Problem(alpha=0.5, beta=5.0)
STATES = Problem(alpha=3.05, delta=0.278, beta=29.3, d_f=0.785, weight_decay=0.0181, m=0.737,
                 rho=0.915, softness=0.00017)  # fmt: skip
COLD = Problem(alpha=0.5, beta=math.inf)
EVERY = Problem(samples=1.0, pairing="all", beta=5.0)  # all pairs
GLASS = Problem(alpha=2.0, delta=0.6, beta=20.0)  # replica symmetry is broken
GLASS_AT_ZERO = replace(GLASS, beta=math.inf)
HOT = Problem(alpha=0.5, beta=0.02)  # fields much wider than what φ does
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
        "_MORE",
        "_ROUGH",
        "_BLIND",
        "LEAST_BLURRED",
    ),
    "precision": ("_MOVE", "_PART", "_POLISHINGS", "_STALE", "_NOTHING"),
    "replica": ("_NARROWEST", "_PROBE", "_NARROW", "_AT_TOLERANCE"),
}
DEPOSITED = {
    "deposit": ("_WIDTH", "_DEPTH", "_RISE", "_TAILS", "_LENGTHS", "_POINTS"),
    "disjoint": ("_FURTHER",),
}
SEARCH = {
    "fixed_point": ("_PATIENCE", "_ASTRAY"),
    "search": ("COARSE", "ROUGH", "_SAME", "_TINY", "_UNSURE", "_MOST", "_MANNERS", "_PATIENT"),
    "solution": ("_LEAVING", "_DYING"),
    "solve": ("_UNDECIDED", "_EQUAL", "_SECOND", "_CLOSE", "_SHORT"),
}
FROM_A_NEIGHBOUR = {
    "search": ("COARSE", "STRIDE"),
    "solve": ("_HANDOVER", "_NEAR", "_FAR", "_MOVE", "_SMALL"),
}
ACROSS = {"search": ("_SOFT", "STRIDE")}
CONTINUED = {
    "continuation": ("_KNOWN", "_LEAP", "_ALIKE", "_RIVALS"),
    "curves": ("_LOOK",),
    "search": ("STRIDE",),
}
FIRST_ORDER = {"transitions": ("_STEPS", "_LOWER")}
SLOPE = {"susceptibility": ("_STEP", "_JUMP")}
NEW_DATA = {"solution": ("_TAIL", "_PAIRS")}
MANY_SAMPLES = {"population": ("_STARTS",)}
AT_ZERO = {
    "moreau": ("_POLISHINGS", "_LAST", "_NEAR", "_JUMP"),
    "replica": ("_SMALLEST", "_VANISHING"),
}
ALL_PAIRS = {
    "exhaustive": ("_TAIL", "_REACH", "_CORE", "_SMOOTH", "_COMPETING", "_FELT", "_NOISE", "_ROOM",
                   "_COARSE", "_ROUGHLY", "_SEARCHED", "_CLOSE", "_DAMPING", "_DENSE", "_MEMORY",
                   "_MOVE", "_SETTLED"),
}  # fmt: skip
SAMPLES_AT_ZERO = {
    "crowd": ("_REACH", "_RESOLVED", "_COARSE", "_FOLLOWS", "_DEPTH", "_MANNERS",
              "_LOST", "_SPILT", "_MARGIN", "_POINTS", "_NUDGE", "_LAYINGS"),
    "panels": ("_ACROSS", "_FINEST", "_LONG", "_LONGER", "_SCAN"),
    "hull": ("_POLISHINGS", "_LAST", "_LEAST"),
}  # fmt: skip
BROKEN = {
    "rsb": ("_INSIDE", "_FIELD", "_TAIL", "_WIDTHS", "_ROOM", "_SMALLEST", "_LEAST_GAP"),
    "broken": ("_SECOND",),
    "broken_search": ("_TOP", "_HIGHEST", "_RATIO"),
}
BROKEN_AT_ZERO = {"rsb": ("_SHARP",)}
PARISI = {"broken_search": ("_PRECISION",)}
MOTION = {"flow": ("_TAIL", "_FIRST", "_GROWTH", "_RTOL", "_ATOL")}
RATE = {"steady": ("_SMALL", "_WIDTHS", "_ROUGH")}
RESTING = {"steady": ("_LOGITS", "_SAME", "_STEP", "_VANISHING")}
ESCAPE = {"escape": ("_FORGOTTEN", "_RESTING", "_PATIENCE")}
LEARNING = {"learning": ("_FIRST", "_APART", "_ALIKE")}
# The other way a ratio would cross 1, a damping exceed it, or a grid be too coarse, as it must.
# Their comments say which way, "only halved" or "only doubled".
ONE_WAY = {
    ("crowd", "_MANNERS"): 0.5,
    ("rsb", "_INSIDE"): 2.0,
    ("rsb", "_TAIL"): 2.0,
    ("broken_search", "_RATIO"): 0.5,
    ("broken_search", "_HIGHEST"): 0.5,
    ("solution", "_TAIL"): 2.0,
    ("solution", "_PAIRS"): 2.0,
    ("flow", "_TAIL"): 2.0,
    ("flow", "_GROWTH"): 2.0,
}


NUMBERS = ("M", "q", "chi", "free_energy")


def read_off(found):
    return [getattr(found, n) for n in NUMBERS], [found.errors[n] for n in NUMBERS]


def solved(problem):
    return read_off(solve(problem))


known = cache(solve)  # what an experiment starts from


def followed():
    """With the states beside it."""
    found = solve(STATES, known(replace(STATES, alpha=3.0)))
    values, errors = read_off(found)
    return [*values, len(found.rivals)], [*errors, 0]


def grown():
    """An order that begins between the two problems."""
    return read_off(neighbour(replace(WARM, delta=0.81), known(replace(WARM, delta=0.83))))


def continued():
    """Over a jump."""
    points = trace(STATES, "alpha", np.linspace(3.05, 3.3, 6), show=False)
    return [s.M for s in points], [s.errors["M"] for s in points]


def deposited():
    """One update of a state; errors a tenth of those that a solution states there."""
    new, _ = SaddleEquations(HOT)(to_vector(Overlaps(0.5, 990.0, 19.99)))
    return new, [1e-7]


def jumped():
    return [critical_point(STATES, "alpha", between=(3.1, 3.2), kind="first", tol=1e-4)], [1e-4]


def answered():
    found = susceptibility(known(WARM), "alpha")
    return [found[n].value for n in NUMBERS], [found[n].error for n in NUMBERS]


def predicted():
    M, q = known(WARM).M, known(WARM).q
    return [generalization_loss(WARM, M, q), *distances(WARM, M, q)], [1e-10]


def with_many_samples():
    found = population(Problem(pairing="all", beta=math.inf))
    return [found.M, found.q], [1e-7]


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


def broken_at_zero():
    """One update of a state."""
    state = Clusters(0.784, 1.149, 1.335, 8.0, 10.0, math.inf)
    new, _ = ClusterEquations(GLASS_AT_ZERO, 10.0)(to_cluster_vector(state))
    return new, [1e-4]


def stationary():
    found = solve_broken(GLASS)
    return [found.M, found.q, found.y, found.free_energy], [1e-8 + found.error]


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
    "deposited": (deposited, DEPOSITED),
    "states": (lambda: solved(STATES), SEARCH),
    "from a neighbour": (followed, FROM_A_NEIGHBOUR),
    "across a transition": (grown, ACROSS),
    "curve": (continued, CONTINUED),
    "first order": (jumped, FIRST_ORDER),
    "slope": (answered, SLOPE),
    "new data": (predicted, NEW_DATA),
    "many samples": (with_many_samples, MANY_SAMPLES),
    "cold": (lambda: solved(COLD), AT_ZERO),
    "all pairs": (lambda: solved(EVERY), ALL_PAIRS),
    "all pairs, cold": (crowded, SAMPLES_AT_ZERO),
    "broken": (broken, BROKEN),
    "broken, cold": (broken_at_zero, BROKEN_AT_ZERO),
    "broken, where f is stationary": (stationary, PARISI),
    "motion": (moved, MOTION),
    "rate": (rated, RATE),
    "rest": (rested, RESTING),
    "escape": (escaped, ESCAPE),
    "learning": (learnt, LEARNING),
}
CONSTANTS = [
    (experiment, module, name)
    for experiment, (_, rooms) in EXPERIMENTS.items()
    for module, names in rooms.items()
    for name in names
]
CASES = [
    (*constant, factor)
    for constant in CONSTANTS
    for factor in (0.5, 2.0)
    if factor == ONE_WAY.get(constant[1:], factor)
]
MODULES = {
    file.name: importlib.import_module(f"fermibose.theory.{file.name}")
    for file in pkgutil.iter_modules(theory.__path__)
}


@cache
def measured(experiment):
    """With all constants as they are. Also what it starts from is known from then on."""
    return EXPERIMENTS[experiment][0]()


class UsedError(BaseException):
    """No except clause of the package takes it."""


class Fuse:
    """In place of a constant: raises UsedError whatever is done with it."""

    def used(self, *_, **__):
        raise UsedError

    __array_ufunc__ = __array__ = __getattr__ = __getitem__ = __iter__ = __len__ = used
    __bool__ = __float__ = __int__ = __index__ = __round__ = __neg__ = __abs__ = used
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __hash__ = used
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __pow__ = __rpow__ = used
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = used


def put(monkeypatch, module, name, change):
    """Change a constant wherever it is known, also where it was imported."""
    value = vars(MODULES[module])[name]
    new = change(value)
    for room in MODULES.values():
        if vars(room).get(name) is value:
            monkeypatch.setattr(room, name, new)


def scaled(value, factor):
    if isinstance(value, tuple):
        return tuple(scaled(v, factor) for v in value)
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor


@pytest.mark.parametrize("module", MODULES)
def test_the_source_says_which_constants_are_tried(module):
    """Those between the header and an empty line, and no others."""
    header = "# May be halved or doubled, and no result moves: tests/theory/test_constants.py.\n"
    parts = inspect.getsource(MODULES[module]).split(header)[1:]
    said = "\n".join(part.split("\n\n")[0] for part in parts)
    found = re.findall(r"^(_?[A-Z][A-Z_]+(?:, _?[A-Z_]+)*)(?::.*)? = ", said, re.MULTILINE)
    names = {name for line in found for name in line.split(", ")}
    assert names == {name for _, room, name in CONSTANTS if room == module}
    ways = [factor for (room, _), factor in ONE_WAY.items() if room == module]
    for factor, words in ((0.5, "only halved"), (2.0, "only doubled")):
        assert said.count(words) == ways.count(factor)


@pytest.mark.parametrize(("experiment", "module", "name"), CONSTANTS)
def test_an_experiment_uses_its_constants(monkeypatch, experiment, module, name):
    measured(experiment)
    put(monkeypatch, module, name, lambda _: Fuse())
    with pytest.raises(UsedError):
        EXPERIMENTS[experiment][0]()


@pytest.mark.parametrize(("experiment", "module", "name", "factor"), CASES)
def test_a_result_does_not_hang_on_a_constant(monkeypatch, experiment, module, name, factor):
    expected, errors = measured(experiment)
    put(monkeypatch, module, name, lambda value: scaled(value, factor))
    found, others = EXPERIMENTS[experiment][0]()
    off = np.abs(np.subtract(found, expected))
    assert np.all(off <= np.add(errors, others)), (off, found)
