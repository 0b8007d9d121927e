"""The threat model: which changes of an input count, and the balls of inputs that it allows.

It is checked once, before anything runs.
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fermibose.checks import choice, number, shown
from fermibose.errors import InputError

LARGEST = 1e15  # strength; squared and summed over 10⁸ inputs it is still a number in float32
Norm = Literal["linf", "l2", "noise"]
Images = npt.ArrayLike | Tensor

# The norms that each attack is made for; "one_step" and "noise" are attacks of a curve.
_NORMS: dict[str, tuple[Norm, ...]] = {
    "fgsm": ("linf",),
    "one_step_l2": ("l2",),
    "one_step": ("linf", "l2"),
    "pgd": ("linf", "l2"),
    "auto_attack": ("linf", "l2"),
    "audit": ("linf", "l2"),
    "gaussian_noise": ("noise",),
    "noise": ("noise",),
}
_AT_SOME_STRENGTH = ("auto_attack", "audit")  # ε = 0 means nothing to them


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
        choice("norm", self.norm, get_args(Norm))
        number("epsilon", self.epsilon, least=0, most=LARGEST)
        ends = self.bounds if isinstance(self.bounds, (tuple, list)) else ()
        if len(ends) != 2 or not all(isinstance(e, Real) for e in ends) or not ends[0] < ends[1]:
            raise InputError(f"bounds must be (lowest, highest), got {self.bounds!r}")

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
        integers = not labels.is_floating_point() and labels.dtype != torch.bool
        if labels.shape != (len(images),) or not integers or int(labels.long().min()) < 0:
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


def require(threat: Any, attack: str, *norms: Norm) -> None:
    """Refuse what is no threat model, or a norm or strength of 0 that ``attack`` is not made for.

    norms: those it is made for, if it is not one of the attacks here.
    """
    if not isinstance(threat, ThreatModel):
        raise InputError(
            f'the threat must be a ThreatModel, like ThreatModel("linf", 0.1), got {shown(threat)}'
        )
    norms = norms or _NORMS[choice("attack", attack, _NORMS)]
    if threat.norm not in norms:
        raise InputError(f"{attack} needs the norm {' or '.join(norms)}, got {threat.norm}")
    if threat.epsilon == 0 and attack in _AT_SOME_STRENGTH:
        raise InputError(f"{attack} needs epsilon > 0")


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


class Ball(Protocol):
    """All x' within ε of each centre (B, …) that also lie inside the bounds."""

    def steepest(self, gradient: Tensor) -> Tensor:
        """The direction of unit norm along which a linear function grows fastest."""

    def project(self, point: Tensor) -> Tensor:
        """A point of the ball near ``point``, which may be overwritten."""

    def furthest(self, gradient: Tensor) -> Tensor:
        """A point of the ball at which the linear function with this gradient is largest."""

    def random(self, generator: torch.Generator) -> Tensor:
        """A point drawn uniformly from the ball without bounds, then brought inside them."""

    def keep(self, rows: Tensor) -> "Ball":
        """The balls around the centres ``rows`` only."""


class LinfBall:
    """|x'_i − x_i| ≤ ε for every input i."""

    def __init__(self, lower: Tensor, upper: Tensor) -> None:
        self.lower, self.upper = lower, upper

    def steepest(self, gradient: Tensor) -> Tensor:
        """sign(g)."""
        return gradient.sign()

    def project(self, point: Tensor) -> Tensor:
        """Clip every input to its interval."""
        return torch.clamp(point, self.lower, self.upper, out=point)

    def furthest(self, gradient: Tensor) -> Tensor:
        """The end of every interval to which the gradient points; its middle where it is 0."""
        return torch.lerp(self.lower, self.upper, (gradient.sign() + 1) / 2)

    def random(self, generator: torch.Generator) -> Tensor:
        """Uniform in the interval of every input (which is the ball cut by the bounds)."""
        u = torch.rand(
            self.lower.shape, generator=generator, dtype=self.lower.dtype, device=self.lower.device
        )
        return torch.lerp(self.lower, self.upper, u)

    def keep(self, rows: Tensor) -> "LinfBall":
        """The balls around the centres ``rows`` only."""
        return LinfBall(self.lower[rows], self.upper[rows])


