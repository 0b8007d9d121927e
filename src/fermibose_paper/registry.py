"""What ``fbm reproduce`` can make, by name: figures, experiments, and the tables of either."""

from collections.abc import Callable, Sequence
from typing import Protocol

from matplotlib.figure import Figure

from fermibose_paper import (
    accuracies,
    beyond,
    fig2,
    fig3,
    fig4,
    fig5,
    frontier,
    instances,
    real_data,
    rho,
    robustness,
    tables,
    theory_beyond,
    tuning,
)
from fermibose_paper.job import Job
from fermibose_paper.page import Table
from fermibose_paper.scale import Scale
from fermibose_paper.store import Row
from fermibose_paper.verdict import Verdict


class Planned(Protocol):
    """What every module that can be reproduced offers."""

    def plan(self, scale: Scale) -> list[Job]:
        """The runs it needs; loads no data."""

    def verdicts(self, rows: Sequence[Row], scale: Scale) -> list[Verdict]:
        """What is reproduced and by how much."""


class PaperFigure(Planned, Protocol):
    """The module of a figure."""

    def draw(self, rows: Sequence[Row], scale: Scale) -> Figure:
        """The figure, from the rows of these runs."""


FIGURES: dict[str, PaperFigure] = {
    "fig2": fig2,
    "instances": instances,
    "fig3": fig3,
    "fig4": fig4,
    "fig5": fig5,
    "rho": rho,
    "beyond": beyond,
    "theory-beyond": theory_beyond,
    "real-data": real_data,
    "frontier": frontier,
}
EXPERIMENTS: dict[str, Planned] = {
    "robustness": robustness,
    "tuning": tuning,
    "accuracies": accuracies,
    "tables": tables,
}
TABLES: dict[str, Callable[[Sequence[Row], Scale], list[Table]]] = {
    "instances": instances.tables,
    "real-data": real_data.tables,
    "frontier": frontier.tables,
    "robustness": robustness.tables,
    "tuning": tuning.tables,
    "accuracies": accuracies.tables,
    "tables": tables.tables,
}
