"""The pair energy as a loss for any PyTorch model, with the local rule as its backward pass."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fermibose.energy import PairEnergy
from fermibose.machine.local_rule import pair_force


class _MeanPairEnergy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, labels: Tensor, energy: PairEnergy) -> Tensor:
        force, report = pair_force(h, labels, energy)
        ctx.save_for_backward(force)
        return h.new_tensor(report.energy)

    @staticmethod
    @once_differentiable  # the saved force does not know how it depends on h
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (force,) = ctx.saved_tensors
        return grads[0] * force, None, None


class PairLoss(nn.Module):
    """Mean pair energy of a batch of representations, to train layers of your own with.

    ``PairLoss(energy)(h, labels)``: h (B, …) is flattened to (B, N), distances are means over its N
    entries; labels (B,) are integers, equal for boson pairs. Detach what enters a layer to keep its
    learning local. The loss can be differentiated once; a second derivative is refused.
    """

    def __init__(self, energy: PairEnergy | None = None) -> None:
        super().__init__()
        self.energy = energy or PairEnergy()

    def forward(self, h: Tensor, labels: Tensor) -> Tensor:
        """The scalar loss, mean of E(D²) over all pairs of the batch."""
        loss: Tensor = _MeanPairEnergy.apply(  # type: ignore[no-untyped-call]
            h.flatten(1), torch.as_tensor(labels), self.energy
        )
        return loss
