"""Tensors read from a file, held against what is expected before anything is made of them."""

from collections.abc import Mapping

import torch
from torch import Tensor

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_shapes(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """ValueError, in one line, unless names and shapes are those expected."""
    for name in (*expected, *found):
        if name not in found:
            raise ValueError(f"{name} is missing")
        if name not in expected:
            raise ValueError(f"{name[:80]!r} does not belong there")
        if found[name].shape != expected[name].shape:
            raise ValueError(
                f"{name} has shape {tuple(found[name].shape)} instead of "
                f"{tuple(expected[name].shape)}"
            )


def check_types(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """ValueError, in one line, unless all are of the type expected; the names must be the same."""
    for name, tensor in expected.items():
        if found[name].dtype != tensor.dtype:
            raise ValueError(f"{name} is of {found[name].dtype} instead of {tensor.dtype}")


def check_numbers(found: Mapping[str, Tensor]) -> None:
    """ValueError, in one line, unless all are finite real numbers."""
    for name, tensor in found.items():
        if tensor.dtype not in FLOATS:
            raise ValueError(f"{name} is of {tensor.dtype}, which real numbers are not stored in")
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{name} holds NaN or infinity")
