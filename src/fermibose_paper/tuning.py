"""How the baselines of the robustness table got their hyperparameters.

Every baseline learns the paper's 1000 training images with each value of its grid; the value with
the best sum of clean accuracy and accuracy under PGD (ℓ∞ 0.1) on the *next* 100 training images of
each class is taken. No test image is involved, and the bundled data suffice. All grids take about
ten minutes on one core.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from fermibose.attacks import (
    Adversary,
    ThreatModel,
    pgd,
)
from fermibose.data import Dataset, per_class
from fermibose.energy import PairEnergy
from fermibose.errors import InputError
from fermibose.machine import (
    InputNoise,
    Recipe,
    compute_settings,
    train,
    train_kernel_ridge,
    train_logistic,
    train_mlp,
    train_rbf_svm,
)
from fermibose_paper.job import Job, measurement
from fermibose_paper.measure import Images
from fermibose_paper.page import Table
from fermibose_paper.scale import Scale
from fermibose_paper.store import Row
from fermibose_paper.verdict import Verdict

Method = dict[str, Any]  # its kind, and what the kind takes

# Hyperparameters of the baselines: found by `fbm reproduce tuning --full`.
METHODS: dict[str, Method] = {
    "machine, labelled, d_F 0.4": {"kind": "machine", "coupling": "labelled", "d_f": 0.4},
    "machine, averaged, d_F 0.465": {"kind": "machine", "coupling": "averaged", "d_f": 0.465},
    "MLP": {"kind": "MLP"},
    "MLP, weight decay 0.03": {"kind": "MLP", "weight_decay": 0.03},
    "MLP, input noise 0.7": {"kind": "MLP", "noise": 0.7},
    "MLP, FGSM training 0.15": {"kind": "MLP", "adversary": 0.15, "steps": 1},
    "MLP, PGD-7 training 0.15": {"kind": "MLP", "adversary": 0.15, "steps": 7},
    "logistic regression": {"kind": "logistic regression", "penalty": 100},
    "RBF-SVM": {"kind": "RBF-SVM", "gamma": 0.05, "c": 10},
    "kernel ridge": {"kind": "kernel ridge", "gamma": 0.07, "ridge": 0.03},
}
COMPARED = ("machine, labelled, d_F 0.4", "MLP")  # the two nets of the paper's comparison
_FITTED: dict[str, Callable[..., nn.Module]] = {
    "logistic regression": train_logistic,
    "RBF-SVM": train_rbf_svm,
    "kernel ridge": train_kernel_ridge,
}


def is_random(method: Method) -> bool:
    """Whether the seed makes a difference to what is learnt."""
    return method["kind"] not in _FITTED


def fit(method: Method, data: Dataset, seed: int) -> nn.Module:
    """The method, trained on the training images."""
    options, x, y = dict(method), data.x_train, data.y_train
    kind = options.pop("kind")
    if kind in _FITTED:
        return _FITTED[kind](x, y, **options)
    if kind == "machine":
        recipe = Recipe(energy=PairEnergy(**options), seed=seed)
        return train(x, y, recipe, show=False).net
    if kind != "MLP":
        raise InputError(f"there is no method {kind!r}: choose machine, MLP, {', '.join(_FITTED)}")
    if "noise" in options:
        options["perturb"] = InputNoise(options.pop("noise"))
    if "adversary" in options:
        threat = ThreatModel("linf", options.pop("adversary"))
        options["perturb"] = Adversary(threat, steps=options.pop("steps"))
    return train_mlp(x, y, Recipe(seed=seed), show=False, **options).net


THREAT = ThreatModel("linf", 0.1)
DATASET = "mnist5k"  # whose test images are the next training images of MNIST
GAMMAS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1)


def _adversarial(steps: int) -> dict[str, Method]:
    return {f"ε {e:g}": {"kind": "MLP", "adversary": e, "steps": steps} for e in (0.1, 0.15, 0.2)}


GRIDS: dict[str, dict[str, Method]] = {
    "logistic regression": {
        f"penalty {p:g}": {"kind": "logistic regression", "penalty": p}
        for p in (0.1, 1, 10, 30, 100, 200, 300)
    },
    "RBF-SVM": {
        f"γ {g:g}, C {c:g}": {"kind": "RBF-SVM", "gamma": g, "c": c}
        for g in GAMMAS
        for c in (1, 3, 10)
    },
    "kernel ridge": {
        f"γ {g:g}, ridge {r:g}": {"kind": "kernel ridge", "gamma": g, "ridge": r}
        for g in GAMMAS
        for r in (0.03, 0.1, 0.3, 1, 3)
    },
    "MLP, weight decay": {
        f"{w:g}": {"kind": "MLP", "weight_decay": w}
        for w in (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.02, 0.03, 0.05)
    },
    "MLP, input noise": {
        f"{s:g}": {"kind": "MLP", "noise": s} for s in (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
    },
    "MLP, FGSM training": _adversarial(1),
    "MLP, PGD-7 training": _adversarial(7),
}
SAMPLE = ("logistic regression", "kernel ridge")  # which take seconds


@measurement("held-out robustness", version=2)
def measure_held_out(*, method: Method, data: Dataset, seed: int = 0) -> dict[str, float]:
    """Accuracy without attack and under PGD on the first 100 test images of each class."""
    with compute_settings(1):
        net = fit(method, data, seed)
        x, y = per_class(data.x_test, data.y_test, 100)
        found = pgd(net, x, y, THREAT, show=False)
    return {"clean": found.clean_accuracy, "robust": found.robust_accuracy}


def plan(scale: Scale) -> list[Job]:
    """Every value of the grids; of a sample, those that learn without epochs."""
    data = Images(DATASET)
    names = SAMPLE if scale.sample else tuple(GRIDS)
    return [
        Job(measure_held_out, {"method": method}, data=data)
        for name in names
        for method in GRIDS[name].values()
    ]


def tables(rows: Sequence[Row], scale: Scale) -> list[Table]:
    """One for each baseline, in percent; the best value first."""
    found = []
    for name in GRIDS:
        lines = sorted(_sums(rows, name).items(), key=lambda line: -line[1][2])
        cells = [(value, *(f"{100 * part:.1f}" for part in parts)) for value, parts in lines]
        if cells:
            found.append(Table(("value", "clean", "PGD ℓ∞ 0.1", "sum"), cells, name))
    return found


def verdicts(rows: Sequence[Row], scale: Scale) -> list[Verdict]:
    """Is the value that the robustness table uses the best of its grid?"""
    found = []
    for name, grid in GRIDS.items():
        sums = _sums(rows, name)
        (used,) = (value for value, method in grid.items() if method in METHODS.values())
        if used in sums and len(sums) == len(grid):
            best = max(sums, key=lambda value: sums[value][2])
            found.append(
                Verdict.at_most(
                    "tuning",
                    f"{name}: the best of the grid is above the value used, {used}, by",
                    100 * (sums[best][2] - sums[used][2]),
                    bound=0.0,
                    unit="points",
                    note=f"best: {best}",
                    unpublished=True,
                )
            )
    return found


def _sums(rows: Sequence[Row], name: str) -> dict[str, tuple[float, float, float]]:
    """Clean accuracy, accuracy under PGD and their sum, by value of the grid."""
    found = {}
    for value, method in GRIDS[name].items():
        for row in rows:
            if row.result is not None and row.params["method"] == method:
                clean, robust = row.result["clean"], row.result["robust"]
                found[value] = (clean, robust, clean + robust)
    return found
