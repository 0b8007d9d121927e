"""The pair energy as a loss for any PyTorch model, with the local rule as its backward pass."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fermibose.energy import PairEnergy
from fermibose.errors import InputError
from fermibose.machine.local_rule import pair_force

HALVES = (torch.bfloat16, torch.float16)  # too coarse for distances: computed in float32


class _MeanPairEnergy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, labels: Tensor, energy: PairEnergy) -> Tensor:
        wide = h.float() if h.dtype in HALVES else h
        # Distances do not feel a common offset, but in the Gram matrix it would cost their digits.
        force, report = pair_force(wide - wide.mean(0), labels, energy)
        ctx.save_for_backward(force.to(h.dtype))
        return wide.new_tensor(report.energy)

    @staticmethod
    @once_differentiable  # the saved force does not know how it depends on h
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (force,) = ctx.saved_tensors
        return grads[0] * force, None, None


class PairLoss(nn.Module):
    """Mean pair energy of a batch of representations, to train layers of your own with.

    ``PairLoss(energy)(h, labels)``: h (B, …) is flattened to (B, N), distances are means over its N
    entries; labels (B,) are integers, equal for boson pairs. Detach what enters a layer to keep its
    learning local. Representations of half precision are compared, and their loss is returned, in
    float32. The loss can be differentiated once; a second derivative is refused.
    """

    def __init__(self, energy: PairEnergy | None = None) -> None:
        super().__init__()
        self.energy = energy or PairEnergy()

    def forward(self, h: Tensor, labels: Tensor) -> Tensor:
        """The scalar loss, mean of E(D²) over all pairs of the batch."""
        if h.ndim < 2 or not h.is_floating_point() or not h.numel():
            raise InputError(
                f"representations must be real numbers of shape (samples, …), got {h.dtype} of "
                f"shape {tuple(h.shape)}"
            )
        loss: Tensor = _MeanPairEnergy.apply(  # type: ignore[no-untyped-call]
            h.flatten(1), torch.as_tensor(labels), self.energy
        )
        return loss
