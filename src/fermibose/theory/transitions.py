"""Transitions along one parameter: where a phase ends, where two change places, where one vanishes.

All of them are those of replica-symmetric states. Where AT > 1 replica symmetry is an
approximation, and so is where its phases end: at the default point order ends at Δ = 0.9153 within
replica symmetry, where AT is about 6.
"""

import math
import warnings
from typing import Any, Literal, get_args

import numpy as np
from scipy.optimize import brentq

from fermibose.checks import choice, number
from fermibose.errors import InputError
from fermibose.theory.curves import at_value, check_parameter, parameter_values
from fermibose.theory.problem import Problem, check_problem
from fermibose.theory.search import same
from fermibose.theory.solution import Solution
from fermibose.theory.solve import disordered, neighbour, solve

Kind = Literal["order", "at", "first", "spinodal"]

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_STEPS = 16  # first steps along the interval
_LOWER = 1e-4  # difference of free energies that grids can be trusted with, relative

# Chosen by reason.
_JUMP = 0.05  # margin that is left where it should be 0: it jumped; else brentq leaves far less
_ORDERED = 0.1  # M/√q of a state that is not merely leaving M = 0, as ``_LEAVING`` of solution.py


class TransitionWarning(UserWarning):
    """The transition asked for is not where the phase ends: another state took over before."""


def critical_point(
    problem: Problem,
    parameter: str,
    *,
    between: tuple[float, float],
    kind: Kind = "order",
    tol: float = 1e-5,
) -> float:
    """The value of ``parameter`` in the interval ``between`` at which a phase ends, to ``tol``.

    All within replica symmetry, which is an approximation wherever AT > 1 at that value.

    ``order``: the state with M = 0 starts to grow a magnetisation, 1 + χαm² E[y·∇²F y] = 0: the
    continuous transition to M > 0 (α_c, Δ_c, ρ_c). Warns (TransitionWarning) where another state
    has a lower free energy there, for then a first-order transition came before.
    ``at``: the de Almeida-Thouless eigenvalue of the solution is 1; refused where it is infinite
    (zero temperature), for the weight of the jumps that make it so fades gradually.
    ``first``: the free energies of two states cross, and the solution jumps from one to the other:
    those of lowest free energy at the two ends of the interval.
    ``spinodal``: the state of lowest free energy at ``between[0]``, followed towards
    ``between[1]``, ceases to exist or becomes unstable. Exchange the ends for the other spinodal.
    """
    check_problem(problem)
    check_parameter(parameter)
    number("tol", tol, above=0)
    ends = _check_interval(parameter, between)
    choice("kind", kind, get_args(Kind))
    line = _Line(problem, parameter, tol)
    if kind == "order":
        return _order(line, ends)
    if kind == "at":
        return _at(line, ends)
    return _first(line, ends) if kind == "first" else _spinodal(line, ends)


class _Line:
    """A problem with one free parameter, and a state followed along it."""

    def __init__(self, problem: Problem, parameter: str, tol: float) -> None:
        self.problem, self.parameter, self.tol = problem, parameter, tol

    def at(self, value: float) -> Problem:
        return at_value(self.problem, self.parameter, value)

    def named(self, value: float) -> str:
        return f"{self.parameter} = {value:g}"

    def follow(self, start: float, stop: float) -> tuple[list[float], list[Solution]]:
        """The solution at ``start`` on its way to ``stop``, as far as it remains a state.

        Where it ends steps are halved down to the tolerance.
        """
        values, states = [start], [solve(self.at(start))]
        step, least = (stop - start) / _STEPS, self.tol / 2
        while values[-1] != stop:
            left = stop - values[-1]
            value = stop if abs(left) <= 1.01 * abs(step) else values[-1] + step
            state = neighbour(self.at(value), states[-1])
            if state is not None:
                values, states = [*values, value], [*states, state]
                step *= 1.5
            elif abs(step := (value - values[-1]) / 2) < least:
                break
        return values, states


def _order(line: _Line, ends: tuple[float, float]) -> float:
    def margin(value: float) -> float:
        return disordered(line.at(value)).label_stiffness

    value = _root(line, "order", margin, ends)
    flat, best = disordered(line.at(value)), solve(line.at(value))
    lower = flat.free_energy - best.free_energy > _LOWER * _scale(flat)
    if lower or _ORDERED * math.sqrt(best.q) < best.M:
        warnings.warn(
            f"at {line.named(value)} the state of M = 0 becomes unstable, but the solution there "
            f"is another one (M = {best.M:.3g}, q = {best.q:.3g}): it took over in a first-order "
            "transition before; use kind='first' to find that",
            TransitionWarning,
            stacklevel=3,
        )
    return value


