"""Fig. 4: test accuracy and fermion distance against d_F, with the points the paper marks.

S1, P1, V, P2, S2 and B1 are found on any accuracy curve.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from fermibose.plotting import COLOURS, canvas
from fermibose.statistics import Summary
from fermibose_paper import published
from fermibose_paper.job import Job
from fermibose_paper.scale import Scale
from fermibose_paper.series import (
    COLOUR,
    USUAL_SPREAD,
    Series,
    draw_series,
    legend,
    over_seeds,
    published_label,
    series,
    typical_error,
)
from fermibose_paper.store import Row
from fermibose_paper.verdict import Verdict, number

Floats = npt.NDArray[np.float64]

BANDWIDTH = 0.012  # in d_F, of the smoothing: evens out the published step of 0.005, no coarser one
PLATEAU = 1.0  # the accuracy is stationary beyond this d_F
STATIONARY = (
    0.3  # points (%) within which it then stays: the published curve, smoothed, within 0.25
)


WHAT = {  # the marked points are, in words
    "S1": "where it first reaches the MLP",
    "P1": "the first peak",
    "V": "the valley between the peaks",
    "P2": "the second peak",
    "S2": "where it falls below the MLP for good",
    "B1": "where it becomes stationary",
}


@dataclass(frozen=True)
class Marks:
    """Positions in d_F of what the paper marks; None where the curve has no such point.

    A curve with one maximum only has P2 (its peak), and neither P1 nor V.
    """

    S1: float | None  # the accuracy first reaches that of the MLP
    P1: float | None  # first peak
    V: float | None  # minimum between the peaks
    P2: float | None  # second peak
    S2: float | None  # the accuracy falls below that of the MLP for good
    B1: float | None  # from here on it is stationary
    dip: float  # how far V lies below the lower of the peaks, in points (without V: too little)

    def positions(self) -> dict[str, float]:
        """The points that exist, by name."""
        named = {name: getattr(self, name) for name in ("S1", "P1", "V", "P2", "S2", "B1")}
        return {name: value for name, value in named.items() if value is not None}


def marked_points(d_f: Floats, accuracy: Floats, mlp: float, *, noise: float = 0.2) -> Marks:
    """Find the points on a curve: d_f increasing, accuracy and that of the MLP in percent.

    noise: standard error of a point; two peaks count as two if the minimum between them lies more
    than three errors of the smoothed curve below both.
    """
    weights = _weights(d_f)
    curve = weights @ accuracy
    noise *= float(np.sqrt((weights**2).sum(1)).mean())
    top, maxima = int(curve.argmax()), _maxima(curve)
    others = maxima if top in maxima else []
    dip, other = max(((_dip(curve, top, k), k) for k in others), default=(0.0, top))
    peaks = sorted((top, other)) if dip > 3 * noise else [top]
    valley = peaks[0] + int(curve[peaks[0] : peaks[-1] + 1].argmin())
    return Marks(
        S1=_crossing(d_f, curve, mlp),
        P1=float(d_f[peaks[0]]) if len(peaks) == 2 else None,
        V=float(d_f[valley]) if len(peaks) == 2 else None,
        P2=float(d_f[peaks[-1]]),
        S2=_crossing(-d_f[::-1], curve[::-1], mlp),
        B1=_stationary(d_f, curve, max(STATIONARY, 2 * noise)),
        dip=float(dip),
    )


def _weights(d_f: Floats) -> Floats:
    """Matrix of a mean over neighbours weighted by a Gaussian in d_F."""
    weights = np.exp(-0.5 * ((d_f[:, None] - d_f) / BANDWIDTH) ** 2)
    return np.asarray(weights / weights.sum(1, keepdims=True))


def _maxima(curve: Floats) -> list[int]:
    """Points not below their neighbours; no end of the curve, as what lies beyond may be higher."""
    inner = curve[1:-1]
    return (1 + np.flatnonzero((inner >= curve[:-2]) & (inner >= curve[2:]))).tolist()


def _dip(curve: Floats, top: int, other: int) -> float:
    """How far the curve falls between its top and another point, below the latter."""
    low, high = sorted((top, other))
    return float(curve[other] - curve[low : high + 1].min())


def _crossing(x: Floats, curve: Floats, level: float) -> float | None:
    """Where a curve that starts below a level first reaches it, linearly between points."""
    above = np.flatnonzero(curve >= level)
    if not len(above) or above[0] == 0:
        return None
    k = int(above[0])
    share = (level - curve[k - 1]) / (curve[k] - curve[k - 1])
    return abs(float(x[k - 1] + share * (x[k] - x[k - 1])))


def _stationary(d_f: Floats, curve: Floats, width: float) -> float | None:
    """The first point from which the curve stays within ``width`` of its mean beyond PLATEAU."""
    plateau = d_f >= PLATEAU
    if not plateau.any():
        return None
    away = np.flatnonzero(np.abs(curve - curve[plateau].mean()) > width)
    first = int(away[-1]) + 1 if len(away) else 0
    return float(d_f[first]) if first < len(d_f) else None


def plan(scale: Scale) -> list[Job]:
    """The averaged coupling on the fine grid, the labelled one on the coarse grid, the MLP."""
    return [
        *scale.jobs("mlp", [None]),
        *scale.jobs("averaged", scale.fine),
        *scale.jobs("labelled", scale.coarse),
    ]


def draw(rows: Sequence[Row], scale: Scale) -> Figure:
    """Accuracy above, distances below; both couplings and the published curves."""
    table = published.against_d_f()
    accuracy = {c: _accuracy(rows, c) for c in ("averaged", "labelled")}
    with canvas(rows=2, size=(8.2, 8.0)) as (fig, axes):
        top, bottom = axes[:, 0]
        half = table["test_accuracy_std"] / 5**0.5
        top.errorbar(
            table["d_F"], table["test_accuracy_percent"], half,
            color=COLOUR["published"], fmt=".", markersize=3, elinewidth=0.6, alpha=0.7,
            label=published_label(scale, "5 runs"),
        )  # fmt: skip
        for coupling, found in accuracy.items():
            draw_series(top, found, coupling)
        mlp, error, _ = _mlp(rows)
        if np.isfinite(mlp):
            top.axhline(mlp, color=COLOUR["mlp"], linestyle="--", label=f"MLP, {mlp:.1f} %")
            if np.isfinite(error):
                top.axhspan(mlp - error, mlp + error, color=COLOUR["mlp"], alpha=0.15, linewidth=0)
            if len(accuracy["averaged"]) > 5:
                _draw_marks(top, accuracy["averaged"], _marks(accuracy["averaged"], mlp))
        highest = max(found.mean.max(initial=86.0) for found in accuracy.values())
        top.set(ylabel="test accuracy (%)", ylim=(76.5, highest + 1.2), title="(a)")
        legend(top, loc="lower center", ncols=2)
        _draw_distances(bottom, rows, scale)
    return fig


def verdicts(rows: Sequence[Row], scale: Scale) -> list[Verdict]:
    """Curve, marks and distances of the averaged coupling; one maximum of the labelled one."""
    mlp, mlp_error, _ = _mlp(rows)
    unlike = not scale.published_split
    found = [
        Verdict.near(
            "fig4",
            "accuracy of the MLP",
            number(mlp),
            expected=published.MLP_ACCURACY,
            tolerance=0.7,
            error=number(mlp_error),
            unit="%",
            unlike=unlike,
        )
    ]
    averaged, labelled = _accuracy(rows, "averaged"), _accuracy(rows, "labelled")
    if len(averaged.within(*published.COMPARED_D_F)) > 5:
        found += _curve_verdicts(averaged, unlike)
        found += _gain_verdicts(averaged, float(mlp), float(mlp_error))
        found += _mark_verdicts(averaged, mlp)
        found += _distance_verdicts(rows)
    if len(labelled) > 5:
        marks, noise = _marks(labelled, mlp), _noise(labelled)
        best = int(labelled.mean.argmax())
        found.append(
            Verdict.at_most(
                "fig4",
                "labelled: one maximum only, the second one rises at most",
                marks.dip,
                bound=0.0,
                tolerance=3 * (noise or USUAL_SPREAD),
                error=noise,
                counted=True,
                unit="points",
                unpublished=True,
                note=f"best {labelled.mean[best]:.2f} % at d_F = {labelled.x[best]:g}",
            )
        )
    return found


def _curve_verdicts(averaged: Series, unlike: bool) -> list[Verdict]:
    compared = averaged.within(*published.COMPARED_D_F)
    target = published.at(compared.x, "test_accuracy_percent", published.against_d_f())
    off = compared.mean - target
    error = float(np.sqrt((compared.error**2).sum())) / max(len(off), 1)
    shape = off - off.mean()
    return [
        Verdict.at_most(
            "fig4",
            "averaged: mean |difference| from the published accuracy",
            float(np.abs(off).mean()),
            bound=0.6,
            error=number(error),
            unit="points",
            unlike=unlike,
        ),
        Verdict.at_most(
            "fig4",
            "averaged: the same, apart from the mean difference",
            float(np.abs(shape).mean()),
            bound=0.6,
            error=number(error),
            unit="points",
            note=f"mean difference {off.mean():+.2f}",
        ),
    ]


def _gain_verdicts(averaged: Series, mlp: float, mlp_error: float) -> list[Verdict]:
    """Is the machine at its best better than the MLP?"""
    if not np.isfinite(mlp):
        return []
    best = int(averaged.mean.argmax())
    theirs = published.against_d_f()["test_accuracy_percent"].max() - published.MLP_ACCURACY
    error = float(np.hypot(averaged.error[best], mlp_error))
    note = f"at d_F = {averaged.x[best]:g}; published {theirs:+.2f}"
    return [
        Verdict.at_least(
            "fig4",
            "averaged: best accuracy above that of the MLP, by",
            float(averaged.mean[best]) - mlp,
            bound=0.0,
            error=number(error),
            unit="points",
            note=note,
        )
    ]


def _mark_verdicts(averaged: Series, mlp: float) -> list[Verdict]:
    table = published.against_d_f()
    noise = float(table["test_accuracy_std"].mean()) / 5**0.5
    theirs = marked_points(
        table["d_F"], table["test_accuracy_percent"], published.MLP_ACCURACY, noise=noise
    )
    ours = _marks(averaged, mlp)
    covered = averaged.x[-1] >= PLATEAU and np.diff(averaged.x).max() < 0.25
    found = [
        Verdict.near(
            "fig4",
            "averaged: depth of the valley V below the lower peak",
            ours.dip if covered else None,
            expected=theirs.dip,
            tolerance=0.6,
            unit="points",
            error=_noise(averaged),
        )
    ]
    for name, place in theirs.positions().items():
        judged = covered and (np.isfinite(mlp) or name not in ("S1", "S2"))
        least = 0.1 if name == "B1" else 0.03  # where a plateau begins is less sharp than a peak
        spacing = (
            float(np.diff(averaged.x)[np.searchsorted(averaged.x, place) - 1]) if covered else 0
        )
        note = "as far as the grid can tell" if spacing > least else ""
        mine = getattr(ours, name)
        found.append(
            Verdict.near(
                "fig4",
                f"averaged: position of {name}, {WHAT[name]}",
                mine if judged else None,
                expected=place,
                tolerance=max(least, spacing),
                unit="in d_F",
                absent=judged and mine is None,
                note=note if judged else "curve or MLP is not complete",
            )
        )
    return found


def _distance_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    fermion = _distance(rows, "averaged", "recorded_fermion_distance").within(
        *published.COMPARED_D_F
    )
    target = published.at(fermion.x, "recorded_fermion_distance", published.against_d_f())
    return [
        Verdict.at_most(
            "fig4",
            "averaged: largest |difference| from the recorded fermion distance",
            float(np.abs(fermion.mean - target).max()),
            bound=0.005,
        )
    ]


def _accuracy(rows: Sequence[Row], coupling: str) -> Series:
    return series(rows, "test_accuracy", scale=100, coupling=coupling)


def _distance(rows: Sequence[Row], coupling: str, quantity: str) -> Series:
    return series(rows, quantity, coupling=coupling)


def _mlp(rows: Sequence[Row]) -> Summary:
    return over_seeds(rows, "test_accuracy", scale=100, coupling="mlp")


def _marks(found: Series, mlp: float) -> Marks:
    return marked_points(found.x, found.mean, mlp, noise=_noise(found) or USUAL_SPREAD)


def _noise(found: Series) -> float | None:
    """Typical standard error, apart from the d_F next to 0, at which nets hardly learn."""
    return typical_error(found.within(*published.COMPARED_D_F))


def _draw_marks(ax: Any, found: Series, marks: Marks) -> None:
    for name, place in marks.positions().items():
        height = float(np.interp(place, found.x, found.mean))
        ax.plot(place, height, "o", color=COLOURS["highlight"], markersize=5, zorder=5)
        label = f"${name[0]}_{name[1]}$" if len(name) == 2 else f"${name}$"
        offset = {"S1": (-14, 2), "V": (0, -15), "B1": (0, -20), "S2": (10, 5)}.get(name, (0, 8))
        ax.annotate(label, (place, height), xytext=offset, textcoords="offset points", ha="center")


def _draw_distances(ax: Any, rows: Sequence[Row], scale: Scale) -> None:
    table = published.against_d_f()
    ax.plot(table["d_F"], table["recorded_fermion_distance"], ".", color=COLOUR["published"],
            markersize=3, label=published_label(scale, "as recorded"))  # fmt: skip
    for coupling, quantity, label, style in (
        ("averaged", "recorded_fermion_distance", "averaged, as recorded", "-"),
        ("averaged", "fermion_distance", "averaged, fermion pairs", "--"),
        ("averaged", "boson_distance", "averaged, boson pairs", ":"),
        ("labelled", "fermion_distance", "labelled, fermion pairs", "--"),
        ("labelled", "boson_distance", "labelled, boson pairs", ":"),
    ):
        found = _distance(rows, coupling, quantity)
        if len(found):
            ax.plot(found.x, found.mean, style, color=COLOUR[coupling], label=label, linewidth=1.3)
    ax.plot([0, 0.65], [0, 0.65], "--", color="0.6", linewidth=0.8, label="$D^2 = d_F$")
    ax.set(xlabel="$d_F$", ylabel="mean squared distance $D^2$", ylim=(0, 0.62), title="(b)")
    legend(ax, loc="lower right", fontsize=8, ncols=2)
