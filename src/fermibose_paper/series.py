"""Rows of a sweep as curves: means over seeds with their standard errors, and how they look."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fermibose.plotting import COLOURS
from fermibose.statistics import Summary, summary
from fermibose_paper.scale import Scale
from fermibose_paper.store import Row

Floats = npt.NDArray[np.float64]

# Points: of the test accuracy over seeds, for where a single seed tells none; the median of those
# published (fig4_sweep.csv) is 0.39.
USUAL_SPREAD = 0.4


@dataclass(frozen=True, eq=False)
class Series:
    """Means over seeds along one parameter."""

    x: Floats  # (points,), increasing
    mean: Floats  # (points, …)
    error: Floats  # standard error of the mean, NaN for a single seed
    spread: Floats  # standard deviation over seeds, NaN for a single seed
    seeds: int  # the most that a point has
    fewest: int  # the fewest that a point has

    def __len__(self) -> int:
        return len(self.x)

    def within(self, low: float, high: float) -> "Series":
        """The points with low ≤ x ≤ high."""
        kept = (self.x >= low - 1e-9) & (self.x <= high + 1e-9)
        parts = {name: getattr(self, name)[kept] for name in ("x", "mean", "error", "spread")}
        return replace(self, **parts)


class Finished(NamedTuple):
    """A finished row."""

    params: dict[str, Any]
    seed: int
    result: dict[str, Any]


def finished(rows: Iterable[Row], quantity: str, **params: Any) -> list[Finished]:
    """The runs that have this quantity and were made with these parameters."""
    return [
        Finished(row.params, row.seed, row.result)
        for row in rows
        if row.result is not None
        and row.result.get(quantity) is not None
        and all(row.params.get(name) == value for name, value in params.items())
    ]


def series(
    rows: Iterable[Row], quantity: str, *, over: str = "d_f", scale: float = 1.0, **params: Any
) -> Series:
    """A quantity (number or list) against a parameter, times ``scale``, over the rows that have it.

    The same run twice, as two figures may list it, counts once.
    """
    runs: dict[float, dict[int, Any]] = {}
    for row in finished(rows, quantity, **params):
        if row.params.get(over) is not None:
            runs.setdefault(row.params[over], {})[row.seed] = row.result[quantity]
    points = sorted(runs)
    found = [summary(runs[x].values(), scale=scale) for x in points]
    mean, error, spread = (np.array([part[k] for part in found]) for k in range(3))
    counts = [len(values) for values in runs.values()] or [0]
    x = np.array(points, dtype=np.float64)
    return Series(x, mean, error, spread, max(counts), min(counts))


def over_seeds(rows: Iterable[Row], quantity: str, *, scale: float = 1.0, **params: Any) -> Summary:
    """Mean, standard error and spread over seeds of all rows with these parameters."""
    runs = {row.seed: row.result[quantity] for row in finished(rows, quantity, **params)}
    return summary(runs.values(), scale=scale)


def typical_error(found: Series) -> float | None:
    """Root mean square of the standard errors; None where single seeds give none."""
    errors = found.error[np.isfinite(found.error)]
    return float(np.sqrt((errors**2).mean())) if len(errors) else None


COLOUR = {
    "averaged": COLOURS["machine"],
    "labelled": COLOURS["boson"],
    "mlp": COLOURS["baseline"],
    "published": COLOURS["published"],
}
LABEL = {"averaged": "averaged", "labelled": "labelled", "mlp": "MLP"}


def published_label(scale: Scale, *details: str, what: str = "published") -> str:
    """How a legend names published points; beside runs on other images than theirs, it says so.

    details: what else stands in the brackets.
    """
    details += () if scale.published_split else ("other images",)
    return f"{what} ({', '.join(details)})" if details else what


def draw_series(ax: Any, found: Series, coupling: str) -> None:
    """Means against d_F with standard errors as bars (none where there is a single seed)."""
    if not len(found):
        return
    fewest, most = found.fewest, found.seeds
    seeds = f"{most} seed{'s' * (most > 1)}" if fewest == most else f"{fewest} to {most} seeds"
    bars = np.nan_to_num(found.error)
    look = {"color": COLOUR[coupling], "fmt": "-", "linewidth": 1.3, "elinewidth": 0.8}
    ax.errorbar(found.x, found.mean, bars, label=f"{coupling} ({seeds})", **look)


def draw_band(
    ax: Any,
    x: npt.ArrayLike,
    mean: npt.ArrayLike,
    half: npt.ArrayLike,
    label: str | None,
    **look: Any,
) -> None:
    """A line with a shaded band of this half-width (none where it is not a number)."""
    (line,) = ax.plot(x, mean, label=label, **look)
    mean, half = np.asarray(mean), np.nan_to_num(np.asarray(half, dtype=float))
    ax.fill_between(x, mean - half, mean + half, color=line.get_color(), alpha=0.2, linewidth=0)


def inset_image(
    ax: Any, image: npt.NDArray[np.uint8], place: tuple[float, float], title: str
) -> None:
    """A small picture of 28 × 28 pixels, its lower left corner at ``place`` (fractions of ax)."""
    small = ax.inset_axes([*place, 0.2, 0.26])
    small.imshow(image, cmap="gray", vmin=0, vmax=255)
    small.set_xticks([])
    small.set_yticks([])
    small.grid(False)
    small.set_title(title, fontsize=7, pad=2)


def legend_below(ax: Any, **look: Any) -> None:
    """The same under the panel, where it covers and squeezes nothing."""
    legend(ax, **{"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "ncols": 2} | look)


def legend(ax: Any, **look: Any) -> None:
    """The legend; a panel whose runs are all missing says so instead."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(**look)
    else:
        ax.text(0.5, 0.5, "not measured", ha="center", va="center", transform=ax.transAxes)
