"""The figures by name; what ``fbm reproduce`` can make."""

from collections.abc import Sequence
from typing import Protocol

from matplotlib.figure import Figure

from fermibose.paper import beyond, fig2, fig3, fig4, fig5, instances, rho
from fermibose.paper.scale import Scale
from fermibose.paper.verdict import Verdict
from fermibose.sweep import Job, Row


class PaperFigure(Protocol):
    """What the module of a figure offers."""

    def plan(self, scale: Scale) -> list[Job]:
        """The runs it needs."""

    def draw(self, rows: Sequence[Row], scale: Scale) -> Figure:
        """The figure, from the rows of these runs."""

    def verdicts(self, rows: Sequence[Row], scale: Scale) -> list[Verdict]:
        """What is reproduced and by how much."""


FIGURES: dict[str, PaperFigure] = {
    "fig2": fig2,
    "instances": instances,
    "fig3": fig3,
    "fig4": fig4,
    "fig5": fig5,
    "rho": rho,
    "beyond": beyond,
}
