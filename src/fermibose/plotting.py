"""The common look of every figure: one palette, one set of sizes, no global state.

matplotlib is loaded by the first figure, so that rooms can export their drawings.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fermibose.files import replacing

if TYPE_CHECKING:
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
    "svg.hashsalt": "fermibose",  # identical data gives an identical file
}


@contextmanager
def _look() -> Iterator[None]:
    import matplotlib as mpl

    colours: Any = mpl.cycler(color=list(COLOURS.values()))  # type: ignore[attr-defined]
    with mpl.rc_context(LOOK | {"axes.prop_cycle": colours}):
        yield


@contextmanager
def canvas(
    *, rows: int = 1, columns: int = 1, size: tuple[float, float] | None = None
) -> Iterator[tuple["Figure", Any]]:
    """Yield ``(figure, axes)`` in the common look, to draw on inside and keep.

    ``axes`` is one Axes for a single panel, else an array of shape (rows, columns).
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with _look():
        fig = Figure(figsize=size or (5.2 * columns, 3.6 * rows), layout="constrained")
        FigureCanvasAgg(fig)
        axes: Any = fig.subplots(rows, columns, squeeze=False)
        yield fig, axes[0, 0] if axes.size == 1 else axes


def save_figure(fig: "Figure", path: str | Path) -> None:
    """Write a figure, whole or not at all; the suffix (png, svg, pdf) is the file type.

    Missing folders are made.
    """
    kind = Path(path).suffix.removeprefix(".") or "png"
    # Without its date, identical data gives an identical svg.
    metadata = {"Date": None} if kind == "svg" else None
    with _look(), replacing(path) as draft:
        fig.savefig(draft, format=kind, metadata=metadata)


@contextmanager
def figure(
    path: str | Path | None,
    *,
    rows: int = 1,
    columns: int = 1,
    size: tuple[float, float] | None = None,
) -> Iterator[tuple["Figure", Any]]:
    """As :func:`canvas`, and save the figure at ``path``, if there is one, on leaving."""
    with canvas(rows=rows, columns=columns, size=size) as (fig, axes):
        yield fig, axes
        if path is not None:
            save_figure(fig, path)
