"""The one gradient loop behind FGSM, the one-step ℓ2 attack and PGD; noise, for comparison."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from fermibose.attacks.victim import (
    AttackResult,
    Victim,
    misclassified,
    seeded,
    undefined,
    victim_of,
)
from fermibose.checks import choice, number, whole
from fermibose.errors import InputError
from fermibose.threat import Ball, Images, ThreatModel, ball_around, require

Loss = Callable[[Tensor, Tensor], Tensor]
LossName = Literal["cross_entropy", "margin", "mean_squared"]
PgdLoss = LossName | Literal["targeted"]

LONGEST_STEP = 1000.0  # in units of ε; times the largest ε its square is a number in float32
# `fbm reproduce robustness` tells how many points PGD with these leaves more than AutoAttack.
PGD_STEPS = 40
PGD_LOSSES: tuple[PgdLoss, ...] = ("cross_entropy", "margin", "targeted")
MOST_RIVALS = 40  # the nearest, to which PGD leaps: together that costs no more than one climb


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    r"""−log softmax(z)_y, the cost of the paper's FGSM.

    Where p_y rounds to 1 (from z_y − z_k = 17 on in float32) its gradient −(1 − p_y)∇z_y + … has
    lost the label's part, in the paper's FGSM as here: with such logits climb the margin.
    """
    return torch.nn.functional.cross_entropy(logits, y, reduction="none")


def margin(logits: Tensor, y: Tensor) -> Tensor:
    r"""max_{k≠y} z_k − z_y: positive where another class wins.

    It does not saturate, so it still has a gradient where the cross-entropy has none left.
    """
    own = y[:, None]
    rivals = logits.scatter(1, own, -torch.inf)
    return rivals.amax(1) - logits.gather(1, own)[:, 0]


def towards(rank: int) -> Loss:
    """The loss z_k − z_y of one rival k: the nearest (rank 0), the second nearest, …"""

    def loss(logits: Tensor, y: Tensor) -> Tensor:
        own = y[:, None]
        rivals = logits.scatter(1, own, -torch.inf).topk(rank + 1).values
        return rivals[:, rank] - logits.gather(1, own)[:, 0]

    return loss


def mean_squared(logits: Tensor, y: Tensor) -> Tensor:
    r"""½ Σ_k (t_k − tanh z_k)² with targets t_y = 1, else −1: the loss of the paper's theory.

    With two logits (z, −z) it is twice the printed ½[y − tanh z]², so its direction is the same.
    """
    targets = -torch.ones_like(logits)
    targets.scatter_(1, y[:, None], 1.0)
    return (targets - logits.tanh()).square().sum(1) / 2


LOSSES: dict[str, Loss] = {loss.__name__: loss for loss in (cross_entropy, margin, mean_squared)}


def loss_names(losses: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several, as a tuple."""
    return (losses,) if isinstance(losses, str) else tuple(losses)


def loss_named(name: str) -> Loss:
    """The loss called ``name``."""
    return LOSSES[choice("loss", name, LOSSES)]


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
            choice("loss", loss, (*LOSSES, "targeted"))
        if not self.losses:
            raise InputError("an attack needs at least one loss to climb")
        whole("steps", self.steps, least=1)
        whole("restarts", self.restarts, least=1)
        unit = "step_size (in units of epsilon: 2 crosses the whole ball)"
        number(unit, self.step_size, above=0, most=LONGEST_STEP)


def usual_step(steps: int, *, longest: float = 1.0) -> float:
    """2.5/steps in units of ε, so that the border is reached from anywhere in the ball.

    The step of Madry et al. (2018); a half more than 2/steps, the least that crosses the ball.
    """
    return min(longest, 2.5 / whole("steps", steps, least=1))


def one_step(loss: str) -> Ascent:
    """The steepest step from the image itself, of length ε."""
    loss_named(loss)
    return Ascent((loss,))


def pgd_ascent(
    *,
    losses: PgdLoss | Sequence[PgdLoss] = PGD_LOSSES,
    steps: int = PGD_STEPS,
    step_size: float | None = None,
    restarts: int = 1,
    random_start: bool = True,
) -> Ascent:
    """PGD, and what it is unless said otherwise."""
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
    return torch.nan_to_num(gradient), logits.detach()  # not in place: it may be an expanded view


def vanishing(gradient: Tensor) -> Tensor:
    """Where the gradient is exactly 0, (B,): no gradient attack can start there."""
    return (gradient.flatten(1) == 0).all(1)


