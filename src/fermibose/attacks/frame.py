"""Between the inputs of a model and the images in [0, 1] that the reference of AutoAttack wants."""

import math

import torch
from torch import Tensor, nn

from fermibose.attacks.threat import ThreatModel
from fermibose.attacks.victim import undefined

_COARSE = 0.01  # of ε: rounding to longer steps than that is worth a flag


class Frame(nn.Module):
    """The model as the reference wants it: images (n, channels, rows, columns) in [0, 1]."""

    def __init__(self, model: nn.Module, shape: torch.Size, bounds: tuple[float, float]) -> None:
        super().__init__()
        self.model, self.shape, (self.low, self.high) = model, shape, bounds
        self.features = math.prod(shape)
        # Square places squares of a fifth of the side, so five rows are the least.
        self.side = max(5, math.isqrt(self.features - 1) + 1)
        self.is_image = len(shape) == 3 and min(shape[1:]) >= 5
        self.undefined = 0  # points at which the model returned NaN

    @classmethod
    def around(cls, x: Tensor, model: nn.Module, threat: ThreatModel) -> "Frame":
        """The frame of the bounds, but no wider than the balls reach: that costs precision only."""
        low, high = threat.bounds
        reach = float(x.min()) - threat.epsilon, float(x.max()) + threat.epsilon
        return cls(model, x.shape[1:], (max(low, reach[0]), min(high, reach[1])))

    def enter(self, x: Tensor) -> Tensor:
        """Inputs (n, …) to what the reference attacks; flat inputs get spare pixels at the end."""
        unit = (x - self.low) / (self.high - self.low)
        if self.is_image:
            return unit
        spare = self.side**2 - self.features
        padded = nn.functional.pad(unit.flatten(1), (0, spare))
        return padded.view(len(x), 1, self.side, self.side)

    def leave(self, unit: Tensor) -> Tensor:
        """Back to inputs (n, …)."""
        if not self.is_image:
            unit = unit.flatten(1)[:, : self.features].reshape(len(unit), *self.shape)
        return unit * (self.high - self.low) + self.low

    def forward(self, unit: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.model(self.leave(unit))
        self.undefined += int((undefined(logits) & unit.flatten(1).isfinite().all(1)).sum())
        return logits

    def flags(self, threat: ThreatModel) -> tuple[str, ...]:
        """A flag if float32 resolves the ball so badly that an attack may miss what is in it."""
        largest = max(self.high - self.low, abs(self.high), abs(self.low))
        step = torch.finfo(torch.float32).eps * largest / threat.epsilon
        if step <= _COARSE:
            return ()
        return (
            f"in float32 the steps between inputs of {self.low:g} to {self.high:g} are up to "
            f"{step:.2g} of epsilon: the robust accuracy is an upper bound at best; rescale the "
            "inputs, feature by feature",
        )
