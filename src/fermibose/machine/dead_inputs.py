"""Inputs that are 0 in every training sample: they need no GEMM, only their weight decay.

Of the paper's 1000 digits 22 % of the pixels are never lit. Their weights feel no pair, and nothing
feels them, so a layer may learn with the live inputs alone; the weights of the dead ones are moved
by the optimiser with gradient 0, as they would be anyway.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from fermibose.machine.layers import LocalDense

WORTHWHILE = 0.1  # fraction of dead inputs from which the split pays for its copying


@dataclass(frozen=True)
class SplitInputs:
    """A layer in two parts: one that learns from the live inputs, and the weights of dead ones."""

    live: Tensor  # their positions among the inputs
    dead: Tensor
    learner: LocalDense
    resting: nn.Parameter  # (dead inputs, units)

    @classmethod
    @torch.no_grad()
    def of(cls, layer: LocalDense, x: Tensor) -> Self | None:
        """Split ``layer`` for the training inputs x (samples, inputs), if that is worthwhile."""
        lit = (x != 0).any(0)
        live, dead = lit.nonzero()[:, 0], (~lit).nonzero()[:, 0]
        if len(dead) < WORTHWHILE * len(lit) or not len(live):
            return None
        units = layer.weight.shape[1]
        learner = LocalDense(len(live), units, activation=layer.activation.name)
        learner.weight.copy_(layer.weight[live])
        learner.bias = layer.bias
        resting = nn.Parameter(layer.weight[dead], requires_grad=False)
        resting.grad = torch.zeros_like(resting)
        return cls(live, dead, learner, resting)

    def parameters(self) -> Iterator[nn.Parameter]:
        """All that the optimiser moves."""
        yield from self.learner.parameters()
        yield self.resting

    @torch.no_grad()
    def join(self, layer: LocalDense) -> None:
        """Write both parts' weights into ``layer``."""
        layer.weight.index_copy_(0, self.live, self.learner.weight)
        layer.weight.index_copy_(0, self.dead, self.resting)
