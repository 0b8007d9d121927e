"""One training on the paper's images with its settings, and everything that is looked at after.

The figures, and what goes beyond the paper, are made of calls of :func:`measure_training`: one for
each net that is trained. A result is made of plain numbers and lists, per epoch where the name says
so; accuracies are fractions.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fermibose.attacks import (
    LossName,
    ThreatModel,
    accuracy_curve,
    fgsm,
    noisy,
    pgd,
    robustness_area,
)
from fermibose.data import Dataset, content_digest, load_dataset, rank_in_class
from fermibose.data import per_class as first_of_each_class
from fermibose.energy import PairEnergy
from fermibose.errors import InputError
from fermibose.machine import (
    Recipe,
    Training,
    compute_settings,
    train,
    train_mlp,
)
from fermibose.statistics import last_epochs
from fermibose_paper.job import measurement

Floats = npt.NDArray[np.float64]

ATTACKED_PER_CLASS = 100  # the published robustness is that of the first 100 images of each class
# What is measured, with the ε of the perturbed images that are kept
THREATS = {"fgsm": ThreatModel("linf", 0.2), "noise": ThreatModel("noise", 0.4)}
PGD_LOSSES: tuple[LossName, ...] = ("cross_entropy", "margin")  # climbed by the PGD here
PGD_STRENGTH = 0.1  # ε of the attack that is not in the paper, and of FGSM beside it


@measurement("training", version=1)
def measure_training(
    *,
    coupling: str,
    d_f: float | None,
    dataset: str,
    also: list[str],
    hidden: int = 1000,
    depth: int = 1,
    epochs: int = 100,
    batch_size: int = 50,
    per_class: int = 100,
    imbalance: float = 1.0,
    data: Dataset,
    seed: int = 0,
) -> dict[str, Any]:
    """Train the machine (coupling "labelled" or "averaged") or the MLP ("mlp", d_f None).

    Accuracies and, of the machine, energy and distances of pairs in the last hidden layer, both
    over pairs of each kind and as the published programme recorded them: means over the last ten
    epochs. dataset, per_class and imbalance name the images, which are ``data``.

    also: what is looked at besides, a sorted list of names in LOOKS.
    """
    if unknown := sorted(set(also) - set(LOOKS)):
        raise InputError(f"there is no {unknown[0]!r} to look at: choose from {', '.join(LOOKS)}")
    training = learn(data, coupling, d_f, (hidden,) * depth, epochs, batch_size, seed)
    result: dict[str, Any] = {
        name: last_epochs(values) for name, values in trajectories(training).items()
    }
    for name in also:
        result |= LOOKS[name](training, data)
    return result


def learn(
    data: Dataset,
    coupling: Any,
    d_f: float | None,
    hidden: tuple[int, ...],
    epochs: int,
    batch_size: int,
    seed: int,
) -> Training:
    """The machine with this coupling and d_F, or the MLP, with as many epochs for each stage."""
    if (coupling == "mlp") != (d_f is None):
        raise InputError(f"the MLP has no d_F and the machine needs one: got {coupling}, {d_f}")
    recipe = Recipe(
        hidden,
        PairEnergy() if d_f is None else PairEnergy(d_f, coupling=coupling),
        epochs=epochs,
        readout_epochs=epochs,
        batch_size=batch_size,
        seed=seed,
    )
    fit = train_mlp if d_f is None else train
    test = (data.x_test, data.y_test)
    return fit(data.x_train, data.y_train, recipe, test=test, show=False)


def trajectories(training: Training) -> dict[str, Floats]:
    """Accuracies of every epoch and, of the machine's last hidden layer, energy and distances."""
    scores = training.history.get("readout") or training.history["mlp"]
    paths = {name: scores[name] for name in ("test_accuracy", "train_accuracy")}
    record = training.history.get(f"layer {len(training.recipe.hidden)}", {})
    if record:
        batches = len(record["energy"]) // training.recipe.lesson(-1).epochs
        record = record | recorded_distances(
            record["boson_distance"], record["fermion_distance"], record["boson_share"]
        )
        paths |= {name: _per_epoch(values, batches) for name, values in record.items()}
    return paths


