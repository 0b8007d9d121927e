"""The common look of every figure: one palette, one set of sizes, no global state."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Colour-blind safe (Okabe-Ito), named by what they stand for.
COLOURS = {
    "machine": "#0072B2",
    "baseline": "#D55E00",
    "boson": "#009E73",
    "fermion": "#CC79A7",
    "theory": "#000000",
    "published": "#7F7F7F",
    "highlight": "#E69F00",
}

LOOK: Any = {
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "axes.prop_cycle": mpl.cycler(color=list(COLOURS.values())),  # type: ignore[attr-defined]
    "svg.hashsalt": "fermibose",  # identical data gives an identical file
}


@contextmanager
def figure(
    path: str | Path, *, rows: int = 1, columns: int = 1, size: tuple[float, float] | None = None
) -> Iterator[tuple[Figure, Any]]:
    """Yield ``(figure, axes)`` in the common look and save it at ``path`` on leaving.

    ``axes`` is one Axes for a single panel, else an array of shape (rows, columns). The file type
    follows the suffix of ``path`` (png, svg, pdf); missing folders are made.
    """
    path = Path(path)
    with mpl.rc_context(LOOK):
        fig = Figure(figsize=size or (5.2 * columns, 3.6 * rows), layout="constrained")
        FigureCanvasAgg(fig)
        axes: Any = fig.subplots(rows, columns, squeeze=False)
        yield fig, axes[0, 0] if np.size(axes) == 1 else axes
        path.parent.mkdir(parents=True, exist_ok=True)
        fig.savefig(path)
