"""The methods that are compared, trained from plain parameters, and every attack on them."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch import nn

from fermibose.attacks import (
    Adversary,
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
from fermibose.energy import PairEnergy
from fermibose.errors import InputError
from fermibose.machine import (
    FermiBoseNet,
    InputNoise,
    Recipe,
    compute_settings,
    train,
    train_kernel_ridge,
    train_logistic,
    train_mlp,
    train_rbf_svm,
)
from fermibose_paper.job import measurement

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


Pictures = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]  # images and labels
Norm = Literal["linf", "l2"]

CERTIFIED: dict[Norm, tuple[float, ...]] = {"linf": (0.01, 0.02, 0.03), "l2": (0.2, 0.3, 0.5)}
THREATS = {
    "linf 0.05": ThreatModel("linf", 0.05),
    "linf 0.1": ThreatModel("linf", 0.1),
    "linf 0.2": ThreatModel("linf", 0.2),
    "l2 1.0": ThreatModel("l2", 1.0),
}


@measurement("robustness", version=1)
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


def under_pgd(net: nn.Module, images: Pictures, seed: int) -> dict[str, float]:
    """Robust accuracy under every threat."""
    return {
        name: pgd(net, *images, threat, seed=seed, show=False).robust_accuracy
        for name, threat in THREATS.items()
    }


def under_auto_attack(net: nn.Module, images: Pictures, seed: int) -> dict[str, Any]:
    """AutoAttack, and PGD beside it, under every threat, on this seed's own tenth of the images."""
    tenth = len(images[1]) // len(np.unique(images[1])) // 10
    mine = some_of_each_class(*images, tenth, start=tenth * (seed % 10))
    return {name: _auto(net, mine, threat, seed) for name, threat in THREATS.items()}


def under_auto_attack_all(net: nn.Module, images: Pictures, seed: int) -> dict[str, Any]:
    """AutoAttack at ℓ∞ 0.1 on all images."""
    return _auto(net, images, THREATS["linf 0.1"], seed)


def _auto(net: nn.Module, images: Pictures, threat: ThreatModel, seed: int) -> dict[str, Any]:
    first = pgd(net, *images, threat, seed=seed, show=False)
    found = auto_attack(net, *images, threat, seed=seed, show=False)
    return {
        "clean": found.clean_accuracy,
        "pgd": first.robust_accuracy,
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
    """Certified accuracy, and accuracy under PGD, where there is something to prove."""
    if not isinstance(net, FermiBoseNet):
        raise InputError("there is a certificate for the machine and the MLP only")
    found: dict[str, Any] = {}
    for norm, strengths in CERTIFIED.items():
        proved = certified_radius(net, *images, norm=norm).accuracy(strengths)
        attacked = [
            pgd(net, *images, ThreatModel(norm, e), seed=seed, show=False).robust_accuracy
            for e in strengths
        ]
        found[norm] = {"epsilons": list(strengths), "certified": proved.tolist(), "pgd": attacked}
    return found


LOOKS: dict[str, Callable[[nn.Module, Pictures, int], dict[str, Any]]] = {
    "areas": areas,
    "audit": audited,
    "auto": under_auto_attack,
    "auto all": under_auto_attack_all,
    "certificate": certified,
    "pgd": under_pgd,
}
