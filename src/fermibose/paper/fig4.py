"""Fig. 4: test accuracy and fermion distance against d_F, with the points the paper marks."""

from collections.abc import Sequence

from fermibose.paper.runs import measure_robustness, measure_training
from fermibose.paper.scale import Scale
from fermibose.sweep import Job, Row


def plan(scale: Scale) -> list[Job]:
    """The averaged coupling on the fine grid, the labelled one on the coarse grid, the MLP."""
    return [
        *scale.jobs(measure_training, "mlp", [None]),
        *scale.jobs(measure_training, "averaged", scale.sweep),
        *scale.jobs(measure_robustness, "labelled", scale.coarse),
    ]
