"""Curves of the replica theory as results of the sweep, and how figures draw them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fermibose.paper.series import Floats, finished
from fermibose.sweep import Job, Row, measurement
from fermibose.theory import Problem, draw_stability, missing, trace

QUANTITIES = ("M", "q", "generalization_loss", "accuracy", "fermion_distance", "rs_stable")


@measurement(version=1)
def measure_curve(*, parameter: str, values: list[float], seed: int = 0) -> dict[str, Any]:
    """The theory of the paper's default problem along one parameter.

    Points that could not be solved are missing from the lists and named in "failures".
    """
    curve = trace(Problem(), parameter, values, show=False)
    columns = {name: curve.column(name).tolist() for name in QUANTITIES}
    return {"values": curve.values.tolist(), "failures": list(curve.failures)} | columns


def curve_job(parameter: str, values: Floats) -> Job:
    """The job of one curve."""
    return Job(measure_curve, params={"parameter": parameter, "values": values.tolist()})


def curve_of(rows: Sequence[Row], parameter: str) -> dict[str, Any] | None:
    """The finished curve along ``parameter``, as arrays, with its failures."""
    for run in finished(rows, "values", parameter=parameter):
        return {k: v if k == "failures" else np.array(v) for k, v in run.result.items()}
    return None


def draw_curve(ax: Any, curve: dict[str, Any] | None, quantity: str, label: str) -> None:
    """A quantity along the curve, if there is one; ``label`` and what it lacks below the axis."""
    ax.set_xlabel(label + missing(curve["failures"] if curve else ()))
    if curve is not None:
        look = {"linewidth": 1.3, "label": "theory"}
        draw_stability(ax, curve["values"], curve[quantity], curve["rs_stable"] > 0, **look)
