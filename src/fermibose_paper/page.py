"""The page: sections made of paragraphs, pictures, charts and tables, rendered to one HTML file.

Everything is inside the file (style, pictures, scripts): it needs no network, now or later.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from fermibose import __version__
from fermibose.errors import InputError

MEDIA = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclass(frozen=True)
class Text:
    """A paragraph. A plain string is escaped; ``Markup`` passes as it is."""

    kind: ClassVar = "text"
    text: str


@dataclass(frozen=True)
class Picture:
    """A figure from a PNG or SVG file, with what it shows in words (alt) and a caption."""

    kind: ClassVar = "picture"
    path: Path
    alt: str
    caption: str = ""

    def __post_init__(self) -> None:
        if self.path.suffix not in MEDIA:
            raise InputError(f"{self.path}: a picture must be one of {sorted(MEDIA)}")
        if not self.alt.strip():
            raise InputError(f"{self.path}: a picture needs a text for those who cannot see it")

    @property
    def media(self) -> str:
        """The media type of the file."""
        return MEDIA[self.path.suffix]

    @property
    def data(self) -> str:
        """The file, in base64."""
        return base64.b64encode(self.path.read_bytes()).decode("ascii")


@dataclass(frozen=True)
class Interactive:
    """A figure that answers to the pointer: ready HTML, and what it shows in words."""

    kind: ClassVar = "interactive"
    html: str
    alt: str
    summary: str  # what is unfolded; folded, since a picture shows the same


@dataclass(frozen=True)
class Badge:
    """A short verdict in a cell of a table."""

    text: str
    passed: bool | None  # None: not judged


@dataclass(frozen=True)
class Table:
    """A table; columns whose every cell looks like a number are aligned as numbers.

    stack: on a narrow screen every row becomes a block of lines, for tables with many words.
    """

    kind: ClassVar = "table"
    head: Sequence[str]
    rows: Sequence[Sequence[str | Badge]]
    caption: str = ""
    stack: bool = False

    @property
    def title(self) -> int:
        """The column that says what a row is about: the first, or the one after the badge."""
        return int(bool(self.rows) and isinstance(self.rows[0][0], Badge))

    @property
    def numeric(self) -> set[int]:
        """The columns of numbers."""
        value = r"[−+-]?\d[\d.,]*(e[+-]\d+)?"
        number = re.compile(rf"^([≤≥] )?{value}( ± {value})?( [^\d\s]+){{0,2}}$|^[—∞]?$")
        return {
            k
            for k in range(len(self.head))
            if self.rows
            and all(isinstance(row[k], str) and number.match(str(row[k])) for row in self.rows)
        }


@dataclass(frozen=True)
class Section:
    """A part of the story."""

    title: str
    blocks: Sequence[Text | Picture | Interactive | Table]

    @property
    def anchor(self) -> str:
        """The name by which the table of contents finds it."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


class Line(NamedTuple):
    """One curve: its points with error bars (if any), and its colour."""

    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float]
    colour: str


def charts_available() -> bool:
    """Whether plotly is installed; without it the page has its still pictures only."""
    try:
        import plotly  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def chart_script() -> str:
    """Plotly's own JavaScript, whole."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def chart(
    name: str,
    lines: Mapping[str, Line],
    *,
    x_label: str,
    y_label: str,
    y_range: tuple[float, float],
    alt: str,
    summary: str,
) -> Interactive:
    """Curves whose values can be read off under the pointer; a click in the legend hides one.

    name: identifies the chart in its page, and makes the same chart the same bytes.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    for label, line in lines.items():
        figure.add_scatter(
            x=list(line.x),
            y=list(line.y),
            error_y={"array": list(line.error), "thickness": 1, "width": 0},
            name=label,
            mode="lines+markers",
            marker={"size": 4},
            line={"color": line.colour, "width": 1.8},
            hovertemplate="%{y:.2f}",
        )
    figure.update_layout(
        template="plotly_white",
        hovermode="x unified",
        margin={"l": 55, "r": 10, "t": 10, "b": 50},
        legend={"orientation": "h", "y": -0.2, "yanchor": "top"},  # below, where nothing is drawn
        xaxis_title=x_label,
        yaxis={"title": y_label, "range": y_range},
        height=420,
    )
    html = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=name,
        config={"displaylogo": False, "responsive": True, "displayModeBar": False},
    )
    return Interactive(html, alt, summary)


_SUB = re.compile(r"\b([^\W\d_])_(?:\{([^}]*)\}|(\w)\b)")
_SUPER = re.compile(r"\b([^\W\d_])\^(?:\{([^}]*)\}|(\w)\b)")


def typeset(text: Any) -> Markup:
    """Text for the page, in which d_F and e^{βL} are set as they are written by hand."""
    found = str(escape(text))
    for pattern, tag in ((_SUB, "sub"), (_SUPER, "sup")):
        found = pattern.sub(rf"\1<{tag}>\2\3</{tag}>", found)
    return Markup(found)


def render(
    title: str,
    lead: str,
    facts: str,
    sections: Sequence[Section],
    *,
    closing: str = "",
    script: str = "",
) -> str:
    """The whole page. script: JavaScript that interactive figures need."""
    environment = Environment(
        loader=PackageLoader("fermibose_paper", "."), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["typeset"] = typeset
    environment.tests["badge"] = lambda cell: isinstance(cell, Badge)
    content: dict[str, Any] = {
        "version": __version__,
        "title": title,
        "lead": lead,
        "facts": facts,
        "closing": closing,
        "script": Markup(script),
        "sections": sections,
    }
    return environment.get_template("page.html.j2").render(content)
