"""How the baselines of the robustness table got their hyperparameters.

    python benchmarks/tuning.py

Every baseline learns the paper's 1000 training images with each value of its grid; the value with
the best sum of clean accuracy and accuracy under PGD (ℓ∞ 0.1) on the *next* 100 training images of
each class is taken. No test image is involved, and the bundled data suffice. About ten minutes on
one core.
"""

from collections.abc import Callable
from typing import Any

from fermibose.attacks import Adversary, ThreatModel, pgd
from fermibose.data import load_mnist5k, per_class
from fermibose.machine import (
    InputNoise,
    Recipe,
    compute_settings,
    train_kernel_ridge,
    train_logistic,
    train_mlp,
    train_rbf_svm,
)

THREAT = ThreatModel("linf", 0.1)


def mlp(**options: Any) -> Callable[..., Any]:
    return lambda x, y: train_mlp(x, y, Recipe(seed=0), show=False, **options).net


def adversarial(steps: int) -> dict[str, Callable[..., Any]]:
    return {
        f"ε {e:g}": mlp(perturb=Adversary(ThreatModel("linf", e), steps=steps))
        for e in (0.1, 0.15, 0.2)
    }


GAMMAS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1)
GRIDS: dict[str, dict[str, Callable[..., Any]]] = {
    "logistic regression": {
        f"penalty {p:g}": lambda x, y, p=p: train_logistic(x, y, penalty=p)
        for p in (0.1, 1, 10, 30, 100, 200, 300)
    },
    "RBF-SVM": {
        f"γ {g:g}, C {c:g}": lambda x, y, g=g, c=c: train_rbf_svm(x, y, gamma=g, c=c)
        for g in GAMMAS
        for c in (1, 3, 10)
    },
    "kernel ridge": {
        f"γ {g:g}, ridge {r:g}": lambda x, y, g=g, r=r: train_kernel_ridge(x, y, gamma=g, ridge=r)
        for g in GAMMAS
        for r in (0.03, 0.1, 0.3, 1, 3)
    },
    "MLP, weight decay": {
        f"{w:g}": mlp(weight_decay=w) for w in (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.02, 0.03, 0.05)
    },
    "MLP, input noise": {
        f"{s:g}": mlp(perturb=InputNoise(s)) for s in (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
    },
    "MLP, FGSM training": adversarial(1),
    "MLP, PGD-7 training": adversarial(7),
}


def main() -> None:
    x, y = load_mnist5k()
    train, held_out = per_class(x, y, 100), per_class(x, y, 100, start=100)
    with compute_settings(1):
        for method, grid in GRIDS.items():
            best = (0.0, "")
            for name, fit in grid.items():
                found = pgd(fit(*train), *held_out, THREAT, show=False)
                total = found.clean_accuracy + found.robust_accuracy
                best = max(best, (total, name))
                print(
                    f"{method:20s} {name:18s} clean {100 * found.clean_accuracy:.1f}  "
                    f"PGD {100 * found.robust_accuracy:.1f}  sum {100 * total:.1f}",
                    flush=True,
                )
            print(f"{method}: {best[1]}\n", flush=True)


if __name__ == "__main__":
    main()
