"""Robustness of everything: the machine and fair baselines under the same attacks.

All learn the paper's 1000 images and are attacked on the first 100 test images of each class:
areas, PGD, and AutoAttack where a known number is checked, on all 1000. AutoAttack on every method
takes hours, so it gives each seed another tenth of them (10 of each class): the mean over 5 seeds
covers 500 images, and its error bar holds both the spread of seeds and that of images. PGD on the
same images is recorded beside it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch import nn

from fermibose.attacks import (
    ThreatModel,
    accuracy_curve,
    audit,
    auto_attack,
    certified_radius,
    pgd,
    robustness_area,
)
from fermibose.data import Dataset
from fermibose.data import per_class as some_of_each_class
from fermibose.errors import InputError
from fermibose.machine import (
    FermiBoseNet,
    compute_settings,
)
from fermibose.statistics import summary
from fermibose_paper.job import Job, measurement
from fermibose_paper.measure import PGD_LOSSES, Images
from fermibose_paper.page import Badge, Table
from fermibose_paper.scale import Scale
from fermibose_paper.series import finished
from fermibose_paper.store import Row
from fermibose_paper.tuning import COMPARED, METHODS, Method, fit, is_random
from fermibose_paper.verdict import Verdict

Pictures = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]  # images and labels
Norm = Literal["linf", "l2"]

CERTIFIED: dict[Norm, tuple[float, ...]] = {"linf": (0.01, 0.02, 0.03), "l2": (0.2, 0.3, 0.5)}
THREATS = {
    "linf 0.05": ThreatModel("linf", 0.05),
    "linf 0.1": ThreatModel("linf", 0.1),
    "linf 0.2": ThreatModel("linf", 0.2),
    "l2 1.0": ThreatModel("l2", 1.0),
}


@measurement("robustness", version=2)
def measure_robustness(
    *,
    method: Method,
    dataset: str,
    per_class: int,
    also: list[str],
    data: Dataset,
    seed: int = 0,
) -> dict[str, Any]:
    """Train a method and attack it on the first ``per_class`` test images of each class.

    also: what is looked at, a sorted list of names in LOOKS. dataset names the images, which are
    ``data``.
    """
    with compute_settings(1):
        net = fit(method, data, seed)
        images = some_of_each_class(data.x_test, data.y_test, per_class)
        found = {name: LOOKS[name](net, images, seed) for name in also}
        every = accuracy_curve(
            net, data.x_test, data.y_test, ThreatModel("linf"), epsilons=(0.0,), show=False
        )
    return {"clean": float(every.accuracy[0]), **found}


def areas(net: nn.Module, images: Pictures, seed: int) -> dict[str, float]:
    """Accuracy without attack, and the areas under the curves of FGSM and noise."""
    fgsm = accuracy_curve(net, *images, ThreatModel("linf"), show=False)
    noise = accuracy_curve(net, *images, ThreatModel("noise"), seed=seed, show=False)
    return {
        "clean": float(fgsm.accuracy[0]),
        "fgsm_area": robustness_area(fgsm),
        "noise_area": robustness_area(noise),
    }


def _pgd(net: nn.Module, images: Pictures, threat: ThreatModel, seed: int) -> float:
    found = pgd(net, *images, threat, losses=PGD_LOSSES, seed=seed, show=False)
    return found.robust_accuracy


def under_pgd(net: nn.Module, images: Pictures, seed: int) -> dict[str, float]:
    """Robust accuracy under every threat."""
    return {name: _pgd(net, images, threat, seed) for name, threat in THREATS.items()}


def under_auto_attack(net: nn.Module, images: Pictures, seed: int) -> dict[str, Any]:
    """AutoAttack, and PGD beside it, under every threat, on this seed's own tenth of the images."""
    tenth = len(images[1]) // len(np.unique(images[1])) // 10
    mine = some_of_each_class(*images, tenth, start=tenth * (seed % 10))
    return {name: _auto(net, mine, threat, seed) for name, threat in THREATS.items()}


def under_auto_attack_all(net: nn.Module, images: Pictures, seed: int) -> dict[str, Any]:
    """AutoAttack at ℓ∞ 0.1 on all images."""
    return _auto(net, images, THREATS["linf 0.1"], seed)


def _auto(net: nn.Module, images: Pictures, threat: ThreatModel, seed: int) -> dict[str, Any]:
    found = auto_attack(net, *images, threat, seed=seed, show=False)
    return {
        "clean": found.clean_accuracy,
        "pgd": _pgd(net, images, threat, seed),
        "robust": found.robust_accuracy,
        "images": len(found.robust),
        "flags": list(found.flags),
    }


