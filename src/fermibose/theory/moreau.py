r"""The channel at zero temperature: the Moreau envelope of the pair energy and its proximal map.

.. math:: F(ω) = \min_z \{|z-ω|^2/2c + H(z)\}, \qquad ∇F = (ω - z^*)/c, \qquad
          ∇^2F = H''(1 + cH'')^{-1}

H is not convex: the minimum z*(ω) is found among all of them on a table (the minimum over a square
is taken one axis at a time), then polished by Newton's method. Where two minima tie, z* jumps and
∇F with it: ``share`` gives the two nodes beside a jump their part of the cell between them. F
itself goes on, with a kink, and ``kink`` is what that adds to the two nodes.
"""

from dataclasses import dataclass, replace

import numpy as np

from fermibose.theory.channel import SQRT2, Axis, Effective, Response, pair_table
from fermibose.theory.problem import Array, Problem, activation_derivatives

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_POLISHINGS = 60  # Newton steps at most; all but a few nodes need three
_LAST = 1e-8  # a step of Newton's method so short that the next would be below rounding
_NEAR = 1.5  # steps of the table around its best node within which the minimum before is the same
_JUMP = 8  # steps by which z* moves, from one field to the next, where it jumps


@dataclass(frozen=True)
class _Derivatives:
    """H, its gradient and its Hessian at points z of the rotated plane."""

    H: Array
    r: Array
    t: Array
    rr: Array
    rt: Array
    tt: Array


_Minima = tuple[Array, Array, _Derivatives]  # z*_r, z*_t and H around them, of shape (2, r, t)


