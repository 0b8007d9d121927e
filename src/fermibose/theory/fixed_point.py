"""A fixed point x = g(x) of a few unknowns: Anderson acceleration that knows when it failed."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fermibose.errors import FermiboseError
from fermibose.theory.problem import Array

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_PATIENCE = 20  # accelerated steps without a new best residual before giving up
_ASTRAY = 3  # steps that may mend a long one: a plain one, and one for each of two fast unknowns

Step = Callable[[Array], tuple[Array, float]]  # x → (a better x, undamped residual at x)


class ConvergenceError(FermiboseError):
    """The saddle point was not reached. ``state`` is the last state, which is not a solution."""

    def __init__(self, message: str, state: Any = None) -> None:
        super().__init__(message)
        self.state = state


@dataclass
class Steps:
    """Differences between the last steps of an iteration: what is known of the Jacobian of g."""

    depth: int = 4
    moves: list[Array] = field(default_factory=list)  # of x
    effects: list[Array] = field(default_factory=list)  # of g(x) − x
    last: tuple[Array, Array] | None = None

    def add(self, x: Array, change: Array) -> None:
        """Remember that g(x) = x + change."""
        if self.last is not None:
            self.moves = [*self.moves[1 - self.depth :], x - self.last[0]]
            self.effects = [*self.effects[1 - self.depth :], change - self.last[1]]
        self.last = (x, change)

    def propose(self, unit: Array | None = None) -> Array:
        """The next point: the affine combination of the last steps with the least change.

        unit: what change of each coordinate counts as 1.
        """
        assert self.last is not None
        x, change = self.last
        if not self.moves:
            return x + change
        moves, effects = np.array(self.moves).T, np.array(self.effects).T
        size = 1.0 if unit is None else unit
        weights = np.linalg.lstsq((effects.T / size).T, change / size, rcond=1e-10)[0]
        accelerated: Array = x + change - (moves + effects) @ weights
        return accelerated

    def elsewhere(self) -> "Steps":
        """What is known of the Jacobian, for use on another grid or a neighbouring problem."""
        return Steps(self.depth, self.moves, self.effects)

    def without(self, coordinate: int) -> "Steps":
        """The same, for iterations in which one coordinate stays 0."""
        keep = [m[coordinate] == 0 for m in self.moves]
        pick = [i for i, k in enumerate(keep) if k]
        return Steps(self.depth, [self.moves[i] for i in pick], [self.effects[i] for i in pick])

    def forget(self) -> None:
        """Start anew."""
        self.moves, self.effects, self.last = [], [], None


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
    history: Steps | None = None,
    accelerate_below: float = math.inf,
    damping: float = 0.5,
    largest_move: float = 1.0,
    unit: Callable[[Array], Array] = np.ones_like,
) -> FixedPoint:
    """Iterate x → g(x) until the residual is at most tol.

    Until the residual is at most ``accelerate_below`` the steps are plain and shortened by
    ``damping``; from then on Anderson acceleration proposes them. A move longer than
    ``largest_move`` in any coordinate, in units of ``unit(x)``, is shortened. A history passed in
    is used and extended.

    An acceleration that makes the residual ten times its best starts anew from there: a long move
    along a slow and curved direction is off by second order in the fast ones, and the steps before
    do not tell how to mend that. If a few steps do not either, the iteration goes back to its best
    and takes damped steps for a while. One that stops improving ends, not converged.
    """
    history = Steps() if history is None else history
    best_x, best_change, best, best_count = x, np.zeros_like(x), math.inf, 0
    careful, accelerated, astray = 0, False, 0
    for count in range(1, max_iterations + 1):
        proposal, residual = step(x)
        change = proposal - x
        if residual <= tol:
            return FixedPoint(x, residual, count, True)
        accelerated = accelerated or residual <= accelerate_below
        if residual < best:
            best_x, best_change, best, best_count = x, change, residual, count
        elif accelerated and count - best_count > _PATIENCE:
            break
        if not accelerated or careful or residual <= 10 * best:
            astray = 0
        elif astray < _ASTRAY:
            if not astray:
                history.forget()
            astray += 1
        else:
            history.forget()
            x, change, careful, astray = best_x, best_change, 4, 0
        history.add(x, change)
        scale = unit(x)
        move = history.propose(scale) - x if accelerated and not careful else change * damping
        careful = max(careful - 1, 0)
        x = x + move * min(1.0, largest_move / max(float(np.abs(move / scale).max()), 1e-300))
    return FixedPoint(best_x, best, count, False)
