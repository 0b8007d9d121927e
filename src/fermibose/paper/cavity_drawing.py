"""Drawings of measured instances: their points beside a curve, their outputs.

Rows are those of :mod:`fermibose.paper.cavity_measure`, one instance each.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.transforms import ScaledTranslation

from fermibose.paper.cavity_measure import PLAIN, TEMPERED, Row
from fermibose.plotting import COLOURS
from fermibose.statistics import summary

_MARKS = {
    "bp": ("s", "boson", "BP"),
    "amp": ("o", "machine", "AMP"),
    TEMPERED: ("^", "baseline", "sampling"),
    PLAIN: ("v", "highlight", "sampling, not tempered"),
}


def draw_methods(ax: Any, rows: Sequence[Row], parameter: str) -> None:
    """ε_g against ``parameter``: one marker series for every method and size, means and errors.

    A filled mark is the mean of the instances that converged; an open one, where none did, of the
    last sweeps of all. Marks of several series at one value stand side by side around it, so as not
    to hide each other.
    """
    series = sorted({(r["method"], r["n"]) for r in rows})
    measured = {(r["method"], r["n"], r[parameter]) for r in rows}
    for k, (method, n) in enumerate(series):
        mark, colour, name = _MARKS[method]
        mine = [r for r in rows if (r["method"], r["n"]) == (method, n)]
        label: str | None = f"{name}, N = {n}"
        for value in sorted({r[parameter] for r in mine}):
            here = [r for r in mine if r[parameter] == value]
            good = [r for r in here if r["converged"]]
            mean, error, _ = summary(r["generalization_loss"] for r in good or here)
            error = np.nan_to_num(error)
            face = COLOURS[colour] if good else "white"
            together = [s for s in series if (*s, value) in measured]
            points = 2.5 * (together.index((method, n)) - (len(together) - 1) / 2)
            aside = ScaledTranslation(points / 72, 0, ax.figure.dpi_scale_trans)
            ax.errorbar(
                value, mean, error, fmt=mark, ms=4 + k % 2, color=COLOURS[colour],
                mfc=face, capsize=2, label=label, transform=ax.transData + aside,
            )  # fmt: skip
            label = None


def draw_inset(box: Any, inset: Row, *, last: bool) -> None:
    """Outputs of new inputs of both classes on one line, blue y = −1 and red y = +1."""
    outputs, labels = np.array(inset["outputs"]), np.array(inset["labels"])
    for y, colour in ((-1, "#0072B2"), (1, "#D55E00")):
        mine = outputs[labels == y]
        box.plot(mine, np.full(mine.size, 0.2 * y), "|", color=colour, ms=5, mew=0.5)
    box.set(xlim=(-1.05, 1.05), ylim=(-0.6, 0.6), yticks=[])
    box.grid(False)
    box.set_xticks([-1, 0, 1] if last else [])
    box.tick_params(labelsize=7)
    settled = "" if inset["converged"] else ", last sweep"
    box.set_title(f"Δ = {inset['delta']:g}{settled}", fontsize=7, pad=1)
