from fermibose.paper.runs import measure_robustness
from fermibose.paper.scale import COUPLINGS, Scale
from fermibose.sweep import Job, Row, measurement
from typing import Any


@measurement(version=1)
def measure_theory(*, points: int, seed: int = 0) -> dict[str, list[float]]:
    """Area under the accuracy against the strength ε of an ℓ₂ attack, from theory, over d_F.

    One unit on a Gaussian mixture, at the parameters of the paper's Fig. 2; ε from 0 to 1.
    """
    from fermibose.theory.figures import figure_attack

    curve = figure_attack(points=points, show=False)
    return {
        "d_f": curve.values.tolist(),
        "area": curve.column("adversarial_area").tolist(),
        "rs_stable": curve.column("rs_stable").tolist(),
    }


def plan(scale: Scale) -> list[Job]:
    """Both couplings on the coarse grid and the MLP, under attack; the theory of the inset."""
    return [
        *scale.jobs(measure_robustness, "mlp", [None]),
        *(job for c in COUPLINGS for job in scale.jobs(measure_robustness, c, scale.coarse)),
        Job(measure_theory, params={"points": scale.theory_points}, seed=0),
    ]
