"""Judging a net on labelled examples; summing up a training as numbers and as curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from fermibose import compute
from fermibose.errors import InputError
from fermibose.machine.inputs import as_source
from fermibose.machine.network import FermiBoseNet
from fermibose.machine.training import History, Training, answers
from fermibose.plotting import COLOURS, figure
from fermibose.statistics import LAST_BATCHES, last_epochs
from fermibose.summary import Summarised, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class Evaluation(Summarised):
    """How a net does on labelled examples."""

    accuracy: float
    cross_entropy: float
    class_accuracy: dict[Any, float]  # of the classes that occur
    confusion: npt.NDArray[np.int64]  # (true class, predicted class) counts

    @property
    def summary(self) -> str:
        """Accuracy, and the class that is hardest."""
        worst = min(self.class_accuracy, key=lambda name: self.class_accuracy[name])
        return (
            f"accuracy {self.accuracy:.2%} of {self.confusion.sum()} samples, cross-entropy "
            f"{self.cross_entropy:.4g}; least of class {worst}: {self.class_accuracy[worst]:.1%}"
        )

    def to_frame(self) -> "DataFrame":
        """Accuracy class by class."""
        columns = {"class": list(self.class_accuracy)}
        return table(columns | {"accuracy": list(self.class_accuracy.values())})


def evaluate(net: FermiBoseNet, x: npt.ArrayLike, y: npt.ArrayLike) -> Evaluation:
    """Evaluate on inputs x (n, features) and labels y (n,), indices into the net's classes."""
    inputs, labels = as_source(x, y)
    outputs = net.config["outputs"]
    if int(labels.max()) >= outputs:
        raise InputError(
            f"the labels go up to {int(labels.max())}, but the net knows {outputs} classes; "
            "evaluate it on the kind of data it was trained on"
        )
    with torch.no_grad():
        logits = answers(net, inputs)
    met = torch.bincount(labels * outputs + logits.argmax(1), minlength=outputs**2)
    confusion = met.view(outputs, outputs).cpu().numpy()
    hits, totals = confusion.diagonal(), confusion.sum(1)
    return Evaluation(
        accuracy=float(hits.sum() / totals.sum()),
        cross_entropy=float(torch.nn.functional.cross_entropy(logits, labels)),
        class_accuracy={
            net.config["classes"][k]: float(hits[k] / totals[k]) for k in np.flatnonzero(totals)
        },
        confusion=confusion,
    )


def summarise(training: Training) -> dict[str, Any]:
    """Final numbers, history, recipe and versions of a training, ready for JSON."""
    scores = training.history.get("readout") or training.history.get("mlp") or {}
    final = {name: last_epochs(values) for name, values in scores.items()}
    for stage, record in training.history.items():
        if stage.startswith("layer"):
            # An epoch's last batches may lack a kind of pair; those hold no distance to average.
            final |= {
                f"{stage} {name}": float(np.nanmean(values[-LAST_BATCHES:]))
                for name, values in record.items()
                if np.isfinite(values[-LAST_BATCHES:]).any()
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


def draw_curves(trainings: Mapping[str, Training], path: str | Path | None) -> "Figure":
    """Draw the curves of one or more trainings, named by the keys, and save them at ``path``.

    Left: training (dashed) and test accuracy per epoch of whatever classifies, or the level of both
    where a readout in closed form has no epochs. Right: mean squared distance of boson and fermion
    pairs in each mini-batch of the last hidden layer that the first training has trained, if any.
    """
    local = {name: t for name, t in trainings.items() if _last_layer(t)}
    with figure(path, columns=2 if local else 1) as (fig, axes):
        panels = axes[0] if local else [axes]
        colours = (COLOURS["machine"], COLOURS["baseline"], COLOURS["highlight"])
        for (name, training), colour in zip(trainings.items(), colours, strict=False):
            _draw_accuracy(panels[0], training, name, colour)
        _name_axes(panels[0], list(trainings.values()))
        if local:
            _draw_distances(panels[1], *next(iter(local.items())))
    return fig


def _record(training: Training) -> dict[str, npt.NDArray[np.float64]]:
    """What is known of the part that classifies."""
    return training.history.get("readout") or training.history.get("mlp") or {}


def _last_layer(training: Training) -> int:
    """The number of the last hidden layer that was trained; 0 if none was."""
    numbers = range(1, len(training.recipe.hidden) + 1)
    return max((n for n in numbers if f"layer {n}" in training.history), default=0)


def _draw_accuracy(axes: Any, training: Training, name: str, colour: str) -> None:
    record = _record(training)
    for key, style, label in (
        ("test_accuracy", "-", f"{name}, test"),
        ("train_accuracy", "--", f"{name}, training"),
    ):
        values = record.get(key)
        if values is not None and len(values) > 1:
            epochs = np.arange(1, len(values) + 1)
            axes.plot(epochs, 100 * values, style, color=colour, label=label)
        elif values is not None:  # a closed-form readout has one value
            axes.axhline(100 * values[0], linestyle=style, color=colour, label=label)


def _name_axes(axes: Any, trainings: Sequence[Training]) -> None:
    axes.set(xlabel="epoch of the classifier", ylabel="accuracy (%)")
    place: dict[str, Any] = {"loc": "lower right"}
    if all(len(values) == 1 for t in trainings for values in _record(t).values()):
        closed = all(t.recipe.readout == "ridge" for t in trainings)  # or it had one epoch only
        axes.set(xlabel="closed-form readout" if closed else "", xticks=[])
        # Above the panel, inside of which the levels may be anywhere.
        place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 2}
    if axes.get_legend_handles_labels()[0]:
        axes.legend(**place)


def _draw_distances(axes: Any, name: str, training: Training) -> None:
    number = _last_layer(training)
    layer = f"layer {number}"
    record = training.history[layer]
    for kind in ("fermion", "boson"):
        values = record[f"{kind}_distance"]
        steps = np.arange(1, len(values) + 1)
        axes.plot(steps, values, color=COLOURS[kind], linewidth=0.8, label=f"{kind} pairs")
    energy = training.recipe.lesson(number - 1).energy
    d_f = getattr(energy, "d_f", 0.0)  # a free energy has no target
    if d_f:
        target = rf"target $d_F$ = {d_f:g}"
        axes.axhline(d_f, color=COLOURS["published"], linestyle=":", label=target)
    axes.set(xlabel=f"mini-batch ({name}, {layer})", ylabel=r"mean squared distance $D^2$")
    # Room above the curves for the legend, which would lie on them anywhere else.
    axes.set_ylim(0, 1.25 * max(d_f, np.nanmax(record["fermion_distance"], initial=0.0)))
    axes.legend(loc="upper center", ncols=3, columnspacing=1.2, handlelength=1.5)
