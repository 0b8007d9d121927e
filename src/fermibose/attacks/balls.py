"""The two balls an attack moves in: steepest direction, projection and random point of each."""

from typing import Protocol

import torch
from torch import Tensor

from fermibose.attacks.threat import ThreatModel


class Ball(Protocol):
    """All x' within ε of each centre (B, …) that also lie inside the bounds."""

    def steepest(self, gradient: Tensor) -> Tensor:
        """The direction of unit norm along which a linear function grows fastest."""

    def project(self, point: Tensor) -> Tensor:
        """A point of the ball near ``point``, which may be overwritten."""

    def random(self, generator: torch.Generator) -> Tensor:
        """A point drawn uniformly from the ball without bounds, then brought inside them."""

    def keep(self, rows: Tensor) -> "Ball":
        """The balls around the centres ``rows`` only."""


class LinfBall:
    """|x'_i − x_i| ≤ ε for every input i."""

    def __init__(self, lower: Tensor, upper: Tensor) -> None:
        self.lower, self.upper = lower, upper

    @classmethod
    def around(cls, centre: Tensor, threat: ThreatModel) -> "LinfBall":
        """The ball of the threat model."""
        low, high = threat.bounds
        lower = (centre - threat.epsilon).clamp_(min=low)
        return cls(lower, (centre + threat.epsilon).clamp_(max=high))

    def steepest(self, gradient: Tensor) -> Tensor:
        """sign(g)."""
        return gradient.sign()

    def project(self, point: Tensor) -> Tensor:
        """Clip every input to its interval."""
        return torch.clamp(point, self.lower, self.upper, out=point)

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

    @classmethod
    def around(cls, centre: Tensor, threat: ThreatModel) -> "L2Ball":
        """The ball of the threat model."""
        return cls(centre, threat.epsilon, threat.bounds)

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


def ball_around(centre: Tensor, threat: ThreatModel) -> Ball:
    """The ball of the threat model around each centre (B, …)."""
    if threat.norm == "l2":
        return L2Ball.around(centre, threat)
    return LinfBall.around(centre, threat)