class Climbers:
    """The examples of a batch that still climb, and what was found for all of them."""

    def __init__(self, x: Tensor, y: Tensor, ball: Ball) -> None:
        self.points = x.clone()  # (B, …) worst point of each example
        self.margins = torch.full_like(y, -torch.inf, dtype=x.dtype)  # max_{k≠y} z_k − z_y there
        self.fooled = torch.zeros_like(y, dtype=torch.bool)
        self.stuck = 0  # examples whose first gradient was exactly 0
        self.undefined = 0  # examples for which the model returned NaN
        self.rows = torch.arange(len(y), device=y.device)  # those that still climb
        self.labels, self.ball = y, ball

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
    ball: Ball | None = None,
) -> Climbers:
    """Climb once from one start of each example: x' ← project(x' + step·ε·steepest(∂loss/∂x')).

    Every point on the way is tried: an example that is misclassified anywhere is done with and
    leaves the batch (unless the ascent says to climb on). ball: where to stay, if not in the
    threat's own ball around x.
    """
    climbers = Climbers(x, y, ball_around(x, threat) if ball is None else ball)
    point = climbers.ball.random(generator) if ascent.random_start else x
    for step in range(ascent.steps):
        gradient, logits = input_gradient(model, point, climbers.labels, loss)
        if step == 0:
            climbers.stuck = int(vanishing(gradient).sum())
        fooled = misclassified(logits, climbers.labels)
        if ascent.stop_when_fooled and fooled.any():
            left = climbers.retire(fooled, point, logits)
            point, gradient = point[left], gradient[left]  # and whatever else is kept by example
            if not len(point):
                return climbers
        move = climbers.ball.steepest(gradient).mul_(ascent.step_size * threat.epsilon)
        point = climbers.ball.project(move.add_(point))
    with torch.no_grad():
        logits = model(point)
    climbers.retire(torch.ones_like(climbers.labels, dtype=torch.bool), point, logits)
    return climbers


def leap(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    threat: ThreatModel,
    *,
    loss: Loss,
    ball: Ball | None = None,
) -> Climbers:
    """One leap from each image to the point of its ball at which the linearised loss is largest.

    The margin over the nearest rival may have its maximum in the ball where another one wins: of
    linear logits these leaps, one for each rival, find everybody who can be fooled.
    """
    climbers = Climbers(x, y, ball_around(x, threat) if ball is None else ball)
    gradient, _ = input_gradient(model, x, y, loss)
    point = climbers.ball.furthest(gradient)
    with torch.no_grad():
        logits = model(point)
    climbers.retire(torch.ones_like(y, dtype=torch.bool), point, logits)
    return climbers


def tries_of(
    ascent: Ascent, classes: int, generator: torch.Generator
) -> list[Callable[..., Climbers]]:
    """One climb for every loss and start, and a leap to every rival, as the ascent asks."""
    tries: list[Callable[..., Climbers]] = []
    for name in ascent.losses:
        if name == "targeted":
            rivals = min(classes - 1, MOST_RIVALS)
            tries += [partial(leap, loss=towards(rank)) for rank in range(rivals)]
        else:
            start = partial(climb, loss=loss_named(name), ascent=ascent, generator=generator)
            tries += [start] * ascent.restarts
    return tries


def attack_by_gradient(
    attack: str,
    victim: Victim,
    threat: ThreatModel,
    ascent: Ascent,
    *,
    seed: int,
    show: bool | None = None,
) -> AttackResult:
    """Climb from every start on every loss and keep the worst case of each example."""
    started = time.perf_counter()
    generator = seeded(seed, victim.x.device)
    examples, robust = victim.x.clone(), victim.correct.clone()
    worst = torch.full_like(victim.y, -torch.inf, dtype=victim.x.dtype)
    tries = tries_of(ascent, victim.classes, generator)
    for rows, attempt in victim.rounds(attack, robust, tries, show):
        found = attempt(victim.model, victim.x[rows], victim.y[rows], threat)
        victim.stuck += found.stuck
        victim.undefined += found.undefined
        robust[rows] = ~found.fooled
        # Among survivors keep the point closest to the decision boundary.
        worse = (found.margins > worst[rows]) | found.fooled
        examples[rows[worse]] = found.points[worse]
        worst[rows[worse]] = found.margins[worse]
    parameters = asdict(ascent) | {"seed": seed}
    return victim.result(attack, threat, examples, robust, parameters, started=started)


def fgsm(
    model: nn.Module,
    x: Images,
    y: Images,
    threat: ThreatModel,
    *,
    loss: LossName = "cross_entropy",
    dtype: torch.dtype | None = None,
    batch_size: int = 1000,
    show: bool | None = None,
) -> AttackResult:
    r"""Fast gradient sign method: x' = clip(x + ε sign ∂C/∂x), as in the paper.

    One step on the ℓ∞ ball; weak, but it is what the published curves show.
    """
    require(threat, "fgsm")
    with victim_of(model, x, y, threat, dtype=dtype, batch_size=batch_size) as victim:
        return attack_by_gradient("fgsm", victim, threat, one_step(loss), seed=0, show=show)