def courses(training: Training, data: Dataset) -> dict[str, list[float]]:
    """Accuracies, energy and distances at every epoch, six digits each."""
    return {
        f"{name}_per_epoch": [float(f"{value:.6g}") for value in values]
        for name, values in trajectories(training).items()
    }


def recorded_distances(boson: Floats, fermion: Floats, share: Floats) -> dict[str, Floats]:
    r"""Distances as the published programme recorded them, from those of each kind of pair.

    It multiplied the distances of a batch, in the shape (P, 1), by the pair labels, in the shape
    (P,), and took the mean over all P² products: the mean distance over *all* pairs times the share
    of each kind,

    .. math:: D_B^{rec} = s\,\langle D^2\rangle, \quad D_F^{rec} = (1-s)\,\langle D^2\rangle, \quad
              \langle D^2\rangle = s D_B^2 + (1-s) D_F^2, \quad s = n_B/P,

    so that their ratio is that of the pair counts whatever has been learnt. Arguments and results
    are per mini-batch; a kind of which a batch has no pair (NaN) contributes nothing.
    """
    bosons = share * np.where(share > 0, boson, 0)
    mean = bosons + (1 - share) * np.where(share < 1, fermion, 0)
    return {
        "recorded_boson_distance": share * mean,
        "recorded_fermion_distance": (1 - share) * mean,
    }


def curves(training: Training, data: Dataset) -> dict[str, Any]:
    """Curves and areas of FGSM and noise, and one perturbed image of each as hexadecimal bytes.

    On the first 100 test images of each class, ε = 0, 0.01, …, 0.79.
    """
    x, y = first_of_each_class(data.x_test, data.y_test, ATTACKED_PER_CLASS)
    net, seed = training.net, training.recipe.seed
    found: dict[str, Any] = {}
    with compute_settings(1):
        for name, threat in THREATS.items():
            curve = accuracy_curve(net, x, y, threat, seed=seed, show=False)
            found[f"{name}_curve"] = curve.accuracy.round(6).tolist()
            found[f"{name}_area"] = robustness_area(curve)
            image = torch.tensor(x[:1])  # the first 0, which every net that learnt gets right
            if name == "fgsm":
                image = fgsm(net, x[:1], y[:1], threat, show=False).examples
            else:
                image = noisy(image, threat, torch.Generator().manual_seed(seed))
            found[f"{name}_example"] = (255 * image).round().byte().numpy().tobytes().hex()
    return found


def under_pgd(training: Training, data: Dataset) -> dict[str, float]:
    """Accuracy under PGD in an ℓ∞ ball, on the images that FGSM is measured on.

    20 steps each on cross-entropy and margin, the worst case of both: an adversary, which a single
    step is not.
    """
    x, y = first_of_each_class(data.x_test, data.y_test, ATTACKED_PER_CLASS)
    threat, seed = ThreatModel("linf", PGD_STRENGTH), training.recipe.seed
    with compute_settings(1):
        found = pgd(training.net, x, y, threat, losses=PGD_LOSSES, steps=20, seed=seed, show=False)
    return {"pgd_accuracy": float(found.robust_accuracy)}


def components(training: Training, data: Dataset) -> dict[str, Any]:
    """Principal components of the hidden representation of training and of test images.

    Explained: share of the variance on the first three components, of the whole variance and of
    that on the first twenty. Coordinates on these three, with labels, are kept for drawing: of all
    training images and of every tenth test image.
    """
    result: dict[str, Any] = {}
    for name, x, y, step in (
        ("train", data.x_train, data.y_train, 1),
        ("test", data.x_test, data.y_test, 10),
    ):
        with compute_settings(1), torch.no_grad():
            shares, coordinates = principal_components(training.net.represent(torch.tensor(x)))
        result[f"{name}_explained"] = float(shares[:3].sum())
        result[f"{name}_explained_of_20"] = float(shares[:3].sum() / shares[:20].sum())
        result[f"{name}_coordinates"] = coordinates[::step, :3].round(3).tolist()
        result[f"{name}_labels"] = y[::step].tolist()
    return result


