"""The accuracy at every strength of an attack, measured in one pass where the attack allows it."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from fermibose.attacks.balls import ball_around
from fermibose.attacks.curves import PAPER_STRENGTHS, Curve, Floats
from fermibose.attacks.gradient import (
    PGD_LOSSES,
    PGD_STEPS,
    Ascent,
    input_gradient,
    pgd_ascent,
    run,
    vanishing,
)
from fermibose.attacks.losses import LossName, loss_named, loss_names
from fermibose.attacks.methods import noisy
from fermibose.attacks.threat import LARGEST, Images, ThreatModel
from fermibose.attacks.victim import Victim, victim_of
from fermibose.errors import InputError
from fermibose.progress import progress_bar

CurveAttack = Literal["one_step", "noise", "pgd"]


def accuracy_curve(
    model: nn.Module,
    x: Images,
    y: Images,
    threat: ThreatModel,
    *,
    epsilons: Sequence[float] = PAPER_STRENGTHS,
    attack: CurveAttack | None = None,
    loss: LossName | Sequence[LossName] | None = None,
    steps: int = PGD_STEPS,
    restarts: int = 1,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    batch_size: int = 1000,
    show: bool | None = None,
) -> Curve:
    """Accuracy at each strength ε, in one pass where the attack allows it.

    attack: "one_step" (FGSM for ℓ∞, the one-step attack for ℓ2: one backward pass serves all ε,
    since neither the sign nor the direction of the gradient depends on ε), "pgd" (the attack
    ``pgd`` at every ε) or "noise" (fresh noise at every ε). By default the paper's: one step or
    noise, as the norm says. The ε of ``threat`` plays no role. loss: what is climbed, by default
    the cross-entropy; PGD climbs several in turn, by default cross-entropy and margin, from as
    many random starts each as restarts says.
    """
    strengths = _checked_strengths(epsilons)
    attack = attack or ("noise" if threat.norm == "noise" else "one_step")
    if attack not in ("one_step", "noise", "pgd"):
        raise InputError(f"attack must be 'one_step', 'pgd' or 'noise', got {attack!r}")
    threat.require(attack, *(("noise",) if attack == "noise" else ("linf", "l2")))
    ascent = _ascent(attack, loss, steps, restarts)
    with victim_of(model, x, y, threat, dtype=dtype, batch_size=batch_size) as victim:
        if attack == "pgd":
            robust = _pgd(victim, threat, strengths, ascent, seed, show)
        else:
            robust = _in_one_pass(victim, threat, strengths, ascent, seed, show)
        parameters = {"seed": seed, "dtype": str(victim.x.dtype)}
    if attack != "noise":
        parameters |= asdict(ascent)
    names = {"linf": "fgsm", "l2": "one_step_l2", "noise": "noise"}
    name = "pgd" if attack == "pgd" else names[threat.norm]
    return Curve(name, threat, strengths, robust.cpu().numpy(), parameters, victim.flags)


def _ascent(
    attack: CurveAttack, loss: LossName | Sequence[LossName] | None, steps: int, restarts: int
) -> Ascent:
    if attack == "pgd":
        losses = PGD_LOSSES if loss is None else loss
        return pgd_ascent(losses=losses, steps=steps, restarts=restarts)
    names = loss_names("cross_entropy" if loss is None else loss)
    if len(names) != 1:
        raise InputError(f"one step climbs one loss, got {', '.join(names) or 'none'}")
    return Ascent(names)


def _in_one_pass(
    victim: Victim,
    threat: ThreatModel,
    strengths: Floats,
    ascent: Ascent,
    seed: int,
    show: bool | None,
) -> Tensor:
    """Which images withstand one step, or noise, of each strength, (strengths, n)."""
    generator = torch.Generator(victim.x.device).manual_seed(seed)
    loss = loss_named(ascent.losses[0])
    robust = victim.correct.repeat(len(strengths), 1)
    chunks = victim.batches(victim.correct.nonzero()[:, 0])
    name = "noise curve" if threat.norm == "noise" else "one-step curve"
    with progress_bar(name, len(chunks) * len(strengths), show=show) as advance:
        for rows in chunks:
            x = victim.x[rows]
            if threat.norm != "noise":
                gradient, _ = input_gradient(victim.model, x, victim.y[rows], loss)
                victim.stuck += int(vanishing(gradient).sum())
                direction = ball_around(x, threat).steepest(gradient)
            for row, epsilon in enumerate(strengths.tolist()):
                if epsilon > 0:
                    if threat.norm == "noise":
                        points = noisy(x, replace(threat, epsilon=epsilon), generator)
                    else:
                        # A unit step times ε is on the border of its ball: only bounds can bind.
                        points = torch.add(x, direction, alpha=epsilon).clamp_(*threat.bounds)
                    robust[row, rows] = ~victim.wrong(points, rows)
                advance()
    return robust


def _pgd(
    victim: Victim,
    threat: ThreatModel,
    strengths: Floats,
    ascent: Ascent,
    seed: int,
    show: bool | None,
) -> Tensor:
    """Which images withstand PGD within each strength, (strengths, n)."""
    found = []
    with progress_bar("pgd curve", len(strengths), show=show) as advance:
        for epsilon in strengths.tolist():
            if epsilon > 0:
                strong = replace(threat, epsilon=epsilon)
                found.append(run("pgd", victim, strong, ascent, seed=seed, show=False).robust)
            else:
                found.append(victim.correct)  # there is nowhere to climb
            advance()
    return torch.stack(found)


def _checked_strengths(epsilons: Sequence[float]) -> Floats:
    strengths = np.asarray(epsilons, dtype=np.float64)
    if strengths.ndim != 1 or not len(strengths) or not np.isfinite(strengths).all():
        raise InputError("epsilons must be a sequence of finite numbers")
    if strengths[-1] > LARGEST:
        raise InputError(f"epsilons must be at most {LARGEST:g}, got {strengths[-1]:g}")
    if strengths[0] < 0 or (np.diff(strengths) <= 0).any():
        raise InputError("epsilons must be >= 0 and increase from one to the next")
    return strengths
