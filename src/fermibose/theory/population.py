r"""All pairs of infinitely many samples: weights that minimise the loss on new data itself.

Where samples are so many that none is special (γ → ∞), the energy of all pairs is a function of M
and q alone, with ε_g the loss of a new pair and α = γ/2:

.. math:: e(M, q) = α\,ε_g(M, q) + \tfrac{λ_w}2 q, \qquad q \ge M^2 .

Its minimum is what zero temperature tends to as γ grows with λ_w/γ fixed.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from fermibose.compute import on_one_thread
from fermibose.errors import InputError
from fermibose.theory.fixed_point import ConvergenceError
from fermibose.theory.problem import Array, Problem, check_problem
from fermibose.theory.solution import Predictions, generalization_loss

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_STARTS = ((1.0, 0.3), (0.3, 0.5), (0.02, 1.0), (2.0, 0.1))  # mM and Δ√(q − M²) in units of 1/φ′


@dataclass(frozen=True, repr=False)
class Population(Predictions):
    """The lowest minimum found of e(M, q)."""

    problem: Problem
    energy: float  # e, per weight
    overlaps: tuple[float, float]  # M >= 0 and q

    @property
    def M(self) -> float:
        """Mean weight Σ w/N."""
        return self.overlaps[0]

    @property
    def q(self) -> float:
        """Self-overlap w·w/N."""
        return self.overlaps[1]


@on_one_thread
def population(problem: Problem) -> Population:
    """Minimise the energy of infinitely many samples over M and q; β and labels do not matter."""
    check_problem(problem)
    if problem.mislabelled:
        raise InputError(
            "the loss of new pairs has right labels: with mislabelled samples it is not what "
            "training minimises; use solve() with many samples"
        )
    if problem.m == 0:
        raise InputError("without a cluster mean (m = 0) there is nothing to learn: use m > 0")

    def energy(x: Array) -> float:
        M, deviation = x
        q = M**2 + deviation**2
        loss = generalization_loss(problem, float(M), float(q))
        return problem.load * loss + problem.weight_decay * float(q) / 2

    unit = 1 / problem.steepness
    starts = [np.array([a * unit / problem.m, b * unit / problem.delta]) for a, b in _STARTS]
    options = {"xatol": 1e-9, "fatol": 1e-14, "maxiter": 2000}
    ends = [minimize(energy, x, method="Nelder-Mead", options=options) for x in starts]
    best = min((end for end in ends if end.success), key=lambda end: end.fun, default=None)
    if best is None or not math.isfinite(best.fun):
        raise ConvergenceError(f"no minimum of the loss on new data was reached at {problem}")
    M, deviation = np.abs(best.x)
    return Population(problem, float(best.fun), (float(M), float(M**2 + deviation**2)))
