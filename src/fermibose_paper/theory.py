"""Curves of the replica theory as measurements, and how figures draw them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fermibose.theory import Problem, draw_stability, figure_values, missing, trace
from fermibose_paper.job import Job, measurement
from fermibose_paper.series import Floats, finished
from fermibose_paper.store import Row

QUANTITIES = ("M", "q", "generalization_loss", "accuracy", "fermion_distance", "rs_stable")


@measurement("theory curve", version=1)
def measure_curve(*, parameter: str, values: list[float], seed: int = 0) -> dict[str, Any]:
    """The theory of the paper's default problem along one parameter.

    Points that could not be solved are missing from the lists and named in "failures".
    """
    curve = trace(Problem(), parameter, values, show=False)
    columns = {name: curve.column(name).tolist() for name in QUANTITIES}
    return {"values": curve.values.tolist(), "failures": list(curve.failures)} | columns


@measurement("theory attack", version=1)
def measure_attack(*, points: int, seed: int = 0) -> dict[str, list[float]]:
    """Area under the accuracy against the strength ε of an ℓ₂ attack, over d_F.

    One unit on a Gaussian mixture, at the parameters of the paper's Fig. 2; ε from 0 to 1.
    """
    curve = trace(Problem(), "d_f", figure_values("d_f", points), show=False)
    return {
        "theory_d_f": curve.values.tolist(),
        "theory_area": curve.column("adversarial_area").tolist(),
    }


def curve_job(parameter: str, values: Floats) -> Job:
    """The job of one curve."""
    return Job(measure_curve, {"parameter": parameter, "values": values.tolist()})


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
