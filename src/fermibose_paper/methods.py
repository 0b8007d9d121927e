"""The methods that are compared: each trained from plain parameters, which identify its runs."""

from collections.abc import Callable
from typing import Any

from torch import nn

from fermibose.attacks import Adversary, ThreatModel
from fermibose.data import Dataset
from fermibose.energy import PairEnergy
from fermibose.errors import InputError
from fermibose.machine import (
    InputNoise,
    Recipe,
    train,
    train_kernel_ridge,
    train_logistic,
    train_mlp,
    train_rbf_svm,
)

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
