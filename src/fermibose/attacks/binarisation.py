"""The binarisation test: can the attack solve problems that are known to have a solution?

Zimmermann, Brendel, Tramèr and Carlini (2022): around each image, a linear readout on the model's
own features is built that tells one point on the border of the ball from many points inside it. By
construction an adversarial example exists (that point). An attack that cannot find one is too weak
for this model, whatever accuracy it reports.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fermibose.attacks.balls import ball_around
from fermibose.attacks.gradient import Ascent, climb
from fermibose.attacks.losses import loss_named
from fermibose.attacks.threat import ThreatModel
from fermibose.attacks.victim import misclassified

Features = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Binarisation:
    """How often the attack solved a problem that has a solution."""

    problems: int
    solved: int
    by_chance: int  # problems that as many random points as the attack has steps solve too

    @property
    def success(self) -> float:
        """Fraction of the problems that the attack solved (0 if none could be posed)."""
        return self.solved / self.problems if self.problems else 0.0


class _Detector(nn.Module):
    """Two logits: 0 against w·features(x) − threshold, scaled to order one."""

    def __init__(self, features: Features, weight: Tensor, threshold: Tensor) -> None:
        super().__init__()
        self.features, self.weight, self.threshold = features, weight, threshold

    def forward(self, x: Tensor) -> Tensor:
        score = self.features(x) @ self.weight - self.threshold
        return torch.stack([torch.zeros_like(score), score], 1)


def binarisation_test(
    features: Features,
    x: Tensor,
    threat: ThreatModel,
    *,
    inner: int,
    ascent: Ascent,
    seed: int = 0,
) -> Binarisation:
    """Pose one problem around each image x (n, …) and attack it with ``ascent``.

    features: maps inputs to (B, F). inner: points inside the ball that must not be detected; more
    than F of them may leave no linear readout.
    """
    generator = torch.Generator(x.device).manual_seed(seed)
    problems = solved = by_chance = 0
    label = torch.zeros(1, dtype=torch.long, device=x.device)
    for image in x.split(1):
        detector = _pose(features, image, threat, inner, generator)
        if detector is None:
            continue
        problems += 1
        for loss in ascent.losses:
            found = climb(
                detector,
                image,
                label,
                threat,
                loss=loss_named(loss),
                ascent=ascent,
                generator=generator,
            )
            if bool(found.fooled):
                solved += 1
                break
        guesses = image.expand(ascent.steps, *image.shape[1:])
        with torch.no_grad():
            logits = detector(ball_around(guesses, threat).random(generator))
        by_chance += int(misclassified(logits, label).any())
    return Binarisation(problems, solved, by_chance)


@torch.no_grad()
def _pose(
    features: Features,
    image: Tensor,
    threat: ThreatModel,
    inner: int,
    generator: torch.Generator,
) -> _Detector | None:
    """A readout that detects one point of the border and neither the image nor points inside."""
    ball = ball_around(image, threat)
    direction = torch.randn(
        image.shape, generator=generator, dtype=image.dtype, device=image.device
    )
    border = ball.project(image + threat.epsilon * ball.steepest(direction))
    copies = image.expand(inner - 1, *image.shape[1:])
    inside = torch.cat([image, ball_around(copies, threat).random(generator)])
    h = features(torch.cat([border, inside]))
    if not h.isfinite().all():
        return None  # nothing to read out where the features are no numbers
    offset = h[1]  # the image itself
    targets = torch.zeros(len(h), dtype=h.dtype, device=h.device)
    targets[0] = 1
    weight = torch.linalg.pinv(h - offset) @ targets  # least norm: 1 at the border, 0 inside
    scores = h @ weight
    gap = scores[0] - scores[1:].max()
    if not gap > 1e-3 * scores.std():
        return None  # no linear readout tells them apart
    threshold = scores[1:].max() + gap / 2
    return _Detector(features, weight / gap, threshold / gap)
