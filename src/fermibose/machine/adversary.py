r"""A local adversary: the change of an input that is worst for one layer's own pair energy.

.. math:: x' = \arg\max_{x' \in \text{ball}(x)} L(h(x'), h(x)) ,

climbed by steepest steps from a random point of the ball. The layer then learns with x' as queries
and x as keys. What is local about it: nothing above the layer is needed, and no weight below it
moves. What is not: the gradient with respect to the input of the *net* passes through the frozen
layers below.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fermibose import checks
from fermibose.errors import InputError
from fermibose.machine.inputs import within
from fermibose.machine.local_rule import count_pairs
from fermibose.machine.loop import ALONE, Sharing
from fermibose.machine.queries import Energy, own_pairs, query_forces
from fermibose.threat import ThreatModel, ball_around


@dataclass(frozen=True)
class LocalAdversary:
    """How inputs are perturbed while a layer learns, and what they are to the others."""

    threat: ThreatModel = field(default_factory=lambda: ThreatModel("linf", 0.25))
    steps: int = 1
    step_size: float = 1.25  # of a step, in units of ε
    random_start: bool = True  # else from the input itself
    ramp: float = 0.0  # fraction of a layer's training over which ε grows from 0 to its full size
    extra: bool = False  # the inputs themselves stay queries too, beside the perturbed ones
    own: bool = False  # a perturbed input and the input itself are a boson pair

    def __post_init__(self) -> None:
        if not isinstance(self.threat, ThreatModel) or self.threat.norm == "noise":
            raise InputError(
                f"an adversary needs a ThreatModel with norm 'linf' or 'l2', got {self.threat!r}"
            )
        checks.whole("steps", self.steps, least=1)
        checks.number("step_size", self.step_size, above=0)
        checks.number("ramp", self.ramp, least=0, most=1)
        for name in ("random_start", "extra", "own"):
            checks.flag(name, getattr(self, name))

    @property
    def roles(self) -> dict[str, bool]:
        """What perturbed inputs are to the others, for :meth:`LocalLayer.learn_from`."""
        return {"extra": self.extra, "own": self.own}

    def at(self, progress: float) -> "LocalAdversary":
        """The adversary after this fraction of the training."""
        if progress >= self.ramp:
            return self
        grown = self.threat.epsilon * progress / self.ramp
        return replace(self, threat=replace(self.threat, epsilon=grown))

    @torch.no_grad()
    def perturb(
        self,
        represent: Callable[[Tensor], Tensor],
        x: Tensor,
        labels: Tensor,
        energy: Energy,
        generator: torch.Generator,
        ranks: Sharing = ALONE,
    ) -> Tensor:
        """The inputs x (B, …) in ``[0, 1]``, or the bounds of the threat, changed for the worst.

        represent: what the energy sees of inputs, (B, N), differentiable. ranks: over which the
        work is shared; what comes out are this rank's inputs then.
        """
        low, high = (float(end) for end in x.aminmax())
        if not within(low, high, self.threat.bounds):
            raise InputError(
                f"the adversary keeps to the bounds {self.threat.bounds}, but the inputs go from "
                f"{low:g} to {high:g}: scale them, or give its ThreatModel their bounds"
            )
        start = ball_around(x, self.threat).random(generator) if self.random_start else x
        point, x = ranks.part(start).clone(), ranks.part(x)
        ball = ball_around(x, self.threat)
        keys = ranks.gather(represent(x), len(labels))
        same, pairs = own_pairs(labels, ranks, own=self.own)
        counts = count_pairs(labels, perturbed=True, own=self.own)
        for _ in range(self.steps):
            point.requires_grad_(True)
            with torch.enable_grad():
                h = represent(point)
            forces = query_forces(
                h.detach(), keys, same, pairs, energy, fixed=True, counts=counts, ranks=ranks
            )
            (gradient,) = torch.autograd.grad(h, point, forces.on_queries)
            move = ball.steepest(gradient).mul_(self.step_size * self.threat.epsilon)
            point = ball.project(move.add_(point.detach()))
        return point
