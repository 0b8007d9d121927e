r"""Does replica symmetry hold? The de Almeida-Thouless eigenvalue.

.. math:: \mathrm{AT} = αΔ^4χ^2\, E\|∇^2F\|^2 = αΔ^4 (q-Q)^2\, E\|\mathrm{Hess}\|^2

Replica symmetry is stable where AT < 1. At zero temperature ∇F jumps wherever two minima of the
pair energy tie. Near a jump ‖∇²F‖² grows like β² over a width of order 1/β, so AT grows like β and
is infinite in the limit: where jumps have weight, replica symmetry does not hold at zero
temperature. Gaussian tails give them some weight everywhere; what adds less than ``_GROWTH``·β to
AT counts as none.
"""

import math

from fermibose.theory.replica import Overlaps, PairMeasure, squared_norm
from fermibose.theory.saddle import SaddlePoint

_GROWTH = 1e-6  # 0.001 at β = 1000, about the coldest that the equations of finite β are solved for
_ENOUGH = 0.02  # relative error of AT with which it is left
_FINENESS = (2.0, 4.0, 8.0, 16.0)  # of grids to try beyond the solution's


def at_eigenvalue(saddle: SaddlePoint, overlaps: Overlaps) -> tuple[float, float]:
    """AT of a state on a saddle point's lattice, and what it changes on every second node.

    The change is far above the error of a rule that converges as fast as this one. AT is infinite
    where it grows with β.
    """
    problem = saddle.problem
    response, measure = saddle.response(overlaps), saddle.measure(overlaps)
    scale = problem.alpha * problem.delta**4 * overlaps.chi**2
    if response.growth is not None and scale * measure.mean(response.growth) > _GROWTH:
        return math.inf, 0.0
    assert saddle.lattice is not None
    r, t = saddle.lattice.r.thinned(), saddle.lattice.t.thinned()
    thin = PairMeasure(problem, r, t, M=overlaps.M, Q=overlaps.Q)
    norm = squared_norm(response)
    at = scale * measure.mean(norm)
    return at, abs(at - scale * thin.mean(norm[:, ::2, ::2]))


def resolved_at(saddle: SaddlePoint, overlaps: Overlaps) -> tuple[float, float]:
    """AT on the lattice of a solution, or a finer one where it needs that, and its error.

    Squares of ∇²F are sharper than the forces that the equations average: where minima compete off
    the axes or in a narrow, cold field, a lattice good for M and q is too coarse for AT.
    """
    at, error = at_eigenvalue(saddle, overlaps)
    for fineness in () if saddle.problem.zero_temperature else _FINENESS:
        assert saddle.lattice is not None
        if error <= _ENOUGH * at or saddle.lattice.full:
            break
        saddle = SaddlePoint(saddle.problem, fineness=fineness)
        at, error = at_eigenvalue(saddle, overlaps)
    return at, error
