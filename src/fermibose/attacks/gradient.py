"""The one gradient loop behind FGSM, the one-step ℓ2 attack and PGD."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from fermibose.attacks.balls import ball_around
from fermibose.attacks.losses import Loss, LossName, loss_named, loss_names, margin
from fermibose.attacks.result import AttackResult
from fermibose.attacks.threat import ThreatModel
from fermibose.attacks.victim import Victim, check_counts, misclassified, undefined
from fermibose.errors import InputError
from fermibose.progress import progress_bar

LONGEST_STEP = 1000.0  # in units of ε; times the largest ε its square is a number in float32
PGD_STEPS = 40
PGD_LOSSES: tuple[LossName, ...] = ("cross_entropy", "margin")


@dataclass(frozen=True)
class Ascent:
    """How to climb: what tells one gradient attack from another."""

    losses: tuple[str, ...] = ("cross_entropy",)
    steps: int = 1
    step_size: float = 1.0  # length of a step in the norm of the threat, in units of ε
    restarts: int = 1  # starts per loss
    random_start: bool = False  # else from the image itself
    stop_when_fooled: bool = True  # else climb on, for training on the steepest loss

    def __post_init__(self) -> None:
        for loss in self.losses:
            loss_named(loss)
        if not self.losses:
            raise InputError("an attack needs at least one loss to climb")
        check_counts(steps=self.steps, restarts=self.restarts)
        if not 0 < self.step_size <= LONGEST_STEP:
            raise InputError(
                f"step_size must be > 0 and <= {LONGEST_STEP:g}, got {self.step_size}: it is in "
                "units of epsilon, and 2 crosses the whole ball"
            )


def usual_step(steps: int, *, longest: float = 1.0) -> float:
    """2.5/steps in units of ε, so that the border is reached from anywhere in the ball."""
    check_counts(steps=steps)
    return min(longest, 2.5 / steps)


def pgd_ascent(
    *,
    losses: LossName | Sequence[LossName] = PGD_LOSSES,
    steps: int = PGD_STEPS,
    step_size: float | None = None,
    restarts: int = 1,
    random_start: bool = True,
) -> Ascent:
    """PGD and what it is unless said otherwise: the same attack wherever it goes by that name."""
    size = usual_step(steps) if step_size is None else step_size
    return Ascent(loss_names(losses), steps, size, restarts, random_start)


def input_gradient(model: nn.Module, x: Tensor, y: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
    """∂loss/∂x of every example (B, …) and the logits (B, K).

    The gradient is 0 where the output does not depend differentiably on the input at all, and
    where it is not a number: a point that is not one would pass for an adversarial example.
    """
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        logits = model(x)
        total = loss(logits, y).sum()  # examples do not mix, so one backward pass serves all
    if not total.requires_grad:
        return torch.zeros_like(x), logits
    (gradient,) = torch.autograd.grad(total, x, materialize_grads=True)
    return torch.nan_to_num(gradient, out=gradient), logits.detach()


def vanishing(gradient: Tensor) -> Tensor:
    """Where the gradient is exactly 0, (B,): no gradient attack can start there."""
    return (gradient.flatten(1) == 0).all(1)


class Climbers:
    """The examples of a batch that still climb, and what was found for all of them."""

    def __init__(self, x: Tensor, y: Tensor, threat: ThreatModel) -> None:
        self.points = x.clone()  # (B, …) worst point of each example
        self.margins = torch.full_like(y, -torch.inf, dtype=x.dtype)  # max_{k≠y} z_k − z_y there
        self.fooled = torch.zeros_like(y, dtype=torch.bool)
        self.stuck = 0  # examples whose first gradient was exactly 0
        self.undefined = 0  # examples for which the model returned NaN
        self.rows = torch.arange(len(y), device=y.device)  # those that still climb
        self.labels, self.ball = y, ball_around(x, threat)

    def retire(self, done: Tensor, point: Tensor, logits: Tensor) -> Tensor:
        """Record the examples ``done`` and take them out; returns which of the others are left."""
        rows = self.rows[done]
        self.points[rows] = point[done]
        self.margins[rows] = margin(logits, self.labels)[done]
        self.fooled[rows] = misclassified(logits, self.labels)[done]
        self.undefined += int(undefined(logits)[done].sum())
        left = ~done
        self.rows, self.labels, self.ball = self.rows[left], self.labels[left], self.ball.keep(left)
        return left


def climb(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    threat: ThreatModel,
    *,
    loss: Loss,
    ascent: Ascent,
    generator: torch.Generator,
) -> Climbers:
    """Climb once from one start of each example: x' ← project(x' + step·ε·steepest(∂loss/∂x')).

    Every point on the way is tried: an example that is misclassified anywhere is done with and
    leaves the batch (unless the ascent says to climb on).
    """
    climbers = Climbers(x, y, threat)
    point = climbers.ball.random(generator) if ascent.random_start else x
    for step in range(ascent.steps):
        gradient, logits = input_gradient(model, point, climbers.labels, loss)
        if step == 0:
            climbers.stuck = int(vanishing(gradient).sum())
        fooled = misclassified(logits, climbers.labels)
        if ascent.stop_when_fooled and fooled.any():
            left = climbers.retire(fooled, point, logits)
            point, gradient = point[left], gradient[left]
            if not len(point):
                return climbers
        move = climbers.ball.steepest(gradient).mul_(ascent.step_size * threat.epsilon)
        point = climbers.ball.project(move.add_(point))
    with torch.no_grad():
        logits = model(point)
    climbers.retire(torch.ones_like(climbers.labels, dtype=torch.bool), point, logits)
    return climbers


def run(
    attack: str,
    victim: Victim,
    threat: ThreatModel,
    ascent: Ascent,
    *,
    seed: int,
    show: bool | None = None,
) -> AttackResult:
    """Climb from every start on every loss and keep the worst case of each example.

    Only images classified correctly are attacked, and only as long as they withstand.
    """
    started = time.perf_counter()
    generator = torch.Generator(victim.x.device).manual_seed(seed)
    examples, robust = victim.x.clone(), victim.correct.clone()
    worst = torch.full_like(victim.y, -torch.inf, dtype=victim.x.dtype)
    starts = [loss_named(name) for name in ascent.losses for _ in range(ascent.restarts)]
    chunks = victim.batches(victim.correct.nonzero()[:, 0])
    with progress_bar(attack, len(starts) * len(chunks), show=show) as advance:
        for rows in chunks:
            for loss in starts:
                rows = rows[robust[rows]]
                if len(rows):
                    x, y = victim.x[rows], victim.y[rows]
                    found = climb(
                        victim.model, x, y, threat, loss=loss, ascent=ascent, generator=generator
                    )
                    victim.stuck += found.stuck
                    victim.undefined += found.undefined
                    robust[rows] = ~found.fooled
                    # Among survivors keep the point closest to the decision boundary.
                    worse = (found.margins > worst[rows]) | found.fooled
                    examples[rows[worse]] = found.points[worse]
                    worst[rows[worse]] = found.margins[worse]
                advance(status=f"{100 * float(robust.double().mean()):.1f} % withstand")
    parameters = asdict(ascent) | {"seed": seed, "dtype": str(victim.x.dtype)}
    seconds = time.perf_counter() - started
    return AttackResult(
        attack, threat, examples, victim.correct, robust, parameters, victim.flags, seconds
    )
