"""Where the channel is evaluated: axes of nodes and weights in the rotated pair plane.

The pair plane is turned by 45°: r = (ω₁ − ω₂)/√2, t = (ω₁ + ω₂)/√2. A Gaussian of equal widths
stays separable, exchanging the two members of a pair is r → −r, and the ridge of the fermion energy
(D = 0, where forces change over a width of order s²) lies at r = 0, where one axis can be graded.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from fermibose.theory.problem import Array, Function

SQRT2 = math.sqrt(2.0)
_GREGORY = np.array([95 / 288, 317 / 240, 23 / 30, 793 / 720, 157 / 160])  # weights at an end


@dataclass(frozen=True)
class Axis:
    """Nodes and weights with Σ w g(x) ≈ ∫ g over the whole line, for even g if ``folded``.

    A folded axis keeps x >= 0 only.
    """

    nodes: Array  # (n,), increasing
    weights: Array  # (n,)
    folded: bool
    step: float | None = None  # distance of the nodes, if they are the multiples of one
    kinked: bool = False  # whether the first weights are Gregory's, for a kink at 0

    @classmethod
    def uniform(cls, step: float, reach: float, *, folded: bool = True) -> "Axis":
        """Trapezoidal rule with equal steps up to ``reach`` (from −reach if not folded)."""
        count = math.ceil(reach / step)
        if not folded:
            nodes = step * np.arange(-count, count + 1.0)
            return cls(nodes, np.full(nodes.size, step), folded, step)
        return cls.graded(step, step, reach, width=1.0)

    @classmethod
    def graded(cls, step: float, finest: float, reach: float, *, width: float) -> "Axis":
        """Folded trapezoidal rule whose steps grow smoothly from ``finest`` at 0 to ``step``.

        The map x(u) = step·u − (step − finest)·width·tanh(u/width) is analytic and odd, so the rule
        keeps the exponential convergence of equal steps.
        """
        drop = step - finest
        u = np.arange(math.ceil((reach + drop * width) / step) + 1.0)
        nodes = step * u - drop * width * np.tanh(u / width)
        weights = 2 * (step - drop * (1 - np.tanh(u / width) ** 2))
        weights[0] /= 2
        return cls(nodes, weights, True, step if drop == 0 else None)

    @classmethod
    def one_sided(cls, step: float, reach: float) -> "Axis":
        """Folded equal steps with Gregory's end corrections, for functions with a kink at 0."""
        nodes = step * np.arange(math.ceil(reach / step) + 6.0)
        weights = np.full(nodes.size, 2 * step)
        weights[:5] *= _GREGORY
        return cls(nodes, weights, True, kinked=True)

    def thinned(self) -> "Axis":
        """Every second node, with the weights of the same rule."""
        weights = 2 * self.weights[::2]
        if self.kinked:
            weights[:5] = weights[5] * _GREGORY
        return Axis(self.nodes[::2], weights, self.folded, kinked=self.kinked)

    def gaussian(self, mean: float, width: float) -> tuple[Array, Array, Array]:
        """Weights of Gaussian averages over x = y·mean + width·v with both signs y = ±1.

        Returns (even, odd, slope) with Σ even·g = E g, Σ odd·g = E y g and Σ slope·g = E v g.
        """
        plus, minus = (self.nodes - mean) / width, (self.nodes + mean) / width
        scale = self.weights / (2 * width * math.sqrt(2 * math.pi))
        a, b = np.exp(-(plus**2) / 2) * scale, np.exp(-(minus**2) / 2) * scale
        return a + b, a - b, plus * a + minus * b


def pair_values(phi: Function, r: Axis, t: Axis) -> tuple[Array, Array]:
    """φ(z₁) and φ(z₂) at z = (t ± r)/√2 for every node of r × t: read-only views.

    Where r is folded and all nodes are multiples of one step they share their values: φ is
    evaluated along a line.
    """
    if not r.folded or r.step is None or r.step != t.step:
        z_r, z_t = r.nodes[:, None], t.nodes
        return phi((z_t + z_r) / SQRT2), phi((z_t - z_r) / SQRT2)
    first, rows, columns = round(t.nodes[0] / t.step), r.nodes.size, t.nodes.size
    line = phi(np.arange(first - rows + 1.0, first + rows + columns - 1) * (t.step / SQRT2))
    windows = sliding_window_view(line, columns)
    return windows[rows - 1 :], windows[rows - 1 :: -1]