def one_step_l2(
    model: nn.Module,
    x: Images,
    y: Images,
    threat: ThreatModel,
    *,
    loss: LossName = "cross_entropy",
    dtype: torch.dtype | None = None,
    batch_size: int = 1000,
    show: bool | None = None,
) -> AttackResult:
    r"""The ℓ2 attack of the paper: x' = clip(x + ε ∇C/‖∇C‖₂).

    loss: "cross_entropy", or "mean_squared" for the loss ½[y − tanh z]² of the paper's theory.
    """
    require(threat, "one_step_l2")
    with victim_of(model, x, y, threat, dtype=dtype, batch_size=batch_size) as victim:
        return attack_by_gradient("one_step_l2", victim, threat, one_step(loss), seed=0, show=show)


def pgd(
    model: nn.Module,
    x: Images,
    y: Images,
    threat: ThreatModel,
    *,
    steps: int = PGD_STEPS,
    step_size: float | None = None,
    restarts: int = 1,
    losses: PgdLoss | Sequence[PgdLoss] = PGD_LOSSES,
    random_start: bool = True,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    batch_size: int = 1000,
    show: bool | None = None,
) -> AttackResult:
    r"""Projected gradient descent on the ℓ∞ or ℓ2 ball, the worst case over losses and restarts.

    step_size: length of a step in units of ε; by default 2.5/steps (but never more than 1), so
    that the border is reached from anywhere in the ball. restarts: random starts for each loss.
    losses: one or several of "cross_entropy", "margin", "mean_squared" and "targeted". The last is
    no climb: whoever has withstood so far is led, rival by rival, to the point of the ball where
    logits that were linear would favour that rival most. Of a linear model, with it, nobody who
    can be fooled is missed. show: a progress bar; by default only in a terminal.
    """
    require(threat, "pgd")
    ascent = pgd_ascent(
        losses=losses,
        steps=steps,
        step_size=step_size,
        restarts=restarts,
        random_start=random_start,
    )
    with victim_of(model, x, y, threat, dtype=dtype, batch_size=batch_size) as victim:
        return attack_by_gradient("pgd", victim, threat, ascent, seed=seed, show=show)


def gaussian_noise(
    model: nn.Module,
    x: Images,
    y: Images,
    threat: ThreatModel,
    *,
    draws: int = 1,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    batch_size: int = 1000,
    show: bool | None = None,
) -> AttackResult:
    """White noise x' = clip(x + ε ξ), ξ ~ N(0, 1), as in the paper; the worst of ``draws`` draws.

    Noise is not an adversary: with one draw ``robust_accuracy`` is the accuracy on noisy images,
    except that an image misclassified without noise is not tried and counts as wrong.
    """
    require(threat, "gaussian_noise")
    whole("draws", draws, least=1)
    started = time.perf_counter()
    with victim_of(model, x, y, threat, dtype=dtype, batch_size=batch_size) as victim:
        generator = seeded(seed, victim.x.device)
        examples, robust = victim.x.clone(), victim.correct.clone()
        for rows, _ in victim.rounds("noise", robust, range(draws), show):
            examples[rows] = noisy(victim.x[rows], threat, generator)
            robust[rows] = ~victim.wrong(examples[rows], rows)
        parameters = {"draws": draws, "seed": seed}
        return victim.result("noise", threat, examples, robust, parameters, started=started)


def noisy(x: Tensor, threat: ThreatModel, generator: torch.Generator) -> Tensor:
    """clip(x + ε ξ) with fresh ξ ~ N(0, 1) for every input."""
    noise = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
    return noise.mul_(threat.epsilon).add_(x).clamp_(*threat.bounds)


@dataclass(frozen=True)
class Adversary:
    """Adversarial training: replaces a mini-batch by adversarial examples of it.

    For ``train_mlp(…, perturb=…)``. One step (FGSM, from a random start with a step of 1.25 ε, as
    in Wong et al. (2020)) or several (PGD, steps of 2.5 ε over their number). Unlike an attack it
    climbs on where the net is already wrong: training needs the largest loss, not the first
    mistake.
    """

    threat: ThreatModel
    steps: int = 1

    def __call__(
        self, model: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Adversarial examples of the inputs x, (B, …)."""
        step = usual_step(self.steps, longest=1.25)
        ascent = Ascent(steps=self.steps, step_size=step, random_start=True, stop_when_fooled=False)
        return climb(
            model, x, y, self.threat, loss=cross_entropy, ascent=ascent, generator=generator
        ).points
