"""One training with the paper's settings, and what can be read off it."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fermibose.attacks import ThreatModel, accuracy_curve, fgsm, noisy, robustness_area
from fermibose.data import Dataset, per_class
from fermibose.energy import PairEnergy
from fermibose.errors import InputError
from fermibose.machine import (
    FermiBoseNet,
    Recipe,
    Training,
    compute_settings,
    last_epochs,
    train,
    train_mlp,
)

Floats = npt.NDArray[np.float64]

ATTACKED_PER_CLASS = 100  # the published robustness is that of the first 100 images of each class
# What is measured, with the ε of the perturbed images that are kept
THREATS = {"fgsm": ThreatModel("linf", 0.2), "noise": ThreatModel("noise", 0.4)}


def learn(
    data: Dataset,
    coupling: Any,
    d_f: float | None,
    hidden: tuple[int, ...],
    epochs: int,
    batch_size: int,
    seed: int,
    *,
    tested: bool = True,
) -> Training:
    """The machine with this coupling and d_F, or the MLP, with as many epochs for each stage.

    tested: whether the history holds the test accuracy of every epoch.
    """
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
    test = (data.x_test, data.y_test) if tested else None
    return fit(data.x_train, data.y_train, recipe, test=test, show=False)


def trajectories(training: Training) -> dict[str, Floats]:
    """Accuracies of every epoch and, of the machine's last hidden layer, energy and distances."""
    scores = training.history.get("readout") or training.history["mlp"]
    paths = {name: scores[name] for name in ("test_accuracy", "train_accuracy")}
    record = training.history.get(f"layer {len(training.recipe.hidden)}", {})
    if record:
        batches = len(record["energy"]) // training.recipe.epochs
        record = record | recorded_distances(
            record["boson_distance"], record["fermion_distance"], record["boson_share"]
        )
        paths |= {name: _per_epoch(values, batches) for name, values in record.items()}
    return paths


def summary(paths: dict[str, Floats]) -> dict[str, float]:
    """Means over the last ten epochs, which is how the paper states accuracies."""
    return {name: last_epochs(values) for name, values in paths.items()}


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


def robustness(net: FermiBoseNet, data: Dataset, seed: int) -> dict[str, Any]:
    """Curves and areas of FGSM and noise, and one perturbed image of each as hexadecimal bytes."""
    x, y = per_class(data.x_test, data.y_test, ATTACKED_PER_CLASS)
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
