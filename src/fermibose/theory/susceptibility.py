r"""How a solution answers to a change of its problem: dM/dα, the specific heat, and all others.

The derivative of every quantity along a parameter p comes from solutions beside it on its branch,
by Richardson's extrapolation of differences D of second order in the distance h:

.. math:: \frac{dg}{dp} ≈ \frac{4 D(h) - D(2h)}{3}, \qquad D(h) = \frac{g(p+h) - g(p-h)}{2h}

or, at the end of what p may be (ρ = 0), D(h) = (−3g(p) + 4g(p+h) − g(p+2h))/2h.
"""

import math
from typing import NamedTuple

from fermibose.errors import InputError
from fermibose.theory.curves import at_value, check_parameter
from fermibose.theory.fixed_point import ConvergenceError
from fermibose.theory.solution import QUANTITIES, Solution
from fermibose.theory.solve import solve

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_STEP = 0.01  # h, of p; of 1 for a p of 0
_JUMP = 0.5  # relative change of q within 4h that is no change along a branch

# Not functions of the problem, but of how it was solved
_NUMERICAL = ("stable", "rs_stable", "residual", "iterations", "error", "at_error")


class Slope(NamedTuple):
    """A derivative, and what the extrapolation changed in it: more than its error."""

    value: float
    error: float


def susceptibility(solution: Solution, parameter: str) -> dict[str, Slope]:
    """The derivative of every quantity of a solution along a parameter of its problem.

    ``susceptibility(s, "alpha")["M"]`` is dM/dα with its error. Raises ConvergenceError where the
    branch of the solution ends, or changes its order, within two per cent of the
    parameter (four at an end of its range).
    """
    if not isinstance(solution, Solution):
        raise InputError(f"susceptibility takes a Solution of solve(), got {solution!r}")
    check_parameter(parameter)
    p = getattr(solution.problem, parameter)
    if math.isinf(p):
        raise InputError("beta is infinite: nothing changes along it; take a large finite beta")
    # Whatever must be positive stays so, 2h below p; a p of 0, or a share of 1, is an end.
    h = _STEP * (min(p, 1 - p) if parameter == "rho" and 0 < p < 1 else p or 1.0)
    near, far, weights = [-h, h], [-2 * h, 2 * h], [-0.5 / h, 0.5 / h]
    if p == 0 or (parameter == "rho" and p == 1):
        h = -h if p else h
        near, far, weights = [0.0, h, 2 * h], [0.0, 2 * h, 4 * h], [-1.5 / h, 2 / h, -0.5 / h]
    along = {0.0: solution}
    for shift in sorted({*near, *far} - {0.0}, key=abs):
        along[shift] = _beside(solution, parameter, p + shift)
    slopes = {}
    for name in QUANTITIES:
        if name not in _NUMERICAL:
            value = {shift: float(getattr(s, name)) for shift, s in along.items()}
            close = sum(w * value[s] for w, s in zip(weights, near, strict=True))
            wide = sum(w / 2 * value[s] for w, s in zip(weights, far, strict=True))
            best = (4 * close - wide) / 3
            slopes[name] = Slope(best, abs(best - close))
    return slopes


def specific_heat(solution: Solution) -> Slope:
    """C = de/dT = −β² de/dβ per weight, e the mean energy (½ where there are no pairs)."""
    slope = susceptibility(solution, "beta")["energy"]
    scale = solution.problem.beta**2
    return Slope(-scale * slope.value, scale * slope.error)


def _beside(solution: Solution, parameter: str, value: float) -> Solution:
    """The solution at another value, on the same branch."""
    found = solve(at_value(solution.problem, parameter, value), solution)
    change = abs(math.log(found.q / solution.q)) if solution.q else 0.0
    if found.candidate.ordered != solution.candidate.ordered or change > _JUMP:
        raise ConvergenceError(
            f"the branch of the solution at {parameter} = {getattr(solution.problem, parameter):g} "
            f"does not reach {parameter} = {value:g}: a transition is between them, and the "
            "derivative is not defined by solutions on both sides",
            found,
        )
    return found
