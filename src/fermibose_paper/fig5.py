"""Fig. 5: accuracy under FGSM and noise of growing strength, and the areas under these curves."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fermibose.attacks import PAPER_STRENGTHS
from fermibose.plotting import COLOURS, canvas
from fermibose_paper import published
from fermibose_paper.job import Job
from fermibose_paper.measure import PGD_STRENGTH, THREATS
from fermibose_paper.scale import COUPLINGS, Scale, unique
from fermibose_paper.series import (
    COLOUR,
    Series,
    draw_band,
    draw_series,
    finished,
    inset_image,
    legend_below,
    over_seeds,
    published_label,
    series,
)
from fermibose_paper.store import Row
from fermibose_paper.theory_curves import measure_attack
from fermibose_paper.verdict import Verdict, number

ATTACKS = {"fgsm": "FGSM", "noise": "noise"}
MLP_AREA = {"fgsm": published.MLP_FGSM_AREA, "noise": published.MLP_NOISE_AREA}
_INDEX = PAPER_STRENGTHS.index(PGD_STRENGTH)


def plan(scale: Scale) -> list[Job]:
    """Both couplings and the MLP under FGSM, noise and PGD; the theory of the inset."""
    return unique(
        [
            *scale.jobs("mlp", [None]),
            *(job for c in COUPLINGS for job in scale.jobs(c, scale.coarse)),
            *(job for c in COUPLINGS for job in scale.jobs(c, scale.attacked)),
            Job(measure_attack, {"points": scale.theory_points}),
        ]
    )


def draw(rows: Sequence[Row], scale: Scale) -> Figure:
    """(a), (b) curves at the marked d_F; (c), (d) areas against d_F.

    Without a letter, beyond the paper: curves of the labelled coupling, and one ε, FGSM beside PGD.
    """
    with canvas(rows=4, columns=2, size=(10.4, 17.6)) as (fig, axes):
        for column, attack in enumerate(ATTACKS):
            for row, coupling in enumerate(COUPLINGS):
                ax = axes[row, column]
                _draw_curves(ax, rows, scale, attack, coupling)
                letter = f"({'ab'[column]}) " if coupling == "averaged" else ""
                ax.set_title(f"{letter}{ATTACKS[attack]}, {coupling}")
            _draw_areas(axes[2, column], rows, scale, attack)
            axes[2, column].set_title(f"({'cd'[column]}) area under {ATTACKS[attack]} curves")
        _draw_theory(axes[2, 0], rows)
        _draw_one_strength(axes[3], rows)
    return fig


def verdicts(rows: Sequence[Row], scale: Scale) -> list[Verdict]:
    """Areas against the published ones; machine against MLP, labelled against averaged."""
    unlike = not scale.published_split
    found: list[Verdict] = []
    for attack, name in ATTACKS.items():
        mean, error, _ = over_seeds(rows, f"{attack}_area", coupling="mlp")
        expected = MLP_AREA[attack]
        found.append(
            Verdict.near(
                "fig5",
                f"MLP: {name} area",
                float(mean),
                expected=expected,
                tolerance=0.12 * expected,
                error=number(error),
                unlike=unlike,
            )
        )
        averaged, labelled = (
            _areas(rows, attack, c).within(*published.COMPARED_D_F) for c in COUPLINGS
        )
        if len(averaged):
            target = published.at(averaged.x, f"{attack}_area", published.areas())
            off = averaged.mean / target - 1
            error = float(np.sqrt(((averaged.error / target) ** 2).sum())) / len(off)
            found.append(
                Verdict.at_most(
                    "fig5",
                    f"averaged: mean |difference| of {name} areas from the published",
                    100 * float(np.abs(off).mean()),
                    bound=12.0,
                    unit="%",
                    error=number(100 * error),
                    unlike=unlike,
                    note=f"mean {100 * off.mean():+.1f} %",
                )
            )
        why = _overstated(rows) if attack == "fgsm" else ""
        found += _gains(averaged, labelled, _of_mlp(rows, f"{attack}_area", 1), f"{name} area", why)
    averaged, labelled = (series(rows, "pgd_accuracy", coupling=c, scale=100) for c in COUPLINGS)
    attack = f"accuracy (%) under PGD {PGD_STRENGTH:g}"
    return found + _gains(averaged, labelled, _of_mlp(rows, "pgd_accuracy", 100), attack)


def _of_mlp(rows: Sequence[Row], quantity: str, scale: float) -> tuple[float, float]:
    """Mean and standard error of the MLP."""
    mean, error, _ = over_seeds(rows, quantity, coupling="mlp", scale=scale)
    return float(mean), float(error)


def _gains(
    averaged: Series,
    labelled: Series,
    mlp: tuple[float, float],
    name: str,
    explanation: str = "",
) -> list[Verdict]:
    """Who is more robust: the machine or the MLP (as the paper says), labelled or averaged?"""
    found = []
    if np.isfinite(mlp[0]):
        level = replace(averaged, mean=np.full_like(averaged.x, mlp[0]),
                        error=np.full_like(averaged.x, mlp[1]))  # fmt: skip
        found += _comparison("averaged more robust than the MLP", averaged, level, name)
    found += _comparison(
        "labelled more robust than averaged", labelled, averaged, name, explanation, ours=True
    )
    return found


def _overstated(rows: Sequence[Row]) -> str:
    """By how much a single step overstates robustness: accuracy under FGSM less that under PGD."""
    gaps = []
    for coupling in COUPLINGS:
        step, many = (_at_one_strength(rows, attack, coupling) for attack in ("fgsm", "pgd"))
        common, i, j = np.intersect1d(step.x, many.x, return_indices=True)
        if not len(common):
            return ""
        gap = step.mean[i] - many.mean[j]
        gaps.append(f"{gap.max():.1f} points ({coupling}, at d_F = {common[gap.argmax()]:g})")
    return f"; at ε = {PGD_STRENGTH:g} FGSM misses up to {' and '.join(gaps)} of what PGD finds"


def _comparison(
    claim: str,
    better: Series,
    worse: Series,
    name: str,
    explanation: str = "",
    *,
    ours: bool = False,
) -> list[Verdict]:
    """Is one more robust than the other at every d_F? Judged where it is least so."""
    common, i, j = np.intersect1d(better.x, worse.x, return_indices=True)
    if not len(common):
        return []
    gain = better.mean[i] - worse.mean[j]
    error = np.hypot(better.error[i], worse.error[j])
    least, below = int(gain.argmin()), common[gain < 0]
    note = f"least at d_F = {common[least]:g}; mean {gain.mean():+.2f}"
    if len(below):
        note += f"; less robust at {len(below)} of {len(common)} d_F, {below[0]:g} to {below[-1]:g}"
    return [
        Verdict.at_least(
            "fig5",
            f"{claim} at every d_F: gain of {name}",
            float(gain[least]),
            bound=0.0,
            tolerance=2 * float(np.nan_to_num(error[least])),
            error=number(error[least]),
            counted=True,
            note=note + explanation,
            unpublished=ours,
        )
    ]


def _areas(rows: Sequence[Row], attack: str, coupling: str) -> Series:
    """Areas under the curves of an attack against d_F."""
    return series(rows, f"{attack}_area", coupling=coupling)


def _draw_curves(ax: Any, rows: Sequence[Row], scale: Scale, attack: str, coupling: str) -> None:
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
    ax.set(ylim=(0, 100), yticks=range(0, 101, 20))
    legend_below(ax, fontsize=8, ncols=3, columnspacing=1, handlelength=1.4)
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


def _draw_areas(ax: Any, rows: Sequence[Row], scale: Scale, attack: str) -> None:
    """Areas of both couplings against d_F, with the published ones and those of the MLP."""
    table = published.areas()
    ax.plot(table["d_F"], table[f"{attack}_area"], ".", color=COLOUR["published"], markersize=4,
            label=published_label(scale, "5 runs"))  # fmt: skip
    for coupling in COUPLINGS:
        draw_series(ax, _areas(rows, attack, coupling), coupling)
    mean, error, _ = over_seeds(rows, f"{attack}_area", coupling="mlp")
    if np.isfinite(mean):
        ax.axhline(mean, color=COLOUR["mlp"], linestyle="--", label=f"MLP, {mean:.2f}")
        if np.isfinite(error):
            ax.axhspan(mean - error, mean + error, color=COLOUR["mlp"], alpha=0.15, linewidth=0)
    ax.axhline(MLP_AREA[attack], color=COLOUR["published"], linestyle=":",
               label=published_label(scale, what="MLP, published"))  # fmt: skip
    ax.set(xlabel="$d_F$", ylabel="area (% · ε)")
    # Room for the inset of the theory
    ax.set_ylim(0, ax.get_ylim()[1] * (1.6 if attack == "fgsm" else 1.1))
    legend_below(ax, fontsize=8, columnspacing=1)


def _at_one_strength(rows: Sequence[Row], attack: str, coupling: str) -> Series:
    """Accuracy (%) against d_F under "fgsm" or "pgd" of the strength that both are measured at."""
    if attack == "pgd":
        return series(rows, "pgd_accuracy", coupling=coupling, scale=100)
    found = series(rows, f"{attack}_curve", coupling=coupling, scale=100)
    if found.mean.ndim < 2:  # nothing measured
        return found
    parts = {part: getattr(found, part)[:, _INDEX] for part in ("mean", "error", "spread")}
    return replace(found, **parts)


def _draw_one_strength(axes: Any, rows: Sequence[Row]) -> None:
    """Accuracy against d_F at one strength: a single step on the left, PGD on the right."""
    for ax, attack, quantity in ((axes[0], "fgsm", "fgsm_curve"), (axes[1], "pgd", "pgd_accuracy")):
        for coupling in COUPLINGS:
            draw_series(ax, _at_one_strength(rows, attack, coupling), coupling)
        mean = over_seeds(rows, quantity, coupling="mlp", scale=100)[0]
        mean = mean[_INDEX] if np.ndim(mean) else mean
        if np.isfinite(mean):
            ax.axhline(mean, color=COLOUR["mlp"], linestyle="--", label=f"MLP, {mean:.1f} %")
        ax.set(xlabel="$d_F$", ylabel="accuracy (%)", xlim=(-0.05, 1.25), ylim=(0, 75))
        ax.set_title(f"{attack.upper()} at ε = {PGD_STRENGTH:g}")
        legend_below(ax, fontsize=8, columnspacing=1)


def _draw_theory(ax: Any, rows: Sequence[Row]) -> None:
    """As an inset: the area under accuracy against the strength of an ℓ₂ attack, by theory."""
    runs = finished(rows, "theory_area")
    if not runs:
        return
    small = ax.inset_axes([0.63, 0.7, 0.36, 0.26])
    small.plot(runs[-1].result["theory_d_f"], runs[-1].result["theory_area"],
               color=COLOURS["theory"], linewidth=1)  # fmt: skip
    small.set_xlabel("$d_F$", fontsize=7, labelpad=1)
    small.set_ylabel("area", fontsize=7, labelpad=1)
    small.set_title("theory, $ℓ_2$ attack, one unit", fontsize=7, pad=2)
    small.tick_params(labelsize=6)
