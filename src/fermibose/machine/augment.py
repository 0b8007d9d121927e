"""Augmentations: random changes of images that should not change what they are.

Each is a transformation of a pairing: it takes inputs (B, …), flattened images or not, and a
generator, and returns changed copies of the same shape. They compose by standing in a tuple.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, conv2d, grid_sample, pad

from fermibose import checks
from fermibose.errors import InputError
from fermibose.machine.inputs import Sides, as_images, check_clipping, image_shape_of


def _keep(spec: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(spec, name, value)


def _symmetric(x: Tensor, generator: torch.Generator, *shape: int) -> Tensor:
    """Uniform in [−1, 1]."""
    return 2 * torch.rand(len(x), *shape, generator=generator, dtype=x.dtype, device=x.device) - 1


@dataclass(frozen=True)
class Noise:
    """Gaussian pixel noise of standard deviation ``sigma``, clipped to [0, 1]."""

    sigma: float = 0.2

    def __post_init__(self) -> None:
        _keep(self, sigma=checks.number("sigma of the noise", self.sigma, least=0))

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Noisy copy of x, same shape; x must lie in [0, 1], or clipping would change it."""
        check_clipping(x)
        noise = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
        return x.add(noise, alpha=self.sigma).clamp_(0, 1)


@dataclass(frozen=True)
class Shift:
    """Moves each image by up to ``pixels`` rows and columns, filling with zeros."""

    image_shape: Sides  # or (rows, columns), of the images that inputs flatten
    pixels: int = 2

    def __post_init__(self) -> None:
        shape = image_shape_of(self.image_shape)
        _keep(self, image_shape=shape, pixels=checks.whole("a shift", self.pixels, least=0))
        if self.pixels >= min(shape[1:]):
            raise InputError(
                f"a shift of {self.pixels} pixels does not fit images of shape {self.image_shape}"
            )

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Shifted copy of x, same shape."""
        images = as_images(x, image_shape_of(self.image_shape))
        p, (batch, channels, rows, columns) = self.pixels, images.shape
        padded = pad(images, (p, p, p, p))
        down, right = torch.randint(
            0, 2 * p + 1, (2, batch, 1), generator=generator, device=x.device
        )
        each, channel = (
            torch.arange(batch, device=x.device)[:, None, None, None],
            torch.arange(channels, device=x.device)[:, None, None],
        )
        row = (torch.arange(rows, device=x.device) + down)[:, None, :, None]
        column = (torch.arange(columns, device=x.device) + right)[:, None, None, :]
        return padded[each, channel, row, column].reshape(x.shape)


@dataclass(frozen=True)
class Flip:
    """Mirrors each image left to right, with probability 1/2."""

    image_shape: Sides

    def __post_init__(self) -> None:
        _keep(self, image_shape=image_shape_of(self.image_shape))

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Copy of x, same shape, half of it mirrored."""
        images = as_images(x, image_shape_of(self.image_shape))
        mirrored = torch.rand(len(x), 1, 1, 1, generator=generator, device=x.device) < 0.5
        return torch.where(mirrored, images.flip(-1), images).reshape(x.shape)


@dataclass(frozen=True)
class Affine:
    r"""Shifts, turns, scales and shears each image by random amounts, uniform up to the given ones.

    Pixels are interpolated linearly, and 0 outside the image.
    """

    image_shape: Sides
    shift: float = 2.0  # pixels, along each side
    angle: float = 10.0  # degrees
    scale: float = 0.1  # relative
    shear: float = 0.1  # columns per row

    def __post_init__(self) -> None:
        most = {"shift": math.inf, "angle": 180.0, "scale": 0.9, "shear": math.inf}
        amounts = {
            name: checks.number(name, getattr(self, name), least=0, most=bound)
            for name, bound in most.items()
        }
        _keep(self, image_shape=image_shape_of(self.image_shape), **amounts)

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Transformed copy of x, same shape."""
        images = as_images(x, image_shape_of(self.image_shape))
        angle, scale, shear, down, right = _symmetric(x, generator, 5).unbind(1)
        angle, scale = angle * math.radians(self.angle), 1 + scale * self.scale
        cos, sin = angle.cos() / scale, angle.sin() / scale
        _, _, rows, columns = images.shape
        # In units of half a side, as torch counts them; x' = A x + shift, read backwards.
        to_columns = [
            cos,
            (shear * self.shear - sin) * rows / columns,
            right * self.shift * 2 / columns,
        ]
        to_rows = [sin * columns / rows, cos, down * self.shift * 2 / rows]
        matrix = torch.stack([torch.stack(to_columns, 1), torch.stack(to_rows, 1)], 1)
        grid = affine_grid(matrix, list(images.shape), align_corners=False)
        return grid_sample(images, grid, align_corners=False).reshape(x.shape)


@dataclass(frozen=True)
class Elastic:
    r"""Moves each pixel by a smooth random field, as a hand that trembles.

    White noise smoothed by a Gaussian of width ``smoothness`` pixels and brought to a root mean
    square displacement that is uniform between 0 and ``strength`` pixels.
    """

    image_shape: Sides
    strength: float = 2.0
    smoothness: float = 4.0

    def __post_init__(self) -> None:
        _keep(
            self,
            image_shape=image_shape_of(self.image_shape),
            strength=checks.number("strength", self.strength, least=0),
            smoothness=checks.number("smoothness", self.smoothness, above=0),
        )

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Distorted copy of x, same shape."""
        images = as_images(x, image_shape_of(self.image_shape))
        batch, _, rows, columns = images.shape
        kind: dict[str, Any] = {"dtype": x.dtype, "device": x.device}
        field = torch.randn(2 * batch, 1, rows, columns, generator=generator, **kind)
        reach = math.ceil(3 * self.smoothness)
        offsets = torch.arange(-reach, reach + 1, **kind)
        kernel = torch.exp(-offsets.square() / (2 * self.smoothness**2))
        field = conv2d(field, kernel.view(1, 1, -1, 1), padding=(reach, 0))
        field = conv2d(field, kernel.view(1, 1, 1, -1), padding=(0, reach))
        field = field.view(batch, 2, rows, columns)
        field = field / field.square().mean((1, 2, 3), keepdim=True).sqrt()
        amount = torch.rand(batch, 1, 1, 1, generator=generator, **kind) * self.strength
        still = torch.eye(2, 3, **kind).expand(batch, 2, 3)
        grid = affine_grid(still, list(images.shape), align_corners=False)
        unit = 2 / torch.tensor([columns, rows], **kind)
        grid = grid + (field * amount).permute(0, 2, 3, 1) * unit
        return grid_sample(images, grid, align_corners=False).reshape(x.shape)


@dataclass(frozen=True)
class Crop:
    """Cuts a random window of at least ``least`` of each side and brings it back to full size."""

    image_shape: Sides
    least: float = 0.8

    def __post_init__(self) -> None:
        least = checks.number("least of a crop", self.least, above=0, most=1)
        _keep(self, image_shape=image_shape_of(self.image_shape), least=least)

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """The windows, same shape as x."""
        images = as_images(x, image_shape_of(self.image_shape))
        cut = torch.rand(len(x), 2, generator=generator, dtype=x.dtype, device=x.device)
        side = 1 - (1 - self.least) * cut
        place = _symmetric(x, generator, 2) * (1 - side)
        matrix = torch.cat([torch.diag_embed(side), place[:, :, None]], 2)
        grid = affine_grid(matrix, list(images.shape), align_corners=False)
        return grid_sample(images, grid, align_corners=False).reshape(x.shape)
