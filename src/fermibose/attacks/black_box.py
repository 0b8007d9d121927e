"""Attacks that see answers only: what they find, no gradient can have hidden from them."""

import torch
from torch import Tensor, nn

from fermibose.attacks.gradient import Adversary, margin
from fermibose.attacks.masking import Check, Probe, percent
from fermibose.attacks.victim import Victim, misclassified, seeded
from fermibose.compute import fraction
from fermibose.threat import ThreatModel, ball_around

# Not tuned. benchmarks/audit.py tells which masks these find.
HIDDEN, ROUNDS = 200, 400  # units of the pupil, and its steps of Adam
SURVIVORS = 60  # images that finite differences are tried on
SPANS = (0.5, 0.1)  # in units of ε, over which answers are compared
STEPS, PAIRS = 25, 50  # of a climb by finite differences, and comparisons for each step


def square(before: Tensor, after: Tensor, tolerance: float) -> Check:
    """Square sees no gradient: it must not fool whom the white-box attacks could not."""
    missed = fraction(before & ~after)
    return Check(
        "white box beats Square",
        missed * len(before) <= max(1, tolerance * len(before)) + 1e-6,
        f"Square fools {percent(missed)} that withstood the white box",
        {"missed": missed},
    )


def transfer(probe: Probe, rival: Victim | None) -> Check:
    """Examples made for another net must not fool whom the white-box attack could not.

    rival: the same images with that net; by default a pupil of the model's.
    """
    victim = probe.victim
    if rival is None:
        whose, taught = "a net taught by its answers", _Pupil(victim, probe.threat, probe.seed)
        inputs, labels = victim.x.float(), victim.y
        model: nn.Module = taught
    else:
        whose, rival = "an independent net", rival.converted(torch.float32)
        model, inputs, labels = rival.model, rival.x, rival.y
    generator = seeded(probe.seed, inputs.device)
    foreign = Adversary(probe.threat, steps=40)(model, inputs, labels, generator)
    missed = probe.missed(foreign)
    with torch.no_grad():
        total = fraction(misclassified(victim.model(foreign.to(victim.x)), victim.y))
    return Check(
        "white box beats transfer",
        probe.allows(missed),
        f"examples of {whose} fool {percent(total)}; {percent(missed)} withstood the white box",
        {"fooled": total, "missed": missed},
    )


class _Pupil(nn.Module):
    """A small net that learns a model's logits in and around the balls, and no more of it."""

    def __init__(self, victim: Victim, threat: ThreatModel, seed: int) -> None:
        super().__init__()
        x = victim.x.float().flatten(1)
        self.centre, self.width = x.mean(), x.std().clamp(min=1e-12)
        generator = seeded(seed, x.device)
        shapes = ((x.shape[1], HIDDEN), (HIDDEN, victim.classes))
        self.weights: list[Tensor] = []
        for shape in shapes:
            weight = torch.randn(shape, generator=generator, device=x.device) / shape[0] ** 0.5
            self.weights.append(weight.requires_grad_())
        optimiser = torch.optim.Adam(self.weights, 3e-3)
        wide = ThreatModel(threat.norm, 2 * threat.epsilon, threat.bounds)
        for _ in range(ROUNDS):
            rows = torch.randint(len(x), (200,), generator=generator, device=x.device)
            points = ball_around(victim.x[rows], wide).random(generator)
            with torch.no_grad():
                answers = victim.model(points).float()
            answers = (answers - answers.mean(1, keepdim=True)).nan_to_num(0, 0, 0)
            size = answers.std().clamp(min=1e-30)
            with torch.enable_grad():
                loss = (self(points.float()) - answers / size).square().mean()
                optimiser.zero_grad()
                loss.backward()
            optimiser.step()
        for weight in self.weights:
            weight.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """The logits it believes in, of order one."""
        first, last = self.weights
        h: Tensor = (x.flatten(1) - self.centre) / self.width
        return (h @ first).relu() @ last


@torch.no_grad()
def finite_differences(probe: Probe) -> Check:
    """PGD on slopes measured from answers a part of ε apart: no gradient, and no small print.

    g = Σ_u [f(x + su) − f(x − su)] u over Gaussian directions u, f the margin, s the span.
    """
    victim, threat = probe.victim, probe.threat
    survivors = probe.withstood.nonzero()[:, 0]
    many, device = min(SURVIVORS, len(survivors)), survivors.device
    tried = survivors[torch.linspace(0, len(survivors) - 1, many, device=device).round().long()]
    points, missed = victim.x.clone(), 0.0
    for span in SPANS if len(tried) else ():
        points[tried] = _climb_blindly(victim.part(tried), threat, span, probe.seed)
        # As if all survivors had been tried
        missed = max(missed, probe.missed(points) * len(survivors) / len(tried))
    return Check(
        "white box beats finite differences",
        probe.allows(missed),
        f"differences of answers lead to {percent(missed)} that withstood the white box",
        {"missed": missed, "tried": len(tried)},
    )


def _climb_blindly(victim: Victim, threat: ThreatModel, span: float, seed: int) -> Tensor:
    """Where each image (B, …) ends, or the first point that fools."""
    generator = seeded(seed, victim.x.device)
    x, y = victim.x, victim.y
    ball = ball_around(x, threat)
    point, found, slope = x.clone(), x.clone(), torch.zeros_like(x)
    fooled = torch.zeros_like(y, dtype=torch.bool)
    per_image = (-1, *[1] * (x.ndim - 1))
    scale = span * threat.epsilon * (1 if threat.norm == "linf" else x[0].numel() ** -0.5)
    for _ in range(STEPS):
        u = torch.randn((PAIRS, *x.shape), generator=generator, dtype=x.dtype, device=x.device)
        asked = torch.cat([point + scale * u, point - scale * u]).clamp_(*threat.bounds)
        parts = asked.flatten(0, 1).split(victim.batch_size)
        logits = torch.cat([victim.model(part) for part in parts])
        rise = margin(logits, y.repeat(2 * PAIRS)).nan_to_num().view(2, PAIRS, *per_image)
        slope = 0.75 * slope + ((rise[0] - rise[1]) * u).sum(0)
        point = ball.project(point + 4 / STEPS * threat.epsilon * ball.steepest(slope))
        found = torch.where(fooled.view(per_image), found, point)
        fooled |= misclassified(victim.model(point), y)
    return found
