"""A fixed point x = g(x) of a few unknowns: Anderson acceleration that knows when it failed."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fermibose.errors import FermiboseError
from fermibose.theory.problem import Array

_PATIENCE = 20  # accelerated steps without a new best residual before giving up

Step = Callable[[Array], tuple[Array, float]]  # x → (a better x, undamped residual at x)


class ConvergenceError(FermiboseError):
    """The saddle point was not reached. ``state`` is the last state, which is not a solution."""

    def __init__(self, message: str, state: Any = None) -> None:
        super().__init__(message)
        self.state = state


@dataclass
class History:
    """The last steps of an iteration; together they approximate the Jacobian of g."""

    depth: int = 4
    points: list[Array] = field(default_factory=list)
    changes: list[Array] = field(default_factory=list)

    def add(self, x: Array, change: Array) -> None:
        """Remember that g(x) = x + change."""
        self.points = [*self.points[-self.depth :], x]
        self.changes = [*self.changes[-self.depth :], change]

    def propose(self) -> Array:
        """The next point: the affine combination of the last steps with the least change."""
        x, change = self.points[-1], self.changes[-1]
        if len(self.points) == 1:
            return x + change
        dx = np.diff(np.array(self.points), axis=0).T
        df = np.diff(np.array(self.changes), axis=0).T
        gamma = np.linalg.lstsq(df, change, rcond=1e-10)[0]
        accelerated: Array = x + change - (dx + df) @ gamma
        return accelerated


@dataclass(frozen=True)
class FixedPoint:
    """Where an iteration stopped."""

    x: Array
    residual: float  # as ``step`` reports it: of the plain, undamped equations
    iterations: int  # evaluations of g
    converged: bool


def iterate(
    step: Step,
    x: Array,
    *,
    tol: float,
    max_iterations: int,
    history: History | None = None,
    settle: float = math.inf,
    damping: float = 0.5,
    largest_move: float = 1.0,
) -> FixedPoint:
    """Iterate x → g(x) until the residual is at most tol.

    While the residual is above ``settle`` the steps are plain and shortened by ``damping``; below it
    Anderson acceleration proposes them. A move longer than ``largest_move`` in any coordinate is
    shortened. An acceleration that makes the residual ten times its best goes back there and takes
    damped steps for a while; one that stops improving ends the iteration, not converged.
    A history passed in is used and extended.
    """
    history = History() if history is None else history
    best_x, best_change, best, best_count = x, np.zeros_like(x), math.inf, 0
    careful, settled = 0, False
    for count in range(1, max_iterations + 1):
        proposal, residual = step(x)
        change = proposal - x
        if residual <= tol:
            return FixedPoint(x, residual, count, True)
        settled = settled or residual <= settle
        if residual < best:
            best_x, best_change, best, best_count = x, change, residual, count
        elif settled and count - best_count > _PATIENCE:
            break
        elif settled and residual > 10 * best:
            history.points.clear()
            history.changes.clear()
            x, change, careful = best_x, best_change, 4
        history.add(x, change)
        move = history.propose() - x if settled and not careful else change * damping
        careful = max(careful - 1, 0)
        x = x + move * min(1.0, largest_move / max(float(np.abs(move).max()), 1e-300))
    return FixedPoint(best_x, best, count, False)