def audited(net: nn.Module, images: Pictures, seed: int) -> dict[str, Any]:
    """The audit at ℓ∞ 0.1."""
    found = audit(net, *images, THREATS["linf 0.1"], seed=seed, show=False)
    return {
        "established": found.established,
        "verdict": found.verdict,
        "robust": found.robust_accuracy,
        "images": found.images,
    }


def certified(net: nn.Module, images: Pictures, seed: int) -> dict[str, Any]:
    """Certified accuracy by both methods, and accuracy under PGD."""
    if not isinstance(net, FermiBoseNet):
        raise InputError("there is a certificate for the machine and the MLP only")
    found: dict[str, Any] = {}
    for norm, strengths in CERTIFIED.items():
        by_lines = certified_radius(net, *images, norm=norm, show=False)
        by_slopes = certified_radius(net, *images, norm=norm, method="lipschitz", show=False)
        attacked = [_pgd(net, images, ThreatModel(norm, e), seed) for e in strengths]
        found[norm] = {
            "epsilons": list(strengths),
            "certified": by_lines.accuracy(strengths).tolist(),
            "lipschitz": by_slopes.accuracy(strengths).tolist(),
            "pgd": attacked,
        }
    return found


LOOKS: dict[str, Callable[[nn.Module, Pictures, int], dict[str, Any]]] = {
    "areas": areas,
    "audit": audited,
    "auto": under_auto_attack,
    "auto all": under_auto_attack_all,
    "certificate": certified,
    "pgd": under_pgd,
}


Results = dict[int, dict[str, Any]]  # of one method, by seed

# d_F marked in the paper's figures, where areas are published.
AREAS_D_F = (0.09, 0.2, 0.375, 0.465, 0.8, 0.9, 1.0, 1.1, 1.2)
PROVED = (*COMPARED, "machine, averaged, d_F 0.465")
SAMPLE = (*COMPARED, "kernel ridge")
STRENGTHS = {"linf 0.05": "ℓ∞ 0.05", "linf 0.1": "ℓ∞ 0.1", "linf 0.2": "ℓ∞ 0.2", "l2 1.0": "ℓ2 1.0"}
ATTACKS = {"fgsm": "FGSM", "noise": "noise"}
HEAD = ("method", "clean", *STRENGTHS.values(), "noise area", "seeds")
STAGES = {
    "auto": "AutoAttack (standard), accuracy in %, mean ± standard error over seeds",
    "pgd": "PGD with 40 steps on the first {images} test images of each class, accuracy in %",
}


def plan(scale: Scale) -> list[Job]:
    """Every method with every seed, and the trainings whose areas are published.

    Of a sample three methods with one seed, on ten images of each class.
    """
    seeds = range(1 if scale.sample else scale.seeds)
    data = Images(scale.dataset, folder=scale.folder)
    jobs = []
    for seed in seeds:
        for name in SAMPLE if scale.sample else METHODS:
            also = _looks(name, seed)
            if scale.sample:
                also = [look for look in also if look not in ("audit", "auto all")]
            params: dict[str, Any] = {"method": METHODS[name], "dataset": scale.dataset}
            params |= {"per_class": 10 if scale.sample else 100, "also": also}
            jobs.append(Job(measure_robustness, params, seed, data))
    if not scale.sample:
        jobs += [*scale.jobs("mlp", [None]), *scale.jobs("averaged", AREAS_D_F)]
    return jobs


def _looks(name: str, seed: int) -> list[str]:
    """What is looked at of a method with a seed, sorted."""
    wanted = {
        "areas": seed == 0 or is_random(METHODS[name]),
        "audit": name in COMPARED,
        "auto": True,
        "auto all": name in COMPARED,
        "certificate": seed == 0 and name in PROVED,
        "pgd": seed == 0 or is_random(METHODS[name]),
    }
    return [look for look, asked in wanted.items() if asked]


def verdicts(rows: Sequence[Row], scale: Scale) -> list[Verdict]:
    """None: nothing of this is published, but for the areas, which are in Fig. 5."""
    return []


def tables(rows: Sequence[Row], scale: Scale) -> list[Table]:
    """Both attacks on all methods, and whatever else was measured."""
    images = 10 if scale.sample else 100
    found = [
        *(Table(HEAD, [*table(rows, s)], STAGES[s].format(images=images)) for s in STAGES),
        _pgd_beside_auto(rows),
        _published_nets(rows),
        _comparison(rows),
        audits(rows),
        *(_certificates(rows, norm) for norm in CERTIFIED),
    ]
    return [each for each in found if each.rows]


def by_method(rows: Sequence[Row]) -> dict[str, Results]:
    """The results of every method that was measured, in the order of METHODS."""
    found: dict[str, Results] = {}
    for name, method in METHODS.items():
        runs = [r for r in rows if r.name == "robustness" and r.params["method"] == method]
        results = {run.seed: run.result for run in runs if run.result is not None}
        if results:
            found[name] = results
    return found


