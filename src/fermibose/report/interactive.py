"""Figures that answer to the pointer, by plotly; its script travels inside the page."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fermibose.report.page import Interactive


class Line(NamedTuple):
    """One curve: its points with error bars (if any), and its colour."""

    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float]
    colour: str


def available() -> bool:
    """Whether plotly is installed; without it the page has its still pictures only."""
    try:
        import plotly  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def script() -> str:
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
        legend={"orientation": "h", "y": 1.12},
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
    return Interactive(html, alt)
