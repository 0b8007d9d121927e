"""Drawings of single instances: their points beside a curve, their outputs, their trajectory.

Rows are those of :mod:`fermibose.cavity.measure`, one instance each.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.transforms import ScaledTranslation

from fermibose.cavity.estimate import Estimate
from fermibose.cavity.evolution import state_evolution
from fermibose.cavity.measure import Row
from fermibose.plotting import COLOURS, figure
from fermibose.theory import Solution

_MARKS = {
    "bp": ("s", "boson", "BP"),
    "amp": ("o", "machine", "AMP"),
    "tempered": ("^", "baseline", "sampling"),
    "hmc": ("v", "highlight", "sampling, not tempered"),
}


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
    """Mean over instances and its standard error (NaN for a single one)."""
    array = np.array(list(values))
    error = array.std(ddof=1) / math.sqrt(array.size) if array.size > 1 else math.nan
    return float(array.mean()), float(error)


def draw_methods(ax: Any, rows: Sequence[Row], parameter: str) -> None:
    """ε_g against ``parameter``: one marker series for every method and size, means and errors.

    A filled mark is the mean of the instances that converged; an open one, where none did, of the
    last sweeps of all. Marks stand a few points beside their value, so as not to hide each other.
    """
    series = sorted({(r["method"], r["n"]) for r in rows})
    for k, (method, n) in enumerate(series):
        points = 2.5 * (k - (len(series) - 1) / 2)
        aside = ScaledTranslation(points / 72, 0, ax.figure.dpi_scale_trans)
        mark, colour, name = _MARKS[method]
        mine = [r for r in rows if (r["method"], r["n"]) == (method, n)]
        label: str | None = f"{name}, N = {n}"
        for value in sorted({r[parameter] for r in mine}):
            here = [r for r in mine if r[parameter] == value]
            good = [r for r in here if r["converged"]]
            mean, error = mean_and_error(r["generalization_loss"] for r in good or here)
            error = np.nan_to_num(error)
            face = COLOURS[colour] if good else "white"
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


def draw_trajectory(
    path: str | Path, found: Estimate, theory: Solution | None, *, damped: bool
) -> None:
    """|M|, q, Q and both losses sweep by sweep, the theory's values as lines.

    damped: leaves out state evolution, which describes AMP without damping only.
    """
    history, problem = found.history, found.problem
    sweeps = np.arange(1, found.iterations + 1)
    with figure(path, columns=3, size=(12.0, 3.4)) as (_, axes):
        overlaps, losses, residual = axes[0]
        for name, colour in (("M", "machine"), ("q", "baseline"), ("Q", "boson")):
            values = np.abs(getattr(history, name))
            overlaps.plot(
                sweeps, values, color=COLOURS[colour], label="|M|" if name == "M" else name
            )
            if theory is not None:
                overlaps.axhline(getattr(theory, name), color=COLOURS[colour], ls=":", lw=1)
        if not damped:
            first = max(1, int(np.argmax(np.abs(history.M) > 0.1)))
            start = history.M[first - 1], history.Q[first - 1]
            path_of = state_evolution(
                problem, M=start[0], Q=start[1], V=history.q[first - 1] - start[1],
                sweeps=found.iterations - first,
            )  # fmt: skip
            for name in ("M", "q", "Q"):
                values = np.abs(getattr(path_of, name))
                label = "state evolution" if name == "M" else None
                overlaps.plot(
                    sweeps[first:], values, "--", color=COLOURS["theory"], lw=1, label=label
                )
        overlaps.set(xlabel="sweep", title="overlaps")
        overlaps.legend(fontsize=8)
        lines = (
            (
                "test loss $ε_g$",
                history.generalization_loss(problem),
                "generalization_loss",
                "fermion",
            ),
            ("training energy", history.training_loss, "training_energy", "highlight"),
        )
        for label, series, name, colour in lines:
            losses.plot(sweeps, series, color=COLOURS[colour], label=label)
            if theory is not None:
                losses.axhline(getattr(theory, name), color=COLOURS[colour], ls=":", lw=1)
        losses.set(xlabel="sweep", title="losses (dotted: theory)", ylim=(0, None))
        losses.legend(fontsize=8)
        residual.semilogy(sweeps, history.residual, color=COLOURS["published"])
        residual.set(xlabel="sweep", title="largest undamped change")
