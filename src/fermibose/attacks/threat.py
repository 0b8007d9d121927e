"""The threat model: which changes of an input count, checked once before anything runs."""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fermibose.errors import InputError

LARGEST = 1e15  # strength; squared and summed over 10⁸ inputs it is still a number in float32
Norm = Literal["linf", "l2", "noise"]
Images = npt.ArrayLike | Tensor


@dataclass(frozen=True)
class ThreatModel:
    r"""The set of inputs an attacker may offer in place of x.

    .. math:: \{x' : \|x' - x\|_p \le \varepsilon,\ lo \le x'_i \le hi\}, \quad p = \infty, 2

    or, for ``"noise"``, the distribution clip(x + ε ξ), ξ ~ N(0, 1) independently per input.
    Strength and bounds are in the units of the inputs as the model takes them: a normalisation
    (mean and deviation, say) belongs inside the model.
    """

    norm: Norm = "linf"
    epsilon: float = 0.1  # radius of the ball, or standard deviation of the noise
    bounds: tuple[float, float] = (0.0, 1.0)  # of every input; may be infinite

    def __post_init__(self) -> None:
        if self.norm not in get_args(Norm):
            choices = ", ".join(repr(norm) for norm in get_args(Norm))
            raise InputError(f"norm must be one of {choices}, got {self.norm!r}")
        if not 0 <= self.epsilon <= LARGEST:
            raise InputError(
                f"epsilon must be a finite number >= 0 and <= {LARGEST:g}, got {self.epsilon!r}"
            )
        if len(self.bounds) != 2 or not self.bounds[0] < self.bounds[1]:
            raise InputError(f"bounds must be (lowest, highest), got {self.bounds!r}")

    def require(self, attack: str, *norms: Norm) -> None:
        """Refuse a norm that ``attack`` is not made for."""
        if self.norm not in norms:
            wanted = " or ".join(f"norm={norm!r}" for norm in norms)
            raise InputError(f"{attack} needs a threat model with {wanted}, got {self.norm!r}")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; an infinite bound becomes null."""
        bounds = [float(bound) if math.isfinite(bound) else None for bound in self.bounds]
        return {"norm": self.norm, "epsilon": float(self.epsilon), "bounds": bounds}

    def check_images(self, x: Images, y: Images) -> tuple[Tensor, Tensor]:
        """Floating-point images (n, …) inside the bounds and whole labels (n,), as tensors."""
        images, labels = _as_tensor(x), _as_tensor(y)
        if not images.is_floating_point():
            raise InputError(
                f"the images are {images.dtype}, not floating point: bring them to the range "
                f"{self.bounds} first (bytes: divide by 255)"
            )
        if images.ndim < 2 or not images.numel():
            raise InputError(f"images must have shape (n, …), got {tuple(images.shape)}")
        whole = not labels.is_floating_point() and labels.dtype != torch.bool
        if labels.shape != (len(images),) or not whole or int(labels.long().min()) < 0:
            raise InputError(
                f"labels must be one whole number >= 0 for each of the {len(images)} images, got "
                f"{labels.dtype} of shape {tuple(labels.shape)}"
            )
        if not torch.isfinite(images).all():
            raise InputError("the images contain NaN or infinity; remove such images first")
        lowest, highest = float(images.min()), float(images.max())
        if lowest < self.bounds[0] or highest > self.bounds[1]:
            raise InputError(
                f"the images lie in [{lowest:g}, {highest:g}], outside the bounds {self.bounds}: "
                "rescale them, or give ThreatModel the bounds of your data (and put any "
                "normalisation inside the model)"
            )
        return images.detach(), labels.detach().long()


def _as_tensor(values: Images) -> Tensor:
    if isinstance(values, Tensor):
        return values
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"images and labels must be arrays of numbers: {error}") from None
    kind = array.dtype
    if kind.kind not in "biuf":
        raise InputError(f"images and labels must be numbers, got {kind}")
    # Torch knows no negative strides, no foreign order of bytes and no long doubles.
    native = np.dtype(np.float64) if kind.kind == "f" and kind.itemsize > 8 else kind
    return torch.from_numpy(np.array(array, dtype=native.newbyteorder("="), order="C"))
