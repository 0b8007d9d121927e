r"""What the numbers of a solution are good to, each in its own units.

A solution x of the equations g(x) = x on one grid leaves a residual on another. The solutions of
the two grids differ by

.. math:: δ = (1 - J)^{-1} (g_2(x) - x), \qquad J = ∂g_2/∂x,

which is much more than the residual where 1 − J is nearly singular: beside a transition, or where
the pairs hardly hold the weights. The other grid is coarser in every respect (steps, and where
field and table end), so δ is more than the error of the finer one. Components of the residual count
by their size, so that they cannot cancel by chance.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fermibose.theory.fixed_point import FixedPoint, Steps
from fermibose.theory.problem import Array
from fermibose.theory.replica import (
    SaddleEquations,
    cold,
    free_energy,
    gradient,
    resolved_at,
    solution_of,
    stability_of,
    to_overlaps,
)
from fermibose.theory.solution import Overlaps, Solution, accuracy

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_MOVE = 1e-4  # length of the differences that derivatives are taken by, in units of the state
_PART = 0.01  # of a grid's error: what a residual may add to it
_POLISHINGS = 4  # steps of Newton's method that see to that, at most
_STALE = 0.02  # how much of it a sensitivity may change and still be used
_NOTHING = 1e-7  # M or √(Q − M²), in units of √q, that iterates to less than this iterates to 0

_ROUNDING = 1e-14  # relative error of the equations in floating point
_LOGARITHM = 640.0  # size of ln Z as it is computed: its rounding is that of βF
# Of the points of docs/theory.md, drawn at random, the closest needs 0.8; of 92 at T = 0, held to
# finer grids, 0.9 (the last one of test_errors_at_zero_temperature).
_SAFETY = 2.0
_SCATTER = 0.3  # of what a grid's error of f changes with the state: as much it may have itself
_RESPONSE = 4.0  # most that ln AT grows with ln χ: by 2 for χ², and ‖∇²F‖² may grow as fast


def measured(
    saddle: SaddleEquations,
    point: FixedPoint,
    others: Sequence[SaddleEquations],
    near: "Sensitivity | None" = None,
) -> Solution:
    """The solution where an iteration ended, with the errors that coarser grids tell.

    The first of them also tells what a residual is worth: where it is more than the grid's own
    error, Newton's method goes on. near: the sensitivity on that grid at a state that may be close.
    """
    problem, x = saddle.problem, _exact(saddle, point.x)
    if saddle.too_cold(to_overlaps(x)):
        raise cold(problem, to_overlaps(x))
    here, views = View.of(saddle, x), [View.of(other, x) for other in others]
    if near is None or not near.holds(x, saddle.unit(x)):
        near = Sensitivity.of(others[0], x, views[0])
    sensitivity = near
    grid = views[0].change - here.change
    enough = _PART * np.abs(sensitivity.inverse) @ np.abs(grid)
    change, count, unit = here.change, 0, saddle.unit(x)
    while point.converged and count < _POLISHINGS:
        shift = sensitivity.inverse @ change
        if np.all(np.abs(shift) <= enough):
            break
        further = saddle(x + shift)[0] - x - shift
        if not np.abs(further / unit).max() < np.abs(change / unit).max():
            break
        x, change, count = x + shift, further, count + 1
    x = _exact(saddle, x)
    point = replace(point, x=x, residual=saddle(x)[1], iterations=point.iterations + count)
    at = resolved_at(saddle, to_overlaps(x))
    return solution_of(
        saddle,
        point,
        at=at[0],
        stability=stability_of(others[0], to_overlaps(x)),
        errors=errors_of(saddle, x, sensitivity, [(view, here) for view in views], at=at),
        second=to_overlaps(x + sensitivity.inverse @ grid),
    )


def _exact(saddle: SaddleEquations, x: Array) -> Array:
    """The state with what has died out set to 0, and M >= 0.

    M → −M is an exact symmetry, and so is M = 0; with it, an odd φ has a state of Q = 0.
    """
    x = np.abs(x, where=[True, True, False], out=x.copy())
    x[:2][x[:2] <= _NOTHING * saddle.unit(x)[:2]] = 0.0
    return x


@dataclass(frozen=True)
class View:
    """A state as one grid sees it."""

    change: Array  # g(x) − x
    free_energy: float
    gradient: Array  # of the free energy, by M, Q and χ: all 0 at a saddle point
    energy: float  # mean H of a pair

    @classmethod
    def of(cls, saddle: SaddleEquations, x: Array) -> "View":
        """From a grid."""
        overlaps = to_overlaps(x)
        average, conjugate = saddle.evaluate(overlaps)
        slopes = gradient(saddle.problem, overlaps, conjugate)  # the last one at fixed q
        return cls(
            change=saddle(x)[0] - x,
            free_energy=free_energy(saddle.problem, overlaps, average),
            gradient=np.array([*slopes[:2], slopes[2] + slopes[1] / saddle.problem.beta]),
            energy=saddle.energy(overlaps),
        )


@dataclass(frozen=True)
class Sensitivity:
    """How a solution answers to small changes of the equations."""

    x: Array  # where
    slope: Array  # J − 1; 0 along an M that is 0
    inverse: Array  # (1 − J)⁻¹; 0 for an M that is 0
    slopes: Array  # of the mean H of a pair, by x

    @classmethod
    def of(
        cls, saddle: SaddleEquations, x: Array, view: View, *, own: bool = False
    ) -> "Sensitivity":
        """By differences on a grid that has just been looked at from x.

        own: whether its lattice was made for x. The move of χ comes last: for the others the
        channel need not be evaluated again.
        """
        nodes, moves = saddle.nodes, _MOVE * saddle.unit(x)
        free = np.array([x[0] != 0, x[1] != 0, True])  # M = 0 and Q = 0 are exact
        slope, slopes = np.zeros((x.size, x.size)), np.zeros_like(x)
        for i in np.flatnonzero(free):
            moved = x.copy()
            moved[i] += moves[i]
            slope[:, i] = (saddle(moved)[0] - moved - view.change) / moves[i]
            slopes[i] = (saddle.energy(to_overlaps(moved)) - view.energy) / moves[i]
        if saddle.nodes is not nodes and not own:  # x was where they end
            fresh = saddle.afresh()
            return cls.of(fresh, x, View.of(fresh, x), own=True)
        inverse = np.zeros_like(slope)
        # Pseudo-inverse: Q − M² cannot move where it is 0.
        inverse[np.ix_(free, free)] = -np.linalg.pinv(slope[np.ix_(free, free)], rcond=1e-14)
        return cls(x, slope, inverse, slopes)

    def holds(self, x: Array, unit: Array) -> bool:
        """Whether it is the same at another state, to a few per cent.

        J changes by as much as the state, in its units, and the inverse by that times itself.
        """
        strength = float(np.abs(self.inverse * unit / unit[:, None]).sum(axis=1).max())
        moved = float(np.abs((x - self.x) / unit).max())
        return bool(np.all((x == 0) == (self.x == 0))) and moved * strength < _STALE

    def steps(self) -> Steps:
        """What an iteration that starts there knows of the Jacobian."""
        free = np.flatnonzero(np.diag(self.slope))
        moves = list(np.eye(self.x.size)[free])
        return Steps(depth=5, moves=moves, effects=list(self.slope[:, free].T))


def errors_of(
    saddle: SaddleEquations,
    x: Array,
    sensitivity: Sensitivity,
    others: Sequence[tuple[View, View]],
    *,
    at: tuple[float, float],
) -> dict[str, float]:
    """Absolute errors of a solution's numbers, by the names of its attributes.

    others: what other grids and this one saw of a state near x. at: AT, and its error on this grid.
    """
    problem, overlaps, here = saddle.problem, to_overlaps(x), View.of(saddle, x)

    def apart(name: str) -> Array:
        """The largest difference between this grid and another."""
        pairs = [(getattr(a, name), getattr(b, name)) for a, b in others]
        largest: Array = np.max([np.abs(np.subtract(a, b)) for a, b in pairs], axis=0)
        return largest

    residual = _SAFETY * apart("change") + np.abs(here.change) + _ROUNDING * np.abs(x)
    shifts = np.abs(sensitivity.inverse) @ residual
    ends = [[to_overlaps(x + sign * move) for sign in (1, -1)] for move in np.diag(shifts)]

    def error(quantity: Callable[[Overlaps], float]) -> float:
        """Of a function of the overlaps."""
        value = quantity(overlaps)
        return sum(max(abs(quantity(end) - value) for end in pair) for pair in ends)

    state = np.array([error(lambda o: o.M), error(lambda o: o.Q), error(lambda o: o.chi)])
    q = error(lambda o: o.q(problem.beta))
    # Two grids may agree on f by chance, but not on its slopes. The last term: f is stationary, and
    # its mean slope on the way to the solution half of that here.
    size = np.abs([overlaps.M, overlaps.Q, overlaps.chi])
    scatter = _SCATTER * float(apart("gradient") @ size)
    rounding = sys.float_info.epsilon * (abs(here.free_energy) + _LOGARITHM / problem.beta)
    f = float(apart("free_energy")) + scatter + float(apart("gradient") @ state) / 2 + rounding
    H = float(apart("energy")) + (scatter + rounding) / problem.load
    H += float(np.abs(sensitivity.slopes) @ shifts)
    return {
        "M": state[0].item(),
        "q": q,
        "Q": state[1].item(),
        "chi": state[2].item(),
        "free_energy": f,
        "training_energy": H,
        "energy": problem.load * H + problem.weight_decay * q / 2,
        "accuracy": error(lambda o: accuracy(problem, o.M, o.q(problem.beta))),
        "at_eigenvalue": at[1] + _at_error(saddle, overlaps, at[0], [one for one, _ in ends]),
    }


def _at_error(
    saddle: SaddleEquations, overlaps: Overlaps, at: float, ends: Sequence[Overlaps]
) -> float:
    """What an error of the state does to AT; ends: where it moves along M, Q and χ."""
    if not 0 < at < math.inf:
        return 0.0
    ensemble, state = saddle.at(overlaps)
    unit = at / ensemble.curvature(state)
    moved = [ensemble.curvature(state, field=saddle.resolved(end)) for end in ends[:2]]
    by_field = sum(abs(unit * curvature - at) for curvature in moved)
    return by_field + _RESPONSE * at * abs(math.log(ends[2].chi / overlaps.chi))
