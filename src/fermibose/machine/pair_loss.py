"""The pair energy as a loss for any PyTorch model."""

import torch
from torch import Tensor, nn

from fermibose.checks import shown
from fermibose.compute import widest
from fermibose.energy import PairEnergy
from fermibose.errors import InputError
from fermibose.machine.local_rule import check_labels
from fermibose.machine.queries import Energy, mean_energy


class PairLoss(nn.Module):
    """Mean pair energy of a batch of representations, to train layers of your own with.

    ``PairLoss(energy)(h, labels)``: h (B, …) is flattened to (B, N), distances are means over its N
    entries; labels (B,) are integers, equal for boson pairs. Detach what enters a layer to keep its
    learning local. Everything is done by torch, on the device of h and in float64 (float32 on mps,
    which has no more), whatever the type of h and under autocast too; the loss has the type of h,
    or float32 if that is coarser. It can be differentiated any number of times, mapped
    (``torch.func``) and compiled, and holds some ten B×B matrices.
    """

    def __init__(self, energy: Energy | None = None) -> None:
        super().__init__()
        self.energy = PairEnergy() if energy is None else energy
        if not isinstance(self.energy, Energy):
            raise InputError(
                "energy must be a PairEnergy, like PairEnergy(0.4), or a FreeEnergy, got "
                f"{shown(energy)}"
            )

    def forward(self, h: Tensor, labels: Tensor) -> Tensor:
        """The scalar loss, mean of E(D²) over all pairs of the batch."""
        if not isinstance(h, Tensor):
            raise InputError(f"representations must be a torch tensor, got {type(h).__name__}")
        if h.ndim < 2 or not h.is_floating_point() or not h.numel():
            raise InputError(
                f"representations must be real numbers of shape (samples, …), got {h.dtype} of "
                f"shape {tuple(h.shape)}"
            )
        labels, size = torch.as_tensor(labels), len(h)
        check_labels(labels, size)
        if labels.is_meta and not h.is_meta:
            raise InputError("the labels are on the device meta, which holds no numbers: give some")
        labels = labels.to(h.device, torch.int64)
        d2 = _squared_distances(h.flatten(1))
        same = labels[:, None] == labels
        itself = torch.eye(size, dtype=torch.bool, device=h.device)
        mean, _ = mean_energy(self.energy, d2, same, ~itself, times=2)
        return mean.to(torch.promote_types(h.dtype, torch.float32))


def _squared_distances(h: Tensor) -> Tensor:
    """D² of all pairs, (B, B), in float64: from a Gram matrix small ones lose half their digits."""
    wide = h.to(widest(h.device))
    wide = wide - wide.mean(0)  # a common offset would cost digits too
    gram = wide @ wide.T
    squares = gram.diagonal()
    d2 = (squares[:, None] + squares - 2 * gram) / h.shape[1]
    # Rounding may leave it below 0; but it is d2 whose derivatives are those of the distance.
    return d2 - d2.detach().clamp(max=0)
