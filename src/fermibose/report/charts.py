"""Which figures also come as charts that answer to the pointer."""

from collections.abc import Sequence

from fermibose.paper import published
from fermibose.paper.drawing import COLOUR, published_label
from fermibose.paper.scale import Scale
from fermibose.paper.series import series
from fermibose.report.interactive import Line, chart
from fermibose.report.page import Interactive
from fermibose.sweep import Row


def charts_of(name: str, rows: Sequence[Row], scale: Scale) -> list[Interactive]:
    """The charts of a figure; most have none."""
    if name == "fig4":
        return [_accuracy(rows, scale)]
    if name == "fig5":
        return [_areas(rows, scale)]
    return []


def _accuracy(rows: Sequence[Row], scale: Scale) -> Interactive:
    table = published.sweep()
    lines = {
        published_label(scale): Line(
            table["d_F"].tolist(),
            table["test_accuracy_percent"].tolist(),
            (table["test_accuracy_std"] / 5**0.5).tolist(),
            COLOUR["published"],
        ),
        "averaged": _line(rows, "test_accuracy", "averaged", 100),
        "labelled": _line(rows, "test_accuracy", "labelled", 100),
    }
    return chart(
        "accuracy-chart",
        lines,
        x_label="d<sub>F</sub>",
        y_label="test accuracy (%)",
        y_range=(76, 1 + max(max(line.y, default=0) for line in lines.values())),
        alt="Interactive: test accuracy against d_F, published, averaged and labelled coupling.",
    )


def _areas(rows: Sequence[Row], scale: Scale) -> Interactive:
    table = published.areas()
    lines = {
        published_label(scale, "averaged"): Line(
            table["d_F"].tolist(), table["fgsm_area"].tolist(), [], COLOUR["published"]
        ),
        "averaged": _line(rows, "fgsm_area", "averaged"),
        "labelled": _line(rows, "fgsm_area", "labelled"),
    }
    return chart(
        "area-chart",
        lines,
        x_label="d<sub>F</sub>",
        y_label="area under the FGSM curve",
        y_range=(0, 22),
        alt="Interactive: robustness area under FGSM against d_F for both couplings.",
    )


def _line(rows: Sequence[Row], quantity: str, coupling: str, scale: float = 1) -> Line:
    found = series(rows, quantity, scale=scale, coupling=coupling)
    errors = found.error.tolist() if found.seeds > 1 else []
    return Line(found.x.tolist(), found.mean.tolist(), errors, COLOUR[coupling])
