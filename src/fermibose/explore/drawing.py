"""Charts as SVG, in a millisecond each, of a size that a phone shows without shrinking letters.

matplotlib takes 0.1 s for a panel, and a moved slider redraws five within half a second. Letters
and axes have the colour of the page's text; lines differ in dashes as well as in colour.
"""

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fermibose.plotting import COLOURS

WIDTH, HEIGHT = 360, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 44, 44  # margins of the axes
_SQUARE = WIDTH - _LEFT - _RIGHT + _TOP + _BOTTOM  # height of a chart with square axes
_TICKS = 5  # about so many on an axis
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
TEXT = "currentColor"
# Of classes, beside their names: ten that differ in brightness as well, all dark enough for letters
CLASSES = (
    *("#0072B2", "#D55E00", "#009E73", "#B0408A", "#7A5C00"),
    *("#6A3D9A", "#C00000", "#008B9A", "#3A3A3A", "#5A8F00"),
)


@dataclass(frozen=True)
class Line:
    """A line of a chart; dash is its place in the row of dashes."""

    label: str
    x: ArrayLike
    y: ArrayLike
    colour: str = TEXT
    dash: int = 0
    dots: bool = False  # dots alone


@dataclass(frozen=True)
class Mark:
    """A dot with a word beside it."""

    x: float
    y: float
    label: str
    colour: str = COLOURS["highlight"]
    below: bool = False  # the word, to the left: where a falling line runs above


class Axes:
    """The place of data on a chart, and its frame."""

    def __init__(
        self,
        x_range: tuple[float, float],
        y_range: tuple[float, float],
        *,
        labels: tuple[str, str],
        height: int = HEIGHT,
    ) -> None:
        self.x_range, self.y_range, self.labels = _wide(x_range), _wide(y_range), labels
        self.bottom = height - _BOTTOM

    def x(self, value: Any) -> Any:
        """Pixels along x."""
        low, high = self.x_range
        return _LEFT + (np.asarray(value) - low) / (high - low) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: Any) -> Any:
        """Pixels along y, from above."""
        low, high = self.y_range
        return self.bottom - (np.asarray(value) - low) / (high - low) * (self.bottom - _TOP)

    def frame(self, *, x_ticks: bool = True) -> str:
        """Axes, ticks and names."""
        bottom, parts = self.bottom, []
        for tick in ticks(*self.x_range) if x_ticks else []:
            at = f"{self.x(tick):.1f}"
            parts.append(
                f'<path d="M{at} {_TOP}V{bottom}" stroke="{TEXT}" stroke-opacity=".12"/>'
                f'<text x="{at}" y="{bottom + 16}" text-anchor="middle">{number(tick)}</text>'
            )
        for tick in ticks(*self.y_range):
            at = f"{self.y(tick):.1f}"
            parts.append(
                f'<path d="M{_LEFT} {at}H{WIDTH - _RIGHT}" stroke="{TEXT}" stroke-opacity=".12"/>'
                f'<text x="{_LEFT - 6}" y="{at}" dy=".35em" text-anchor="end">{number(tick)}</text>'
            )
        middle = (_LEFT + WIDTH - _RIGHT) / 2
        parts.append(
            f'<path d="M{_LEFT} {_TOP}V{bottom}H{WIDTH - _RIGHT}" fill="none" stroke="{TEXT}"/>'
            f'<text x="{middle}" y="{bottom + 36}" text-anchor="middle">'
            f"{escape(self.labels[0])}</text>"
            f'<text transform="translate(12 {(_TOP + bottom) / 2}) rotate(-90)" '
            f'text-anchor="middle">{escape(self.labels[1])}</text>'
        )
        return "".join(parts)

    def clip(self, content: str) -> str:
        """The content inside the frame only."""
        return (
            f'<svg x="{_LEFT}" y="{_TOP}" width="{WIDTH - _LEFT - _RIGHT}" '
            f'height="{self.bottom - _TOP}" viewBox="{_LEFT} {_TOP} '
            f'{WIDTH - _LEFT - _RIGHT} {self.bottom - _TOP}">{content}</svg>'
        )


def chart(
    title: str,
    lines: Sequence[Line],
    *,
    labels: tuple[str, str],
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    marks: Sequence[Mark] = (),
) -> str:
    """Lines over one pair of axes; what is not finite is a gap."""
    axes = Axes(
        x_range or _span([line.x for line in lines]),
        y_range or _span([line.y for line in lines]),
        labels=labels,
    )
    inside = "".join(_line(axes, line) for line in lines)
    inside += "".join(_mark(axes, mark) for mark in marks)
    named = [line for line in lines if line.label]
    return svg(title, axes.frame() + axes.clip(inside) + _legend(named))


