"""How the figures of the reproduction look alike: colours of the couplings, bands, marks."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fermibose.plotting import COLOURS
from fermibose_paper.scale import Scale
from fermibose_paper.series import Series

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
    runs = f"{most} seed{'s' * (most > 1)}" if fewest == most else f"{fewest} to {most} seeds"
    bars = np.nan_to_num(found.error)
    look = {"color": COLOUR[coupling], "fmt": "-", "linewidth": 1.3, "elinewidth": 0.8}
    ax.errorbar(found.x, found.mean, bars, label=f"{coupling} ({runs})", **look)


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


def legend(ax: Any, **look: Any) -> None:
    """The legend; a panel whose runs are all missing says so instead."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(**look)
    else:
        ax.text(0.5, 0.5, "not measured", ha="center", va="center", transform=ax.transAxes)
