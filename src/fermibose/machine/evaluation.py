"""Judging a net on labelled examples, and summing up a training as plain numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fermibose import compute
from fermibose.errors import InputError
from fermibose.machine.inputs import as_tensors
from fermibose.machine.network import FermiBoseNet
from fermibose.machine.training import History, Training


@dataclass(frozen=True)
class Evaluation:
    """How a net does on labelled examples."""

    accuracy: float
    cross_entropy: float
    class_accuracy: dict[Any, float]  # of the classes that occur
    confusion: npt.NDArray[np.int64]  # (true class, predicted class) counts


def evaluate(net: FermiBoseNet, x: npt.ArrayLike, y: npt.ArrayLike) -> Evaluation:
    """Evaluate on inputs x (n, features) and labels y (n,), indices into the net's classes."""
    inputs, labels = as_tensors(x, y)
    outputs = net.config["outputs"]
    if int(labels.max()) >= outputs:
        raise InputError(
            f"the labels go up to {int(labels.max())}, but the net knows {outputs} classes; "
            "evaluate it on the kind of data it was trained on"
        )
    with torch.no_grad():
        logits = net(inputs)
    confusion = np.zeros((outputs, outputs), dtype=np.int64)
    np.add.at(confusion, (labels.numpy(), logits.argmax(1).numpy()), 1)
    hits, totals = confusion.diagonal(), confusion.sum(1)
    return Evaluation(
        accuracy=float(hits.sum() / totals.sum()),
        cross_entropy=float(torch.nn.functional.cross_entropy(logits, labels)),
        class_accuracy={
            net.config["classes"][k]: float(hits[k] / totals[k]) for k in np.flatnonzero(totals)
        },
        confusion=confusion,
    )


def last_epochs(values: npt.NDArray[np.float64], count: int = 10) -> float:
    """Mean over the last ``count`` epochs, which is how the paper states accuracies."""
    return float(values[-count:].mean())


def summarise(training: Training) -> dict[str, Any]:
    """Final numbers, history, recipe and versions of a training, ready for JSON."""
    scores = training.history.get("readout") or training.history.get("mlp") or {}
    final = {name: last_epochs(values) for name, values in scores.items()}
    for stage, record in training.history.items():
        if stage.startswith("layer"):
            # An epoch's last batches may lack a kind of pair; those hold no distance to average.
            final |= {
                f"{stage} {name}": float(np.nanmean(values[-20:]))
                for name, values in record.items()
                if np.isfinite(values[-20:]).any()
            }
    return {
        "final": final,
        "interrupted": training.interrupted,
        "recipe": training.recipe.as_dict(),
        "versions": compute.versions(),
        "history": _plain_history(training.history),
    }


def _plain_history(history: History) -> dict[str, dict[str, list[float | None]]]:
    """JSON knows no NaN: a distance of pairs that a batch lacks becomes null."""
    return {
        stage: {
            name: [value if np.isfinite(value) else None for value in values.tolist()]
            for name, values in record.items()
        }
        for stage, record in history.items()
    }
