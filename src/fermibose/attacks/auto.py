"""AutoAttack, the reference ensemble of Croce and Hein, run through the package pyautoattack."""

import logging
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from fermibose.attacks.balls import ball_around
from fermibose.attacks.frame import Frame
from fermibose.attacks.result import AttackResult
from fermibose.attacks.threat import Images, ThreatModel
from fermibose.attacks.victim import check_counts, victim_of
from fermibose.errors import FermiboseError, InputError
from fermibose.progress import Advance, progress_bar

STANDARD = ("apgd-ce", "apgd-t", "fab-t", "square")
KNOWN = {*STANDARD, "apgd-dlr", "fab"}
_CLASSES = {"apgd-dlr": 3, "apgd-t": 4}  # that the loss of an attack needs


def auto_attack(
    model: nn.Module,
    x: Images,
    y: Images,
    threat: ThreatModel,
    *,
    attacks: str | Sequence[str] | None = None,
    square_queries: int = 5000,
    seed: int = 0,
    batch_size: int = 500,
    show: bool | None = None,
) -> AttackResult:
    """AutoAttack, standard version: APGD-CE, targeted APGD, targeted FAB and Square, in turn.

    Works for images (n, channels, rows, columns) and for flat inputs (n, features), which are laid
    out as a square, as Square needs; for any bounds; and for few classes: targeted attacks take all
    other classes, and the targeted loss of APGD, which needs four classes, gives way to the
    untargeted one (three) or is left out (two). Runs in float32; what it finds is brought into the
    ball, from which rounding may carry it, and judged there. The reference implementation's
    warnings become ``flags``, and so does a model that returns NaN (which the reference reads as
    class 0). attacks: a part of the ensemble only. square_queries: how often Square may ask; 5000
    is standard, and most of the time goes there.
    """
    if isinstance(attacks, str):
        attacks = (attacks,)
    _check(threat, attacks)
    check_counts(square_queries=square_queries)
    reference = _reference()
    started = time.perf_counter()
    with victim_of(model, x, y, threat, dtype=torch.float32, batch_size=batch_size) as victim:
        logits = victim.model(victim.x[:1].requires_grad_())
        chosen, flags = _choose(attacks, logits)
        rows = victim.correct.nonzero()[:, 0]
        examples, robust = victim.x.clone(), victim.correct.clone()
        with (
            progress_bar("AutoAttack", len(victim.batches(rows)) * len(chosen), show=show) as bar,
            _listening(flags, bar, chosen),
            torch.random.fork_rng(devices=[]),  # the reference seeds torch's global generator
        ):
            frame = Frame.around(victim.x, victim.model, threat)
            if len(rows) and chosen:
                settings = {"attacks": list(chosen), "seed": seed, "device": victim.x.device}
                adversary = _within(threat, frame, reference, settings)
                _as_in_the_standard_version(adversary, logits.shape[1], square_queries)
                entered = frame.enter(victim.x[rows])
                found, _ = adversary.run_standard_evaluation(
                    entered, victim.y[rows], batch_size=batch_size
                )
                flags += _astray(found)
                found = torch.where(found.isfinite(), found, entered)
                examples[rows] = ball_around(victim.x[rows], threat).project(frame.leave(found))
        for part in victim.batches(rows):
            robust[part] = ~victim.wrong(examples[part], part)
        victim.undefined += frame.undefined
        flags += [*victim.flags, *frame.flags(threat)]
        told = {"attacks": list(chosen), "square_queries": square_queries, "seed": seed}
        return AttackResult(
            "autoattack",
            threat,
            examples,
            victim.correct,
            robust,
            told | {"dtype": "torch.float32"},
            tuple(flags),
            time.perf_counter() - started,
        )


def _check(threat: ThreatModel, attacks: Sequence[str] | None) -> None:
    threat.require("auto_attack", "linf", "l2")
    if threat.epsilon == 0:
        raise InputError("auto_attack needs epsilon > 0")
    if attacks is not None and (not attacks or not set(attacks) <= KNOWN):
        raise InputError(f"attacks must be some of {sorted(KNOWN)}, got {list(attacks)}")


def _choose(attacks: Sequence[str] | None, logits: Tensor) -> tuple[tuple[str, ...], list[str]]:
    """The attacks that can be run on a model with these logits, and a flag if some cannot."""
    classes = logits.shape[1]
    chosen = tuple(attacks) if attacks is not None else ensemble(classes)
    for attack in chosen:
        if classes < _CLASSES.get(attack, 2):
            raise InputError(f"{attack} needs {_CLASSES[attack]} classes, the model has {classes}")
    if logits.requires_grad:
        return chosen, []
    flag = "the output does not depend differentiably on the input: only Square ran"
    return tuple(attack for attack in chosen if attack == "square"), [flag]


def _astray(found: Tensor) -> list[str]:
    """A flag if gradients that are no numbers have led the reference to points that are none."""
    astray = int((~found.isfinite()).flatten(1).any(1).sum())
    if not astray:
        return []
    return [
        f"gradients that are NaN or infinite led AutoAttack astray on {astray} of {len(found)} "
        "images: the robust accuracy is an upper bound at best"
    ]


def _within(
    threat: ThreatModel, frame: Frame, reference: ModuleType, settings: dict[str, Any]
) -> Any:
    """The reference's adversary, with ε in the units of the frame."""
    norm = {"linf": "Linf", "l2": "L2"}[threat.norm]
    eps = threat.epsilon / (frame.high - frame.low)
    return reference.AutoAttack(frame, norm=norm, eps=eps, version="custom", **settings)


def _as_in_the_standard_version(adversary: Any, classes: int, square_queries: int) -> None:
    """One restart each, up to nine target classes: what version "standard" sets, for any K."""
    adversary.apgd.n_restarts = adversary.fab.n_restarts = 1
    adversary.square.n_queries = square_queries
    targets = min(9, classes - 1)
    adversary.apgd_targeted.n_target_classes = adversary.fab.n_target_classes = targets


def ensemble(classes: int) -> tuple[str, ...]:
    """The attacks of the standard version that make sense for so many classes."""
    if classes >= 4:
        return STANDARD
    return tuple(
        a for a in ("apgd-ce", "apgd-dlr", "fab-t", "square") if classes > 2 or "dlr" not in a
    )


def _reference() -> ModuleType:
    try:
        import pyautoattack
    except ModuleNotFoundError:
        raise FermiboseError(
            "AutoAttack needs the extra with pyautoattack: pip install 'fermibose[attacks]'"
        ) from None
    return pyautoattack  # type: ignore[no-any-return]


@contextmanager
def _listening(flags: list[str], advance: Advance, attacks: Sequence[str]) -> Iterator[None]:
    """Collect the reference's warnings into ``flags`` and move the bar by its debug messages."""

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if record.levelno >= logging.WARNING:
                text = text.split(" See ", maxsplit=1)[0]
                kind = re.sub(r"\d+", "#", text)
                known = kind in heard  # the same again, with another count
                heard.add(kind)
                # Which attacks few classes allow is settled before; it warns all the same.
                if not known and not text.startswith("with only"):
                    flags.append(text)
            elif text.startswith(tuple(f"{attack} - " for attack in attacks)):
                advance(status=text)

    heard: set[str] = set()
    logger, listener = logging.getLogger("auto-attack"), Listener()
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(listener)
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.propagate = propagate
        logger.setLevel(level)
