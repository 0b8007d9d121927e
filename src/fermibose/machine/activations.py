"""Activations h = φ(z), each with its slope φ'(z) written through h alone.

A local layer keeps only its output h, never the pre-activation z, so the rule that carries a force
on h back to z must read the slope off h. Learning works in place, to touch little memory.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fermibose.errors import InputError


@dataclass(frozen=True)
class Activation:
    """One activation, in the three forms that are needed."""

    name: str
    apply: Callable[[Tensor], Tensor]  # h = φ(z), differentiable
    apply_: Callable[[Tensor], Tensor]  # the same in place of z
    pull_back_: Callable[[Tensor, Tensor], Tensor]  # (∂L/∂h, h) → ∂L/∂z, in place of ∂L/∂h


def _half_tanh(z: Tensor) -> Tensor:
    return torch.sigmoid(2 * z)  # (1 + tanh z)/2, without the cancellation at z → −∞


def _half_tanh_(z: Tensor) -> Tensor:
    return z.mul_(2).sigmoid_()


def _half_tanh_pull_back_(grad: Tensor, h: Tensor) -> Tensor:
    torch.ops.aten.sigmoid_backward(grad, h, grad_input=grad)
    return grad.mul_(2)  # φ' = 2h(1−h)


def _tanh_pull_back_(grad: Tensor, h: Tensor) -> Tensor:
    torch.ops.aten.tanh_backward(grad, h, grad_input=grad)  # φ' = 1−h²
    return grad


ACTIVATIONS = {
    "half_tanh": Activation("half_tanh", _half_tanh, _half_tanh_, _half_tanh_pull_back_),
    "tanh": Activation("tanh", torch.tanh, torch.tanh_, _tanh_pull_back_),
}


def activation_named(name: str) -> Activation:
    """The activation called ``name``: "half_tanh", (1 + tanh z)/2 of the paper, or "tanh"."""
    if name not in ACTIVATIONS:
        raise InputError(f"activation must be one of {sorted(ACTIVATIONS)}, got {name!r}")
    return ACTIVATIONS[name]
