"""A quick look at a problem: the state next to a known one, on the coarse grid, in a given time.

What a moved slider needs at once. Whether that state is the lowest, ``solve`` says.
"""

import math
import time
from dataclasses import dataclass

from fermibose.checks import number
from fermibose.compute import on_one_thread
from fermibose.theory.fixed_point import ConvergenceError, iterate
from fermibose.theory.problem import Array, Problem, check_problem
from fermibose.theory.replica import SaddleEquations, to_overlaps, to_vector
from fermibose.theory.search import COARSE, ROUGH
from fermibose.theory.solution import Overlaps, State
from fermibose.theory.solve import check_sharpness

_MOST = 60  # iterations, as the search's first manner has
_BELOW = 0.5  # residual at which acceleration begins, as there
_HOPELESS = 1.0  # residual of a state that says nothing: the next differs by all of it


@dataclass(frozen=True)
class Sketch(State):
    """A state of the coarse grid: M good to 1e-4 where it has ``converged``."""

    problem: Problem
    overlaps: Overlaps
    residual: float  # largest undamped change of M/√q, q/q, Q/q, χ/χ

    @property
    def converged(self) -> bool:
        """Whether the iteration came to rest in its time."""
        return self.residual <= ROUGH


@on_one_thread
def sketch(problem: Problem, start: Overlaps, *, seconds: float = 0.2) -> Sketch | None:
    """The saddle point that ``start``, of another problem, leads to on the coarse grid.

    Iterates until its residual is 1e-4 or the time is over, and returns the best state reached;
    None if that is no state of the problem at all. M >= 0. Raises ConvergenceError for clusters
    that no grid resolves, as ``solve`` does.
    """
    check_problem(problem)
    check_sharpness(problem)
    end = time.monotonic() + number("seconds", seconds, above=0)
    saddle, residuals = SaddleEquations(problem, coarseness=COARSE), [math.inf]
    best = to_vector(start)

    def step(x: Array) -> tuple[Array, float]:
        nonlocal best
        new, residual = saddle(x)
        if residual < min(residuals):
            best = x
        residuals.append(residual)
        return new, 0.0 if time.monotonic() > end else residual

    try:
        iterate(
            step, best, tol=ROUGH, max_iterations=_MOST, accelerate_below=_BELOW, unit=saddle.unit
        )
    except ConvergenceError:
        return None
    if not min(residuals) < _HOPELESS:
        return None
    found = to_overlaps(best)
    return Sketch(problem, Overlaps(abs(found.M), found.Q, found.chi), min(residuals))
