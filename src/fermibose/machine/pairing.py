"""Pairing: which inputs of a mini-batch meet as boson pairs and which as fermion pairs.

A pairing turns a batch into *views* with an integer label each; equal labels make boson pairs and
different labels fermion pairs, exhaustively. So one local rule serves both kinds of learning:
by class label, or self-supervised, where the label is the identity of the input itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fermibose.errors import InputError
from fermibose.machine.augment import Noise


class Pairing(Protocol):
    """Makes labelled views of a batch; ``transforms_inputs`` says if they differ from it."""

    @property
    def transforms_inputs(self) -> bool: ...  # noqa: D102

    def views(  # noqa: D102
        self, x: Tensor, y: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class ByLabel:
    """Boson = same class, fermion = different class, as in the paper's main text."""

    transforms_inputs = False

    def views(self, x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The batch itself with its class labels."""
        return x, y


class Transform(Protocol):
    """A random change of the inputs that should not change what they are."""

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor: ...  # noqa: D102


def _check_transforms(transforms: object, example: str) -> None:
    if not isinstance(transforms, (tuple, list)) or not transforms:
        raise InputError(
            f"a pairing of transformed inputs needs a tuple of at least one transformation, like "
            f"{example}, got {transforms!r}"
        )
    for transform in transforms:
        if isinstance(transform, type) or not callable(transform):
            raise InputError(
                f"a transformation must be one like Noise(0.2) or Shift((28, 28)), a function "
                f"of inputs and generator, got {transform!r}"
            )


def transformed(x: Tensor, transforms: Sequence[Transform], generator: torch.Generator) -> Tensor:
    """The inputs after all transformations, one upon the other."""
    for transform in transforms:
        x = transform(x, generator)
    return x


@dataclass(frozen=True)
class Augmented:
    """By label, as in :class:`ByLabel`, but every input is transformed anew each time it is met."""

    transforms: Sequence[Transform]
    transforms_inputs = True

    def __post_init__(self) -> None:
        _check_transforms(self.transforms, "(Affine((28, 28)),)")

    def views(self, x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """A transformed copy of the batch with its class labels."""
        return transformed(x, self.transforms, generator), y


@dataclass(frozen=True)
class SelfSupervised:
    """Boson = an input and its transformation, fermion = two different inputs. Needs no labels."""

    transforms: Sequence[Transform] = (Noise(),)
    transforms_inputs = True

    def __post_init__(self) -> None:
        _check_transforms(self.transforms, "(Noise(0.2),)")

    def views(self, x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The batch and its transformed copy, (2B, inputs), labelled by identity."""
        copy = transformed(x, self.transforms, generator)
        return torch.cat([x, copy]), torch.arange(len(x), device=x.device).repeat(2)