def heat(
    title: str,
    values: NDArray[np.float64],
    extent: tuple[float, float],
    *,
    labels: tuple[str, str],
    rings: Sequence[tuple[float, float, float, str]] = (),
) -> str:
    """A square map, values[row along y, column along x] from 0 (dark) up, with circles on it.

    rings: (x, y, radius, name).
    """
    import matplotlib as mpl

    axes = Axes(extent, extent, labels=labels, height=_SQUARE)
    top = max(float(values.max()), 1e-12)
    colours = mpl.colormaps["cividis"](values[::-1] / top)
    left, right = axes.x(extent[0]), axes.x(extent[1])
    upper, lower = axes.y(extent[1]), axes.y(extent[0])
    inside = (
        f'<image x="{left}" y="{upper}" width="{right - left}" height="{lower - upper}" '
        f'preserveAspectRatio="none" href="{png(colours)}"/>'
    )
    for x, y, radius, name in rings:
        size = radius * (right - left) / (extent[1] - extent[0])
        at = f'cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="{size:.1f}" fill="none"'
        inside += (
            f'<circle {at} stroke="#000" stroke-width="3.5"/>'
            f'<circle {at} stroke="#fff" stroke-width="1.6"/>'
            f'<text x="{axes.x(x):.1f}" y="{axes.y(y):.1f}" dy=".35em" text-anchor="middle" '
            f'font-size="15" fill="#fff" stroke="#000" stroke-width="2" paint-order="stroke">'
            f"{escape(name)}</text>"
        )
    note = f"0 (dark) to {number(top)} (bright)"
    words = f'<text x="{_LEFT}" y="36" fill-opacity=".75">{note}</text>'
    return svg(title, words + axes.clip(inside) + axes.frame(), height=_SQUARE)


def letters(
    title: str,
    points: NDArray[np.float64],
    names: Sequence[str],
    *,
    path: NDArray[np.float64] | None = None,
    own: str = "",
    labels: tuple[str, str] = ("component 1", "component 2"),
    ranges: tuple[tuple[float, float], tuple[float, float]] | None = None,
) -> str:
    """Points (n, 2) as the names of their classes; a path among them, from a ring to a dot.

    own: of the path's class, whose names are drawn strongly; without one every class has a colour.
    """
    colours = dict(zip(sorted(set(names)), cycle(CLASSES), strict=False))
    every = points if path is None else np.concatenate([points, path])
    x_range, y_range = ranges or (_span([every[:, 0]]), _span([every[:, 1]]))
    axes = Axes(x_range, y_range, labels=labels, height=_SQUARE)
    inside = []
    for (x, y), name in zip(points, names, strict=True):
        strong = not own or name == own
        colour = COLOURS["machine"] if own else colours[name]
        inside.append(
            f'<text x="{axes.x(x):.1f}" y="{axes.y(y):.1f}" dy=".35em" text-anchor="middle" '
            f'font-size="{10 if own else 12}" fill="{colour if strong else TEXT}" '
            f'fill-opacity="{0.9 if strong else 0.35}">{escape(name)}</text>'
        )
    if path is not None:
        x, y = axes.x(path[:, 0]), axes.y(path[:, 1])
        way = "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
        colour = COLOURS["baseline"]
        inside.append(
            f'<path d="M{way}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
            f'<circle cx="{x[0]:.1f}" cy="{y[0]:.1f}" r="5" fill="none" stroke="{colour}" '
            f'stroke-width="2"/><circle cx="{x[-1]:.1f}" cy="{y[-1]:.1f}" r="5" fill="{colour}"/>'
        )
    return svg(title, axes.frame() + axes.clip("".join(inside)), height=_SQUARE)


def bars(title: str, names: Sequence[str], values: Sequence[float], *, chosen: int) -> str:
    """Columns with names; the chosen one strong and named in the title's line."""
    low, high = min(0.0, *values), max(0.0, *values)
    room = 0.05 * (high - low)
    low, high = low - room * (low < 0), high + room
    axes = Axes((-0.6, len(values) - 0.4), (low, high), labels=("class", "logit"))
    zero, parts = float(axes.y(0)), []
    for k, value in enumerate(values):
        left, right, top = (float(v) for v in (axes.x(k - 0.35), axes.x(k + 0.35), axes.y(value)))
        colour = COLOURS["baseline"] if k == chosen else COLOURS["machine"]
        parts.append(
            f'<rect x="{left:.1f}" y="{min(top, zero):.1f}" width="{right - left:.1f}" '
            f'height="{max(abs(top - zero), 0.5):.1f}" fill="{colour}"/>'
        )
    words = "".join(
        f'<text x="{float(axes.x(k)):.1f}" y="{axes.bottom + 16}" text-anchor="middle">'
        f"{escape(name)}</text>"
        for k, name in enumerate(names)
    )
    return svg(title, axes.frame(x_ticks=False) + "".join(parts) + words)


