"""Fig. 5: accuracy under FGSM and noise of growing strength, and the areas under these curves."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from fermibose.paper import published
from fermibose.paper.panels import (
    MLP_AREA,
    PGD_STRENGTH,
    areas,
    at_one_strength,
    draw_areas,
    draw_curves,
    draw_one_strength,
    draw_theory,
)
from fermibose.paper.runs import measure_pgd, measure_robustness
from fermibose.paper.scale import COUPLINGS, Scale
from fermibose.paper.series import Series, over_seeds, series
from fermibose.paper.verdict import Verdict, number
from fermibose.plotting import canvas
from fermibose.sweep import Job, Row, measurement
from fermibose.theory import Problem, trace

ATTACKS = {"fgsm": "FGSM", "noise": "noise"}


@measurement(version=1)
def measure_theory(*, points: int, seed: int = 0) -> dict[str, list[float]]:
    """Area under the accuracy against the strength ε of an ℓ₂ attack, from theory, over d_F.

    One unit on a Gaussian mixture, at the parameters of the paper's Fig. 2; ε from 0 to 1.
    """
    curve = trace(Problem(), "d_f", np.linspace(0, 2, points) ** 2, show=False)
    return {
        "theory_d_f": curve.values.tolist(),
        "theory_area": curve.column("adversarial_area").tolist(),
    }


def plan(scale: Scale) -> list[Job]:
    """Both couplings and the MLP under FGSM, noise and PGD; the theory of the inset."""
    return [
        *scale.jobs(measure_robustness, "mlp", [None]),
        *(job for c in COUPLINGS for job in scale.jobs(measure_robustness, c, scale.coarse)),
        *(
            job
            for c in COUPLINGS
            for job in scale.jobs(measure_pgd, c, scale.attacked, epsilon=PGD_STRENGTH)
        ),
        *scale.jobs(measure_pgd, "mlp", [None], epsilon=PGD_STRENGTH),
        Job(measure_theory, params={"points": scale.theory_points}),
    ]


def draw(rows: Sequence[Row], scale: Scale) -> Figure:
    """(a), (b) curves at the marked d_F; (c), (d) areas against d_F.

    Without a letter, beyond the paper: curves of the labelled coupling, and one ε, FGSM beside PGD.
    """
    with canvas(rows=4, columns=2, size=(10.4, 14.6)) as (fig, axes):
        for column, attack in enumerate(ATTACKS):
            for row, coupling in enumerate(COUPLINGS):
                ax = axes[row, column]
                draw_curves(ax, rows, scale, attack, coupling)
                letter = f"({'ab'[column]}) " if coupling == "averaged" else ""
                ax.set_title(f"{letter}{ATTACKS[attack]}, {coupling}")
            draw_areas(axes[2, column], rows, scale, attack)
            axes[2, column].set_title(f"({'cd'[column]}) area under {ATTACKS[attack]} curves")
        draw_theory(axes[2, 0], rows)
        draw_one_strength(axes[3], rows)
    return fig


def verdicts(rows: Sequence[Row], scale: Scale) -> list[Verdict]:
    """Areas against the published ones; machine against MLP, labelled against averaged."""
    unlike = not scale.published_split
    found: list[Verdict] = []
    for attack, name in ATTACKS.items():
        mean, error, _ = over_seeds(rows, f"{attack}_area", coupling="mlp")
        expected = MLP_AREA[attack]
        found.append(
            Verdict("fig5", f"MLP: {name} area", float(mean), expected, 0.12 * expected,
                    error=number(error), unlike=unlike)
        )  # fmt: skip
        averaged, labelled = (areas(rows, attack, c).within(*published.COMPARED) for c in COUPLINGS)
        if len(averaged):
            target = published.at(averaged.x, f"{attack}_area", published.areas())
            off = averaged.mean / target - 1
            error = float(np.sqrt(((averaged.error / target) ** 2).sum())) / len(off)
            found.append(
                Verdict("fig5", f"averaged: mean |difference| of {name} areas from the published",
                        100 * float(np.abs(off).mean()), 12.0, 0.0, "at most", unit="%",
                        error=number(100 * error), unlike=unlike,
                        note=f"mean {100 * off.mean():+.1f} %")
            )  # fmt: skip
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
        step, many = (at_one_strength(rows, attack, coupling) for attack in ("fgsm", "pgd"))
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
        Verdict("fig5", f"{claim} at every d_F: gain of {name}",
                float(gain[least]), 0.0, 2 * float(np.nan_to_num(error[least])), "at least",
                error=number(error[least]), note=note + explanation, unpublished=ours)
    ]  # fmt: skip
