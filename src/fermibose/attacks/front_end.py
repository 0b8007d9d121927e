r"""Attacks behind a front end: the ball as what comes after a monotone pointwise unit sees it.

A unit s that acts on every input by itself, and only grows, takes the ℓ∞ ball exactly to a box,

.. math:: \{s(x') : |x'_i - x_i| \le \varepsilon\} =
    \prod_i [s(x_i - \varepsilon), s(x_i + \varepsilon)] .

A steep unit is flat nearly everywhere, so gradients with respect to x say little: a masked gradient
and a real defence look alike. Behind it nothing is masked. What is found there is carried back by
bisection.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from fermibose.attacks.gradient import PGD_LOSSES, PGD_STEPS, PgdLoss, pgd, pgd_ascent, tries_of
from fermibose.attacks.masking import Check, Probe, percent
from fermibose.attacks.victim import AttackResult, seeded, victim_of
from fermibose.compute import fraction
from fermibose.errors import InputError
from fermibose.machine import FermiBoseNet, LocalPointwise
from fermibose.threat import Images, LinfBall, ThreatModel, ball_around, require

HALVINGS = 60  # of an interval, until rounding ends it in float64


class Box(LinfBall):
    """An interval for every input, of its own length; a step is measured by half of that."""

    def steepest(self, gradient: Tensor) -> Tensor:
        """The sign of the gradient times half the length of each interval."""
        return gradient.sign() * (self.upper - self.lower) / 2

    def keep(self, rows: Tensor) -> "Box":
        """The boxes of the examples ``rows`` only."""
        return Box(self.lower[rows], self.upper[rows])


def front_end(net: nn.Module) -> tuple[nn.Module, nn.Module] | None:
    """The threshold a net begins with and the net behind it; None if it begins otherwise.

    A net is a ``FermiBoseNet``, or an ``nn.Sequential`` that begins with a ``LocalPointwise``.
    """
    if isinstance(net, nn.Sequential) and len(net) > 1 and isinstance(net[0], LocalPointwise):
        return net[0], net[1:]
    if not isinstance(net, FermiBoseNet) or not net.local_layers:
        return None
    if not isinstance(net.local_layers[0], LocalPointwise):
        return None
    return net.local_layers[0] if net.gain is None else Rescaled(net), Behind(net)


class Rescaled(nn.Module):
    """The threshold a net begins with, for inputs in the unit that the net takes them in."""

    def __init__(self, net: FermiBoseNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """What comes out of the first layer, in the shape of x."""
        h: Tensor = self.net.local_layers[0](self.net.rescale(x.flatten(1)))
        return h.view_as(x)


class Behind(nn.Module):
    """A net without its first layer."""

    def __init__(self, net: FermiBoseNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, h: Tensor) -> Tensor:
        """Logits of what comes out of the first layer."""
        logits: Tensor = self.net.readout(self.net.represent_above(h, 1))
        return logits


def attack_behind(
    front: nn.Module,
    rest: nn.Module,
    x: Images,
    y: Images,
    threat: ThreatModel,
    *,
    steps: int = PGD_STEPS,
    restarts: int = 1,
    losses: PgdLoss | Sequence[PgdLoss] = PGD_LOSSES,
    seed: int = 0,
    batch_size: int = 1000,
    show: bool | None = None,
) -> AttackResult:
    r"""PGD on ``rest`` in the box that a monotone pointwise ``front`` makes of the ℓ∞ ball.

    The model is x → rest(front(x)). An image counts as robust if no point of the box was found that
    fools ``rest``: in exact arithmetic the same as fooling the model within the ball. The examples
    are carried back through the front end. Everything is in float64, where a sigmoid of steepness
    50 still tells inputs apart. The other arguments are those of :func:`pgd`.
    """
    require(threat, "attack_behind", "linf")
    ascent = pgd_ascent(losses=losses, steps=steps, restarts=restarts)
    started = time.perf_counter()
    with victim_of(
        nn.Sequential(front, rest), x, y, threat, dtype=torch.float64, batch_size=batch_size
    ) as victim:
        s, behind = victim.model[0], victim.model[1]  # type: ignore[index]
        ball = ball_around(victim.x, threat)
        if not isinstance(ball, LinfBall):
            raise InputError("only ℓ∞ balls become boxes")
        with torch.no_grad():
            box, images = Box(s(ball.lower), s(ball.upper)), s(victim.x)
        if images.shape != victim.x.shape or not _monotone(box, images):
            raise InputError(
                "the front end is not a monotone function of every input by itself, so the ball "
                "does not become a box behind it"
            )
        unit = ThreatModel("linf", 1.0, (-torch.inf, torch.inf))
        generator = seeded(seed, victim.x.device)
        tries = tries_of(ascent, victim.classes, generator)
        examples, robust = victim.x.clone(), victim.correct.clone()
        for rows, attempt in victim.rounds("behind", robust, tries, show):
            found = attempt(behind, images[rows], victim.y[rows], unit, ball=box.keep(rows))
            victim.stuck += found.stuck
            victim.undefined += found.undefined
            fooled = rows[found.fooled]
            robust[fooled] = False
            examples[fooled] = carry_back(s, found.points[found.fooled], ball.keep(fooled))
        parameters = asdict(ascent) | {"seed": seed}
        return victim.result("behind", threat, examples, robust, parameters, started=started)


def unmasked_pgd(
    net: nn.Module, x: Images, y: Images, threat: ThreatModel, **options: Any
) -> AttackResult:
    """PGD where no threshold masks it: behind the one a net begins with, if the norm is ℓ∞.

    options: those that :func:`pgd` and :func:`attack_behind` share.
    """
    parts = front_end(net)
    if parts is None or threat.norm != "linf":
        return pgd(net, x, y, threat, **options)
    return attack_behind(*parts, x, y, threat, **options)


def _monotone(box: Box, middle: Tensor) -> bool:
    return bool(((box.lower <= middle) & (middle <= box.upper)).all())


def nothing_hidden(probe: Probe) -> Check:
    """Behind the threshold a net begins with, an attack must find nothing that others missed.

    What is found there is an adversarial example, wherever the gradient in front has vanished.
    """
    name, parts = "front end hides nothing", front_end(probe.victim.model)
    if parts is None or probe.threat.norm != "linf":
        why = "the model does not begin with a threshold" if parts is None else "the norm is not ℓ∞"
        return Check(name, True, why)
    victim = probe.victim
    found = attack_behind(
        *parts, victim.x, victim.y, probe.threat, seed=probe.seed, show=False
    )  # fmt: skip
    probe.missed(found.examples)
    missed = fraction(~found.robust & probe.withstood)
    evidence = f"PGD in the box behind it fools {percent(missed)} that withstood the white box"
    return Check(name, probe.allows(missed), evidence, {"missed": missed})


@torch.no_grad()
def carry_back(front: nn.Module, points: Tensor, ball: LinfBall) -> Tensor:
    """The inputs in the ball that a monotone front end takes to ``points``, by bisection."""
    low, high = ball.lower.clone(), ball.upper.clone()
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = front(middle) > points
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return (low + high) / 2