def complete(rows: Sequence[Row], stage: str) -> list[int]:
    """The seeds for which every method met every threat; an unfinished seed is not reported.

    Methods without randomness have one seed under PGD, which counts for all.
    """
    every = by_method(rows)

    def met(results: Results, seed: int) -> bool:
        done = [
            s for s, result in results.items() if STRENGTHS.keys() <= result.get(stage, {}).keys()
        ]
        return seed in done or (stage == "pgd" and len(done) == 1)

    seeds = sorted({seed for results in every.values() for seed in results})
    return [seed for seed in seeds if all(met(results, seed) for results in every.values())]


def table(rows: Sequence[Row], stage: str) -> Iterator[tuple[str, ...]]:
    """Rows under HEAD, in percent. stage: "pgd", or "auto" for AutoAttack."""
    seeds = complete(rows, stage)
    for name, results in by_method(rows).items():
        learnt = [result for result in results.values() if "areas" in result]
        attacked = [results[seed][stage] for seed in seeds if stage in results.get(seed, {})]
        robust = [
            [found[threat]["robust"] if stage == "auto" else found[threat] for found in attacked]
            for threat in STRENGTHS
        ]
        yield (
            name,
            str(summary((result["clean"] for result in learnt), scale=100)),
            *(str(summary(values, scale=100)) for values in robust),
            str(summary(result["areas"]["noise_area"] for result in learnt)),
            str(len(attacked)),
        )


def audits(rows: Sequence[Row]) -> Table:
    """Whether the robust accuracy of a net is established, and the evidence."""
    lines = [
        (_badge(result["audit"]["established"]), name, str(seed), result["audit"]["verdict"])
        for name, results in by_method(rows).items()
        for seed, result in results.items()
        if "audit" in result
    ]
    return Table(("verdict", "net", "seed", "evidence"), lines, "The audit", stack=True)


def _badge(established: bool) -> Badge:
    return Badge("established" if established else "not established", established)


def _pgd_beside_auto(rows: Sequence[Row]) -> Table:
    paired = [
        found
        for results in by_method(rows).values()
        for result in results.values()
        for found in result.get("auto", {}).values()
    ]
    gaps = [100 * (found["pgd"] - found["robust"]) for found in paired]
    flags = sorted({flag for found in paired for flag in found["flags"]})
    told = ", ".join(flags) or "none"
    lines = [(str(len(gaps)), f"{np.mean(gaps):.2f}", f"{max(gaps):.0f}", told)] if gaps else []
    caption = "PGD minus AutoAttack on the same images, in points"
    return Table(("runs", "mean", "largest", "flags"), lines, caption)


def _published_nets(rows: Sequence[Row]) -> Table:
    """The nets of which the paper publishes areas."""
    lines = []
    for d_f in (None, *AREAS_D_F):
        chosen = {"coupling": "mlp" if d_f is None else "averaged", "d_f": d_f}
        runs = [run.result for run in finished(rows, "fgsm_area", **chosen)]
        if runs:
            clean = summary((result["fgsm_curve"][0] for result in runs), scale=100)
            areas = (summary(result[f"{kind}_area"] for result in runs) for kind in ATTACKS)
            cells = (f"{mean:.2f} ± {error:.2f}" for mean, error, _ in areas)
            lines.append(("MLP" if d_f is None else f"averaged, d_F {d_f:g}", str(clean), *cells))
    head = ("net", "clean", *(f"{name} area" for name in ATTACKS.values()))
    return Table(head, lines, "The nets of which areas are published")


def _comparison(rows: Sequence[Row]) -> Table:
    """The two nets of the paper's comparison under AutoAttack."""
    lines = []
    for name in COMPARED:
        results = by_method(rows).get(name, {}).values()
        found = [result["auto all"] for result in results if "auto all" in result]
        if found:
            cells = (str(summary((w[k] for w in found), scale=100)) for k in ("clean", "robust"))
            lines.append((name, *cells, str(len(found))))
    return Table(("net", "clean", "AutoAttack ℓ∞ 0.1", "seeds"), lines, "The paper's comparison")


def _certificates(rows: Sequence[Row], norm: Norm) -> Table:
    """Certified by Lipschitz constants and by CROWN, and what PGD leaves."""
    lines = []
    for name, results in by_method(rows).items():
        for result in results.values():
            if "certificate" in result:
                parts = result["certificate"][norm]
                shown = [parts[key] for key in ("lipschitz", "certified", "pgd") if key in parts]
                at_each = zip(*shown, strict=True)
                lines.append((name, *(" / ".join(f"{100 * a:.1f}" for a in at) for at in at_each)))
    head = ("net", *(f"{norm} {e:g}" for e in CERTIFIED[norm]))
    return Table(head, lines, "Certified accuracy / accuracy under PGD, in %")