LOOKS: dict[str, Callable[[Training, Dataset], dict[str, Any]]] = {
    "components": components,
    "courses": courses,
    "curves": curves,
    "pgd": under_pgd,
}


def principal_components(h: Tensor) -> tuple[Floats, Floats]:
    """Share of the variance on each component, largest first, and coordinates (n, components).

    h: (n, units); its rows are centred first.
    """
    h = h.double()
    u, s, _ = torch.linalg.svd(h - h.mean(0), full_matrices=False)
    variances = s.square().numpy()
    return variances / max(float(variances.sum()), np.finfo(float).tiny), (u * s).numpy()


def _per_epoch(values: Floats, batches: int) -> Floats:
    """Means over the mini-batches of each epoch (NaN where none of them has a value)."""
    table = values.reshape(-1, batches)
    known = np.isfinite(table)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, table, 0).sum(1) / known.sum(1))


TEST_PER_CLASS = 400
# Of the test images and labels that the published numbers are of.
PUBLISHED_TEST = "d5bbc4c3c04b3566ec13e5949cfd76914e22843edf8ca5f7da07aaf9ee1677ab"


@dataclass(frozen=True)
class Images:
    """Training images, the first ``per_class`` of each class, and 400 test images of each class.

    "mnist" and "fashion-mnist" (folder, FERMIBOSE_DATA, else a download) take the test images from
    the test set, as published; "mnist5k" (bundled) takes images 100 to 500 of each class.
    """

    dataset: str
    per_class: int = 100
    # How many times larger the first class is than the last; class k of K keeps
    # per_class·imbalance^{−k/(K−1)} images.
    imbalance: float = 1.0
    folder: str | None = None  # absolute from here on: a worker may stand elsewhere

    def __post_init__(self) -> None:
        folder = None if self.dataset == "mnist5k" else self.folder
        object.__setattr__(self, "folder", None if folder is None else os.path.abspath(folder))

    def load(self) -> Dataset:
        """The images; their arrays are shared by all who ask: do not change them."""
        return _load(self)


class _Shared(Dataset):
    """Images that nobody changes, so that their checksum is computed once."""

    @cached_property
    def checksum(self) -> str:
        """See :class:`Dataset`."""
        return super().checksum


@lru_cache(maxsize=16)
def _load(images: Images) -> Dataset:
    dataset, per_class, folder = images.dataset, images.per_class, images.folder
    if dataset == "mnist5k" and per_class > 100:
        raise InputError(
            f"the bundled images allow 100 training images of each class beside the test "
            f"images, not {per_class}; give a folder of MNIST's IDX files"
        )
    if images.imbalance < 1:
        raise InputError(f"imbalance must be at least 1, got {images.imbalance}")
    found = load_dataset(
        dataset, folder=folder, train_per_class=per_class, test_per_class=TEST_PER_CLASS
    )
    test = content_digest(found.x_test.astype("<f4"), found.y_test.astype("<i8"))
    if dataset == "mnist" and test != PUBLISHED_TEST:
        raise InputError(
            f"the test images in {folder or 'FERMIBOSE_DATA'} are not those of MNIST, which the "
            "published numbers are of: give the folder of MNIST's four files, all of them whole"
        )
    classes = int(found.y_train.max()) + 1
    kept = np.round(per_class * images.imbalance ** -np.linspace(0, 1, classes))
    chosen = rank_in_class(found.y_train) < kept[found.y_train]
    x, y = found.x_train[chosen], found.y_train[chosen]
    return _Shared(dataset, x, y, found.x_test, found.y_test, found.image_shape)
