"""The binarisation test of Zimmermann, Brendel, Tramèr and Carlini (2022).

Around each image, a linear readout on the model's own features is built that tells one point on the
border of the ball from many points inside it. By construction an adversarial example exists (that
point). An attack that cannot find one is too weak for this model, whatever accuracy it reports.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fermibose.attacks.gradient import Ascent, climb, loss_named, pgd_ascent
from fermibose.attacks.masking import Check, Probe
from fermibose.attacks.victim import misclassified, seeded
from fermibose.threat import ThreatModel, ball_around

# Images, points inside each ball, and random starts of the attack. With as many points as features
# the readout may be so wild that PGD fails on honest nets too, so there are at most half as many;
# benchmarks/audit.py tells whether it then solves the problems of tests/attacks/zoo.py, and not
# those of masks.py.
PROBLEMS, INNER, RESTARTS = 50, 30, 5
SOLVED = 0.9  # share of the problems that the attack must solve; benchmarks/audit.py judges it
LEAST_GAP = 1e-3  # between the scores of border and inside, in their deviations; less is rounding

Features = Callable[[Tensor], Tensor]  # inputs to (B, F)
# Products with a matrix, and which of their arguments comes from the left
_PRODUCTS = {
    nn.functional.linear: 0, torch.matmul: 0, Tensor.matmul: 0, Tensor.__matmul__: 0,
    torch.mm: 0, Tensor.mm: 0, torch.addmm: 1, Tensor.addmm: 1,
}  # fmt: skip


class _Products(TorchFunctionMode):
    """Notes what enters the products with a matrix while a model answers."""

    def __init__(self) -> None:
        super().__init__()
        self.entered: list[Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in _PRODUCTS and len(args) > _PRODUCTS[func]:
            self.entered.append(args[_PRODUCTS[func]])
        return func(*args, **(kwargs or {}))


def features_of(model: nn.Module, x: Tensor, classes: int) -> Features:
    """What the model reads its logits out of: the features in its last product with a matrix.

    Found while it answers for x (n, …), so that nothing depends on how it names its parts; the
    logits themselves if no product has features of the images, more of them than classes.
    """
    with torch.enable_grad(), _Products() as products:
        model(x.detach().requires_grad_())
    # Counted from the last: a layer may divide its product, and otherwise without a gradient.
    suitable = [
        place - len(products.entered)
        for place, left in enumerate(products.entered)
        if left.ndim == 2 and len(left) >= len(x) and left.shape[1] > classes and left.requires_grad
    ]

    def features(points: Tensor) -> Tensor:
        with torch.enable_grad(), _Products() as products:  # as above: layers may ask for a tape
            found = model(points)
        if suitable:
            found = products.entered[suitable[-1]]
        return found[: len(points)].to(points.dtype)  # type: ignore[no-any-return]

    return features


def binarised(probe: Probe, features: Features | None, images: int = PROBLEMS) -> Check:
    """The attack must solve problems that have a solution by construction."""
    model, x = probe.victim.model, probe.victim.x
    chosen = features or features_of(model, x, probe.victim.classes)
    with torch.no_grad():
        width = chosen(x[:1]).shape[1]
    found = binarisation_test(
        chosen, x[:images], probe.threat,
        inner=min(INNER, max(2, width // 2)), seed=probe.seed,
        ascent=pgd_ascent(losses=("cross_entropy", "margin"), restarts=RESTARTS),
    )  # fmt: skip
    passed: bool | None = found.problems > 0 and found.success >= SOLVED
    if passed and found.by_chance > found.problems / 2:
        passed = None  # so easy that the attack has nothing to prove
    return Check(
        "binarisation test",
        passed,
        f"the attack solves {found.solved} of {found.problems} problems that have a solution, "
        f"random points {found.by_chance}",
        {"problems": found.problems, "solved": found.solved, "by_chance": found.by_chance},
    )


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
    features: Features, x: Tensor, threat: ThreatModel, *, inner: int, ascent: Ascent, seed: int = 0
) -> Binarisation:
    """Pose one problem around each image x (n, …) and attack it with ``ascent``.

    features: maps inputs to (B, F). inner: points inside the ball that must not be detected; more
    than F of them may leave no linear readout.
    """
    generator = seeded(seed, x.device)
    problems = solved = by_chance = 0
    label = torch.zeros(1, dtype=torch.long, device=x.device)
    for image in x.split(1):
        detector = _pose(features, image, threat, inner, generator)
        if detector is None:
            continue
        problems += 1
        solved += _solves(detector, image, threat, ascent, generator)
        guesses = image.expand(ascent.steps, *image.shape[1:])
        with torch.no_grad():
            logits = detector(ball_around(guesses, threat).random(generator))
        by_chance += int(misclassified(logits, label).any())
    return Binarisation(problems, solved, by_chance)


def _solves(
    detector: _Detector,
    image: Tensor,
    threat: ThreatModel,
    ascent: Ascent,
    generator: torch.Generator,
) -> bool:
    """Whether one of the starts, on one of the losses, leads to a point that is detected."""
    label = torch.zeros(1, dtype=torch.long, device=image.device)
    for loss in [loss_named(name) for _ in range(ascent.restarts) for name in ascent.losses]:
        found = climb(detector, image, label, threat, loss=loss, ascent=ascent, generator=generator)
        if bool(found.fooled):
            return True
    return False


@torch.no_grad()
def _pose(
    features: Features, image: Tensor, threat: ThreatModel, inner: int, generator: torch.Generator
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
    if not gap > LEAST_GAP * scores.std():
        return None  # no linear readout tells them apart
    threshold = scores[1:].max() + gap / 2
    return _Detector(features, weight / gap, threshold / gap)
