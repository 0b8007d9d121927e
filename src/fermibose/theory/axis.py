"""Nodes and weights of one-dimensional averages."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fermibose.theory.problem import Array

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

    def unfolded(self) -> "Axis":
        """The same nodes on both sides of 0."""
        nodes = np.concatenate([-self.nodes[:0:-1], self.nodes])
        half = self.weights / 2
        weights = np.concatenate([half[:0:-1], self.weights[:1], half[1:]])
        return Axis(nodes, weights, folded=False)

    def thinned(self) -> "Axis":
        """Every second node, with the weights of the same rule."""
        weights = 2 * self.weights[::2]
        if self.kinked:
            weights[:5] = weights[5] * _GREGORY
        return Axis(self.nodes[::2], weights, self.folded, kinked=self.kinked)

    def ending(self, reach: float) -> "Axis":
        """The same axis, scaled so that its last node is at ``reach``."""
        scale = reach / float(self.nodes[-1])
        step = None if self.step is None else scale * self.step
        return replace(self, nodes=scale * self.nodes, weights=scale * self.weights, step=step)

    def within(self, *windows: tuple[float, float]) -> "Axis":
        """The nodes inside any of the windows, in runs that :meth:`thinned` leaves in step."""
        keep = np.zeros(self.nodes.size, dtype=bool)
        for low, high in windows:
            first, last = np.searchsorted(self.nodes, (low, high))
            keep[first // 2 * 2 : (last + 1) // 2 * 2] = True
        return replace(self, nodes=self.nodes[keep], weights=self.weights[keep], step=None)

    @property
    def adjacent(self) -> NDArray[np.bool_]:
        """Which pairs of nodes that follow each other are neighbours, with no gap between them."""
        gaps = np.diff(self.nodes)
        adjacent: NDArray[np.bool_] = gaps < 1.5 * gaps[0]
        return adjacent

    def gaussian(self, mean: float, width: float) -> tuple[Array, Array, Array]:
        """Weights of Gaussian averages over x = y·mean + width·v with both signs y = ±1.

        Returns (even, odd, slope) with Σ even·g = E g, Σ odd·g = E y g and Σ slope·g = E v g.
        """
        scale = self.weights / (2 * width * math.sqrt(2 * math.pi))
        if mean == 0:
            x = self.nodes / width
            even = np.exp(-(x**2) / 2) * (2 * scale)
            return even, np.zeros_like(even), x * even
        plus, minus = (self.nodes - mean) / width, (self.nodes + mean) / width
        a, b = np.exp(-(plus**2) / 2) * scale, np.exp(-(minus**2) / 2) * scale
        return a + b, a - b, plus * a + minus * b
