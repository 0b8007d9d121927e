"""Fig. 3: courses of training, distances of pairs, and the geometry of the representation."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fermibose.plotting import COLOURS, canvas
from fermibose.statistics import Summary
from fermibose_paper import published
from fermibose_paper.job import Job
from fermibose_paper.scale import COUPLINGS, Scale
from fermibose_paper.series import (
    COLOUR,
    LABEL,
    draw_band,
    finished,
    legend,
    over_seeds,
    published_label,
)
from fermibose_paper.store import Row
from fermibose_paper.verdict import Verdict, number

KINDS = (*COUPLINGS, "mlp")


def plan(scale: Scale) -> list[Job]:
    """Courses of training at d_F = 0.455 and representations at d_F = 1.2, and those of the MLP."""
    both = (published.TRAJECTORY_D_F, published.PCA_D_F)
    return [
        *(job for coupling in COUPLINGS for job in scale.jobs(coupling, both)),
        *scale.jobs("mlp", [None]),
    ]


def draw(rows: Sequence[Row], scale: Scale) -> Figure:
    """Upper row: accuracies and distances over epochs. Lower row: the first three components.

    Panels of the labelled coupling, which are not in the paper, have no letter.
    """
    with canvas(rows=2, columns=3, size=(13.6, 8.2)) as (fig, axes):
        _draw_accuracies(axes[0, 0], rows, scale)
        _draw_distances(axes[0, 1], rows, scale, "averaged")
        _draw_distances(axes[0, 2], rows, scale, "labelled")
        for ax, coupling, letter in zip(axes[1], KINDS, ("(c) ", "", "(d) "), strict=True):
            _draw_components(ax, rows, scale, coupling, letter)
    return fig


def verdicts(rows: Sequence[Row], scale: Scale) -> list[Verdict]:
    """Courses and explained variance against the published ones."""
    table = published.trajectories()
    found = []
    for quantity, column, bound, factor, unit, tested in (
        ("test_accuracy", "readout_test_accuracy", 1.0, 100, "points", True),
        ("recorded_fermion_distance", "hidden_recorded_fermion_distance", 0.005, 1, "", False),
    ):
        mean, error, _ = _course(rows, quantity, "averaged", factor)
        if np.size(mean) == len(table[column]):
            off, error = float(np.abs(mean - table[column]).mean()), float(np.mean(error))
            what = quantity.replace("_", " ")
            found.append(
                Verdict.at_most(
                    "fig3",
                    f"averaged: mean |difference| of {what} over epochs",
                    off,
                    bound=bound,
                    error=number(error),
                    unit=unit,
                    unlike=tested and not scale.published_split,
                )
            )
    for kind, coupling in (("machine", "averaged"), ("mlp", "mlp")):
        (mean, error, _), (of_all, _, _) = (
            over_seeds(rows, f"train_explained{suffix}", scale=100, coupling=coupling)
            for suffix in ("_of_20", "")
        )
        other = f"of all variance {of_all:.1f} %, the other reading of the paper"
        found.append(
            Verdict.near(
                "fig3",
                f"{LABEL[coupling]}: variance on 3 components of the first 20",
                number(mean),
                expected=published.EXPLAINED[kind],
                tolerance=5.0,
                unit="%",
                error=number(error),
                note=other if np.isfinite(of_all) else "",
            )
        )
    return [*found, *_sphere_verdicts(rows)]


def _sphere_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Is the distance from the centre more alike in the machine than in the MLP?"""
    widths = {c: _radius_widths(rows, c) for c in ("averaged", "mlp")}
    if not all(widths.values()):
        return []
    machine, mlp = (float(np.mean(widths[c])) for c in ("averaged", "mlp"))
    return [
        Verdict.at_most(
            "fig3",
            "averaged: relative width of the radii (std/mean, 3 components) below the MLP's",
            machine,
            bound=mlp,
        )
    ]


def _radius_widths(rows: Sequence[Row], coupling: str) -> list[float]:
    """Standard deviation over images of the distance from the centre, in units of its mean."""
    widths = []
    for row in finished(rows, "train_coordinates", coupling=coupling):
        radius = np.linalg.norm(np.array(row.result["train_coordinates"]), axis=1)
        widths.append(float(radius.std() / radius.mean()))
    return widths