def _at(line: _Line, ends: tuple[float, float]) -> float:
    last: list[Solution] = []

    def margin(value: float) -> float:
        last[:] = [solve(line.at(value), last[0] if last else None)]
        if math.isinf(last[0].at_eigenvalue):
            raise InputError(
                f"the AT eigenvalue is infinite at {line.named(value)}, and passes 1 nowhere: "
                "it grows with beta wherever forces jump at zero temperature; ask for a finite "
                "beta, or for another interval"
            )
        return 1 - last[0].at_eigenvalue

    return _root(line, "at", margin, ends)


def _root(line: _Line, kind: str, margin: Any, ends: tuple[float, float]) -> float:
    """Where a margin passes 0; InputError where it does not, or jumps across."""
    low, high = (margin(value) for value in ends)
    if not low * high < 0:
        raise InputError(
            f"no transition of kind {kind!r} between {line.named(ends[0])} and {ends[1]:g}: the "
            f"margin is {low:.3g} and {high:.3g} there; widen the interval"
        )
    value = float(brentq(margin, *ends, xtol=line.tol))
    if abs(left := margin(value)) > _JUMP * min(1.0, abs(low), abs(high)) + _JUMP**2:
        raise InputError(
            f"no transition of kind {kind!r} between {line.named(ends[0])} and {ends[1]:g}: at "
            f"{value:g} the solution jumps, and the margin with it (it is {left:.3g} there); use "
            "kind='first' for that transition, or another interval"
        )
    return value


def _first(line: _Line, ends: tuple[float, float]) -> float:
    one, other = line.follow(*ends), line.follow(*ends[::-1])
    arrived = one[0][-1] == ends[1] and _alike(one[1][-1], other[1][0])
    if arrived or (other[0][-1] == ends[0] and _alike(other[1][-1], one[1][0])):
        raise InputError(
            f"no transition of kind 'first' between {line.named(ends[0])} and {ends[1]:g}: the "
            "solution changes from one to the other without a jump; widen the interval"
        )
    # Both states are there between the ends of the two.
    shared = one[0][-1], other[0][-1]
    if (shared[0] - shared[1]) * (ends[1] - ends[0]) < 0:
        raise _third(line, sum(shared) / 2)

    def difference(value: float) -> float:
        a, b = (_nearest(line, value, *branch) for branch in (one, other))
        return a.free_energy - b.free_energy

    low, high = (difference(value) for value in shared[::-1])
    if not low * high < 0:
        raise _third(line, shared[0] if abs(low) > abs(high) else shared[1])
    value = float(brentq(difference, *shared[::-1], xtol=line.tol))
    best, state = solve(line.at(value)), _nearest(line, value, *one)
    if state.free_energy - best.free_energy > _LOWER * _scale(state):
        raise _third(line, value)
    return value


def _third(line: _Line, value: float) -> InputError:
    """The error to raise where neither of two states is the solution."""
    return InputError(
        f"between the two states asked about a third one is the solution, at {line.named(value)}: "
        "ask for an interval that ends there"
    )


def _spinodal(line: _Line, ends: tuple[float, float]) -> float:
    values, _ = line.follow(*ends)
    if values[-1] == ends[1]:
        raise InputError(
            f"no transition of kind 'spinodal' between {line.named(ends[0])} and {ends[1]:g}: the "
            f"state of {line.named(ends[0])} is still one at {ends[1]:g}; widen the interval"
        )
    return values[-1]


def _nearest(line: _Line, value: float, values: list[float], states: list[Solution]) -> Solution:
    """A state followed along the line, at another value; it is kept for the next one."""
    closest = int(np.argmin(np.abs(np.array(values) - value)))
    if values[closest] == value:
        return states[closest]
    state = neighbour(line.at(value), states[closest])
    if state is None:
        raise _third(line, value)
    values.append(value)
    states.append(state)
    return state


def _alike(a: Solution, b: Solution) -> bool:
    """Whether two solutions of one problem are the same state."""
    return same(a.problem, a.candidate, b.candidate)


def _scale(solution: Solution) -> float:
    """What free energies are compared with."""
    return max(abs(solution.free_energy), 1 / solution.problem.beta)


def _check_interval(parameter: str, between: Any) -> tuple[float, float]:
    """The two ends of an interval, which must be two different finite numbers."""
    ends = parameter_values(parameter, between)
    if ends.size != 2 or not np.all(np.isfinite(ends)) or ends[0] == ends[1]:
        raise InputError(
            f"between must be two different values of {parameter}, such as (0.5, 2), "
            f"got {between!r}"
        )
    return float(ends[0]), float(ends[1])
