"""The audit: a robust accuracy, and the evidence for or against believing it."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fermibose.attacks import black_box, masking
from fermibose.attacks.auto import QUERIES, attack_by_ensemble, check_attack, ensemble
from fermibose.attacks.binarisation import binarised
from fermibose.attacks.faithful import Witness, same_answers, true_gradient
from fermibose.attacks.front_end import nothing_hidden
from fermibose.attacks.gradient import attack_by_gradient, pgd_ascent
from fermibose.attacks.masking import Check, Probe
from fermibose.attacks.victim import (
    ZERO_GRADIENT,
    AttackResult,
    Victim,
    binomial_error,
    versions,
    victim_of,
)
from fermibose.checks import number, whole
from fermibose.compute import Advance, progress_bar
from fermibose.errors import InputError
from fermibose.threat import Images, ThreatModel


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
    example, over the attacks and over all that the checks find. These look at up to ``probe``
    images, taken evenly from all that are classified correctly, and let two attacks differ by
    ``tolerance`` of them, or by one image. rival: a net trained independently on the same problem,
    for transfer (by default a small net learns from the model's answers). features: what the
    binarisation test reads out (by default what enters the model's last product with a matrix).
    square_queries: as in ``auto_attack``.
    """
    check_attack("audit", threat)
    whole("probe", probe, least=10)
    number("tolerance", tolerance, above=0, below=1)
    whole("square_queries", square_queries, least=1)
    replace(threat, epsilon=max(masking.EPSILON_RATIOS) * threat.epsilon)  # refused now, not later
    with ExitStack() as stack:
        victim = stack.enter_context(victim_of(model, x, y, threat)).one_by_one()
        if not victim.correct.any():
            raise InputError("no image is classified correctly: there is nothing to attack")
        sample = _evenly(victim.correct, probe)
        other = None
        if rival is not None:  # one that cannot serve is refused now, too
            other = stack.enter_context(victim_of(rival, victim.x, victim.y, threat)).part(sample)
        witness = Witness.of(victim.part(sample), threat, seed)
        questions = _questions(witness, other, features)
        white_box = _white_box(victim.classes, seed)
        turns = len(white_box) + 1 + len(questions)
        advance = stack.enter_context(progress_bar("audit", turns, show=show))
        withstood, flags = _attack_in_turn(victim, victim.correct, threat, white_box, advance)
        square = {SQUARE: _square(seed, square_queries)}
        robust, more_flags = _attack_in_turn(victim, withstood, threat, square, advance)
        done = [black_box.square(withstood, robust, tolerance), no_flags(flags | more_flags)]
        looked_at = Probe(victim.part(sample), withstood[sample], threat, tolerance, seed)
        for name, question in questions.items():
            advance(status=name)
            done.append(_asked(name, question, looked_at))
    robust[sample[looked_at.fooled]] = False
    clean, left = (float(part.double().mean()) for part in (victim.correct, robust))
    parameters = {"probe": len(sample), "tolerance": tolerance}
    parameters |= {"square_queries": square_queries, "seed": seed}
    return Audit(threat, len(robust), clean, left, tuple(done), parameters)


SQUARE = "Square"  # the attack that sees no gradient, and is therefore the judge of the others
SAME, GRADIENT = "same answers whenever asked", "gradient is that of the answers"
Question = Callable[[Probe], Check]


def _questions(
    witness: Witness, rival: Victim | None, features: Callable[[Tensor], Tensor] | None
) -> dict[str, Question]:
    """The checks that look at the probe by name, in the order in which they run."""
    return {
        SAME: partial(same_answers, witness=witness),
        GRADIENT: true_gradient,
        "gradients do not vanish": masking.gradients,
        "PGD beats one step": masking.iterated_beats_one_step,
        "monotone in ε": masking.monotone_in_epsilon,
        "converged in steps": masking.monotone_in_steps,
        "chance at large ε": masking.chance,
        "converged in restarts": masking.restarts,
        "rescaling finds no more": masking.rescaled,
        "cross-entropy is as strong as margins": masking.cross_entropy_suffices,
        "front end hides nothing": nothing_hidden,
        "float64 finds no more": masking.precision,
        "white box beats finite differences": black_box.finite_differences,
        "white box beats transfer": partial(black_box.transfer, rival=rival),
        "binarisation test": partial(binarised, features=features),
    }


def _asked(name: str, question: Question, probe: Probe) -> Check:
    """The check; one that fails to run says why, and leaves the others alone.

    Without the two that everything rests on nothing is established.
    """
    try:
        return question(probe)
    except Exception as error:  # of the model's own making
        why = f"could not be checked: {type(error).__name__}: {error}".splitlines()[0]
        return Check(name, False if name in (SAME, GRADIENT) else None, why)


Attack = Callable[[Victim, ThreatModel], AttackResult]


def _white_box(classes: int, seed: int) -> dict[str, Attack]:
    """The attacks that use the gradient by name, in the order in which they run."""
    chosen = [attack for attack in ensemble(classes) if attack != "square"]
    ascent = pgd_ascent(restarts=2)
    return {
        "PGD": partial(attack_by_gradient, "pgd", ascent=ascent, seed=seed, show=False),
        "AutoAttack": partial(attack_by_ensemble, attacks=chosen, seed=seed, show=False),
    }


def _square(seed: int, queries: int) -> Attack:
    return partial(
        attack_by_ensemble, attacks=["square"], square_queries=queries, seed=seed, show=False
    )


def _attack_in_turn(
    victim: Victim, left: Tensor, threat: ThreatModel, attacks: dict[str, Attack], advance: Advance
) -> tuple[Tensor, dict[str, None]]:
    """Who of those that are ``left`` withstands all attacks (n,), and their flags, each once."""
    robust, flags = left.clone(), dict[str, None]()
    for name, attack in attacks.items():
        advance(status=name)
        rows = robust.nonzero()[:, 0]
        if not len(rows):
            continue
        try:
            found = attack(victim.part(rows), threat)
        except Exception as error:  # of the model's own making
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            flags[f"{name} could not be run: {why}"] = None
            continue
        robust[rows] = found.robust
        # Zero gradients are the matter of a check of their own, which has a tolerance.
        flags |= {flag: None for flag in found.flags if not flag.startswith(ZERO_GRADIENT)}
    return robust, flags


def no_flags(flags: Iterable[str]) -> Check:
    """What the attacks, and above all the reference implementation of AutoAttack, warn about."""
    raised = list(flags)
    evidence = "; ".join(raised) if raised else "PGD and AutoAttack have no warnings"
    return Check("attacks raise no flag", not raised, evidence, {"flags": raised})


def _evenly(correct: Tensor, count: int) -> Tensor:
    """Row numbers of up to ``count`` correct images, taken evenly (images may be sorted)."""
    rows = correct.nonzero()[:, 0].cpu().numpy()
    chosen = rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int)]
    return torch.as_tensor(chosen, device=correct.device)
