r"""Linear bounds of a net's margins over a ball of inputs, carried back layer by layer (CROWN).

While its pre-activation z runs from l to u, an activation lies between two lines,

.. math:: s\,z + b \le \phi(z) \le s'z + b', \qquad l \le z \le u .

A linear function of the layer, :math:`\sum_i a_i h_i`, is therefore at least
:math:`\sum_i a_i^+ (s_i z_i + b_i) + a_i^- (s'_i z_i + b'_i)`, which is linear in the layer below,
and at last in the inputs, whose minimum over the ball has a closed form. So are bounded, one after
another, the pre-activations of every layer (their l and u) and the margins z_y − z_k (Zhang et al.
2018). With no hidden layer the bound is exact.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fermibose import checks
from fermibose.threat import fill

_ENTRIES = 1 << 24  # of the rows of a block: 128 MB each of a handful of temporary tensors
_TOUCHES = 3  # rounds that find where a tangent touches; from the first on the error is squared


class Lines(NamedTuple):
    """Two lines with an activation between them, for every image and unit: (B, units) each."""

    slope: Tensor  # of the lower line
    offset: Tensor
    upper_slope: Tensor
    upper_offset: Tensor


def lines(low: Tensor, high: Tensor, scale: float = 1.0, shift: float = 0.0) -> Lines:
    """Lines below and above scale·tanh z + shift, low ≤ z ≤ high.

    An upper line is a tangent in the middle of the interval, or as near to it as a tangent lies
    above the curve, or else the chord; a lower line is the same for −tanh(−z). Whatever the slope,
    the offset is the least (largest) with which the line holds: that is what makes it a bound.
    """
    middle, width = (low + high) / 2, high - low
    chord = (high.tanh() - low.tanh()) / width
    chord = torch.where(width > 1e-6, chord, 1 - middle.tanh().square()).clamp_(0, 1)
    upper, lower = (
        torch.where(touching < end, 1 - touching.tanh().square(), chord)
        for touching, end in ((_touching(low, middle), high), (_touching(-high, -middle), -low))
    )
    return Lines(
        scale * lower,
        shift - scale * _least_offset(lower, -high, -low),
        scale * upper,
        shift + scale * _least_offset(upper, low, high),
    )


def _touching(low: Tensor, middle: Tensor) -> Tensor:
    r"""Where an upper tangent touches: in the middle, or from where on it is above ``low`` too.

    With a = −low > 0 that is from the point d on at which the tangent meets the curve in ``low``,
    cosh² d = (d + a)/(tanh d + tanh a). From d = a/2, which is too large, d ← arcosh √… falls
    towards the solution without passing it.
    """
    a = low.clamp(max=0).neg_()
    d = a / 2
    for _ in range(_TOUCHES):
        d = ((d + a) / (d.tanh() + a.tanh())).nan_to_num_(1.0).clamp_(min=1).sqrt_().acosh_()
    return torch.maximum(middle, d)


def _least_offset(slope: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """max of tanh z − s z, low ≤ z ≤ high: at an end, or where tanh' = s on the way down."""
    peak = (1 - slope).sqrt_().log1p_() - slope.log() / 2  # arcosh(1/√s)
    peak = torch.clamp(peak, low, high)
    heights = [z.tanh() - slope * z for z in (low, high, peak)]
    return torch.maximum(torch.maximum(heights[0], heights[1]), heights[2])


def relu_lines(low: Tensor, high: Tensor) -> Lines:
    """Lines below and above max(0, z), low ≤ z ≤ high.

    The upper one is the chord; the lower one, where z may have either sign, is 0 or z, whichever
    leaves the smaller gap.
    """
    up, down = high.clamp(min=0), low.clamp(max=0).neg_()
    chord = torch.where(up > 0, up / (up + down), 0.0)  # 1 where z cannot be negative
    lower = torch.where(down == 0, chord, (up > down).to(low))
    return Lines(lower, torch.zeros_like(low), chord, chord * down)


LINES: dict[str, Callable[[Tensor, Tensor], Lines]] = {
    "tanh": lines,
    "half_tanh": partial(lines, scale=0.5, shift=0.5),
    "relu": relu_lines,
}


class Reach:
    """The inputs within ε (B,) of each image x (B, d) in a norm, and inside the bounds."""

    def __init__(self, x: Tensor, epsilon: Tensor, norm: str, bounds: tuple[float, float]) -> None:
        (lowest, highest), epsilon = bounds, epsilon[:, None]
        self.x, self.epsilon, self.norm, self.bounds = x, epsilon, norm, bounds
        low, high = (x - epsilon).clamp(min=lowest), (x + epsilon).clamp(max=highest)
        self.centre, self.radius = (low + high) / 2, (high - low) / 2
        self.size = torch.maximum(low.abs(), high.abs())  # the largest |x'|, (B, d)
        self.up, self.down = (x < highest).to(x), (x > lowest).to(x)  # where there is any room

    def least(self, rows: Tensor) -> Tensor:
        """A lower bound of rows·x', (B, R); rows: (R, d) or (B, R, d). For ℓ∞ it is the minimum."""
        box = _apply(rows, self.centre) - _apply(rows.abs(), self.radius)
        if self.norm == "linf":
            return box
        # Of the ball alone, without inputs that stand at a bound and would be pushed against it.
        squares = _apply(rows.clamp(max=0).square_(), self.up)
        squares += _apply(rows.clamp(min=0).square_(), self.down)
        return torch.maximum(box, _apply(rows, self.x) - self.epsilon * squares.sqrt_())

    def minimum(self, rows: Tensor) -> Tensor:
        r"""The minimum of rows·x' itself, (B, R); rows: (B, R, d).

        In ℓ2 by the dual: with v = |rows| and the room r of every input, both in the units of the
        ball, the largest descent is at most :math:`\sum_i (v_i c_i - c_i^2/2s) + 1/2s`,
        :math:`c_i = \min(s v_i, r_i)`, at every level s > 0, and equal at the right one.
        """
        if self.norm == "linf":
            return self.least(rows)
        tiny = torch.finfo(rows.dtype).tiny
        epsilon, largest = self.epsilon.clamp(min=tiny), rows.abs().amax(2, keepdim=True)
        speed = rows.abs() / largest.clamp(min=tiny)
        room = torch.where(
            rows < 0, (self.bounds[1] - self.x)[:, None], (self.x - self.bounds[0])[:, None]
        )
        room = (room / epsilon[:, None]).clamp(max=1)
        level = fill(speed, room).clamp(min=tiny)
        change = torch.minimum(level * speed, room)
        descent = (change * (speed - change / (2 * level))).sum(2) + 1 / (2 * level[..., 0])
        return _apply(rows, self.x) - epsilon * largest[..., 0] * descent


