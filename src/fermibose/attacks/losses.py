"""What an attack increases: one number per example, from logits (B, K) and labels (B,)."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from fermibose.errors import InputError

Loss = Callable[[Tensor, Tensor], Tensor]
LossName = Literal["cross_entropy", "margin", "mean_squared"]


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    r"""−log softmax(z)_y, the cost of the paper's FGSM."""
    return torch.nn.functional.cross_entropy(logits, y, reduction="none")


def margin(logits: Tensor, y: Tensor) -> Tensor:
    r"""max_{k≠y} z_k − z_y: positive where another class wins.

    It does not saturate, so it still has a gradient where the cross-entropy has none left.
    """
    own = y[:, None]
    rivals = logits.scatter(1, own, -torch.inf)
    return rivals.amax(1) - logits.gather(1, own)[:, 0]


def mean_squared(logits: Tensor, y: Tensor) -> Tensor:
    r"""½ Σ_k (t_k − tanh z_k)² with targets t_y = 1, else −1: the loss of the paper's theory.

    With two logits (z, −z) it is twice the printed ½[y − tanh z]², so its direction is the same.
    """
    targets = -torch.ones_like(logits)
    targets.scatter_(1, y[:, None], 1.0)
    return (targets - logits.tanh()).square().sum(1) / 2


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "margin": margin,
    "mean_squared": mean_squared,
}


def loss_names(losses: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several, as a tuple."""
    return (losses,) if isinstance(losses, str) else tuple(losses)


def loss_named(name: str) -> Loss:
    """The loss called ``name``."""
    if name not in LOSSES:
        raise InputError(f"loss must be one of {sorted(LOSSES)}, got {name!r}")
    return LOSSES[name]
