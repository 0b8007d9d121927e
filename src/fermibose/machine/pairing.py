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

from fermibose import checks
from fermibose.errors import InputError
from fermibose.machine.inputs import check_clipping


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


@dataclass(frozen=True)
class Noise:
    """Gaussian pixel noise of standard deviation ``sigma``, clipped to [0, 1]."""

    sigma: float = 0.2

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", checks.number("sigma of the noise", self.sigma, least=0))

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Noisy copy of x, same shape; x must lie in [0, 1], or clipping would change it."""
        check_clipping(x)
        noise = torch.randn(x.shape, generator=generator, dtype=x.dtype)
        return x.add(noise, alpha=self.sigma).clamp_(0, 1)


@dataclass(frozen=True)
class Shift:
    """Moves each image by up to ``pixels`` rows and columns, filling with zeros."""

    image_shape: tuple[int, int]  # rows, columns of the flattened images
    pixels: int = 2

    def __post_init__(self) -> None:
        shape = self.image_shape if isinstance(self.image_shape, (tuple, list)) else ()
        if len(shape) != 2 or not all(checks.is_whole(length, 1) for length in shape):
            raise InputError(
                f"image_shape must be (rows, columns), like (28, 28), got {self.image_shape!r}"
            )
        object.__setattr__(self, "image_shape", tuple(int(length) for length in shape))
        object.__setattr__(self, "pixels", checks.whole("a shift", self.pixels, least=0))
        if self.pixels >= min(shape):
            raise InputError(
                f"a shift of {self.pixels} pixels does not fit images of shape {self.image_shape}"
            )

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Shifted copy of x, (B, rows·columns)."""
        rows, columns = self.image_shape
        if x.shape[1] != rows * columns:
            raise InputError(
                f"inputs have {x.shape[1]} features, but images of shape {self.image_shape} "
                f"have {rows * columns}; set image_shape"
            )
        p, batch = self.pixels, len(x)
        padded = torch.nn.functional.pad(x.view(batch, rows, columns), (p, p, p, p))
        down, right = torch.randint(0, 2 * p + 1, (2, batch, 1), generator=generator)
        image = torch.arange(batch)[:, None, None]
        row, column = torch.arange(rows) + down, torch.arange(columns) + right
        return padded[image, row[:, :, None], column[:, None, :]].reshape(batch, -1)


@dataclass(frozen=True)
class SelfSupervised:
    """Boson = an input and its transformation, fermion = two different inputs. Needs no labels."""

    transforms: Sequence[Transform] = (Noise(),)
    transforms_inputs = True

    def __post_init__(self) -> None:
        if not isinstance(self.transforms, (tuple, list)) or not self.transforms:
            raise InputError(
                "self-supervised pairing needs a tuple of at least one transformation, like "
                f"(Noise(0.2),), got {self.transforms!r}"
            )
        for transform in self.transforms:
            if isinstance(transform, type) or not callable(transform):
                raise InputError(
                    f"a transformation must be one like Noise(0.2) or Shift((28, 28)), a function "
                    f"of inputs and generator, got {transform!r}"
                )

    def views(self, x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The batch and its transformed copy, (2B, inputs), labelled by identity."""
        copy = x
        for transform in self.transforms:
            copy = transform(copy, generator)
        return torch.cat([x, copy]), torch.arange(len(x)).repeat(2)
