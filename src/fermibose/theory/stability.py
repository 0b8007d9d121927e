r"""Does replica symmetry hold? The de Almeida-Thouless eigenvalue.

.. math:: \mathrm{AT} = αΔ^4χ^2\, E\|∇^2F\|^2 = αΔ^4 (q-Q)^2\, E\|\mathrm{Hess}\|^2

Replica symmetry is stable where AT < 1. At zero temperature ∇F jumps wherever two minima of the
pair energy tie. Near a jump ‖∇²F‖² grows like β² over a width of order 1/β, so AT grows like β and
is infinite in the limit: where jumps have weight, replica symmetry does not hold at zero
temperature. Gaussian tails give them some weight everywhere; what adds less than ``_GROWTH``·β to
AT counts as none.
"""

from fermibose.theory.channel import Response
from fermibose.theory.problem import Problem
from fermibose.theory.replica import Overlaps, PairMeasure, squared_norm

_GROWTH = 1e-6  # 0.001 at β = 1000, about the coldest that the equations of finite β are solved for


def at_eigenvalue(
    problem: Problem, overlaps: Overlaps, *, measure: PairMeasure, response: Response
) -> float:
    """AT of a state, from the channel's response there; infinite where it grows with β."""
    scale = problem.alpha * problem.delta**4 * overlaps.chi**2
    if response.growth is not None and scale * measure.mean(response.growth) > _GROWTH:
        return float("inf")
    return scale * measure.mean(squared_norm(response))
