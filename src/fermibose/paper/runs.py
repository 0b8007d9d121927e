"""The measuring functions: one training run on images, and what is looked at afterwards.

Every figure, and what goes beyond the paper, is made of calls of these functions. A result is made
of plain numbers and lists, per epoch where the name says so; accuracies are fractions.
"""

from typing import Any

import torch

from fermibose.attacks import ThreatModel, pgd
from fermibose.data import per_class
from fermibose.machine import compute_settings
from fermibose.paper.images import images
from fermibose.paper.learning import (
    ATTACKED_PER_CLASS,
    learn,
    principal_components,
    robustness,
    summary,
    trajectories,
)
from fermibose.sweep import measurement


@measurement(version=1)
def measure_training(
    *,
    coupling: str,
    d_f: float | None,
    hidden: int = 1000,
    depth: int = 1,
    epochs: int = 100,
    batch_size: int = 50,
    dataset: str = "mnist",
    per_class: int = 100,
    imbalance: float = 1.0,
    seed: int = 0,
    folder: str | None = None,
) -> dict[str, Any]:
    """Train the machine (coupling "labelled" or "averaged") or the MLP ("mlp", d_f None).

    Accuracies: per epoch of the readout (or MLP), and their mean over the last ten. Distances of
    boson and fermion pairs in the last hidden layer: the means over pairs of each kind, and as the
    published programme recorded them, both averaged over the mini-batches of an epoch.
    """
    data = images(dataset, per_class=per_class, imbalance=imbalance, folder=folder)
    training = learn(data, coupling, d_f, (hidden,) * depth, epochs, batch_size, seed)
    paths = trajectories(training)
    curves = {
        f"{name}_per_epoch": [float(f"{value:.6g}") for value in values]
        for name, values in paths.items()
    }
    return summary(paths) | curves


@measurement(version=2)
def measure_robustness(
    *,
    coupling: str,
    d_f: float | None,
    hidden: int = 1000,
    epochs: int = 100,
    dataset: str = "mnist",
    seed: int = 0,
    folder: str | None = None,
) -> dict[str, Any]:
    """Accuracy against the strength of FGSM and of noise, and the areas under both curves.

    On the first 100 test images of each class, ε = 0, 0.01, …, 0.79. Accuracies without attack and
    distances as in :func:`measure_training`, without their course.
    """
    data = images(dataset, folder=folder)
    training = learn(data, coupling, d_f, (hidden,), epochs, 50, seed)
    return summary(trajectories(training)) | robustness(training.net, data, seed)


@measurement(version=1)
def measure_pgd(
    *,
    coupling: str,
    d_f: float | None,
    epsilon: float,
    hidden: int = 1000,
    epochs: int = 100,
    dataset: str = "mnist",
    seed: int = 0,
    folder: str | None = None,
) -> dict[str, Any]:
    """Accuracy under PGD in the ℓ∞ ball of radius ε, on the images that FGSM is measured on.

    20 steps each on cross-entropy and margin, the worst case of both: an adversary, which a single
    step is not.
    """
    data = images(dataset, folder=folder)
    net = learn(data, coupling, d_f, (hidden,), epochs, 50, seed, tested=False).net
    x, y = per_class(data.x_test, data.y_test, ATTACKED_PER_CLASS)
    with compute_settings(1):
        found = pgd(net, x, y, ThreatModel("linf", epsilon), steps=20, seed=seed, show=False)
    return {"pgd_accuracy": float(found.robust_accuracy)}


@measurement(version=1)
def measure_representation(
    *,
    coupling: str,
    d_f: float | None,
    hidden: int = 1000,
    epochs: int = 100,
    dataset: str = "mnist",
    seed: int = 0,
    folder: str | None = None,
) -> dict[str, Any]:
    """Principal components of the hidden representation of training and of test images.

    Explained: share of the variance on the first three components, of the whole variance and of
    that on the first twenty. Coordinates on these three, with labels, are kept for drawing: of all
    training images and of every tenth test image.
    """
    data = images(dataset, folder=folder)
    net = learn(data, coupling, d_f, (hidden,), epochs, 50, seed, tested=False).net
    result: dict[str, Any] = {}
    for name, x, y, step in (
        ("train", data.x_train, data.y_train, 1),
        ("test", data.x_test, data.y_test, 10),
    ):
        with compute_settings(1), torch.no_grad():
            shares, coordinates = principal_components(net.represent(torch.tensor(x)))
        result[f"{name}_explained"] = float(shares[:3].sum())
        result[f"{name}_explained_of_20"] = float(shares[:3].sum() / shares[:20].sum())
        result[f"{name}_coordinates"] = coordinates[::step, :3].round(3).tolist()
        result[f"{name}_labels"] = y[::step].tolist()
    return result
