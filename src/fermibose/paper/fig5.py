"""Fig. 5: accuracy under FGSM and noise of growing strength, and the areas under these curves."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fermibose.attacks import PAPER_STRENGTHS
from fermibose.paper import published
from fermibose.paper.drawing import COLOUR, draw_band, draw_series, inset_image, legend
from fermibose.paper.learning import THREATS
from fermibose.paper.runs import measure_robustness
from fermibose.paper.scale import COUPLINGS, Scale
from fermibose.paper.series import Series, finished, over_seeds, series
from fermibose.paper.verdict import Verdict
from fermibose.plotting import COLOURS, canvas
from fermibose.sweep import Job, Row, measurement

ATTACKS = {"fgsm": "FGSM", "noise": "noise"}
COMPARED = (0.05, 1.2)  # d_F between which areas are held against the published ones
MLP_AREA = {"fgsm": published.MLP_FGSM_AREA, "noise": published.MLP_NOISE_AREA}


@measurement(version=1)
def measure_theory(*, points: int, seed: int = 0) -> dict[str, list[float]]:
    """Area under the accuracy against the strength ε of an ℓ₂ attack, from theory, over d_F.

    One unit on a Gaussian mixture, at the parameters of the paper's Fig. 2; ε from 0 to 1.
    """
    from fermibose.theory.figures import figure_attack

    curve = figure_attack(points=points, show=False)
    return {
        "theory_d_f": curve.values.tolist(),
        "theory_area": curve.column("adversarial_area").tolist(),
    }


def plan(scale: Scale) -> list[Job]:
    """Both couplings on the coarse grid and the MLP, under attack; the theory of the inset."""
    return [
        *scale.jobs(measure_robustness, "mlp", [None]),
        *(job for c in COUPLINGS for job in scale.jobs(measure_robustness, c, scale.coarse)),
        Job(measure_theory, params={"points": scale.theory_points}),
    ]


def draw(rows: Sequence[Row], scale: Scale) -> Figure:
    """(a), (b) curves of both couplings at the marked d_F; (c), (d) areas against d_F."""
    with canvas(rows=3, columns=2, size=(10.4, 11.2)) as (fig, axes):
        for column, attack in enumerate(ATTACKS):
            for row, coupling in enumerate(COUPLINGS):
                ax = axes[row, column]
                _draw_curves(ax, rows, attack, coupling)
                ax.set_title(f"({'ab'[column]}) {ATTACKS[attack]}, {coupling}")
            _draw_areas(axes[2, column], rows, attack)
            axes[2, column].set_title(f"({'cd'[column]}) area under {ATTACKS[attack]} curves")
        _draw_theory(axes[2, 0], rows)
    return fig


def verdicts(rows: Sequence[Row], scale: Scale) -> list[Verdict]:
    """Areas against the published ones, and the labelled coupling against the averaged one."""
    note = "" if scale.published_split else "other test images than published"
    found: list[Verdict] = []
    for attack, name in ATTACKS.items():
        mean, error, _ = over_seeds(rows, f"{attack}_area", coupling="mlp")
        expected = MLP_AREA[attack]
        found.append(
            Verdict("fig5", f"MLP: {name} area", float(mean), expected, 0.12 * expected,
                    error=_number(error), note=note)
        )  # fmt: skip
        averaged, labelled = (_areas(rows, attack, c).within(*COMPARED) for c in COUPLINGS)
        if len(averaged):
            target = published.at(averaged.x, f"{attack}_area", published.areas())
            off = averaged.mean / target - 1
            error = float(np.sqrt(((averaged.error / target) ** 2).sum())) / len(off)
            found.append(
                Verdict("fig5", f"averaged: mean |difference| of {name} areas from the published",
                        100 * float(np.abs(off).mean()), 12.0, 0.0, "at most", unit="%",
                        error=_number(100 * error),
                        note="; ".join(filter(None, (note, f"mean {100 * off.mean():+.1f} %"))))
            )  # fmt: skip
        found += _comparison(averaged, labelled, name)
    return found


def _comparison(averaged: Series, labelled: Series, name: str) -> list[Verdict]:
    """Is the labelled coupling more robust at every d_F? Judged where it is least so."""
    common, i, j = np.intersect1d(averaged.x, labelled.x, return_indices=True)
    if not len(common):
        return []
    gain = labelled.mean[j] - averaged.mean[i]
    error = np.hypot(labelled.error[j], averaged.error[i])
    worst, below = int(gain.argmin()), common[gain < 0]
    note = f"least at d_F = {common[worst]:g}; mean {gain.mean():+.2f}"
    if len(below):
        note += f"; less robust at {len(below)} of {len(common)} d_F, {below[0]:g} to {below[-1]:g}"
    return [
        Verdict("fig5", f"labelled more robust than averaged at every d_F, {name} area gains",
                float(gain[worst]), 0.0, 0.0, "at least", error=_number(error[worst]), note=note)
    ]  # fmt: skip


def _areas(rows: Sequence[Row], attack: str, coupling: str) -> Series:
    return series(rows, f"{attack}_area", coupling=coupling)


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _draw_curves(ax: Any, rows: Sequence[Row], attack: str, coupling: str) -> None:
    found = series(rows, f"{attack}_curve", coupling=coupling, scale=100)
    measured = published.CURVES_D_F if attack == "noise" else published.FGSM_CURVES_D_F
    shown = [x for x in sorted({*published.CURVES_D_F, *measured}) if x in found.x]
    shown = shown or found.x[:: max(len(found) // 6, 1)].tolist()
    colours = mpl.colormaps["viridis"](np.linspace(0, 0.9, max(len(shown), 1)))
    for x, colour in zip(shown, colours, strict=False):
        k = int(np.flatnonzero(found.x == x)[0])
        draw_band(ax, PAPER_STRENGTHS, found.mean[k], found.spread[k], f"$d_F$ = {x:g}",
                  color=colour, linewidth=1.2)  # fmt: skip
        if coupling == "averaged":
            _draw_published(ax, attack, x, colour)
    mean, _, spread = over_seeds(rows, f"{attack}_curve", scale=100, coupling="mlp")
    if np.size(mean) > 1:
        draw_band(ax, PAPER_STRENGTHS, mean, spread, "MLP", color=COLOUR["mlp"], linestyle="--")
        _draw_published(ax, attack, None, COLOUR["mlp"])
    ax.plot([], [], ".", color=COLOUR["published"], label="published")
    ax.set(xlabel="strength ε", ylabel="accuracy (%)", ylim=(0, 100), xlim=(0, 0.8))
    legend(ax, loc="upper right", fontsize=8, ncols=2)
    _draw_example(ax, rows, attack, coupling)


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
    place = (0.42, 0.36) if attack == "fgsm" else (0.05, 0.06)
    title = f"ε = {THREATS[attack].epsilon:g}"
    inset_image(ax, image.reshape(side, side), place, title)


def _draw_areas(ax: Any, rows: Sequence[Row], attack: str) -> None:
    table = published.areas()
    ax.plot(table["d_F"], table[f"{attack}_area"], ".", color=COLOUR["published"], markersize=4,
            label="published (5 runs)")  # fmt: skip
    for coupling in COUPLINGS:
        draw_series(ax, _areas(rows, attack, coupling), coupling)
    mean, error, _ = over_seeds(rows, f"{attack}_area", coupling="mlp")
    if np.isfinite(mean):
        ax.axhline(mean, color=COLOUR["mlp"], linestyle="--", label=f"MLP, {mean:.2f}")
        if np.isfinite(error):
            ax.axhspan(mean - error, mean + error, color=COLOUR["mlp"], alpha=0.15, linewidth=0)
    ax.axhline(MLP_AREA[attack], color=COLOUR["published"], linestyle=":", label="MLP, published")
    ax.set(xlabel="$d_F$", ylabel="area (% · ε)")
    ax.set_ylim(0, ax.get_ylim()[1] * (1.75 if attack == "fgsm" else 1.1))
    legend(ax, loc="upper left" if attack == "fgsm" else "lower right", fontsize=8)


def _draw_theory(ax: Any, rows: Sequence[Row]) -> None:
    runs = finished(rows, "theory_area")
    if not runs:
        return
    small = ax.inset_axes([0.63, 0.7, 0.36, 0.26])
    small.plot(runs[-1].result["theory_d_f"], runs[-1].result["theory_area"],
               color=COLOURS["theory"], linewidth=1)  # fmt: skip
    small.set_xlabel("$d_F$", fontsize=7, labelpad=1)
    small.set_title("theory, $ℓ_2$ attack, one unit", fontsize=7, pad=2)
    small.tick_params(labelsize=6)
