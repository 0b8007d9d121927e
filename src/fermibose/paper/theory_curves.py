"""Curves of the replica theory as results of the sweep, and how figures draw them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fermibose.paper.series import Floats, finished
from fermibose.plotting import COLOURS
from fermibose.sweep import Job, Row, measurement
from fermibose.theory import Problem, trace

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


def draw_curve(ax: Any, curve: dict[str, Any], quantity: str) -> None:
    """A quantity along the curve, dotted where replica symmetry is unstable."""
    x, y, stable = curve["values"], curve[quantity], curve["rs_stable"] > 0
    look = {"color": COLOURS["theory"], "linewidth": 1.3}
    ax.plot(x, y, ":", **look, label="theory, RS unstable")
    if stable.any():
        ax.plot(x, np.where(stable, y, np.nan), **look, label="theory")
    if curve["failures"]:
        note = f"{len(curve['failures'])} points not solved"
        ax.annotate(note, (0.98, 0.02), xycoords="axes fraction", ha="right", fontsize=8)
