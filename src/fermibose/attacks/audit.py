"""The audit: a robust accuracy, and the evidence for or against believing it."""

import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from fermibose.compute import Advance, fraction, progress_bar
from fermibose.errors import FermiboseError, FileFormatError, InputError
from fermibose.files import read_json, write_json
from fermibose.summary import Summarised, table
from fermibose.threat import Images, ThreatModel

if TYPE_CHECKING:
    from pandas import DataFrame

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, repr=False)
class Audit(Summarised):
    """The verdict on a robust accuracy, with the evidence."""

    threat: ThreatModel
    images: int
    clean_accuracy: float
    robust_accuracy: float  # the worst case per example over everything that was run
    checks: tuple[Check, ...]
    parameters: dict[str, Any]

    @property
    def summary(self) -> str:
        """The headline, and how the checks ended."""
        ends = [check.outcome for check in self.checks]
        counts = [f"{ends.count(end)} {end}" for end in dict.fromkeys(ends)]
        return f"{self.headline}; {len(ends)} checks: {', '.join(counts)}"

    def to_frame(self) -> "DataFrame":
        """The checks: name, outcome, evidence."""
        names = ("name", "outcome", "evidence")
        return table({name: [getattr(check, name) for check in self.checks] for name in names})

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
    checkpoint: str | Path | None = None,
    show: bool | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Attack with everything, and check whether the outcome can be trusted.

    All images are attacked by PGD and AutoAttack; the robust accuracy is the worst case per
    example, over the attacks and over all that the checks find. These look at up to ``probe``
    images, taken evenly from all that are classified correctly, and let two attacks differ by
    ``tolerance`` of them, or by one image. rival: a net trained independently on the same problem,
    for transfer (by default a small net learns from the model's answers). features: what the
    binarisation test reads out (by default what enters the model's last product with a matrix).
    square_queries: as in ``auto_attack``. checkpoint: a file that keeps every attack and check as
    it finishes, to go on from after Ctrl-C or a crash; remove it when the audit is done.
    progress: called with (done, all, name) before each of them, for a bar of your own; show: the
    bar in a terminal.
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
        parameters = {"probe": len(sample), "tolerance": tolerance}
        parameters |= {"square_queries": square_queries, "seed": seed}
        questions = _questions(witness, other, features)
        white_box = _white_box(victim.classes, seed, show)
        plain = [threat.as_dict(), parameters, [*white_box, SQUARE, *questions]]
        known = _fingerprint(plain, victim, other, witness, features)
        turns = _Turns(checkpoint, known, len(white_box) + 1 + len(questions), progress)
        left = turns.total - len(turns.kept["turns"])
        turns.advance = stack.enter_context(progress_bar("audit", left, show=show))
        withstood, flags = _attack_in_turn(victim, victim.correct, threat, white_box, turns)
        square = {SQUARE: _square(seed, square_queries, show)}
        robust, more_flags = _attack_in_turn(victim, withstood, threat, square, turns)
        done = [black_box.square(withstood, robust, tolerance), no_flags(flags | more_flags)]
        looked_at = Probe(victim.part(sample), withstood[sample], threat, tolerance, seed)
        for name, question in questions.items():
            asked = turns.take(name, partial(_asked, name, question, looked_at))
            done.append(Check(**asked["check"]))
            robust[sample[asked["fooled"]]] = False
    clean, withstand = (fraction(part) for part in (victim.correct, robust))
    return Audit(threat, len(robust), clean, withstand, tuple(done), parameters)


class _Turns:
    """The attacks and checks in turn, each kept in the checkpoint, if there is one, once done."""

    advance: Advance  # moves the bar

    def __init__(
        self, checkpoint: str | Path | None, known: str, total: int, progress: Progress | None
    ) -> None:
        self.path = None if checkpoint is None else Path(checkpoint)
        self.total, self.progress = total, progress
        self.kept: dict[str, Any] = {"audit": known, "turns": {}}
        if self.path is not None and self.path.exists():
            try:
                kept = read_json(self.path.read_bytes())
                same, self.kept = kept["audit"] == known, {**kept, "turns": dict(kept["turns"])}
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise FileFormatError(
                    f"{self.path} is not a readable checkpoint of an audit ({error}); remove it to "
                    "start afresh"
                ) from error
            if not same:
                raise FermiboseError(
                    f"the checkpoint {self.path} belongs to an audit with another model, other "
                    "images, settings or version; audit the same, or remove it to start afresh"
                )

    def take(self, name: str, turn: Callable[[], dict[str, Any]]) -> Any:
        """What comes of a turn, plain values: taken now, or before."""
        turns = self.kept["turns"]
        if name not in turns:
            self.advance(0, status=name)
            if self.progress is not None:
                self.progress(len(turns), self.total, name)
            turns[name] = turn()
            if self.path is not None:
                write_json(self.path, self.kept)
            self.advance(status=name)
        return turns[name]


def _fingerprint(
    plain: list[Any],
    victim: Victim,
    rival: Victim | None,
    witness: Witness,
    features: Callable[[Tensor], Tensor] | None,
) -> str:
    """Hash of what an audit depends on; models and features count by what they answer.

    plain: threat, settings and the names of all turns, for each attack has only those that
    withstood the ones before. The answers of the witness are those of a model that is a function;
    of any other no two agree.
    """
    digest = hashlib.sha256(json.dumps([*plain, versions()]).encode())
    others = [] if rival is None else [witness.asks(rival.model)]
    if features is not None:
        with suppress(Exception):  # features that fail do so in their check, which says why
            others.append(witness.asks(features))
    for tensor in (victim.x, victim.y, victim.correct, witness.answers, *others):
        digest.update(tensor.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


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


def _asked(name: str, question: Question, probe: Probe) -> dict[str, Any]:
    """The check, and the images of the probe that anything has fooled so far.

    One that fails to run says why, and leaves the others alone; without the two that everything
    rests on nothing is established.
    """
    try:
        check = question(probe)
    except Exception as error:  # of the model's own making
        why = f"could not be checked: {type(error).__name__}: {error}".splitlines()[0]
        check = Check(name, False if name in (SAME, GRADIENT) else None, why)
    return {"check": vars(check), "fooled": probe.fooled.nonzero()[:, 0].tolist()}


Attack = Callable[[Victim, ThreatModel], AttackResult]


def _white_box(classes: int, seed: int, show: bool | None) -> dict[str, Attack]:
    """The attacks that use the gradient by name, in the order in which they run.

    Those of AutoAttack one by one: each takes those that withstood the ones before, as together.
    """
    ascent = pgd_ascent(restarts=2)
    pgd: Attack = partial(attack_by_gradient, "pgd", ascent=ascent, seed=seed, show=show)
    return {"PGD": pgd} | {
        f"AutoAttack {attack}": partial(attack_by_ensemble, attacks=[attack], seed=seed, show=show)
        for attack in ensemble(classes)
        if attack != "square"
    }


def _square(seed: int, queries: int, show: bool | None) -> Attack:
    return partial(
        attack_by_ensemble, attacks=["square"], square_queries=queries, seed=seed, show=show
    )


def _attack_in_turn(
    victim: Victim, left: Tensor, threat: ThreatModel, attacks: dict[str, Attack], turns: _Turns
) -> tuple[Tensor, dict[str, None]]:
    """Who of those that are ``left`` withstands all attacks (n,), and their flags, each once."""
    robust, flags = left.clone(), dict[str, None]()
    for name, attack in attacks.items():
        rows = robust.nonzero()[:, 0]
        found = turns.take(name, partial(_attacked, name, attack, victim.part(rows), threat))
        robust = torch.zeros_like(left)
        robust[rows[found["withstood"]]] = True
        flags |= dict.fromkeys(found["flags"])
    return robust, flags


def _attacked(name: str, attack: Attack, victim: Victim, threat: ThreatModel) -> dict[str, Any]:
    """Who withstands the attack, by number, and its flags."""
    everyone = list(range(len(victim.y)))
    if not everyone:
        return {"withstood": [], "flags": []}
    try:
        found = attack(victim, threat)
    except Exception as error:  # of the model's own making
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        return {"withstood": everyone, "flags": [f"{name} could not be run: {why}"]}
    # Zero gradients are the matter of a check of their own, which has a tolerance.
    flags = [flag for flag in found.flags if not flag.startswith(ZERO_GRADIENT)]
    return {"withstood": found.robust.nonzero()[:, 0].tolist(), "flags": flags}


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
