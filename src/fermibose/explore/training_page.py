"""The training page: distances of pairs and the plane of representations, epoch by epoch.

Of digits the machine alone; of Gaussian clusters one unit, whose course the theory of online
learning knows.
"""

from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fermibose.cavity import sgd
from fermibose.checks import choice, number
from fermibose.data import load_dataset
from fermibose.energy import PairEnergy
from fermibose.explore.choices import EPOCHS, RATES, TARGETS, WIDTHS
from fermibose.explore.drawing import Line, chart, letters
from fermibose.explore.machine_page import Plane
from fermibose.machine import Recipe, compute_settings, train
from fermibose.plotting import COLOURS
from fermibose.theory import Problem, dynamics

Floats = NDArray[np.float64]

UNITS = 300  # of the one hidden layer: a third of the demo's, in a few seconds
_CLOUD = 300  # training images in the plane
_WEIGHTS, _RUNS, _DOTS = 400, 5, 25  # of the simulation beside the theory
_END = 20.0  # steps/N


@dataclass(frozen=True, eq=False)
class Lesson:
    """A training, looked at after some epochs."""

    d_f: float
    bosons: Floats  # mean D² of each epoch
    fermions: Floats
    accuracy: Floats  # of a ridge readout on test images, at each of EPOCHS
    places: list[Floats]  # (images, 2) at each of EPOCHS, in the plane of the last
    names: list[str]
    share: float  # of the variance, in the plane of the last


@lru_cache(maxsize=16)
def lesson(d_f: float, seed: int = 0) -> Lesson:
    """Train on the bundled digits, for as many epochs as each of EPOCHS, always from the seed.

    A training of k epochs is the beginning of a longer one, to the bit.
    """
    target = number("d_F", d_f, least=TARGETS[0], most=TARGETS[1])
    data = load_dataset("mnist5k")
    nets, scores = [], []
    for epochs in EPOCHS:
        recipe = Recipe((UNITS,), PairEnergy(target), epochs=epochs, readout="ridge", seed=seed)
        test = (data.x_test, data.y_test)
        found = train(data.x_train, data.y_train, recipe, test=test, show=False)
        nets.append(found.net)
        scores.append(float(found.history["readout"]["test_accuracy"][-1]))
    shown = np.linspace(0, len(data.x_train) - 1, _CLOUD).astype(int)
    x = torch.as_tensor(data.x_train[shown])
    with compute_settings(1):
        plane = Plane.of(nets[-1], x)
        places = [plane.place(net, x) for net in nets]
    record = found.history["layer 1"]
    bosons, fermions = (
        np.nanmean(record[f"{kind}_distance"].reshape(EPOCHS[-1], -1), axis=1)
        for kind in ("boson", "fermion")
    )
    names = [str(label) for label in data.y_train[shown]]
    return Lesson(target, bosons, fermions, np.array(scores), places, names, plane.share)


def digits_page(found: Lesson, epoch: Any) -> str:
    """The training on digits, with the plane after one of EPOCHS."""
    place = EPOCHS.index(choice("epoch", epoch, EPOCHS))
    epochs = np.arange(1, EPOCHS[-1] + 1)
    distances = chart(
        "Mean squared distance of pairs",
        [
            Line("fermions", epochs, found.fermions, COLOURS["fermion"]),
            Line("bosons", epochs, found.bosons, COLOURS["boson"], dash=1),
            Line("d_F", [0, EPOCHS[-1]], [found.d_f] * 2, dash=2),
        ],
        labels=("epoch", "D²"),
        x_range=(0, EPOCHS[-1]),
        y_range=(0, 1.1 * float(max(found.d_f, np.nanmax(found.fermions)))),
    )
    every = np.concatenate(found.places)
    low, high = every.min(0), every.max(0)
    plane = letters(
        f"Training images after {EPOCHS[place]} epochs",
        found.places[place],
        found.names,
        ranges=((low[0], high[0]), (low[1], high[1])),
    )
    scores = chart(
        "Test accuracy of a ridge readout",
        [Line("", EPOCHS, 100 * found.accuracy, COLOURS["machine"])],
        labels=("epoch", "accuracy (%)"),
        x_range=(0, EPOCHS[-1]),
    )
    return (
        f'<div id="fbm-training"><div class="fbm-grid"><div>{distances}{scores}</div>'
        f'<div class="fbm-large">{plane}</div></div><p class="fbm-note">1000 digits, '
        f"{UNITS} units, {escape(_TOLD)} The plane is that of the last epoch "
        f"({found.share:.0%} of its variance), at every epoch.</p></div>"
    )