class MoreauChannel:
    """F, ∇F, ∇²F at zero temperature on the nodes r × t, from a table of H on z × z'.

    Pairs of a kind that the problem has none of are left out: all their numbers are 0.
    """

    def __init__(self, problem: Problem, *, at: tuple[Axis, Axis], on: tuple[Axis, Axis]) -> None:
        self._problem = problem
        self._axes = (*at, *on)
        self._H = pair_table(problem, *on)
        self._last: tuple[float, _Minima] | None = None

    def effective(self, c: float) -> Effective:
        """F and ∇F, with the share and the kink of each node beside a jump."""
        z_r, z_t, local = self._minima(c)
        grad_r, grad_t = self._offsets(z_r, z_t, c)
        force2 = grad_r**2 + grad_t**2
        F = local.H + c / 2 * force2
        share, kink = _beside(self._axes[0], F, grad_r, _resolvent(local, c).rr, z_r, z_t)
        return Effective(lambda: F, grad_r, grad_t, force2, share, kink)

    def response(self, c: float) -> Response:
        """∇²F away from the jumps, and what they add with growing β."""
        z_r, z_t, local = self._minima(c)
        r, t, _, _ = self._axes
        return replace(_resolvent(local, c), growth=_growth(r, t, z_r / c, z_t / c, c))

    def energy(self, c: float) -> Array:
        """H(z*) = F − c|∇F|²/2, which jumps with ∇F."""
        pair = self.effective(c)
        return pair.weighted_F - c / 2 * pair.weighted[2]

    def lost(self, c: float) -> None:
        """Nothing is: there is no Z."""

    def _offsets(self, z_r: Array, z_t: Array, c: float) -> tuple[Array, Array]:
        r, t, _, _ = self._axes
        return (r.nodes[:, None] - z_r) / c, (t.nodes - z_t) / c

    def _minima(self, c: float) -> _Minima:
        """Global minima z* for every node and both kinds of pair, and H around them; kept for c."""
        if self._last is None or self._last[0] != c:
            self._last = (c, self._find_minima(c))
        return self._last[1]

    def _find_minima(self, c: float) -> _Minima:
        r, t, _, _ = self._axes
        found = np.zeros((8, 2, r.nodes.size, t.nodes.size))
        for kind, weight in enumerate((self._problem.bosons, 1 - self._problem.bosons)):
            if weight > 0:
                start_r, start_t = self._start(c, kind)
                z_r, z_t = self._polish(start_r, start_t, c, kind)
                local = self._derivatives(z_r, z_t, kind)
                found[:, kind] = (
                    z_r,
                    z_t,
                    *(getattr(local, x) for x in ("H", "r", "t", "rr", "rt", "tt")),
                )
        return found[0], found[1], _Derivatives(*found[2:])

    def _start(self, c: float, kind: int) -> tuple[Array, Array]:
        """The best node of the table for every field, or the minimum of the last c beside it."""
        r, t, z_r, z_t = self._axes
        cost_r = (z_r.nodes - r.nodes[:, None]) ** 2 / (2 * c)
        cost_t = (z_t.nodes - t.nodes[:, None]) ** 2 / (2 * c)
        best_r, best_t = np.empty((2, r.nodes.size, t.nodes.size))
        for i, row in enumerate(cost_r):
            along_r = row[:, None] + self._H[kind]
            j = along_r.argmin(0)
            k = (along_r[j, np.arange(j.size)] + cost_t).argmin(1)
            best_t[i] = z_t.nodes[k]
            best_r[i] = z_r.nodes[j[k]]
        if self._last is None:
            return best_r, best_t
        last_r, last_t = self._last[1][0][kind], self._last[1][1][kind]
        away = np.maximum(np.abs(last_r - best_r), np.abs(last_t - best_t))
        same = away <= _NEAR * (z_r.nodes[1] - z_r.nodes[0])
        return np.where(same, last_r, best_r), np.where(same, last_t, best_t)

    def _polish(self, z_r: Array, z_t: Array, c: float, kind: int) -> tuple[Array, Array]:
        """Newton's method on |z−ω|²/2c + H from the best node of the table.

        A move that raises the cost is taken back and its length limited to a quarter.
        """
        r, t, axis, _ = self._axes
        shape = z_r.shape
        o_r = np.broadcast_to(r.nodes[:, None], shape).ravel()
        o_t = np.broadcast_to(t.nodes, shape).ravel()
        z_r, z_t = z_r.ravel(), z_t.ravel()
        new_r, new_t = z_r.copy(), z_t.copy()
        longest = np.full(z_r.size, axis.nodes[1] - axis.nodes[0])
        cost = np.full(z_r.size, np.inf)
        move_r, move_t = np.zeros_like(z_r), np.zeros_like(z_t)
        todo = np.arange(z_r.size)
        for _ in range(_POLISHINGS):
            x, y, dx, dy = new_r[todo], new_t[todo], o_r[todo], o_t[todo]
            local = self._derivatives(x, y, kind)
            new_cost = local.H + ((x - dx) ** 2 + (y - dy) ** 2) / (2 * c)
            lower = new_cost <= cost[todo]
            good = todo[lower]
            z_r[good], z_t[good], cost[good] = x[lower], y[lower], new_cost[lower]
            a, b = _newton_move(local, (x - dx) / c + local.r, (y - dy) / c + local.t, c)
            move_r[good], move_t[good] = a[lower], b[lower]
            longest[todo[~lower]] /= 4
            length = np.hypot(move_r[todo], move_t[todo])
            brake = np.minimum(1.0, longest[todo] / np.maximum(length, 1e-300))
            new_r[todo] = np.abs(z_r[todo] + brake * move_r[todo])
            new_t[todo] = z_t[todo] + brake * move_t[todo]
            todo = todo[brake * length > _LAST]
            if not todo.size:
                break
        return new_r.reshape(shape), new_t.reshape(shape)

    def _derivatives(self, z_r: Array, z_t: Array, kind: int) -> _Derivatives:
        """∂H from D = φ(z₁) − φ(z₂), turned into the (r, t) plane."""
        phi1, up1, bend1 = self._activation((z_t + z_r) / SQRT2)
        phi2, up2, bend2 = self._activation((z_t - z_r) / SQRT2)
        D = phi1 - phi2
        d2 = D**2
        H, force, curvature = self._energy(d2, kind)
        H_D, H_DD = 2 * D * force, 2 * force + 4 * d2 * curvature
        h11, h22 = H_DD * up1**2 + H_D * bend1, H_DD * up2**2 - H_D * bend2
        h12 = H_DD * up1 * up2
        mean = (h11 + h22) / 2
        H_D = H_D / SQRT2
        return _Derivatives(
            H=H,
            r=H_D * (up1 + up2),
            t=H_D * (up1 - up2),
            rr=mean + h12,
            rt=(h11 - h22) / 2,
            tt=mean - h12,
        )

    def _energy(self, d2: Array, kind: int) -> tuple[Array, Array, Array]:
        """H, dH/dD² and d²H/d(D²)² of a kind of pair."""
        pair, same = self._problem.pair_energy, kind == 0
        return *pair.energy_and_force(d2, same), pair.curvature(d2, same)

    def _activation(self, z: Array) -> tuple[Array, Array, Array]:
        return activation_derivatives(self._problem, z)


