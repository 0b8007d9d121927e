r"""Does replica symmetry hold? The de Almeida-Thouless eigenvalue.

.. math:: \mathrm{AT} = αΔ^4χ^2\, E\|∇^2F\|^2 = αΔ^4 (q-Q)^2\, E\|\mathrm{Hess}\|^2

Replica symmetry is stable where AT < 1. At zero temperature ∇F jumps wherever two minima of the
pair energy tie. Near a jump ‖∇²F‖² grows like β² over a width of order 1/β, so AT grows like β and
is infinite in the limit: with jumps, replica symmetry never holds at zero temperature.
"""

from fermibose.theory.channel import Response
from fermibose.theory.problem import Problem
from fermibose.theory.replica import Averages, Overlaps, PairMeasure, squared_norm

_JUMP = 1e-2  # part of E tr∇²F that must be missing from the smooth part to call it a jump


def at_eigenvalue(
    problem: Problem,
    overlaps: Overlaps,
    *,
    measure: PairMeasure,
    average: Averages,
    response: Response,
) -> float:
    """AT of a state, from the channel's averages and response there."""
    if problem.zero_temperature:
        # E[v·∇F] counts the jumps of ∇F, the curvature away from them does not.
        whole = average.slope / measure.width
        missing = measure.mean(response.rr + response.tt) - whole
        if abs(missing) > _JUMP * measure.mean(abs(response.rr) + abs(response.tt)):
            return float("inf")
    smooth = measure.mean(squared_norm(response))
    return problem.alpha * problem.delta**4 * overlaps.chi**2 * smooth