def picture(values: NDArray[np.float64], title: str) -> str:
    """An image in [0, 1] (rows, columns), white on black, with its title below."""
    shown = np.repeat(np.clip(values, 0, 1)[..., None], 3, axis=2)
    return (
        f'<figure class="fbm-image"><img src="{png(shown)}" alt="{escape(title)}"/>'
        f"<figcaption>{escape(title)}</figcaption></figure>"
    )


def svg(title: str, content: str, *, height: int = HEIGHT) -> str:
    """One chart with its title, which is also what a screen reader says."""
    told = escape(title)
    return (
        f'<svg class="fbm-chart" role="img" aria-label="{told}" viewBox="0 0 {WIDTH} {height}" '
        f'font-size="12" fill="{TEXT}" xmlns="http://www.w3.org/2000/svg">'
        f'<text x="{_LEFT}" y="16" font-size="13" font-weight="600">{told}</text>{content}</svg>'
    )


def png(colours: NDArray[np.float64]) -> str:
    """An array of colours (rows, columns, 3 or 4) in [0, 1] as an address of an image."""
    from matplotlib.image import imsave

    with io.BytesIO() as file:
        imsave(file, colours, format="png")
        return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def number(value: float) -> str:
    """A number as a tick shows it."""
    return f"{value:.4g}".replace("-", "−")


def ticks(low: float, high: float) -> list[float]:
    """Round numbers between two, about five of them."""
    step = 10.0 ** math.floor(math.log10((high - low) / _TICKS))
    step *= next(k for k in (1, 2, 5, 10) if (high - low) / (k * step) <= _TICKS)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def _span(parts: Sequence[ArrayLike]) -> tuple[float, float]:
    every = np.concatenate([np.ravel(np.asarray(part, dtype=float)) for part in parts])
    every = every[np.isfinite(every)]
    if not every.size:
        return 0.0, 1.0
    low, high = float(every.min()), float(every.max())
    room = 0.05 * (high - low)
    return low - room, high + room


def _wide(span: tuple[float, float]) -> tuple[float, float]:
    low, high = span
    least = 1e-9 * max(1.0, abs(low), abs(high))
    return (low, high) if high - low > least else (low - 0.5, high + 0.5)


def _line(axes: Axes, line: Line) -> str:
    x, y = axes.x(np.asarray(line.x, dtype=float)), axes.y(np.asarray(line.y, dtype=float))
    known = np.isfinite(x) & np.isfinite(y)
    if line.dots:
        return "".join(
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="none" stroke="{line.colour}" '
            'stroke-width="1.5"/>'
            for a, b in zip(x[known], y[known], strict=True)
        )
    way, pen = [], "M"
    for a, b, there in zip(x, y, known, strict=True):
        way.append(f"{pen}{a:.1f} {np.clip(b, -1e4, 1e4):.1f}" if there else "")
        pen = "L" if there else "M"
    return (
        f'<path d="{"".join(way)}" fill="none" stroke="{line.colour}" stroke-width="2" '
        f'stroke-dasharray="{_DASHES[line.dash]}"/>'
    )


def _mark(axes: Axes, mark: Mark) -> str:
    x, y = float(axes.x(mark.x)), float(axes.y(mark.y))
    late = x > WIDTH * 0.65 or mark.below
    anchor, shift = ("end", -9) if late else ("start", 9)
    rise = -18 if mark.below else 8
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{mark.colour}" stroke="{TEXT}"/>'
        f'<text x="{x + shift:.1f}" y="{y - rise:.1f}" text-anchor="{anchor}">'
        f"{escape(mark.label)}</text>"
    )


def _legend(lines: Sequence[Line]) -> str:
    """Names of the lines in a row below the title."""
    parts, x = [], float(_LEFT)
    for line in lines:
        sample = (
            f'<circle cx="{x + 10}" cy="32" r="3" fill="none" stroke="{line.colour}"/>'
            if line.dots
            else f'<path d="M{x} 32h20" stroke="{line.colour}" stroke-width="2.5" '
            f'stroke-dasharray="{_DASHES[line.dash]}"/>'
        )
        parts.append(f'{sample}<text x="{x + 25}" y="36">{escape(line.label)}</text>')
        x += 25 + 6.6 * len(line.label) + 14
    return "".join(parts)
