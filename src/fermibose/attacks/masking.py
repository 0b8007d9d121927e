"""The checks for masked gradients by PGD: each varies the attack, and must find nothing new.

What any of them fools within the ball counts: the stated robust accuracy is what withstood these,
too. A check fails if it fools more of the images that withstood the white box than tolerated.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fermibose.attacks.auto import attack_by_ensemble
from fermibose.attacks.gradient import (
    attack_by_gradient,
    cross_entropy,
    input_gradient,
    margin,
    pgd_ascent,
    vanishing,
)
from fermibose.attacks.victim import Adapted, AttackResult, Victim
from fermibose.compute import fraction
from fermibose.machine import FermiBoseNet, LocalDense
from fermibose.threat import ThreatModel, ball_around

# What PGD is tried with, and which differences matter. Not tuned; whether the verdicts are right
# with these, and a tolerance of 0.02, benchmarks/audit.py tells.
EPSILON_RATIOS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
STEPS = (10, 20, 80, 160)  # beside the usual 40
RESTARTS = 5  # beside those of the white box
ROUNDED = 0.05  # of the typical margin: a difference of logits in two precisions that matters
SATURATED = 1e-3  # slope of a unit below which it is reported so; the largest slope is ½ or 1


@dataclass(frozen=True)
class Check:
    """One question put to a robust accuracy, and the answer."""

    name: str
    passed: bool | None  # None: the check cannot tell, so it speaks neither for nor against
    evidence: str  # one line, with numbers
    numbers: dict[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> Literal["passed", "inconclusive", "FAILED"]:
        """How it ended, in a word."""
        if self.passed is None:
            return "inconclusive"
        return "passed" if self.passed else "FAILED"


@dataclass(frozen=True, eq=False)
class Probe:
    """The images the checks look at, with what the white-box attacks left of them."""

    victim: Victim  # all classified correctly without attack
    withstood: Tensor  # (n,) bool: withstood every white-box attack
    threat: ThreatModel
    tolerance: float  # fraction of the images by which two attacks may differ
    seed: int
    fooled: Tensor = field(init=False)  # (n,) bool: by what a check found within the ball

    def __post_init__(self) -> None:
        object.__setattr__(self, "fooled", torch.zeros_like(self.withstood))

    def allows(self, fraction: float) -> bool:
        """Whether so small a fraction of the images may differ; a single image always may."""
        return fraction * len(self.withstood) <= max(1, self.tolerance * len(self.withstood)) + 1e-6

    def missed(self, points: Tensor) -> float:
        """The fraction of images that withstood the white box and are fooled by these points.

        All that are fooled are noted. A point (n, …) is judged by the model as it is, at the
        nearest place in the ball.
        """
        x = self.victim.x
        inside = ball_around(x, self.threat).project(points.to(x).clone())
        rows = torch.arange(len(x), device=x.device)
        wrong = torch.cat(
            [self.victim.wrong(inside[part], part) for part in self.victim.batches(rows)]
        )
        self.fooled.logical_or_(wrong)
        return fraction(wrong & self.withstood)

    def pgd(self, *, threat: ThreatModel | None = None, **options: Any) -> AttackResult:
        """PGD on all images."""
        ascent, threat = pgd_ascent(**options), threat or self.threat
        return attack_by_gradient("pgd", self.victim, threat, ascent, seed=self.seed, show=False)

    def missed_by_pgd(
        self, *, model: nn.Module | None = None, dtype: torch.dtype | None = None, **options: Any
    ) -> float:
        """What PGD finds among those that withstood the white box.

        model: one with the same answers, to attack in place of the victim's.
        """
        points = self.victim.x.clone()
        rows = self.withstood.nonzero()[:, 0]
        if len(rows):
            victim = self.victim.part(rows)
            victim = victim if model is None else replace(victim, model=model)
            victim = victim if dtype is None else victim.converted(dtype)
            ascent = pgd_ascent(**options)
            found = attack_by_gradient(
                "pgd", victim, self.threat, ascent, seed=self.seed, show=False
            )
            points[rows] = found.examples.to(points)
        return self.missed(points)


class Scaled(nn.Module):
    """The model with its logits multiplied by a constant."""

    def __init__(self, model: nn.Module, factor: float) -> None:
        super().__init__()
        self.model, self.factor = model, factor

    def forward(self, x: Tensor) -> Tensor:
        """The logits times the factor."""
        return self.model(x) * self.factor  # type: ignore[no-any-return]


def largest_rise(values: Sequence[float]) -> float:
    """By how much the values ever rise above their lowest so far."""
    lowest, rise = values[0], 0.0
    for value in values[1:]:
        rise, lowest = max(rise, value - lowest), min(lowest, value)
    return rise


def percent(fraction: float) -> str:
    """A fraction as it stands in the evidence."""
    return f"{100 * fraction:.1f} %"


def chance(probe: Probe) -> Check:
    """Without a bound on the change every classifier can be led to any answer."""
    x, (low, high) = probe.victim.x, probe.threat.bounds
    width = high - low if math.isfinite(high - low) else 10 * float(x.max() - x.min())
    epsilon = width if probe.threat.norm == "linf" else width * x[0].numel() ** 0.5
    # From the image itself: a random start in so large a ball would need no gradient at all.
    within = replace(probe.threat, epsilon=epsilon)
    found = probe.pgd(threat=within, random_start=False).robust_accuracy
    limit = 1 / probe.victim.classes
    return Check(
        "chance at large ε",
        found <= limit,
        f"{percent(found)} left at ε = {epsilon:g}, chance is {percent(limit)}",
        {"epsilon": epsilon, "accuracy": found, "chance": limit},
    )


def monotone_in_epsilon(probe: Probe) -> Check:
    """A larger ball contains the smaller ones: nothing found in these may be new."""
    epsilons = [ratio * probe.threat.epsilon for ratio in EPSILON_RATIOS]
    accuracy, missed = [1.0], 0.0  # without attack every image of the probe is classified correctly
    for epsilon in epsilons[1:]:
        found = probe.pgd(threat=replace(probe.threat, epsilon=epsilon))
        accuracy.append(found.robust_accuracy)
        if epsilon <= probe.threat.epsilon:
            missed = max(missed, probe.missed(found.examples))
    rise = largest_rise(accuracy)
    return Check(
        "monotone in ε",
        probe.allows(rise) and probe.allows(missed),
        f"largest rise {percent(rise)} from one of {len(epsilons)} strengths to the next; "
        f"smaller balls fool {percent(missed)} that withstood the white box",
        {"epsilons": epsilons, "accuracy": accuracy, "missed": missed},
    )


def monotone_in_steps(probe: Probe) -> Check:
    """Fewer and larger, or more and smaller steps find no more."""
    missed = [probe.missed_by_pgd(steps=steps) for steps in STEPS]
    return Check(
        "converged in steps",
        probe.allows(max(missed)),
        f"PGD with {STEPS[0]} to {STEPS[-1]} steps fools {percent(max(missed))} that withstood the "
        "white box",
        {"steps": list(STEPS), "missed": missed},
    )


def iterated_beats_one_step(probe: Probe) -> Check:
    """Many small steps must fool whom one large step fools."""
    missed = probe.missed_by_pgd(steps=1, random_start=False)
    return Check(
        "PGD beats one step",
        probe.allows(missed),
        f"one step fools {percent(missed)} that withstood the white box",
        {"missed": missed},
    )


def rescaled(probe: Probe) -> Check:
    """Multiplying the logits by a constant changes no decision, so it must not help an attack."""
    with torch.no_grad():
        logits = probe.victim.model(probe.victim.x)
        typical = float(margin(logits, probe.victim.y).abs().median())
    factors = [1 / typical if typical > 0 else 1.0, 0.1]
    missed = [
        probe.missed_by_pgd(model=Scaled(probe.victim.model, factor), losses="cross_entropy")
        for factor in factors
    ]
    return Check(
        "rescaling finds no more",
        probe.allows(max(missed)),
        f"with logits × {factors[0]:.3g} and × 0.1 PGD fools {percent(max(missed))} that withstood "
        "the white box",
        {"factors": factors, "missed": missed},
    )


def precision(probe: Probe) -> Check:
    """Float64 must answer as float32 does, and not find what rounding hides there."""
    name, victim = "float64 finds no more", probe.victim
    single, double = (victim.converted(dtype) for dtype in (torch.float32, torch.float64))
    if isinstance(single.model, Adapted) or isinstance(double.model, Adapted):
        return Check(name, None, "the model computes in one precision only")
    with torch.no_grad():
        coarse, fine = single.model(single.x).double(), double.model(double.x)
    typical = margin(fine, victim.y).abs().median()
    # Only differences of logits decide anything.
    apart = (coarse - coarse[:, :1]) - (fine - fine[:, :1])
    differ = fraction(apart.abs().amax(1) > ROUNDED * typical)
    missed = probe.missed_by_pgd(dtype=torch.float64)
    return Check(
        name,
        probe.allows(missed) and probe.allows(differ),
        f"PGD in float64 fools {percent(missed)} that withstood the white box; the logits of "
        f"{percent(differ)} of the images are not those of float32",
        {"missed": missed, "differ": differ},
    )


def restarts(probe: Probe) -> Check:
    """More random starts must find nothing that the ones before missed."""
    missed = probe.missed_by_pgd(restarts=RESTARTS)
    return Check(
        "converged in restarts",
        probe.allows(missed),
        f"{RESTARTS} more random starts fool {percent(missed)} that withstood the white box",
        {"missed": missed},
    )


def cross_entropy_suffices(probe: Probe) -> Check:
    """A flag on models for which attacks that climb the cross-entropy are loose.

    Where logits are small (of a ridge regression, say) or saturated, APGD-CE leaves images that a
    margin finds. The verdict here rests on both, so it stands; a number by cross-entropy alone
    would not.
    """
    apgd = attack_by_ensemble(
        probe.victim, probe.threat, attacks=["apgd-ce"], seed=probe.seed, show=False
    )
    by_margin = probe.pgd(losses="margin")
    for found in (apgd, by_margin):
        probe.missed(found.examples)
    loose = fraction(apgd.robust & ~by_margin.robust)
    return Check(
        "cross-entropy is as strong as margins",
        True if probe.allows(loose) else None,
        f"{percent(loose)} withstand APGD on the cross-entropy and fall to PGD on the margin",
        {"loose": loose},
    )


def gradients(probe: Probe) -> Check:
    """Where the gradient is exactly zero a gradient attack cannot even start.

    That of the cross-entropy, in float64, where no honest softmax is flat; and that of the margin,
    as the attacks see it.
    """
    victim = probe.victim
    double = victim.converted(torch.float64)
    looks = ((double, cross_entropy), (victim, margin))
    found = [vanishing(input_gradient(v.model, v.x, v.y, loss)[0]) for v, loss in looks]
    zero = max(fraction(flat) for flat in found)
    numbers = {"zero_gradients": zero}
    evidence = f"{percent(zero)} of the images have an input gradient of exactly zero"
    net = victim.model
    last = net.local_layers[-1:] if isinstance(net, FermiBoseNet) else []
    if isinstance(net, FermiBoseNet) and last and isinstance(last[0], LocalDense):
        with torch.no_grad():
            h = net.represent(victim.x)
        slope = last[0].activation.slope(h)
        numbers["saturated_units"] = fraction(slope < SATURATED)
        evidence += f"; {percent(numbers['saturated_units'])} of the units are saturated"
    return Check("gradients do not vanish", probe.allows(zero), evidence, numbers)
