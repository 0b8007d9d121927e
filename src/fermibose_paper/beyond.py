"""Beyond the paper: does what Fig. 4 shows survive other widths, data, depths and batches?

The paper says that the double ascent stays qualitatively the same when width and training size
change. Here the same measuring function is run with one setting changed at a time.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fermibose.plotting import canvas
from fermibose_paper.fig4 import marked_points
from fermibose_paper.job import Job
from fermibose_paper.scale import COUPLINGS, Scale
from fermibose_paper.series import USUAL_SPREAD, Series, legend_below, over_seeds, series
from fermibose_paper.store import Row
from fermibose_paper.verdict import Verdict

NAMES = {
    "hidden": "hidden units",
    "per_class": "training images of each class",
    "dataset": "data",
    "imbalance": "largest / smallest class",
    "depth": "hidden layers",
    "batch_size": "batch size",
}
TOLD = {"hidden", "per_class"}  # of which the paper says that the double ascent stays
ASCENT = "averaged has a double ascent, its valley is deep"


def plan(scale: Scale) -> list[Job]:
    """The paper's setting and every variation of it: both couplings over few d_F, and the MLP.

    Data that are lost are left out; their verdict then says why.
    """
    jobs = []
    for changed in [{}, *_changes(scale)]:
        if changed.get("dataset") in scale.lost:
            continue
        for seed in range(scale.beyond_seeds):
            runs = [(coupling, d_f) for coupling in COUPLINGS for d_f in scale.beyond]
            for coupling, d_f in [*runs, ("mlp", None)]:
                jobs.append(scale.job(coupling, d_f, seed, **changed))
    return jobs


def draw(rows: Sequence[Row], scale: Scale) -> Figure:
    """Accuracy against d_F; a row for every setting that is varied, a column for each coupling."""
    count = len(scale.variations)
    with canvas(rows=count, columns=2, size=(9.6, 3.9 * count)) as (fig, axes):
        for panels, (name, values) in zip(axes, scale.variations.items(), strict=True):
            panels[1].sharey(panels[0])  # before drawing, so that the scale fits both
            for ax, coupling in zip(panels, COUPLINGS, strict=True):
                _draw_setting(ax, rows, scale, coupling, name, [_usual(scale)[name], *values])
                ax.set_title(f"{NAMES[name]}, {coupling}")
    return fig


def verdicts(rows: Sequence[Row], scale: Scale) -> list[Verdict]:
    """For every variation: is there a double ascent, and does the labelled coupling do better?"""
    found = []
    for changed in [{}, *_changes(scale)]:
        chosen = _with(rows, scale, changed)
        curves = {c: series(chosen, "test_accuracy", scale=100, coupling=c) for c in COUPLINGS}
        told = set(changed) <= TOLD  # by the paper
        name = (
            ", ".join(f"{NAMES[key]} {value}" for key, value in changed.items()) or "as published"
        )
        mlp = float(over_seeds(chosen, "test_accuracy", scale=100, coupling="mlp")[0])
        if not (np.isfinite(mlp) and all(set(scale.beyond) <= set(c.x) for c in curves.values())):
            lost = scale.lost.get(changed.get("dataset", ""))
            found.append(
                Verdict.at_least(
                    "beyond",
                    f"{name}: {ASCENT}",
                    None,
                    bound=0.0,
                    unit="points",
                    note=f"left out: {lost}" if lost else "runs are missing",
                    unpublished=not told,
                )
            )
            continue
        averaged, labelled = curves["averaged"], curves["labelled"]
        depth, error = _valley(averaged, mlp)
        (best, best_error), (rival, rival_error) = _best(labelled), _best(averaged)
        found += [
            Verdict.at_least(
                "beyond",
                f"{name}: {ASCENT}",
                depth,
                bound=3 * error,
                error=error,
                counted=True,
                unit="points",
                note=f"on a grid of {len(averaged)} d_F",
                unpublished=not told,
            ),
            Verdict.at_least(
                "beyond",
                f"{name}: best labelled accuracy at least the best averaged one",
                best,
                bound=rival,
                tolerance=2 * float(np.hypot(best_error, rival_error)),
                unit="%",
                error=best_error,
                counted=True,
                note=f"MLP {mlp:.2f} %",
                unpublished=True,
            ),
        ]
    return found


def _best(found: Series) -> tuple[float, float]:
    """The largest mean and its standard error."""
    k = int(found.mean.argmax())
    return float(found.mean[k]), _error(found, k)


def _valley(found: Series, mlp: float) -> tuple[float, float]:
    """How deep the valley between two maxima is, and the standard error of that."""
    marks = marked_points(found.x, found.mean, mlp, noise=0.0)
    if marks.P1 is None or marks.P2 is None or marks.V is None:
        return 0.0, _error(found, int(found.mean.argmax()))
    low, *peaks = (int(np.flatnonzero(found.x == x)[0]) for x in (marks.V, marks.P1, marks.P2))
    rim = min(peaks, key=lambda k: float(found.mean[k]))
    return marks.dip, float(np.hypot(_error(found, low), _error(found, rim)))


def _error(found: Series, k: int) -> float:
    """The standard error of a point; of a single seed what is usual."""
    error = float(found.error[k])
    return error if np.isfinite(error) else USUAL_SPREAD


def _changes(scale: Scale) -> Iterator[dict[str, Any]]:
    for name, values in scale.variations.items():
        yield from ({name: value} for value in values)


def _usual(scale: Scale) -> dict[str, Any]:
    """The paper's value of every setting that can be varied."""
    usual = {"hidden": scale.hidden, "dataset": scale.dataset}
    return {**usual, "per_class": 100, "imbalance": 1.0, "depth": 1, "batch_size": 50}


def _with(rows: Sequence[Row], scale: Scale, changed: dict[str, Any]) -> list[Row]:
    """The rows of the paper's setting with these changes and no others."""
    usual = _usual(scale)
    return [
        row
        for row in rows
        if {name: row.params.get(name, usual[name]) for name in usual} == usual | changed
    ]


def _draw_setting(
    ax: Any, rows: Sequence[Row], scale: Scale, coupling: str, name: str, values: list[Any]
) -> None:
    """One curve for every value of a setting; the MLP's accuracy as a dashed line beside it."""
    colours = mpl.colormaps["viridis"](np.linspace(0, 0.85, len(values)))
    for value, colour in zip(sorted(values), colours, strict=True):
        chosen = _with(rows, scale, {name: value})
        found = series(chosen, "test_accuracy", scale=100, coupling=coupling)
        if not len(found):
            continue
        label = f"{value:g}" if isinstance(value, int | float) else value
        bars = np.nan_to_num(found.error)
        ax.errorbar(found.x, found.mean, bars, color=colour, label=label, marker=".")
        mlp = over_seeds(chosen, "test_accuracy", scale=100, coupling="mlp")[0]
        ax.axhline(mlp, color=colour, linestyle="--", linewidth=0.8)
    legend_below(ax, fontsize=8, ncols=4, title="dashed: MLP", title_fontsize=8)
    ax.set(xlabel="$d_F$", ylabel="test accuracy (%)")
