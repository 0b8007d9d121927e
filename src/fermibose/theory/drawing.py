"""How curves and diagrams are drawn and saved."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from fermibose.files import replacing
from fermibose.plotting import COLOURS, canvas, save_figure
from fermibose.theory.activation import Array
from fermibose.theory.checks import SYMBOLS

if TYPE_CHECKING:
    from fermibose.theory.curves import Curve


@contextmanager
def whole_figure(path: str | Path, **shape: Any) -> Iterator[tuple[Figure, Any]]:
    """As :func:`fermibose.plotting.figure`, but the file is written whole or not at all."""
    path = Path(path)
    with canvas(**shape) as (fig, axes):
        yield fig, axes
        with TemporaryDirectory() as folder, replacing(path) as draft:
            save_figure(fig, Path(folder) / path.name)
            draft.write_bytes((Path(folder) / path.name).read_bytes())


def axis_label(curve: "Curve") -> str:
    """The parameter's symbol, and under it how many of its points are missing, if any."""
    return SYMBOLS[curve.parameter] + missing(curve.failures)


def missing(failures: Sequence[str]) -> str:
    """A second line for the label of an axis that says what a figure does not show."""
    count = len(failures)
    return f"\n({count} point{'s' if count > 1 else ''} not solved, left out)" if count else ""


def draw_line(ax: Any, curve: "Curve", quantity: str, **look: Any) -> None:
    """A quantity along a curve: full where replica symmetry is stable, dotted where it is not."""
    draw_stability(ax, curve.values, curve.column(quantity), curve.column("rs_stable") > 0, **look)


def draw_stability(ax: Any, x: Array, values: Array, stable: Any, **look: Any) -> None:
    """The line itself, from arrays."""
    dotted = ~stable
    dotted[:-1] |= ~stable[1:]  # up to the neighbours, so that the line has no gap
    dotted[1:] |= ~stable[:-1]
    look = {"color": COLOURS["theory"]} | look
    if stable.any():
        ax.plot(x, np.where(stable, values, np.nan), **look)
    if dotted.any():
        look |= {"ls": ":", "label": "replica symmetry unstable"}
        ax.plot(x, np.where(dotted, values, np.nan), **look)
