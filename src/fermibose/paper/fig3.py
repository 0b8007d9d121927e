from fermibose.paper import published
from fermibose.paper.runs import measure_representation, measure_training
from fermibose.paper.scale import COUPLINGS, Scale
from fermibose.sweep import Job, Row


def plan(scale: Scale) -> list[Job]:
    """Courses of training at d_F = 0.455 and representations at d_F = 1.2, and those of the MLP."""
    jobs = []
    for measure, d_f in (
        (measure_training, published.TRAJECTORY_D_F),
        (measure_representation, published.PCA_D_F),
    ):
        for coupling in COUPLINGS:
            jobs += scale.jobs(measure, coupling, [d_f])
        jobs += scale.jobs(measure, "mlp", [None])
    return jobs
