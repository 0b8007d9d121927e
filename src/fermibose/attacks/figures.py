"""Figures of attacks: accuracy against strength, pictures of the examples, the audit's evidence."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from fermibose.attacks.audit import Audit
from fermibose.attacks.curves import Band, Curve
from fermibose.attacks.victim import AttackResult, victim_of
from fermibose.plotting import COLOURS, figure
from fermibose.threat import Images

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXIS = {"linf": "ε (ℓ∞)", "l2": "ε (ℓ2)", "noise": "standard deviation of the noise"}
_COLOURS = [COLOURS[name] for name in ("machine", "baseline", "boson", "fermion", "highlight")]
_OUTCOMES = {"passed": "boson", "inconclusive": "highlight", "FAILED": "baseline"}
_PICTURES = 10


def draw_accuracy(
    panels: Mapping[str, Mapping[str, Curve | Band]],
    path: str | Path | None,
    *,
    axes_labels: Sequence[str],
    points: Sequence[AttackResult] = (),
) -> "Figure":
    """Accuracy against strength: one panel per title, one line per name; bands are shaded.

    points: results to mark in the first panel, at their ε.
    """
    with figure(path, columns=len(panels)) as (fig, grid):
        drawn = np.atleast_1d(grid).ravel()
        for axes, (title, curves), label in zip(drawn, panels.items(), axes_labels, strict=True):
            for (name, curve), colour in zip(curves.items(), _COLOURS, strict=False):
                mean = curve.mean if isinstance(curve, Band) else curve.accuracy
                dots = "o-" if len(mean) < 15 else "-"
                axes.plot(curve.epsilons, 100 * mean, dots, color=colour, label=name, markersize=4)
                if isinstance(curve, Band):
                    axes.fill_between(
                        curve.epsilons, 100 * curve.low, 100 * curve.high, color=colour, alpha=0.2
                    )
            axes.set(title=title, xlabel=label, ylim=(0, 100))
        drawn[0].set_ylabel("accuracy (%)")
        for result, marker in zip(points, "sD^vP", strict=False):
            drawn[0].plot(
                result.threat.epsilon,
                100 * result.robust_accuracy,
                marker,
                color=COLOURS["theory"],
                label=f"{result.attack}: {100 * result.robust_accuracy:.1f} %",
            )
        drawn[0].legend(loc="upper right")
    return fig


def draw_examples(
    model: nn.Module,
    x: Images,
    y: Images,
    result: AttackResult,
    path: str | Path | None,
    *,
    image_shape: tuple[int, int],
    classes: Sequence[Any],
) -> "Figure":
    """Images beside the worst examples found, with what the model takes them for.

    One image of each class where there is one, fooled if possible.
    """
    original, labels = result.threat.check_images(x, y)
    rows = _one_of_each_class(labels, result)
    with (
        torch.no_grad(),
        victim_of(model, result.examples[rows], labels[rows], result.threat) as victim,
    ):
        answers = victim.model(victim.x).argmax(1)
    low, high = (float(original.min()), float(original.max()))
    with figure(path, rows=2, columns=len(rows), size=(1.1 * len(rows) + 0.6, 2.9)) as (fig, grid):
        cells = np.asarray(grid).reshape(2, len(rows))
        for column, row in enumerate(rows.tolist()):
            for line, picture in enumerate((original[row], result.examples[row])):
                axes = cells[line, column]
                axes.imshow(
                    picture.reshape(image_shape).cpu().numpy(), cmap="gray", vmin=low, vmax=high
                )
                axes.set(xticks=[], yticks=[])
                axes.grid(False)
                for spine in axes.spines.values():
                    spine.set_visible(False)
            cells[0, column].set_title(str(classes[int(labels[row])]))
            answer, fooled = int(answers[column]), not bool(result.robust[row])
            cells[1, column].set_title(
                str(classes[answer]), color=COLOURS["baseline"] if fooled else COLOURS["boson"]
            )
        cells[0, 0].set_ylabel("image")
        cells[1, 0].set_ylabel("attacked")
        strength = f"{AXIS[result.threat.norm].replace('ε', f'ε = {result.threat.epsilon:g}')}"
        if result.threat.norm == "noise":
            strength = f"noise {result.threat.epsilon:g}"
        fig.suptitle(f"{result.attack}, {strength}: label, and what the model takes it for")
    return fig


def draw_audit(audit: Audit, path: str | Path | None) -> "Figure":
    """The curves an audit looked at, and its checks one by one."""
    numbers = {check.name: check.numbers for check in audit.checks}
    with figure(path, columns=2, size=(12.5, 4.4)) as (fig, grid):
        left, right = grid[0]
        curve = numbers["monotone in ε"] or {"epsilons": [], "accuracy": []}  # if not checked
        left.plot(
            curve["epsilons"], 100 * audit.clean_accuracy * np.array(curve["accuracy"]), "o-",
            color=COLOURS["machine"], label=f"PGD-40, from {audit.parameters['probe']} images",
        )  # fmt: skip
        left.plot(
            [audit.threat.epsilon], [100 * audit.robust_accuracy], "x",
            color=COLOURS["baseline"], label=f"all attacks, all {audit.images} images",
        )  # fmt: skip
        left.set(xlabel=AXIS[audit.threat.norm], ylabel="accuracy (% of all images)", ylim=(0, 103))
        left.legend(loc="upper right")
        right.axis("off")
        height = 1 / len(audit.checks)
        for line, check in enumerate(audit.checks):
            colour = COLOURS[_OUTCOMES[check.outcome]]
            level = 1 - (line + 0.5) * height
            style: dict[str, Any] = {"transform": right.transAxes, "va": "center"}
            right.text(0.0, level, check.outcome, color=colour, weight="bold", size=8, **style)
            right.text(0.15, level + 0.22 * height, check.name, size=8.5, **style)
            evidence = check.evidence if len(check.evidence) < 95 else check.evidence[:92] + "…"
            right.text(
                0.15, level - 0.24 * height, evidence, size=6.8, color=COLOURS["published"], **style
            )
        fig.suptitle(audit.headline, size=11)
    return fig


def _one_of_each_class(labels: torch.Tensor, result: AttackResult) -> torch.Tensor:
    rows = []
    fooled, correct = (result.correct & ~result.robust).cpu(), result.correct.cpu()
    for label in labels.unique().tolist():
        of_class = labels == label
        for choice in (of_class & fooled, of_class & correct, of_class):
            if choice.any():
                rows.append(int(choice.nonzero()[0]))
                break
    return torch.tensor(rows[:_PICTURES])
