"""The attacks by name: FGSM, the one-step ℓ2 attack, PGD and Gaussian noise."""

import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fermibose.attacks.gradient import PGD_LOSSES, PGD_STEPS, Ascent, pgd_ascent, run
from fermibose.attacks.losses import LossName
from fermibose.attacks.result import AttackResult
from fermibose.attacks.threat import Images, ThreatModel
from fermibose.attacks.victim import check_counts, victim_of
from fermibose.progress import progress_bar


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
    threat.require("fgsm", "linf")
    with victim_of(model, x, y, threat, dtype=dtype, batch_size=batch_size) as victim:
        return run("fgsm", victim, threat, Ascent((loss,)), seed=0, show=show)


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
    threat.require("one_step_l2", "l2")
    with victim_of(model, x, y, threat, dtype=dtype, batch_size=batch_size) as victim:
        return run("one_step_l2", victim, threat, Ascent((loss,)), seed=0, show=show)


def pgd(
    model: nn.Module,
    x: Images,
    y: Images,
    threat: ThreatModel,
    *,
    steps: int = PGD_STEPS,
    step_size: float | None = None,
    restarts: int = 1,
    losses: LossName | Sequence[LossName] = PGD_LOSSES,
    random_start: bool = True,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    batch_size: int = 1000,
    show: bool | None = None,
) -> AttackResult:
    r"""Projected gradient descent on the ℓ∞ or ℓ2 ball, the worst case over losses and restarts.

    step_size: length of a step in units of ε; by default 2.5/steps (but never more than 1), so
    that the border is reached from anywhere in the ball. restarts: random starts for each loss.
    losses: one or several of "cross_entropy", "margin" and "mean_squared".
    """
    threat.require("pgd", "linf", "l2")
    ascent = pgd_ascent(
        losses=losses,
        steps=steps,
        step_size=step_size,
        restarts=restarts,
        random_start=random_start,
    )
    with victim_of(model, x, y, threat, dtype=dtype, batch_size=batch_size) as victim:
        return run("pgd", victim, threat, ascent, seed=seed, show=show)


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
    threat.require("gaussian_noise", "noise")
    check_counts(draws=draws)
    started = time.perf_counter()
    with victim_of(model, x, y, threat, dtype=dtype, batch_size=batch_size) as victim:
        generator = torch.Generator(victim.x.device).manual_seed(seed)
        examples, robust = victim.x.clone(), victim.correct.clone()
        chunks = victim.batches(victim.correct.nonzero()[:, 0])
        with progress_bar("noise", draws * len(chunks), show=show) as advance:
            for rows in chunks:
                for _ in range(draws):
                    rows = rows[robust[rows]]
                    if len(rows):
                        examples[rows] = noisy(victim.x[rows], threat, generator)
                        robust[rows] = ~victim.wrong(examples[rows], rows)
                    advance()
        parameters = {"draws": draws, "seed": seed, "dtype": str(victim.x.dtype)}
        return AttackResult(
            "noise",
            threat,
            examples,
            victim.correct,
            robust,
            parameters,
            victim.flags,
            time.perf_counter() - started,
        )


def noisy(x: Tensor, threat: ThreatModel, generator: torch.Generator) -> Tensor:
    """clip(x + ε ξ) with fresh ξ ~ N(0, 1) for every input."""
    noise = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
    return noise.mul_(threat.epsilon).add_(x).clamp_(*threat.bounds)
