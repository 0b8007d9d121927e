"""Fig. 2(a, b) with its insets, and how instances approach the theory: tables and drawings.

Measurements are made by :mod:`fermibose.cavity.measure`, one instance at a time.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fermibose.cavity.estimate import Estimate
from fermibose.cavity.evolution import state_evolution
from fermibose.cavity.measure import Row
from fermibose.plotting import COLOURS, figure
from fermibose.theory import Problem, Solution, solve
from fermibose.theory.curves import SYMBOLS, Curve, draw_line

_MARKS = {
    "bp": ("s", "boson", "BP"),
    "amp": ("o", "machine", "AMP"),
    "tempered": ("^", "baseline", "sampling"),
    "hmc": ("v", "highlight", "sampling, not tempered"),
}
_QUANTITIES = {"M": "M", "q": "q", "Q": "Q", "generalization_loss": "test loss $ε_g$"}


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
    """Mean over instances and its standard error (0 for a single one)."""
    array = np.array(list(values))
    error = array.std(ddof=1) / math.sqrt(array.size) if array.size > 1 else 0.0
    return float(array.mean()), float(error)


def draw_figure_2(
    path: str | Path,
    curves: dict[str, Curve],
    rows: Sequence[Row],
    insets: Sequence[Row] = (),
) -> None:
    """ε_g against α (a) and Δ (b): theory, and means over instances with their standard errors.

    curves: along ``alpha`` and ``delta``, from :func:`fermibose.theory.figures.figure_2`. rows: of
    measure_messages and measure_sampling. insets: of measure_representation. An open mark is a
    point where some instance did not converge.
    """
    with figure(path, columns=2, size=(10.4, 4.4)) as (_, axes):
        for ax, parameter, title in zip(axes[0], ("alpha", "delta"), ("(a)", "(b)"), strict=True):
            curve = curves[parameter]
            draw_line(ax, curve, "generalization_loss")
            fixed = "delta" if parameter == "alpha" else "alpha"
            default = getattr(curve[0].problem, fixed)
            there = [r for r in rows if r.get(fixed, default) == default and parameter in r]
            draw_methods(ax, there, parameter)
            ax.set(xlabel=SYMBOLS[parameter], ylabel="test loss $ε_g$", ylim=(0, None))
            ax.set_title(title, loc="left")
            if ax.get_legend_handles_labels()[0]:
                ax.legend(loc="upper right" if parameter == "alpha" else "upper left", fontsize=8)
        for k, inset in enumerate(insets):
            box = axes[0][1].inset_axes((0.60, 0.08 + 0.19 * k, 0.37, 0.14))
            draw_inset(box, inset, last=k == 0)


def draw_methods(ax: Any, rows: Sequence[Row], parameter: str) -> None:
    """One marker series for every method and size."""
    series = sorted({(r["method"], r["n"]) for r in rows})
    span = np.ptp([r[parameter] for r in rows]) if rows else 0.0
    for k, (method, n) in enumerate(series):
        shift = 0.012 * span * (k - (len(series) - 1) / 2)  # beside each other, not on top
        mark, colour, name = _MARKS[method]
        mine = [r for r in rows if (r["method"], r["n"]) == (method, n)]
        label: str | None = f"{name}, N = {n}"
        for value in sorted({r[parameter] for r in mine}):
            here = [r for r in mine if r[parameter] == value]
            mean, error = mean_and_error(r["generalization_loss"] for r in here)
            face = COLOURS[colour] if all(r["converged"] for r in here) else "white"
            ax.errorbar(
                value + shift, mean, error, fmt=mark, ms=4 + k % 2, color=COLOURS[colour],
                mfc=face, capsize=2, label=label,
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
    box.set_title(f"Δ = {inset['delta']:g}", fontsize=7, pad=1)


def size_table(rows: Sequence[Row]) -> str:
    """Markdown: for every point and N the converged part and mean ± error of those, and theory."""
    lines = [
        "| α | β | N | converged | M | q | Q | ε_g |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for alpha, beta in sorted({(r["alpha"], r["beta"]) for r in rows}):
        for n in sorted({r["n"] for r in _at(rows, alpha, beta)}):
            here = [r for r in _at(rows, alpha, beta) if r["n"] == n]
            good = [r for r in here if r["converged"]]
            cells = [
                "{:.4f} ± {:.4f}".format(*mean_and_error(r[name] for r in good)) if good else "—"
                for name in _QUANTITIES
            ]
            part = f"{len(good)} of {len(here)}"
            lines.append(" | ".join([f"| {alpha:g}", f"{beta:g}", str(n), part, *cells]) + " |")
        theory = solve(Problem(alpha=alpha, beta=beta))
        cells = [f"{getattr(theory, name):.4f}" for name in _QUANTITIES]
        at = f"AT = {theory.at_eigenvalue:.2f}"
        lines.append(" | ".join([f"| {alpha:g}", f"{beta:g}", "∞", at, *cells]) + " |")
    return "\n".join(lines)


def draw_sizes(rows: Sequence[Row], path: str | Path) -> None:
    """Deviation from theory against 1/N, and the part of instances that converge."""
    points = sorted({(r["alpha"], r["beta"]) for r in rows})
    with figure(path, rows=1, columns=len(_QUANTITIES) + 1, size=(15.0, 3.2)) as (_, axes):
        for (alpha, beta), colour in zip(points, ("machine", "baseline", "boson"), strict=False):
            theory = solve(Problem(alpha=alpha, beta=beta))
            label, mine = f"α = {alpha:g}, β = {beta:g}", _at(rows, alpha, beta)
            sizes = sorted({r["n"] for r in mine})
            groups = [[r for r in mine if r["n"] == n] for n in sizes]
            for ax, (name, symbol) in zip(axes[0], _QUANTITIES.items(), strict=False):
                found = [
                    (1 / n, *mean_and_error(r[name] for r in g if r["converged"]))
                    for n, g in zip(sizes, groups, strict=True)
                    if any(r["converged"] for r in g)
                ]
                x, mean, error = np.array(found).T
                exact = getattr(theory, name)
                ax.errorbar(
                    x, mean / exact - 1, error / exact, fmt="o-", ms=4, lw=1, capsize=2,
                    color=COLOURS[colour], label=label,
                )  # fmt: skip
                ax.set(xlabel="1/N", title=f"{symbol}: instances / theory − 1")
            part = [np.mean([r["converged"] for r in g]) for g in groups]
            axes[0, -1].plot(1 / np.array(sizes), part, "o-", ms=4, color=COLOURS[colour])
        for ax in axes[0, :-1]:
            ax.axhline(0, color=COLOURS["theory"], lw=0.8)
        axes[0, -1].set(xlabel="1/N", title="converged instances", ylim=(-0.03, 1.03))
        axes[0, 0].legend(fontsize=8)


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


def _at(rows: Sequence[Row], alpha: float, beta: float) -> list[Row]:
    return [r for r in rows if (r["alpha"], r["beta"]) == (alpha, beta)]
