"""The saddle-point equations as a map on three numbers, on a lattice that follows the state."""

import math

import numpy as np

from fermibose.theory.channel import Response
from fermibose.theory.lattice import Lattice, make_lattice
from fermibose.theory.problem import Array, Problem
from fermibose.theory.replica import (
    Averages,
    Conjugates,
    Overlaps,
    PairMeasure,
    averages,
    conjugates,
)

_SMALLEST = 1e-4  # floor of √(Q − M²), where Q = M²: narrower fields lose their forces to rounding


def to_vector(overlaps: Overlaps) -> Array:
    """Coordinates (M, √(Q − M²), ln χ): free of constraints, and smooth where Q → M²."""
    spread = math.sqrt(max(overlaps.Q - overlaps.M**2, _SMALLEST**2))
    return np.array([overlaps.M, spread, math.log(overlaps.chi)])


def to_overlaps(x: Array) -> Overlaps:
    """Inverse of :func:`to_vector`."""
    M, spread, log_chi = (float(v) for v in x)
    return Overlaps(M, M**2 + max(spread**2, _SMALLEST**2), math.exp(log_chi))


def distance(problem: Problem, a: Overlaps, b: Overlaps) -> float:
    """Largest difference in M, q, Q and χ, relative to q and to χ where they are above 1."""
    beta = problem.beta
    overlap = max(abs(a.M - b.M), abs(a.Q - b.Q), abs(a.q(beta) - b.q(beta)))
    return max(overlap / max(1.0, b.q(beta)), abs(a.chi - b.chi) / max(1.0, b.chi))


class SaddlePoint:
    """One iteration of the saddle-point equations; the lattice stays while it covers the state."""

    def __init__(self, problem: Problem, *, coarseness: float = 1.0, fineness: float = 1.0) -> None:
        self.problem = problem
        self._grid = {"coarseness": coarseness, "fineness": fineness}
        self.lattice: Lattice | None = None
        self._last: tuple[Overlaps, Averages, Conjugates] | None = None
        self._response: tuple[Overlaps, Response] | None = None

    def __call__(self, x: Array) -> tuple[Array, float]:
        """A better state, and the undamped residual of x.

        The plain update of M overshoots where the pairs resist a shift of M strongly (small Δ);
        dividing its change by 1 + χαm² E[y·∇²F y] is Newton's step in M, and leaves every solution
        where it is.
        """
        problem, overlaps = self.problem, to_overlaps(x)
        average, conjugate = self.evaluate(overlaps)
        if problem.weight_decay + conjugate.chi <= 0:
            # The pairs push the weights apart faster than decay holds them: let them grow.
            return np.array([1.5 * x[0], 1.5 * abs(x[1]) + 0.1, x[2]]), math.inf
        new = to_vector(update(problem, overlaps, conjugate))
        plain = to_overlaps(new)
        # Linear through 0, so that a spread that dies out is found at once.
        new[1] *= x[1] / to_vector(overlaps)[1]
        new[0] = x[0] + (new[0] - x[0]) / max(1.0, label_stiffness(problem, overlaps, average))
        return new, distance(problem, plain, overlaps)

    def evaluate(self, overlaps: Overlaps) -> tuple[Averages, Conjugates]:
        """Averages and conjugates of a state, on a new lattice if the old one does not cover it."""
        problem = self.problem
        if self._last is not None and self._last[0] == overlaps:
            return self._last[1:]
        if self.lattice is None or not self.lattice.covers(problem, overlaps):
            self.lattice = make_lattice(problem, overlaps, **self._grid)
            self._response = None  # it was on other nodes
        measure = self.measure(overlaps)
        average = averages(self.lattice.channel, measure, c=problem.delta**2 * overlaps.chi)
        self._last = (overlaps, average, conjugates(problem, overlaps, average))
        return self._last[1:]

    def measure(self, overlaps: Overlaps) -> PairMeasure:
        """The law of the field on the present lattice."""
        assert self.lattice is not None
        return PairMeasure(self.problem, self.lattice.r, self.lattice.t, M=overlaps.M, Q=overlaps.Q)

    def response(self, overlaps: Overlaps) -> Response:
        """∇²F at a state, on the lattice of its evaluation."""
        self.evaluate(overlaps)
        assert self.lattice is not None
        if self._response is None or self._response[0] != overlaps:
            response = self.lattice.channel.response(self.problem.delta**2 * overlaps.chi)
            self._response = (overlaps, response)
        return self._response[1]

    def lost(self, overlaps: Overlaps) -> float:
        """The weight of the fields of a state at which floating point has lost Z."""
        self.evaluate(overlaps)
        assert self.lattice is not None
        lost = self.lattice.channel.lost(self.problem.delta**2 * overlaps.chi)
        return 0.0 if lost is None else self.measure(overlaps).mean(lost)

    def energy(self, overlaps: Overlaps) -> float:
        """Mean H of a training pair in a state."""
        self.evaluate(overlaps)
        assert self.lattice is not None
        H = self.lattice.channel.energy(self.problem.delta**2 * overlaps.chi)
        return self.measure(overlaps).mean(H)


def update(problem: Problem, overlaps: Overlaps, conjugate: Conjugates) -> Overlaps:
    """The plain equations: χ = 1/(λ_w + χ̂), M = −χM̂, Q = M² − χ²Q̂, where λ_w + χ̂ > 0."""
    chi = 1 / (problem.weight_decay + conjugate.chi)
    M = -chi * conjugate.M
    return Overlaps(M, M**2 - chi**2 * conjugate.Q, chi)


def label_stiffness(problem: Problem, overlaps: Overlaps, average: Averages) -> float:
    """1 + χαm² E[y·∇²F y]: 1 minus the slope of the plain update of M."""
    return 1 + overlaps.chi * problem.alpha * problem.m**2 * average.stiffness
