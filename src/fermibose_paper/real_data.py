"""One unit on pairs of classes of real images: predictions from their moments against training.

Means and covariances are measured on a pool of images; units are trained on all pairs of n images
drawn from it (or from Gaussian classes with its moments) and tested on images outside of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fermibose.cavity import GroundState, Instance, Pairs, Samples, ground_state
from fermibose.data import Dataset, load_dataset, surrogate
from fermibose.plotting import COLOURS, canvas
from fermibose.statistics import summary
from fermibose.theory import Array, DataTheory, Problem, from_dataset
from fermibose_paper.job import Job, measurement
from fermibose_paper.page import Table
from fermibose_paper.scale import Scale
from fermibose_paper.series import finished, legend
from fermibose_paper.store import Row
from fermibose_paper.verdict import Verdict

NAME = "real-data"
COMPONENTS = 100
SOURCES = {"real": "real images", "gaussian": "Gaussian surrogate"}
PAIRS: Sequence[tuple[str, int, int]] = (
    ("mnist", 3, 8),
    ("mnist", 4, 9),
    ("mnist", 0, 1),
    ("fashion-mnist", 0, 6),
    ("fashion-mnist", 7, 9),
)
# What is told of a pair: its title, the unit in which it is told, and digits
QUANTITIES = {
    "accuracy": ("accuracy (%)", 100, 2),
    "fermion_distance": ("D_F²", 1, 3),
    "boson_distance": ("D_B²", 1, 3),
    "training_energy": ("1000 · mean training H", 1000, 2),
}
JUDGED = 200  # images from which on a prediction must hold
_BUNDLED = "mnist5k"


@dataclass(frozen=True)
class Classes:
    """Two classes of a data set: a pool of training images, and the others for testing."""

    dataset: str
    first: int
    second: int
    folder: str | None

    def load(self) -> Dataset:
        """Images of both classes; of the bundled sample, the larger part is the pool."""
        return _loaded(self)


@lru_cache(maxsize=2)
def _loaded(classes: Classes) -> Dataset:
    data = load_dataset(classes.dataset, folder=classes.folder)
    if classes.dataset == _BUNDLED:
        data = replace(
            data, x_train=data.x_test, y_train=data.y_test, x_test=data.x_train, y_test=data.y_train
        )
    kept: dict[str, Any] = {}
    for part in ("train", "test"):
        x, y = getattr(data, f"x_{part}"), getattr(data, f"y_{part}")
        mine = np.isin(y, (classes.first, classes.second))
        kept |= {f"x_{part}": x[mine], f"y_{part}": y[mine]}
    return replace(data, **kept)


@lru_cache(maxsize=2)
def _theory(data: Dataset, first: int, second: int) -> DataTheory:
    problem = Problem(pairing="all", beta=math.inf, weight_decay=1.0)
    return from_dataset(
        data.x_train, data.y_train, classes=(first, second), components=COMPONENTS, problem=problem
    )


@measurement("pair-prediction", version=1)
def measure_prediction(
    *, dataset: str, pair: list[int], sizes: list[int], data: Dataset, seed: int = 0
) -> dict[str, Any]:
    """What the theory predicts of units trained on so many images; nothing is random."""
    theory = _theory(data, *pair)
    curve = theory.curve(sizes)
    names = ("accuracy", "fermion_distance", "boson_distance", "training_energy", "at_eigenvalue")
    found: dict[str, Any] = {name: [float(getattr(p, name)) for p in curve] for name in names}
    found["at_eigenvalue"] = [a if math.isfinite(a) else None for a in found["at_eigenvalue"]]
    return {"predicted": found}


@measurement("pair-unit", version=1)
def measure_unit(
    *, dataset: str, pair: list[int], n: int, source: str, data: Dataset, seed: int = 0
) -> dict[str, Any]:
    """A unit trained on all pairs of n images, or of n Gaussian ones with their moments.

    Real units are tested on images, Gaussian ones on Gaussian data of the same law.
    """
    theory = _theory(data, *pair)
    if source == "gaussian":
        data = surrogate(data, order=2, seed=seed)
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(data.x_train))[:n]
    x, y = theory.project(data.x_train[chosen]), _signs(data.y_train[chosen], pair)
    new, labels = theory.project(data.x_test), _signs(data.y_test, pair)
    best = trained_unit(theory.problem, x, y)
    w = best.weights * np.sign((y * (x @ best.weights)).mean())
    z = new @ w
    outputs = [np.tanh(z[labels == sign]) for sign in (-1, 1)]
    first, second = (np.array([(o**k).mean() for o in outputs]) for k in (1, 2))
    share = np.array([len(o) for o in outputs]) / len(z)
    return {
        "accuracy": float((np.sign(z) == labels).mean()),
        "fermion_distance": float(second.sum() - 2 * first.prod()),
        "boson_distance": float(share**2 @ (2 * (second - first**2)) / (share**2).sum()),
        "training_energy": best.training_loss,
        "converged": best.converged,
    }


def trained_unit(problem: Problem, x: Array, y: NDArray[np.int64]) -> GroundState:
    """The lower of the minima downhill from a short and from a long vector between the classes."""
    between = x[y > 0].mean(0) - x[y < 0].mean(0)
    test = Pairs(np.stack([x[:1], x[-1:]]), np.stack([y[:1], y[-1:]]))  # an instance needs some
    instance = Instance(problem, Samples(x, y, y), test, 0)
    ends = [
        ground_state(instance, restarts=1, start=length * between / (between @ between))
        for length in (0.3, 4.0)  # fermions just apart, or all outputs saturated
    ]
    return min(ends, key=lambda end: end.energy)


def _signs(y: Any, pair: Sequence[int]) -> Any:
    """−1 for the first class, 1 for the second."""
    return np.where(y == pair[0], -1, 1)


def plan(scale: Scale) -> list[Job]:
    """Predictions and units; of the bundled images one pair of digits and few sizes."""
    pairs, sizes, draws = PAIRS, [50, 100, 200, 500, 1000, 1500, 3000], 10
    if scale.sample:
        pairs, sizes, draws = PAIRS[:1], [50, 100, 200, 400], 4
    jobs = []
    for name, first, second in pairs:
        dataset = scale.dataset if name == "mnist" else name
        if dataset in scale.lost:
            continue
        data = Classes(dataset, first, second, scale.folder_of(dataset))
        shared = {"dataset": dataset, "pair": [first, second]}
        jobs.append(Job(measure_prediction, shared | {"sizes": list(sizes)}, 0, data))
        jobs += [
            Job(measure_unit, shared | {"n": n, "source": source}, seed, data)
            for source in SOURCES
            for n in sizes
            for seed in range(draws)
        ]
    return jobs


def _curves(rows: Sequence[Row], pair: Sequence[int], dataset: str, name: str) -> Any:
    """Sizes, what is predicted there, and what units reach, by source."""
    where = {"dataset": dataset, "pair": list(pair)}
    predicted = finished(rows, "predicted", **where)
    if not predicted:
        return None
    sizes = predicted[0].params["sizes"]
    units = {
        source: [
            [r.result[name] for r in finished(rows, name, **where, source=source, n=n)]
            for n in sizes
        ]
        for source in SOURCES
    }
    return np.array(sizes), np.array(predicted[0].result["predicted"][name]), units


def _gaps(rows: Sequence[Row], dataset: str, pair: Sequence[int]) -> dict[str, list[float]]:
    """Distances of predicted and reached accuracy in points, from ``JUDGED`` images on."""
    sizes, predicted, units = _curves(rows, pair, dataset, "accuracy")
    return {
        source: [
            100 * abs(float(np.mean(values)) - p)
            for n, p, values in zip(sizes, predicted, reached, strict=True)
            if n >= JUDGED and values
        ]
        for source, reached in units.items()
    }


def _gap_verdict(figure: str, claim: str, gaps: list[float]) -> Verdict:
    return Verdict.at_most(
        figure, f"{claim}: mean gap of accuracy", float(np.mean(gaps)) if gaps else None, bound=1.0,
        unit="points", note=f"from {JUDGED} training images on", unpublished=True,
    )  # fmt: skip


def verdicts(rows: Sequence[Row], scale: Scale) -> list[Verdict]:
    """Mean distance of predicted and reached accuracy, for each pair of classes."""
    return [
        _gap_verdict(NAME, f"{dataset}, {first} against {second}, {SOURCES[source]}", gaps)
        for dataset, first, second in _known(rows)
        for source, gaps in _gaps(rows, dataset, (first, second)).items()
    ]


def overall_verdicts(rows: Sequence[Row], figure: str) -> list[Verdict]:
    """The same over all pairs of classes, for a figure that shows one of them."""
    found = [_gaps(rows, dataset, pair) for dataset, *pair in _known(rows)]
    return [
        _gap_verdict(figure, f"pairs of classes ({len(found)}), {told}",
                     [gap for gaps in found for gap in gaps[source]])
        for source, told in SOURCES.items()
        if found
    ]  # fmt: skip


def tables(rows: Sequence[Row], scale: Scale) -> list[Table]:
    """What is predicted, what units on images reach and what those on Gaussian surrogates reach."""
    lines = []
    for dataset, first, second in _known(rows):
        columns = [
            [_cell(scale * p, *reached, scale=scale, digits=digits)
             for p, *reached in zip(predicted, *units.values(), strict=True)]
            for name, (_, scale, digits) in QUANTITIES.items()
            for _, predicted, units in [_curves(rows, (first, second), dataset, name)]
        ]  # fmt: skip
        sizes = _curves(rows, (first, second), dataset, "accuracy")[0]
        lines += [
            (f"{dataset} {first}/{second}", str(n), *cells)
            for n, *cells in zip(sizes, *columns, strict=True)
        ]
    head = ("classes", "n", *(title for title, _, _ in QUANTITIES.values()))
    return [Table(head, lines, "Theory / real images / Gaussian surrogate (standard error)")]


def _cell(predicted: float, *reached: list[float], scale: float, digits: int) -> str:
    """89.14 / 89.49(97) / 89.80(37): standard errors in units of the last digit."""
    told = [f"{predicted:.{digits}f}"]
    for values in reached:
        found = summary(values, scale=scale)
        error = "" if np.isnan(found.error) else f"({round(found.error * 10**digits)})"
        told.append(f"{found.mean:.{digits}f}{error}" if values else "—")
    return " / ".join(told)


def _known(rows: Sequence[Row]) -> list[tuple[str, int, int]]:
    """The pairs of classes that were predicted, in the order of ``PAIRS``."""
    runs = finished(rows, "predicted")
    order = [list(pair) for _, *pair in PAIRS]
    runs.sort(key=lambda r: order.index(r.params["pair"]))
    return [(r.params["dataset"], *r.params["pair"]) for r in runs]


def draw(rows: Sequence[Row], scale: Scale) -> Figure:
    """A column for each pair of classes, a row for each quantity."""
    pairs = _known(rows) or [(scale.dataset, *PAIRS[0][1:])]
    size = (2.3 + 2.4 * len(pairs), 9.6)
    with canvas(rows=len(QUANTITIES), columns=len(pairs), size=size) as (fig, axes):
        for column, pair in zip(axes.T, pairs, strict=True):
            for ax, name in zip(column, QUANTITIES, strict=True):
                draw_curve(ax, rows, pair, name)
            column[0].set_title(f"{pair[0]} {pair[1]}/{pair[2]}")
            column[-1].set_xlabel("training images n")
        for ax, (title, _, _) in zip(axes[:, 0], QUANTITIES.values(), strict=True):
            ax.set_ylabel(title)
        legend(axes[0, 0], fontsize=8)
    return fig


def draw_first(ax: Any, rows: Sequence[Row]) -> None:
    """The accuracy of the first pair of classes, as a panel of another figure."""
    _, first, second = PAIRS[0]
    for pair in _known(rows):
        if pair[1:] == (first, second):
            draw_curve(ax, rows, pair, "accuracy")
    ax.set(xlabel="training images n", ylabel="test accuracy (%)")
    ax.set_title(f"{first} against {second}")
    legend(ax, fontsize=8)


def draw_curve(ax: Any, rows: Sequence[Row], pair: tuple[str, int, int], name: str) -> None:
    """A quantity against the number of images: theory, real images, surrogates."""
    ax.set(xscale="log")
    found = _curves(rows, pair[1:], pair[0], name)
    if found is None:
        return
    (sizes, predicted, units), (_, scale, _) = found, QUANTITIES[name]
    ticks: list[int] = []
    for n in sizes:  # between others, labels of a logarithmic axis would run into each other
        ticks += [n] if not ticks or n >= 2.4 * ticks[-1] else []
    ax.set_xticks(ticks, [f"{n:g}" for n in ticks])
    ax.minorticks_off()
    ax.plot(sizes, scale * predicted, color=COLOURS["theory"], label="theory, nothing fitted")
    for (source, label), (colour, shift) in zip(
        SOURCES.items(), (("machine", 1.03), ("boson", 0.97)), strict=True
    ):
        lines = [
            (n, *summary(v, scale=scale)[:2])
            for n, v in zip(sizes, units[source], strict=True)
            if v
        ]
        if lines:
            at, mean, error = np.nan_to_num(np.array(lines)).T
            ax.errorbar(at * shift, mean, error, fmt="o", ms=4, lw=1, capsize=2,
                        color=COLOURS[colour], label=label)  # fmt: skip
