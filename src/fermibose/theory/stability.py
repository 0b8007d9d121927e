r"""Does replica symmetry hold? The de Almeida-Thouless eigenvalue.

.. math:: \mathrm{AT} = αΔ^4χ^2\, E\|∇^2F\|^2 = αΔ^4 (q-Q)^2\, E\|\mathrm{Hess}\|^2

Replica symmetry is stable where AT < 1. At zero temperature ∇F jumps wherever two minima of the pair
energy tie. Near a jump ‖∇²F‖² grows like β² over a width of order 1/β, so AT grows like β and is
infinite in the limit: with jumps, replica symmetry never holds at zero temperature.
"""

from fermibose.theory.problem import Problem
from fermibose.theory.replica import Averages, Overlaps, squared_norm
from fermibose.theory.saddle import SaddlePoint

_JUMP = 1e-2  # part of E tr∇²F that must be missing from the smooth part to call it a jump


def at_eigenvalue(saddle: SaddlePoint, overlaps: Overlaps, average: Averages) -> float:
    """AT at a state that ``saddle`` has just evaluated."""
    problem: Problem = saddle.problem
    assert saddle.lattice is not None
    measure = saddle.measure(overlaps)
    curvature = saddle.lattice.channel.curvature(problem.delta**2 * overlaps.chi)
    smooth = measure.mean(squared_norm(curvature))
    if problem.zero_temperature:
        whole = average.slope / measure.width
        missing = measure.mean(curvature.rr + curvature.tt) - whole
        if abs(missing) > _JUMP * measure.mean(abs(curvature.rr) + abs(curvature.tt)):
            return float("inf")
    return problem.alpha * problem.delta**4 * overlaps.chi**2 * smooth