def _course(rows: Sequence[Row], quantity: str, coupling: str, factor: float = 1.0) -> Summary:
    """Mean, error and spread of a quantity at each epoch, for the runs of panels (a) and (b)."""
    d_f = None if coupling == "mlp" else published.TRAJECTORY_D_F
    return over_seeds(rows, f"{quantity}_per_epoch", scale=factor, coupling=coupling, d_f=d_f)


def _draw_accuracies(ax: Any, rows: Sequence[Row], scale: Scale) -> None:
    for coupling in KINDS:
        for which, style in (("test", "-"), ("train", ":")):
            mean, _, spread = _course(rows, f"{which}_accuracy", coupling, 100)
            if np.size(mean) > 1:
                label = f"{LABEL[coupling]}, {which}"
                epochs = np.arange(1, len(mean) + 1)
                draw_band(ax, epochs, mean, spread, label, color=COLOUR[coupling], linestyle=style)
    table = published.trajectories()
    for which, mark in (("test", "."), ("train", "+")):
        values = table[f"readout_{which}_accuracy"][::4]
        ax.plot(table["epoch"][::4], values, mark, color=COLOUR["published"], markersize=5,
                label=published_label(scale, which))  # fmt: skip
    ax.set(xlabel="epoch", ylabel="accuracy (%)", ylim=(50, 101), xscale="log")
    ax.set_title(f"(a) $d_F$ = {published.TRAJECTORY_D_F:g}; band: spread of runs")
    legend(ax, fontsize=8, ncols=2, loc="lower right")


def _draw_distances(ax: Any, rows: Sequence[Row], scale: Scale, coupling: str) -> None:
    table = published.trajectories()
    for kind in ("fermion", "boson"):
        for prefix, style in (("", "-"), ("recorded_", "--")):
            mean, _, spread = _course(rows, f"{prefix}{kind}_distance", coupling)
            if np.size(mean) > 1:
                label = f"{kind}s, as recorded" if prefix else f"{kind} pairs"
                epochs = np.arange(1, len(mean) + 1)
                draw_band(ax, epochs, mean, spread, label, color=COLOURS[kind], linestyle=style)
        if coupling == "averaged":
            values = table[f"hidden_recorded_{kind}_distance"][::4]
            ax.plot(table["epoch"][::4], values, ".", color=COLOUR["published"], markersize=5,
                    label=published_label(scale) if kind == "fermion" else None)  # fmt: skip
    ax.axhline(published.TRAJECTORY_D_F, color="0.6", linewidth=0.8, linestyle=":")
    ax.set(xlabel="epoch", ylabel="mean squared distance $D^2$", ylim=(0, 0.75))
    ax.set_title("(b) averaged" if coupling == "averaged" else coupling)
    legend(ax, fontsize=8, ncols=2, loc="upper right")


def _draw_components(
    ax: Any, rows: Sequence[Row], scale: Scale, coupling: str, letter: str
) -> None:
    """The first two components; full colour in the section where the third is small."""
    runs = finished(rows, "train_coordinates", coupling=coupling)
    title = f"{letter}{LABEL[coupling]}"
    if not runs:
        ax.set_title(title)
        return legend(ax)
    result = runs[0].result
    points, labels = np.array(result["train_coordinates"]), np.array(result["train_labels"])
    section = np.abs(points[:, 2]) < points[:, 2].std() / 2
    for chosen, alpha in ((~section, 0.12), (section, 1.0)):
        ax.scatter(*points[chosen, :2].T, c=labels[chosen], cmap="tab10", vmin=0, vmax=9,
                   s=7, alpha=alpha, linewidths=0)  # fmt: skip
    if coupling == "mlp":
        for digit in range(10):
            ax.plot(
                [], [], "o", color=mpl.colormaps["tab10"](digit), markersize=4, label=str(digit)
            )
        legend(ax, title="digit", fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    shares = [f"{100 * result[f'train_explained{of}']:.1f} %" for of in ("", "_of_20")]
    listed = published.EXPLAINED["mlp" if coupling == "mlp" else "machine"]
    d_f = "" if coupling == "mlp" else f", $d_F$ = {published.PCA_D_F:g}"
    explained = f"r = {shares[0]} (of 20: {shares[1]})"
    given = "" if coupling == "labelled" else f"\n{published_label(scale)}: {listed} %"
    ax.set_title(f"{title}{d_f}\n{explained}{given}")
    ax.set(xlabel="component 1", ylabel="component 2", aspect="equal")
