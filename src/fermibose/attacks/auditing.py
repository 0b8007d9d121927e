"""The audit: a robust accuracy, and the evidence for or against believing it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fermibose.attacks import checks
from fermibose.attacks.auto import auto_attack, ensemble
from fermibose.attacks.methods import pgd
from fermibose.attacks.probe import Check, Probe
from fermibose.attacks.result import AttackResult, versions
from fermibose.attacks.threat import Images, ThreatModel
from fermibose.attacks.victim import ZERO_GRADIENT, Victim, victim_of
from fermibose.errors import InputError
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
        return float((self.robust_accuracy * (1 - self.robust_accuracy) / self.images) ** 0.5)

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
    square_queries: int = 5000,
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
    threat.require("audit", "linf", "l2")
    if threat.epsilon == 0 or probe < 10 or not 0 < tolerance < 1:
        raise InputError("an audit needs epsilon > 0, probe >= 10 and a tolerance in (0, 1)")
    replace(threat, epsilon=max(checks.EPSILON_RATIOS) * threat.epsilon)  # refused now, not later
    if rival is not None:
        with victim_of(rival, x, y, threat):
            pass  # what cannot serve as a rival is refused now, too
    with victim_of(model, x, y, threat) as victim, progress_bar("audit", 13, show=show) as advance:
        if not victim.correct.any():
            raise InputError("no image is classified correctly: there is nothing to attack")
        classes = victim.model(victim.x[:1]).shape[1]
        steps = _everything(classes, seed, square_queries)
        withstood, robust, flags = _attack_in_turn(victim, threat, steps, advance)
        sample = _spread(victim.correct, probe)
        part = victim.x[sample], victim.y[sample], withstood[sample]
        looked_at = Probe(victim.model, *part, classes, threat, tolerance, seed)
        done = [checks.black_box(withstood, robust, tolerance), checks.no_flags(flags)]
        for question in _questions(rival, features):
            done.append(question(looked_at))
            advance(status=done[-1].name)
    clean, left = (float(part.double().mean()) for part in (victim.correct, robust))
    parameters = {"probe": len(sample), "tolerance": tolerance}
    parameters |= {"square_queries": square_queries, "seed": seed}
    return Audit(threat, len(robust), clean, left, tuple(done), parameters)


def _questions(
    rival: nn.Module | None, features: Callable[[Tensor], Tensor] | None
) -> tuple[Callable[[Probe], Check], ...]:
    """The checks that look at the probe, in the order in which they run."""
    return (
        checks.gradients,
        checks.iterated_beats_one_step,
        checks.monotone_in_epsilon,
        checks.monotone_in_steps,
        checks.chance,
        checks.restarts,
        checks.rescaled,
        checks.precision,
        partial(checks.transfer, rival=rival),
        partial(checks.binarised, features=features, images=50),
    )


Steps = Sequence[tuple[str, Callable[..., AttackResult]]]


def _everything(classes: int, seed: int, square_queries: int) -> Steps:
    """The attacks of an audit, in the order in which they run."""
    white_box = [attack for attack in ensemble(classes) if attack != "square"]
    square = partial(auto_attack, attacks=["square"], square_queries=square_queries, seed=seed)
    return (
        ("PGD", partial(pgd, restarts=2, seed=seed)),
        ("AutoAttack", partial(auto_attack, attacks=white_box, seed=seed)),
        ("Square", square),
    )


def _attack_in_turn(
    victim: Victim, threat: ThreatModel, steps: Steps, advance: Advance
) -> tuple[Tensor, Tensor, list[str]]:
    """Who withstands all but the last attack (n,), who all of them (n,), their flags."""
    left, flags = [victim.correct], dict[str, None]()  # a dict: each flag once, in order
    for name, attack in steps:
        advance(status=name)
        robust = left[-1].clone()
        rows = robust.nonzero()[:, 0]
        if len(rows):
            x, y = victim.x[rows], victim.y[rows]
            found = attack(victim.model, x, y, threat, show=False)
            robust[rows] = found.robust
            # Zero gradients are the matter of a check of their own, which has a tolerance.
            flags |= {flag: None for flag in found.flags if not flag.startswith(ZERO_GRADIENT)}
        left.append(robust)
    return left[-2], left[-1], list(flags)


def _spread(correct: Tensor, count: int) -> Tensor:
    """Row numbers of up to ``count`` correct images, evenly spread (images may be sorted)."""
    rows = correct.nonzero()[:, 0].cpu().numpy()
    chosen = rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int)]
    return torch.as_tensor(chosen, device=correct.device)