_TOLD = (
    "distances over the mini-batches of each epoch. Fermion pairs (two classes) are pushed apart "
    "up to the target d_F, boson pairs (one class) are pulled together. The theory of online "
    "learning is of one unit on Gaussian clusters: it says nothing about this course, see the "
    "choice “Gaussian clusters”."
)


@lru_cache(maxsize=64)
def clusters_page(delta: float, d_f: float, rate: float) -> str:
    """One unit on Gaussian clusters by SGD, beside the theory's trajectory, as HTML."""
    problem = Problem(
        delta=number("Δ", delta, least=WIDTHS[0], most=WIDTHS[1]),
        d_f=number("d_F", d_f, least=TARGETS[0], most=TARGETS[1]),
    )
    rate = number("η", rate, least=RATES[0], most=RATES[1])
    theory = dynamics.evolve(problem, learning_rate=rate, t=_END)
    runs = sgd(
        problem, _WEIGHTS, learning_rate=rate, t=np.linspace(0, _END, _DOTS), runs=_RUNS, seed=0
    )
    lines, dots = {}, {}
    for kind, colour, dash in (("fermion", "fermion", 0), ("boson", "boson", 1)):
        name = f"{kind}_distance"
        lines[kind] = Line(f"{kind}s", theory.t, getattr(theory, name), COLOURS[colour], dash)
        seen = evolved(problem, runs.M.mean(0), runs.q.mean(0), name)
        dots[kind] = Line("SGD" * (kind == "boson"), runs.t, seen, COLOURS[colour], dots=True)
    distances = chart(
        "Mean squared distance of new pairs",
        [*lines.values(), *dots.values()],
        labels=("t = steps/N", "D²"),
        x_range=(0, _END),
    )
    overlaps = chart(
        "Mean weight and size of the weights",
        [
            Line("M", theory.t, theory.M, COLOURS["machine"]),
            Line("q", theory.t, theory.q, COLOURS["baseline"], 1),
            Line("SGD", runs.t, runs.M.mean(0), COLOURS["machine"], dots=True),
            Line("", runs.t, runs.q.mean(0), COLOURS["baseline"], dots=True),
        ],
        labels=("t = steps/N", "M, q"),
        x_range=(0, _END),
    )
    score = chart(
        "Accuracy",
        [
            Line("theory", theory.t, 100 * theory.accuracy, COLOURS["machine"]),
            Line(
                "SGD",
                runs.t,
                100 * evolved(problem, runs.M.mean(0), runs.q.mean(0), "accuracy"),
                COLOURS["machine"],
                dots=True,
            ),
        ],
        labels=("t = steps/N", "accuracy (%)"),
        x_range=(0, _END),
    )
    return (
        f'<div id="fbm-training"><div class="fbm-grid"><div>{distances}</div><div>{overlaps}</div>'
        f'<div>{score}</div></div><p class="fbm-note">The classes are two Gaussian clusters '
        "of width Δ; fermion pairs are pushed apart up to the target d_F. Lines: the theory for "
        f"N → ∞, from M = 0.1 and q = 1. Circles: SGD with {_WEIGHTS} weights, mean M and q of "
        f"{_RUNS} runs.</p></div>"
    )


def evolved(problem: Problem, M: Floats, q: Floats, name: str) -> Floats:
    """A prediction for new data at every pair of M and q."""
    line = dynamics.Trajectory(problem, 1.0, 2, np.arange(float(len(M))), M, q)
    values: Floats = getattr(line, name)
    return values
