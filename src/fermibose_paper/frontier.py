"""The frontier: how accurate and how robust a classifier is that has seen a thousand labels.

Every contender is trained for several seeds, and each look at it is a run of its own. Its audit
attacks the first 100 test images of each class by PGD, standard AutoAttack and the checks; a net
that begins with a threshold is attacked behind it, too, and the lower number counts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from torch import nn

from fermibose.attacks import (
    ThreatModel,
    accuracy_curve,
    audit,
    certified_radius,
    front_end,
    unmasked_pgd,
)
from fermibose.data import Dataset
from fermibose.data import per_class as some_of_each_class
from fermibose.errors import InputError
from fermibose.machine import FermiBoseNet, compute_settings
from fermibose.plotting import COLOURS, canvas
from fermibose.statistics import Summary, summary
from fermibose_paper.contenders import CONTENDERS, GRIDS, OURS, Contender
from fermibose_paper.job import Job, measurement
from fermibose_paper.measure import Images
from fermibose_paper.page import Badge, Table
from fermibose_paper.scale import Scale
from fermibose_paper.store import Row
from fermibose_paper.verdict import Verdict, number

Pictures = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]  # images and labels

THREAT = ThreatModel("linf", 0.1)
STRENGTHS = {
    "ℓ∞ 0.1": THREAT,
    "ℓ∞ 0.2": ThreatModel("linf", 0.2),
    "ℓ∞ 0.3": ThreatModel("linf", 0.3),
    "ℓ2 1.5": ThreatModel("l2", 1.5),
}
CERTIFIED = ("the paper's layers",)  # for the others there is no certificate
PROVED = (0.01, 0.02, 0.03)  # ε of the certificate
SEEDS = 3
TRACKS = {
    "raw": "MNIST, raw pixels",
    "threshold": "MNIST, behind a threshold",
    "fashion": "Fashion-MNIST",
}
# Clean accuracy, and accuracy at ℓ∞ 0.1 and 0.2 (%), that ours should have at least
CLAIMS: dict[str, dict[str, float]] = {
    "local convolutions": {"clean": 95.5, "ℓ∞ 0.1": 76},
    "local dense layer": {"clean": 93, "ℓ∞ 0.1": 72},
    "the paper's layers": {"clean": 86.5, "ℓ∞ 0.1": 42},
    "convolutions without labels": {"clean": 95},
    "local convolutions, threshold": {"clean": 96, "ℓ∞ 0.1": 90, "ℓ∞ 0.2": 78},
    "local convolutions, threshold, Fashion": {"clean": 84, "ℓ∞ 0.1": 60},
}
# Those of which robustness is claimed. Under PGD alone the other baselines look better than they
# are: ours has to beat them so.
AUDITED = (
    *(name for name, claims in CLAIMS.items() if "ℓ∞ 0.1" in claims),
    *(name for name in CONTENDERS if name.startswith("CNN, FGSM")),
)
SAMPLE = ("the paper's layers", "kernel ridge")


@dataclass(frozen=True)
class HeldOut:
    """The training images; in place of test images the next 100 of each class."""

    dataset: str
    folder: str | None = None

    def load(self) -> Dataset:
        """The images."""
        if self.dataset != "fashion-mnist":  # the bundled images are those of MNIST's training set
            return Images("mnist5k").load().first(test_per_class=100)
        both = Images(self.dataset, 200, folder=self.folder).load()
        x, y = both.x_train, both.y_train
        first = np.arange(len(y)) % 200 < 100  # they are sorted by class
        return replace(both, x_train=x[first], y_train=y[first], x_test=x[~first], y_test=y[~first])


@measurement("frontier", version=1)
def measure_frontier(
    *,
    method: str,
    settings: dict[str, Any],
    look: str,
    per_class: int,
    data: Dataset,
    seed: int = 0,
) -> dict[str, Any]:
    """Train a contender and look at it, on the first ``per_class`` test images of each class.

    settings: the contender's, as JSON keeps them; the run is known by them.
    """
    contender = _known()[method]
    if contender.settings != settings:
        raise InputError(f"{method} has other settings here than where the run was planned")
    with compute_settings(1):
        net = contender.fit(data, seed)
        images = some_of_each_class(data.x_test, data.y_test, per_class)
        return LOOKS[look](net, images, data, seed)


def _known() -> dict[str, Contender]:
    return CONTENDERS | {name: each for grid in GRIDS.values() for name, each in grid.items()}


def strengths(net: nn.Module, images: Pictures, data: Dataset, seed: int) -> dict[str, Any]:
    """Accuracy on all test images, and under PGD at every strength."""
    every = accuracy_curve(
        net, data.x_test, data.y_test, ThreatModel("linf"), epsilons=(0.0,), show=False
    )
    found: dict[str, Any] = {"clean": float(every.accuracy[0])}
    for name, threat in STRENGTHS.items():
        found[name] = unmasked_pgd(net, *images, threat, seed=seed, show=False).robust_accuracy
    if isinstance(net, FermiBoseNet) and (parts := front_end(net)):
        found["steepness"], found["threshold"] = (
            float(getattr(parts[0], name)) for name in ("steepness", "threshold")
        )
    return found


def audited(net: nn.Module, images: Pictures, data: Dataset, seed: int) -> dict[str, Any]:
    """The audit at ℓ∞ 0.1."""
    return audit(net, *images, THREAT, seed=seed, show=False).as_dict()


def certified(net: nn.Module, images: Pictures, data: Dataset, seed: int) -> dict[str, Any]:
    """Certified accuracy at small ε, of nets for which there is a certificate."""
    assert isinstance(net, FermiBoseNet)
    radius = certified_radius(net, *images, norm="linf", show=False)
    return {"epsilons": list(PROVED), "certified": radius.accuracy(PROVED).tolist()}


def validated(net: nn.Module, images: Pictures, data: Dataset, seed: int) -> dict[str, Any]:
    """Accuracy without attack and under PGD at ℓ∞ 0.1."""
    found = unmasked_pgd(net, *images, THREAT, losses="margin", seed=seed, show=False)
    return {"clean": found.clean_accuracy, "robust": found.robust_accuracy}


LOOKS: dict[str, Callable[[nn.Module, Pictures, Dataset, int], dict[str, Any]]] = {
    "audit": audited,
    "certificate": certified,
    "strengths": strengths,
    "validation": validated,
}


def plan(scale: Scale) -> list[Job]:
    """Every contender with every seed; what baselines tried; the audits.

    Of a sample two contenders with one seed under PGD, on ten images of each class.
    """
    if scale.sample:
        return [_job(scale, name, "strengths", 0, images=10) for name in SAMPLE]
    looks = [(name, "strengths", seed) for name in CONTENDERS for seed in range(SEEDS)]
    looks += [(name, "certificate", seed) for name in CERTIFIED for seed in range(SEEDS)]
    looks += [(name, "validation", 0) for grid in GRIDS.values() for name in grid]
    looks += [(name, "audit", seed) for name in AUDITED for seed in range(SEEDS)]
    there = {name for name, each in _known().items() if each.dataset not in scale.lost}
    return [_job(scale, *look) for look in looks if look[0] in there]


def _job(scale: Scale, name: str, look: str, seed: int, images: int = 100) -> Job:
    contender = _known()[name]
    dataset = "fashion-mnist" if contender.track == "fashion" else scale.dataset
    folder = scale.folder_of(dataset)
    data = HeldOut(dataset, folder) if look == "validation" else Images(dataset, folder=folder)
    params = {"method": name, "settings": contender.settings, "look": look, "per_class": images}
    return Job(measure_frontier, params, seed, data)


class Standing(NamedTuple):
    """What is known of a contender, in percent, over its seeds."""

    accuracy: dict[str, Summary]  # "clean", and under attack at every strength
    audits: list[Mapping[str, Any]]
    seeds: int


def standings(rows: Sequence[Row]) -> dict[str, Standing]:
    """Of every contender that was attacked."""
    found = {}
    for name in CONTENDERS:
        looks = _results(rows, name, "strengths")
        audits = _results(rows, name, "audit")
        if not looks:
            continue
        accuracy = {
            key: summary((look[key] for look in looks.values()), scale=100)
            for key in ("clean", *STRENGTHS)
        }
        if audits:  # where both are known, an image must withstand either
            worst = [
                min(each["robust_accuracy"], looks[seed]["ℓ∞ 0.1"])
                for seed, each in audits.items()
                if seed in looks
            ]
            accuracy["ℓ∞ 0.1"] = summary(worst, scale=100)
        found[name] = Standing(accuracy, list(audits.values()), len(looks))
    return found


def _results(rows: Sequence[Row], name: str, look: str) -> dict[int, Any]:
    """Results by seed."""
    settings = _known()[name].settings
    return {
        row.seed: row.result
        for row in rows
        if row.name == "frontier"
        and row.result is not None
        and (row.params["method"], row.params["look"]) == (name, look)
        and row.params["settings"] == settings
    }


def tables(rows: Sequence[Row], scale: Scale) -> list[Table]:
    """Every track, the audits, the certificates, and what was tried."""
    known = standings(rows)
    head = ("method", "clean", *STRENGTHS, "seeds", "audited", "tried")
    found = []
    for track, title in TRACKS.items():
        lines = [
            (
                name,
                *(str(standing.accuracy[key]) for key in ("clean", *STRENGTHS)),
                str(standing.seeds),
                str(len(standing.audits)),
                str(CONTENDERS[name].tried),
            )
            for name, standing in known.items()
            if CONTENDERS[name].track == track
        ]
        found.append(Table(head, lines, f"{title}: accuracy in %, mean ± standard error"))
    found += [_audits(rows), _certificates(rows), *_tried(rows)]
    return [table for table in found if table.rows]


def _audits(rows: Sequence[Row]) -> Table:
    lines = []
    for name in CONTENDERS:
        for seed, each in sorted(_results(rows, name, "audit").items()):
            word = "established" if each["established"] else "not established"
            lines.append((Badge(word, each["established"]), name, str(seed), each["verdict"]))
    return Table(("verdict", "method", "seed", "evidence"), lines, "The audits", stack=True)


def _certificates(rows: Sequence[Row]) -> Table:
    lines = [
        (name, *(f"{100 * accuracy:.1f}" for accuracy in each["certified"]))
        for name in CONTENDERS
        for each in _results(rows, name, "certificate").values()
    ]
    return Table(("method", *(f"ℓ∞ {e:g}" for e in PROVED)), lines, "Certified accuracy in %")


def _tried(rows: Sequence[Row]) -> Iterator[Table]:
    """The settings of baselines on validation images, the best first."""
    for name, grid in GRIDS.items():
        lines = sorted(_scores(rows, grid).items(), key=lambda line: -sum(line[1]))
        cells = [
            (value, f"{100 * clean:.1f}", f"{100 * robust:.1f}") for value, (clean, robust) in lines
        ]
        yield Table(
            ("setting", "clean", "PGD ℓ∞ 0.1"), cells, f"Tried on validation images: {name}"
        )


def _scores(rows: Sequence[Row], grid: Mapping[str, Contender]) -> dict[str, tuple[float, float]]:
    found = {}
    for value in grid:
        for each in _results(rows, value, "validation").values():
            found[value] = each["clean"], each["robust"]
    return found


def verdicts(rows: Sequence[Row], scale: Scale) -> list[Verdict]:
    """What is claimed of ours, and its audits; whether baselines have their best setting."""
    found = []
    for name, standing in standings(rows).items():
        for key, bound in CLAIMS.get(name, {}).items():
            mean, error, _ = standing.accuracy[key]
            found.append(
                Verdict.at_least(
                    "frontier", f"{name}: accuracy, {key}", number(mean), bound=bound,
                    error=number(error), unit="%", unpublished=True, unlike=scale.sample,
                )
            )  # fmt: skip
        if name in OURS and standing.audits:
            failed = sum(not each["established"] for each in standing.audits)
            found.append(
                Verdict.at_most(
                    "frontier", f"{name}: audits that do not establish it", failed, bound=0,
                    unpublished=True,
                )
            )  # fmt: skip
    for name, grid in GRIDS.items():
        scores = {value: sum(both) for value, both in _scores(rows, grid).items()}
        (used,) = (v for v, c in grid.items() if c.settings == CONTENDERS[name].settings)
        if len(scores) == len(grid):
            best = max(scores, key=lambda value: scores[value])
            found.append(
                Verdict.at_most(
                    "frontier", f"{name}: the best setting is above the one used by",
                    100 * (scores[best] - scores[used]), bound=0.0, unit="points",
                    note=f"best: {best}", unpublished=True,
                )
            )  # fmt: skip
    return found


def draw(rows: Sequence[Row], scale: Scale) -> Figure:
    """Clean accuracy against accuracy at ℓ∞ 0.1, a panel for each track that is measured."""
    known = standings(rows)
    tracks = [track for track in TRACKS if any(CONTENDERS[name].track == track for name in known)]
    with canvas(columns=max(len(tracks), 1), size=(4.4 * max(len(tracks), 1), 6.4)) as (fig, axes):
        for ax, track in zip(np.ravel(axes), tracks, strict=False):
            mine = [name for name in known if CONTENDERS[name].track == track]
            for rank, name in enumerate(mine, 1):
                _mark(ax, rank, name, known[name])
            ax.set(xlabel="accuracy at ℓ∞ 0.1 (%)", ylabel="accuracy without attack (%)")
            ax.set_title(TRACKS[track])
            ax.legend(loc="upper left", bbox_to_anchor=(-0.05, -0.13), fontsize=8)  # no mark there
    return fig


def _mark(ax: Any, rank: int, name: str, standing: Standing) -> None:
    x, y = standing.accuracy["ℓ∞ 0.1"], standing.accuracy["clean"]
    colour = COLOURS["machine" if name in OURS else "baseline"]
    ax.errorbar(
        x.mean,
        y.mean,
        np.nan_to_num(y.error),
        np.nan_to_num(x.error),
        linestyle="",
        marker="o" if name in OURS else "s",
        color=colour,
        markerfacecolor=colour if standing.audits else "white",
        label=f"{rank}  {name.removesuffix(', Fashion').removesuffix(', threshold')}",
    )
    ax.annotate(str(rank), (x.mean, y.mean), (5, 4), textcoords="offset points", fontsize=8)
