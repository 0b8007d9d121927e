"""The panels of Fig. 5: curves under attack, areas, one strength, the theory's inset."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np

from fermibose.attacks import PAPER_STRENGTHS
from fermibose.paper import published
from fermibose.paper.drawing import (
    COLOUR,
    draw_band,
    draw_series,
    inset_image,
    legend,
    published_label,
)
from fermibose.paper.learning import THREATS
from fermibose.paper.scale import COUPLINGS, Scale
from fermibose.paper.series import Series, finished, over_seeds, series
from fermibose.plotting import COLOURS
from fermibose.sweep import Row

PGD_STRENGTH = 0.1  # ε of the attack that is not in the paper, and of FGSM beside it
_INDEX = PAPER_STRENGTHS.index(PGD_STRENGTH)
MLP_AREA = {"fgsm": published.MLP_FGSM_AREA, "noise": published.MLP_NOISE_AREA}


def areas(rows: Sequence[Row], attack: str, coupling: str) -> Series:
    """Areas under the curves of an attack against d_F."""
    return series(rows, f"{attack}_area", coupling=coupling)


def draw_curves(ax: Any, rows: Sequence[Row], scale: Scale, attack: str, coupling: str) -> None:
    """Accuracy against the strength of an attack at the published d_F, and that of the MLP."""
    found = series(rows, f"{attack}_curve", coupling=coupling, scale=100)
    measured = published.CURVES_D_F if attack == "noise" else published.FGSM_CURVES_D_F
    shown = [x for x in sorted({*published.CURVES_D_F, *measured}) if x in found.x]
    shown = shown or found.x[:: max(len(found) // 6, 1)].tolist()
    for x in shown:
        colour = _colour_of(x)
        k = int(np.flatnonzero(found.x == x)[0])
        draw_band(ax, PAPER_STRENGTHS, found.mean[k], found.spread[k], f"$d_F$ = {x:g}",
                  color=colour, linewidth=1.2)  # fmt: skip
        if coupling == "averaged":
            _draw_published(ax, attack, x, colour)
    mean, _, spread = over_seeds(rows, f"{attack}_curve", scale=100, coupling="mlp")
    if np.size(mean) > 1:
        draw_band(ax, PAPER_STRENGTHS, mean, spread, "MLP", color=COLOUR["mlp"], linestyle="--")
        _draw_published(ax, attack, None, COLOUR["mlp"])
    ax.plot([], [], ".", color=COLOUR["published"], label=published_label(scale))
    ax.set(xlabel="strength ε", ylabel="accuracy (%)", xlim=(0, 0.8))
    ax.set(ylim=(0, 132), yticks=range(0, 101, 20))  # the legend is above all that can be drawn
    legend(ax, loc="upper right", fontsize=8, ncols=4, columnspacing=1, handlelength=1.4)
    _draw_example(ax, rows, attack, coupling)


def _colour_of(d_f: float) -> Any:
    """The same in all panels; without the last tenth of the map, yellow that is hard to see."""
    marked = sorted({*published.CURVES_D_F, *published.FGSM_CURVES_D_F})
    return mpl.colormaps["viridis"](np.interp(d_f, marked, np.linspace(0, 0.9, len(marked))))


def _draw_published(ax: Any, attack: str, d_f: float | None, colour: Any) -> None:
    table = published.curve(attack, d_f)
    ax.plot(table["epsilon"][::4], table["accuracy_percent"][::4], ".", color=colour, markersize=4)


def _draw_example(ax: Any, rows: Sequence[Row], attack: str, coupling: str) -> None:
    """The perturbed image of the run whose d_F is closest to the second peak."""
    runs = finished(rows, f"{attack}_example", coupling=coupling)
    if not runs:
        return
    run = min(runs, key=lambda row: abs(row.params["d_f"] - published.TRAJECTORY_D_F))
    image = np.frombuffer(bytes.fromhex(run.result[f"{attack}_example"]), np.uint8)
    side = int(image.size**0.5)
    place = (0.46, 0.28) if attack == "fgsm" else (0.05, 0.06)
    title = f"ε = {THREATS[attack].epsilon:g}"
    inset_image(ax, image.reshape(side, side), place, title)


def draw_areas(ax: Any, rows: Sequence[Row], scale: Scale, attack: str) -> None:
    """Areas of both couplings against d_F, with the published ones and those of the MLP."""
    table = published.areas()
    ax.plot(table["d_F"], table[f"{attack}_area"], ".", color=COLOUR["published"], markersize=4,
            label=published_label(scale, "5 runs"))  # fmt: skip
    for coupling in COUPLINGS:
        draw_series(ax, areas(rows, attack, coupling), coupling)
    mean, error, _ = over_seeds(rows, f"{attack}_area", coupling="mlp")
    if np.isfinite(mean):
        ax.axhline(mean, color=COLOUR["mlp"], linestyle="--", label=f"MLP, {mean:.2f}")
        if np.isfinite(error):
            ax.axhspan(mean - error, mean + error, color=COLOUR["mlp"], alpha=0.15, linewidth=0)
    ax.axhline(MLP_AREA[attack], color=COLOUR["published"], linestyle=":",
               label=published_label(scale, what="MLP, published"))  # fmt: skip
    ax.set(xlabel="$d_F$", ylabel="area (% · ε)")
    ax.set_ylim(0, ax.get_ylim()[1] * (1.75 if attack == "fgsm" else 1.1))
    legend(ax, loc="upper left" if attack == "fgsm" else "lower right", fontsize=8)


def at_one_strength(rows: Sequence[Row], attack: str, coupling: str) -> Series:
    """Accuracy (%) against d_F under "fgsm" or "pgd" of the strength that both are measured at."""
    if attack == "pgd":
        return series(rows, "pgd_accuracy", coupling=coupling, scale=100)
    found = series(rows, f"{attack}_curve", coupling=coupling, scale=100)
    if found.mean.ndim < 2:  # nothing measured
        return found
    parts = {part: getattr(found, part)[:, _INDEX] for part in ("mean", "error", "spread")}
    return replace(found, **parts)


def draw_one_strength(axes: Any, rows: Sequence[Row]) -> None:
    """Accuracy against d_F at one strength: a single step on the left, PGD on the right."""
    for ax, attack, quantity in ((axes[0], "fgsm", "fgsm_curve"), (axes[1], "pgd", "pgd_accuracy")):
        for coupling in COUPLINGS:
            draw_series(ax, at_one_strength(rows, attack, coupling), coupling)
        mean = over_seeds(rows, quantity, coupling="mlp", scale=100)[0]
        mean = mean[_INDEX] if np.ndim(mean) else mean
        if np.isfinite(mean):
            ax.axhline(mean, color=COLOUR["mlp"], linestyle="--", label=f"MLP, {mean:.1f} %")
        ax.set(xlabel="$d_F$", ylabel="accuracy (%)", xlim=(-0.05, 1.25), ylim=(0, 75))
        ax.set_title(f"{attack.upper()} at ε = {PGD_STRENGTH:g}")
        legend(ax, fontsize=8, loc="upper left", ncols=2)


def draw_theory(ax: Any, rows: Sequence[Row]) -> None:
    """As an inset: the area under accuracy against the strength of an ℓ₂ attack, by theory."""
    runs = finished(rows, "theory_area")
    if not runs:
        return
    small = ax.inset_axes([0.63, 0.7, 0.36, 0.26])
    small.plot(runs[-1].result["theory_d_f"], runs[-1].result["theory_area"],
               color=COLOURS["theory"], linewidth=1)  # fmt: skip
    small.set_xlabel("$d_F$", fontsize=7, labelpad=1)
    small.set_title("theory, $ℓ_2$ attack, one unit", fontsize=7, pad=2)
    small.tick_params(labelsize=6)
