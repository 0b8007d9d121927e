"""Activations h = φ(z), each with its slope φ'(z) written through h alone.

A local layer keeps only its output h, never the pre-activation z, so the rule that carries a force
on h back to z must read the slope off h.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fermibose.errors import InputError


@dataclass(frozen=True)
class Activation:
    """One activation: ``apply(z) -> h`` (differentiable) and ``pull_back(∂L/∂h, h) -> ∂L/∂z``."""

    name: str
    apply: Callable[[Tensor], Tensor]
    pull_back: Callable[[Tensor, Tensor], Tensor]


def _half_tanh(z: Tensor) -> Tensor:
    return torch.sigmoid(2 * z)  # (1 + tanh z)/2, without the cancellation at z → −∞


def _half_tanh_pull_back(grad: Tensor, h: Tensor) -> Tensor:
    out: Tensor = torch.ops.aten.sigmoid_backward(grad, h)  # φ' = 2h(1−h)
    return out.mul_(2)


def _tanh_pull_back(grad: Tensor, h: Tensor) -> Tensor:
    out: Tensor = torch.ops.aten.tanh_backward(grad, h)  # φ' = 1−h²
    return out


ACTIVATIONS = {
    "half_tanh": Activation("half_tanh", _half_tanh, _half_tanh_pull_back),
    "tanh": Activation("tanh", torch.tanh, _tanh_pull_back),
}


def activation_named(name: str) -> Activation:
    """The activation called ``name``: "half_tanh", (1 + tanh z)/2 of the paper, or "tanh"."""
    if name not in ACTIVATIONS:
        raise InputError(f"activation must be one of {sorted(ACTIVATIONS)}, got {name!r}")
    return ACTIVATIONS[name]
