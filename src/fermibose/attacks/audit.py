"""The audit: a robust accuracy, and the evidence for or against believing it."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fermibose.attacks import masking
from fermibose.attacks.auto import QUERIES, attack_by_ensemble, check_attack, ensemble
from fermibose.attacks.gradient import Adversary, attack_by_gradient, pgd_ascent
from fermibose.attacks.masking import Check, Probe, percent
from fermibose.attacks.threat import Images, ThreatModel
from fermibose.attacks.victim import (
    ZERO_GRADIENT,
    AttackResult,
    Victim,
    binomial_error,
    misclassified,
    versions,
    victim_of,
)
from fermibose.checks import number, whole
from fermibose.errors import InputError
from fermibose.machine import Recipe, train_mlp
from fermibose.progress import Advance, progress_bar


@dataclass(frozen=True)
class Audit:
    """The verdict on a robust accuracy, with the evidence."""

    threat: ThreatModel
    images: int
    clean_accuracy: float
    robust_accuracy: float  # the worst case per example over everything that was run
    checks: tuple[Check, ...]
    parameters: dict[str, Any]

    @property
    def established(self) -> bool:
        """Whether no check failed; what one that is inconclusive leaves open the verdict says."""
        return all(check.outcome != "FAILED" for check in self.checks)

    @property
    def standard_error(self) -> float:
        """Binomial standard error of the robust accuracy."""
        return binomial_error(self.robust_accuracy, self.images)

    @property
    def headline(self) -> str:
        """The number, if it can be trusted."""
        if not self.established:
            return "robust accuracy not established"
        name = {"linf": "ℓ∞", "l2": "ℓ2"}[self.threat.norm]
        return (
            f"robust accuracy established: {100 * self.robust_accuracy:.1f} ± "
            f"{100 * self.standard_error:.1f} % of {self.images} images withstand every attack "
            f"within {name} {self.threat.epsilon:g} (clean {100 * self.clean_accuracy:.1f} %)"
        )

    @property
    def verdict(self) -> str:
        """One sentence: the number if it can be trusted, else the reasons why not."""
        if not self.established:
            return f"not established: {self._named('FAILED')}"
        unclear = self._named("inconclusive")
        return f"{self.headline}; inconclusive: {unclear}" if unclear else self.headline

    def _named(self, outcome: str) -> str:
        """The checks that ended so, with their evidence."""
        return "; ".join(f"{c.name} ({c.evidence})" for c in self.checks if c.outcome == outcome)

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "verdict": self.verdict,
            "established": self.established,
            "threat": self.threat.as_dict(),
            "images": self.images,
            "clean_accuracy": self.clean_accuracy,
            "robust_accuracy": self.robust_accuracy,
            "standard_error": self.standard_error,
            "checks": [vars(check) for check in self.checks],
            "parameters": self.parameters,
            "versions": versions(),
        }


def audit(
    model: nn.Module,
    x: Images,
    y: Images,
    threat: ThreatModel,
    *,
    rival: nn.Module | None = None,
    features: Callable[[Tensor], Tensor] | None = None,
    probe: int = 200,
    tolerance: float = 0.02,
    square_queries: int = QUERIES,
    seed: int = 0,
    show: bool | None = None,
) -> Audit:
    """Attack with everything, and check whether the outcome can be trusted.

    All images are attacked by PGD and AutoAttack; the robust accuracy is the worst case per
    example. The checks look at up to ``probe`` images, spread over all that are classified
    correctly, and let two attacks differ by ``tolerance`` of them. rival: a net trained
    independently on the same problem, for transfer (by default a small MLP is trained on the probe
    images). features: what the binarisation test reads out (by default ``model.represent`` if there
    is one, else the logits). square_queries: as in ``auto_attack``.
    """
    check_attack("audit", threat)
    whole("probe", probe, least=10)
    number("tolerance", tolerance, above=0, below=1)
    whole("square_queries", square_queries, least=1)
    replace(threat, epsilon=max(masking.EPSILON_RATIOS) * threat.epsilon)  # refused now, not later
    with ExitStack() as stack:
        victim = stack.enter_context(victim_of(model, x, y, threat))
        if not victim.correct.any():
            raise InputError("no image is classified correctly: there is nothing to attack")
        other = None
        if rival is not None:  # one that cannot serve is refused now, too
            other = stack.enter_context(victim_of(rival, victim.x, victim.y, threat))
        steps = _everything(victim.classes, seed, square_queries)
        turns = len(steps) + len(_questions(other, features))
        advance = stack.enter_context(progress_bar("audit", turns, show=show))
        withstood, robust, flags = _attack_in_turn(victim, threat, steps, advance)
        sample = _evenly(victim.correct, probe)
        looked_at = Probe(victim.part(sample), withstood[sample], threat, tolerance, seed)
        done = [black_box(withstood, robust, tolerance), no_flags(flags)]
        other = None if other is None else other.part(sample)
        for question in _questions(other, features):
            done.append(question(looked_at))
            advance(status=done[-1].name)
    clean, left = (float(part.double().mean()) for part in (victim.correct, robust))
    parameters = {"probe": len(sample), "tolerance": tolerance}
    parameters |= {"square_queries": square_queries, "seed": seed}
    return Audit(threat, len(robust), clean, left, tuple(done), parameters)


def _questions(
    rival: Victim | None, features: Callable[[Tensor], Tensor] | None
) -> tuple[Callable[[Probe], Check], ...]:
    """The checks that look at the probe, in the order in which they run."""
    return (
        masking.gradients,
        masking.iterated_beats_one_step,
        masking.monotone_in_epsilon,
        masking.monotone_in_steps,
        masking.chance,
        masking.restarts,
        masking.rescaled,
        masking.precision,
        partial(transfer, rival=rival),
        partial(masking.binarised, features=features),
    )


Attack = Callable[[Victim, ThreatModel], AttackResult]


def _everything(classes: int, seed: int, square_queries: int) -> dict[str, Attack]:
    """The attacks of an audit by name, in the order in which they run."""
    white_box = [attack for attack in ensemble(classes) if attack != "square"]
    ascent = pgd_ascent(restarts=2)
    reference = partial(attack_by_ensemble, seed=seed, show=False)
    return {
        "PGD": partial(attack_by_gradient, "pgd", ascent=ascent, seed=seed, show=False),
        "AutoAttack": partial(reference, attacks=white_box),
        "Square": partial(reference, attacks=["square"], square_queries=square_queries),
    }


def _attack_in_turn(
    victim: Victim, threat: ThreatModel, attacks: dict[str, Attack], advance: Advance
) -> tuple[Tensor, Tensor, list[str]]:
    """Who withstands all but the last attack (n,), who all of them (n,), their flags."""
    left, flags = [victim.correct], dict[str, None]()  # a dict: each flag once, in order
    for name, attack in attacks.items():
        advance(status=name)
        robust = left[-1].clone()
        rows = robust.nonzero()[:, 0]
        if len(rows):
            found = attack(victim.part(rows), threat)
            robust[rows] = found.robust
            # Zero gradients are the matter of a check of their own, which has a tolerance.
            flags |= {flag: None for flag in found.flags if not flag.startswith(ZERO_GRADIENT)}
        left.append(robust)
    return left[-2], left[-1], list(flags)


def black_box(before: Tensor, after: Tensor, tolerance: float) -> Check:
    """Square sees no gradient: it must not fool whom the white-box attacks could not."""
    missed = float((before & ~after).double().mean())
    return Check(
        "white box beats Square",
        missed <= tolerance,
        f"Square fools {percent(missed)} that withstood the white box",
        {"missed": missed},
    )


def no_flags(flags: Sequence[str]) -> Check:
    """What the attacks, and above all the reference implementation of AutoAttack, warn about."""
    evidence = "; ".join(flags) if flags else "PGD and AutoAttack have no warnings"
    return Check("attacks raise no flag", not flags, evidence, {"flags": list(flags)})


def transfer(probe: Probe, rival: Victim | None) -> Check:
    """Examples made for another net must not fool whom the white-box attack could not.

    rival: the same images with that net; by default a small MLP is trained on them.
    """
    name, victim = "white box beats transfer", probe.victim
    if rival is None:
        if len(victim.y.unique()) < 2:
            return Check(name, None, "the images are of one class: no rival can learn from them")
        recipe = Recipe(hidden=(200,), epochs=30, seed=probe.seed)
        inputs = victim.x.flatten(1).cpu().float().numpy()
        mlp = train_mlp(inputs, victim.y.cpu().numpy(), recipe, show=False).net.to(victim.x.device)
        with victim_of(mlp, victim.x, victim.y, probe.threat) as trained:
            return transfer(probe, trained)
    rival = rival.converted(torch.float32)
    generator = torch.Generator(rival.x.device).manual_seed(probe.seed)
    foreign = Adversary(probe.threat, steps=40)(rival.model, rival.x, rival.y, generator)
    with torch.no_grad():
        fooled = misclassified(victim.model(foreign.to(victim.x)), victim.y)
    missed = float((fooled & probe.withstood).double().mean())
    total = float(fooled.double().mean())
    return Check(
        name,
        missed <= probe.tolerance,
        f"examples of an independent net fool {percent(total)}; "
        f"{percent(missed)} withstood the white box",
        {"fooled": total, "missed": missed},
    )


def _evenly(correct: Tensor, count: int) -> Tensor:
    """Row numbers of up to ``count`` correct images, evenly spread (images may be sorted)."""
    rows = correct.nonzero()[:, 0].cpu().numpy()
    chosen = rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int)]
    return torch.as_tensor(chosen, device=correct.device)