class L2Ball:
    """‖x' − x‖₂ ≤ ε."""

    def __init__(self, centre: Tensor, epsilon: float, bounds: tuple[float, float]) -> None:
        self.centre, self.epsilon, self.bounds = centre, epsilon, bounds

    def steepest(self, gradient: Tensor) -> Tensor:
        """g/‖g‖₂, and 0 where g = 0."""
        # Bring the largest entry to 1 first: the square of a tiny gradient would underflow.
        flat = gradient.flatten(1)
        flat = flat / flat.abs().amax(1, keepdim=True).clamp(min=torch.finfo(flat.dtype).tiny)
        length = flat.norm(dim=1, keepdim=True).clamp(min=0.5)  # is >= 1, or 0 if all are
        direction: Tensor = flat / length
        return direction.view_as(gradient)

    def project(self, point: Tensor) -> Tensor:
        """Shrink the change to length ε, then clip to the bounds.

        The centre lies inside the bounds, so clipping can only bring a point closer to it.
        """
        change = (point - self.centre).flatten(1)
        length = change.norm(dim=1, keepdim=True)
        change *= (self.epsilon / length.clamp(min=torch.finfo(length.dtype).tiny)).clamp(max=1)
        return torch.add(self.centre, change.view_as(point), out=point).clamp_(*self.bounds)

    def furthest(self, gradient: Tensor) -> Tensor:
        """clip(x + s·g) with the s that uses up ε, or the corner of the bounds if none does."""
        if self.epsilon == 0:
            return self.centre.clone()
        flat, centre, (low, high) = gradient.flatten(1), self.centre.flatten(1), self.bounds
        # The largest entry becomes 1, and lengths are in units of ε: all squares are numbers.
        speed = flat.abs()
        speed /= speed.amax(1, keepdim=True).clamp(min=torch.finfo(flat.dtype).tiny)
        room = torch.where(flat > 0, high - centre, centre - low).div_(self.epsilon).clamp_(max=1)
        change = torch.minimum(fill(speed, room) * speed, room).mul_(self.epsilon).copysign_(flat)
        return (self.centre + change.view_as(gradient)).clamp_(*self.bounds)

    def random(self, generator: torch.Generator) -> Tensor:
        """Uniform in the ball (radius ε u^{1/d} along a Gaussian direction), then clipped."""
        flat = self.centre.flatten(1)
        kind = {"generator": generator, "dtype": flat.dtype, "device": flat.device}
        direction = torch.randn(flat.shape, **kind)  # type: ignore[call-overload]
        radius = torch.rand(len(flat), 1, **kind) ** (1 / flat.shape[1])  # type: ignore[call-overload]
        change: Tensor = direction * (self.epsilon * radius / direction.norm(dim=1, keepdim=True))
        return (self.centre + change.view_as(self.centre)).clamp_(*self.bounds)

    def keep(self, rows: Tensor) -> "L2Ball":
        """The balls around the centres ``rows`` only."""
        return L2Ball(self.centre[rows], self.epsilon, self.bounds)


def fill(speed: Tensor, room: Tensor) -> Tensor:
    r"""The level s at which :math:`\sum_i \min(s\,v_i, r_i)^2 = 1`, (…, 1); large if there is none.

    speed v, room r: (…, d), not negative. Inputs whose room is used up are set aside and what is
    left of the length is given to the others: s can only grow, and settles after a few rounds.
    """
    used_up = room / speed  # from this level on; NaN, which is never reached, without speed or room
    speed, room, count = speed.square(), room.square(), -1
    level = torch.zeros_like(speed[..., :1])
    while True:
        full = used_up <= level
        if count == (count := int(full.count_nonzero())):
            return level
        left = 1 - (room * full).sum(-1, keepdim=True)
        free = (speed * ~full).sum(-1, keepdim=True)
        risen = left.clamp_(min=0).div_(free).sqrt_().nan_to_num_(torch.inf)
        # Finite also where nothing is free, so that times a speed of 0 it is 0.
        level = torch.maximum(level, risen.clamp_(max=torch.finfo(speed.dtype).max))


def ball_around(centre: Tensor, threat: ThreatModel) -> Ball:
    """The ball of the threat model around each centre (B, …)."""
    if threat.norm == "l2":
        return L2Ball(centre, threat.epsilon, threat.bounds)
    low, high = threat.bounds
    lower = (centre - threat.epsilon).clamp_(min=low)
    return LinfBall(lower, (centre + threat.epsilon).clamp_(max=high))
