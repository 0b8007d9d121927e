"""Accuracy against the fraction ρ of boson pairs, from theory."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from fermibose.plotting import canvas
from fermibose_paper.job import Job
from fermibose_paper.scale import Scale
from fermibose_paper.series import legend
from fermibose_paper.store import Row
from fermibose_paper.theory_curves import curve_job, curve_of, draw_curve, figure_values
from fermibose_paper.verdict import Verdict


def plan(scale: Scale) -> list[Job]:
    """One curve; half of its points lie in the last tenth, where the accuracy falls."""
    return [curve_job("rho", figure_values("rho", 2 * scale.theory_points))]


def draw(rows: Sequence[Row], scale: Scale) -> Figure:
    """The accuracy."""
    with canvas(size=(5.6, 3.8)) as (fig, ax):
        curve = curve_of(rows, "rho")
        draw_curve(ax, curve, "accuracy", "fraction of boson pairs ρ")
        if curve is not None:
            ax.axhline(0.5, color="0.6", linewidth=0.8, linestyle="--", label="chance")
        legend(ax, loc="lower left")
        ax.set(ylabel="test accuracy", ylim=(0.45, 1))
    return fig


def verdicts(rows: Sequence[Row], scale: Scale) -> list[Verdict]:
    """The paper's words: the accuracy deteriorates sharply above a threshold."""
    curve = curve_of(rows, "rho")
    if curve is None:
        return []
    rho, accuracy = curve["values"], curve["accuracy"]
    before = accuracy[rho <= 0.9 + 1e-9]
    chance = rho[accuracy < 0.5 + 1e-6]
    threshold = f"chance from ρ = {chance.min():.3f} on" if len(chance) else "chance not reached"
    return [
        Verdict.at_most(
            "rho",
            "accuracy lost from ρ = 0 to 0.9 is small",
            100 * float(np.ptp(before)),
            bound=5.0,
            unit="points",
        ),
        Verdict.at_least(
            "rho",
            "accuracy lost from ρ = 0.9 to 1 is large",
            100 * float(before[-1] - accuracy.min()),
            bound=30.0,
            unit="points",
            note=threshold,
        ),
    ]
