"""Adversarial training: the perturbation that the MLP baseline trains on."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fermibose.attacks.gradient import Ascent, climb, usual_step
from fermibose.attacks.losses import cross_entropy
from fermibose.attacks.threat import ThreatModel


@dataclass(frozen=True)
class Adversary:
    """Replaces a mini-batch by adversarial examples of it, for ``train_mlp(…, perturb=…)``.

    One step (FGSM, from a random start with a step of 1.25 ε) or several (PGD, steps of 2.5 ε over
    their number). Unlike an attack it climbs on where the net is already wrong: training needs the
    largest loss, not the first mistake.
    """

    threat: ThreatModel
    steps: int = 1

    def __call__(
        self, model: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Adversarial examples of the inputs x, (B, …)."""
        ascent = Ascent(
            steps=self.steps,
            step_size=usual_step(self.steps, longest=1.25),
            random_start=True,
            stop_when_fooled=False,
        )
        found = climb(
            model, x, y, self.threat, loss=cross_entropy, ascent=ascent, generator=generator
        )
        return found.points