def _newton_move(local: _Derivatives, g_r: Array, g_t: Array, c: float) -> tuple[Array, Array]:
    """−(1/c + H'')⁻¹ g, with the Hessian lifted where it is not positive."""
    a, b, d = local.rr + 1 / c, local.rt, local.tt + 1 / c
    lowest = (a + d) / 2 - np.hypot((a - d) / 2, b)
    lift = np.maximum(0.05 / c - lowest, 0.0)
    a, d = a + lift, d + lift
    det = a * d - b**2
    return (b * g_t - d * g_r) / det, (b * g_r - a * g_t) / det


def _resolvent(local: _Derivatives, c: float) -> Response:
    """H''(1 + cH'')⁻¹ of symmetric 2 × 2 matrices."""
    det_H = local.rr * local.tt - local.rt**2
    det = 1 + c * (local.rr + local.tt) + c**2 * det_H
    return Response((local.rr + c * det_H) / det, local.rt / det, (local.tt + c * det_H) / det)


def _beside(
    r: Axis, F: Array, slope: Array, bend: Array, z_r: Array, z_t: Array
) -> tuple[Array, Array]:
    """What a jump along r does to the two nodes beside it: their shares of the force, 1 elsewhere,
    and what is added to their F, 0 elsewhere.

    The jump lies where the two branches of F, expanded to second order from either side, meet: at a
    distance x from the left node of a cell of width h. There the slope of F drops by γ, and the
    trapezoidal rule misses γ(x(h − x)/2 − h²/12), by the formula of Euler and Maclaurin.
    """
    step = float(r.nodes[1] - r.nodes[0])
    jump = np.hypot(np.diff(z_r, axis=1), np.diff(z_t, axis=1)) > _JUMP * step
    jump &= r.adjacent[:, None]
    share, kink = np.ones_like(F), np.zeros_like(F)
    here, there = (slice(None), slice(None, -1)), (slice(None), slice(1, None))
    drop = np.where(jump, slope[here] - slope[there], 1.0)
    rise = F[there] - F[here]
    x = np.clip((rise - slope[there] * step) / drop, 0, step)
    gap = rise - slope[here] * x - bend[here] * x**2 / 2
    gap += -slope[there] * (step - x) + bend[there] * (step - x) ** 2 / 2
    x = np.clip(x + gap / drop, 0, step)
    part = np.where(jump, x / step - 0.5, 0.0)
    share[here] += part
    share[there] -= part
    missed = np.where(jump, drop * (x * (step - x) / 2 - step**2 / 12), 0.0) / (2 * step)
    kink[here] += missed
    kink[there] += missed
    return share, kink


def _growth(r: Axis, t: Axis, pull_r: Array, pull_t: Array, c: float) -> Array:
    """γ³/6 on every line where two minima tie and ∇F jumps by γ, shared by the cells it crosses.

    Across the line F = −ln(e^{−βF₁} + e^{−βF₂})/β, so ∇²F = −(βγ²/4)/cosh²(βγx/2) and the integral
    of its square is βγ³/6. pull = z*/c: its jumps are those of −∇F. On the axes the two minima are
    mirror images.
    """
    growth = np.zeros_like(pull_r)
    growth[:, 0] += (2 * pull_r[:, 0]) ** 3 / (6 * r.weights[0])
    if t.folded:
        growth[:, :, 0] += np.abs(2 * pull_t[:, :, 0]) ** 3 / (6 * t.weights[0])
    step = float(r.nodes[1] - r.nodes[0])
    for axis, across in ((1, pull_r), (2, pull_t)):
        jump = np.hypot(np.diff(pull_r, axis=axis), np.diff(pull_t, axis=axis))
        # A line at an angle crosses more cells along one axis than along the other.
        cell = jump**2 * np.abs(np.diff(across, axis=axis)) / (6 * step)
        cell[jump * c <= _JUMP * step] = 0
        cell *= r.adjacent[:, None] if axis == 1 else t.adjacent
        last = growth.shape[axis] - 1
        growth += (np.insert(cell, 0, 0, axis) + np.insert(cell, last, 0, axis)) / 2
    return growth