def _apply(rows: Tensor, values: Tensor) -> Tensor:
    """rows·values of every image, (B, R); rows (R, d) or (B, R, d), values (B, d)."""
    if rows.ndim == 2:
        return values @ rows.T
    applied: Tensor = torch.bmm(rows, values[:, :, None])[..., 0]
    return applied


class Crown:
    """Lower bounds on the margins of a batch of images in balls of any radius.

    They hold for the net in exact arithmetic. Everything here is float64, and from each bound is
    taken what rounding can have added to it: a sum of n terms in float64 is off by at most
    n·2⁻⁵³·Σ|term|, and Σ|term| is bounded along with the rest, by absolute values all the way.
    """

    def __init__(
        self, net: Any, x: Tensor, y: Tensor, norm: str, bounds: tuple[float, float]
    ) -> None:
        self.x, self.norm, self.bounds = x, norm, bounds
        maps = [(layer.weight, layer.bias) for layer in (*net.local_layers, net.readout)]
        maps = [(w.T, w.new_zeros(w.shape[1]) if b is None else b) for w, b in maps]
        if net.gain is not None:  # the net's own rescaling is part of its first map
            rows, constant = maps[0]
            maps[0] = (rows * net.gain, constant - rows @ (net.offset * net.gain))
        self.layers, (readout, logit_bias) = maps[:-1], maps[-1]
        self.activations = [LINES[layer.activation.name] for layer in net.local_layers]
        rivals = torch.arange(len(readout), device=y.device) != y[:, None]  # (B, K)
        others = rivals.nonzero()[:, 1].view(len(y), -1)  # (B, K−1)
        self.probes = readout[y][:, None] - readout[others]  # ∂m_k/∂h, (B, K−1, units)
        self.constants = logit_bias[y][:, None] - logit_bias[others]
        terms = sum(rows.shape[1] + 8 for rows, _ in maps)
        self.rounding = 2 * terms * torch.finfo(x.dtype).eps

    def lowest(self, epsilon: Tensor) -> Tensor:
        """Lower bounds of m_k = z_y − z_k in the balls of radius ε (B,), (B, K−1)."""
        reach = Reach(self.x, epsilon, self.norm, self.bounds)
        relaxed: list[Lines] = []
        size = reach.size
        for (rows, constant), between in zip(self.layers, self.activations, strict=True):
            low = self._blocks(rows, constant, reach, relaxed, size)
            high = -self._blocks(-rows, -constant, reach, relaxed, size)
            found = between(low, high)
            size = (size @ rows.abs().T + constant.abs()) * found.slope.maximum(found.upper_slope)
            size += found.offset.abs().maximum(found.upper_offset.abs())
            relaxed.append(found)
        return self._least(self.probes, self.constants, reach, relaxed, size, exact=True)

    def _blocks(
        self, rows: Tensor, constant: Tensor, reach: Reach, relaxed: list[Lines], size: Tensor
    ) -> Tensor:
        """Lower bounds of rows·h + constant, (B, R), a block of rows at a time."""
        width = max([rows.shape[1], *(part.slope.shape[1] for part in relaxed), self.x.shape[1]])
        block = max(_ENTRIES // (len(self.x) * width), 1) if relaxed else len(rows)
        checks.memory(
            "the linear bounds of a batch of images take",
            8 * 8 * len(self.x) * block * width,
            "give a smaller batch_size",
        )
        parts = zip(rows.split(block), constant.split(block), strict=True)
        return torch.cat([self._least(*part, reach, relaxed, size) for part in parts], 1)

    def _least(
        self,
        rows: Tensor,
        constant: Tensor,
        reach: Reach,
        relaxed: list[Lines],
        size: Tensor,
        *,
        exact: bool = False,
    ) -> Tensor:
        """Lower bounds of rows·h + constant, (B, R), h the layer above all the ``relaxed`` ones.

        size: bound of the sum of the absolute terms of each h, (B, units).
        """
        slack = self.rounding * (_apply(rows.abs(), size) + constant.abs())
        for part, (weights, bias) in zip(reversed(relaxed), self._below(relaxed), strict=True):
            above, below = rows.clamp(min=0), rows.clamp(max=0)
            constant = constant + _apply(above, part.offset) + _apply(below, part.upper_offset)
            rows = above * part.slope[:, None] + below * part.upper_slope[:, None]
            constant = constant + rows @ bias
            rows = rows @ weights
        least = reach.minimum(rows) if exact else reach.least(rows)
        bound: Tensor = least + (constant - slack)
        return bound

    def _below(self, relaxed: list[Lines]) -> list[tuple[Tensor, Tensor]]:
        """The maps into the relaxed layers, last first."""
        return self.layers[: len(relaxed)][::-1]
