"""How the baselines of the robustness table got their hyperparameters.

Every baseline learns the paper's 1000 training images with each value of its grid; the value with
the best sum of clean accuracy and accuracy under PGD (ℓ∞ 0.1) on the *next* 100 training images of
each class is taken. No test image is involved, and the bundled data suffice. All grids take about
ten minutes on one core.
"""

from collections.abc import Sequence

from fermibose.attacks import ThreatModel, pgd
from fermibose.data import Dataset, per_class
from fermibose.machine import compute_settings
from fermibose_paper.job import Job, measurement
from fermibose_paper.measure import Images
from fermibose_paper.methods import METHODS, Method, fit
from fermibose_paper.page import Table
from fermibose_paper.scale import Scale
from fermibose_paper.store import Row
from fermibose_paper.verdict import Verdict

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


@measurement("held-out robustness", version=1)
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
