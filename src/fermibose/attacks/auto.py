"""AutoAttack, the reference ensemble of Croce and Hein, run through the package pyautoattack."""

import logging
import math
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from fermibose.attacks.victim import (
    ZERO_GRADIENT,
    AttackResult,
    Victim,
    undefined,
    victim_of,
)
from fermibose.checks import whole
from fermibose.compute import Advance, progress_bar
from fermibose.errors import FermiboseError, InputError
from fermibose.threat import Images, ThreatModel, ball_around, require

STANDARD = ("apgd-ce", "apgd-t", "fab-t", "square")
KNOWN = {*STANDARD, "apgd-dlr", "fab"}
_CLASSES = {"apgd-dlr": 3, "apgd-t": 4}  # that the loss of an attack needs
BATCH = 500  # images that the reference takes at a time
QUERIES = 5000  # of Square, in the standard version
# Steps of float32, in units of ε, that are worth a flag. test_auto.py: at 0.001 the attack finds
# exactly who can be fooled (inputs within ±1000, ε = 0.25), at 40 it misses some.
_COARSE = 0.01
# Warnings about what is decided before: which attacks few classes allow, and dynamic models.
_EXPECTED = ("with only", "it seems to be a dynamic defense")


def auto_attack(
    model: nn.Module,
    x: Images,
    y: Images,
    threat: ThreatModel,
    *,
    attacks: str | Sequence[str] | None = None,
    square_queries: int = QUERIES,
    seed: int = 0,
    batch_size: int = BATCH,
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
    check_attack("auto_attack", threat)
    if attacks is not None and (not attacks or not set(attacks) <= KNOWN):
        raise InputError(f"attacks must be some of {sorted(KNOWN)}, got {list(attacks)}")
    whole("square_queries", square_queries, least=1)
    with victim_of(model, x, y, threat, dtype=torch.float32, batch_size=batch_size) as victim:
        return attack_by_ensemble(
            victim,
            threat,
            attacks=attacks,
            square_queries=square_queries,
            seed=seed,
            batch_size=batch_size,
            show=show,
        )


def check_attack(attack: str, threat: ThreatModel) -> None:
    """Refuse what the function called ``attack`` would refuse, before anything runs.

    A norm it is not made for, a strength of 0 that leaves it nothing to do, an extra that is not
    installed.
    """
    require(threat, attack)
    if attack in ("auto_attack", "audit"):
        _reference()


def attack_by_ensemble(
    victim: Victim,
    threat: ThreatModel,
    *,
    attacks: Sequence[str] | None,
    square_queries: int = QUERIES,
    seed: int,
    batch_size: int = BATCH,
    show: bool | None,
) -> AttackResult:
    """AutoAttack, or the part ``attacks`` of it, on the victim in float32."""
    started = time.perf_counter()
    victim = replace(victim.converted(torch.float32).one_by_one(), batch_size=batch_size)
    logits = victim.model(victim.x[:1].requires_grad_())
    chosen, flags = _choose(attacks, logits)
    flags += _dynamic(victim)
    rows = victim.correct.nonzero()[:, 0]
    examples, robust = victim.x.clone(), victim.correct.clone()
    with (
        progress_bar("AutoAttack", len(victim.batches(rows)) * len(chosen), show=show) as bar,
        _listening(flags, bar, chosen),
        torch.random.fork_rng(devices=[]),  # the reference seeds torch's global generator
    ):
        frame = Frame.around(victim.x, victim.model, threat)
        frame.tell = bar
        if len(rows) and chosen:
            settings = {"attacks": list(chosen), "seed": int(seed), "device": victim.x.device}
            adversary = _within(threat, frame, settings)
            _as_in_the_standard_version(adversary, victim.classes, square_queries)
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
    parameters = {"attacks": list(chosen), "square_queries": square_queries, "seed": seed}
    return victim.result(
        "autoattack", threat, examples, robust, parameters, started=started, flags=tuple(flags)
    )


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


def _dynamic(victim: Victim) -> list[str]:
    """A flag if the model asks autograd for gradients while it answers.

    The reference looks for this too, but by the names of functions, and counts them for all models
    of the process together.
    """
    autograd = {torch.autograd.grad.__code__, torch.autograd.backward.__code__}
    asked = False

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal asked
        asked |= event == "call" and frame.f_code in autograd

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        with torch.no_grad():
            victim.model(victim.x[: victim.batch_size])
    finally:
        sys.setprofile(before)
    flag = (
        "the model differentiates while it answers (a dynamic defence): AutoAttack may be too weak"
    )
    return [flag] if asked else []


def _astray(found: Tensor) -> list[str]:
    """A flag if gradients that are no numbers have led the reference to points that are none."""
    astray = int((~found.isfinite()).flatten(1).any(1).sum())
    if not astray:
        return []
    return [
        f"gradients that are NaN or infinite led AutoAttack astray on {astray} of {len(found)} "
        "images: the robust accuracy is an upper bound at best"
    ]


def _within(threat: ThreatModel, frame: "Frame", settings: dict[str, Any]) -> Any:
    """The reference's adversary, with ε in the units of the frame."""
    norm = {"linf": "Linf", "l2": "L2"}[threat.norm]
    eps = threat.epsilon / (frame.high - frame.low)
    return _reference().AutoAttack(frame, norm=norm, eps=eps, version="custom", **settings)


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
                if not known and not text.startswith(_EXPECTED):
                    flags.append(text.replace("there are", f"{ZERO_GRADIENT}:", 1))
            elif text.startswith(tuple(f"{attack} - " for attack in attacks)):
                advance(status=text)

    heard: set[str] = set()
    logger, listener = logging.getLogger("auto-attack"), Listener()
    level, propagate, trace = logger.level, logger.propagate, sys.gettrace()
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(listener)
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.propagate = propagate
        logger.setLevel(level)
        sys.settrace(trace)  # which the reference takes away


class Frame(nn.Module):
    """The model as the reference wants it: images (n, channels, rows, columns) in [0, 1].

    It goes between these and the inputs of the model.
    """

    def __init__(self, model: nn.Module, shape: torch.Size, bounds: tuple[float, float]) -> None:
        super().__init__()
        self.model, self.shape, (self.low, self.high) = model, shape, bounds
        self.features = math.prod(shape)
        # Square places squares of a fifth of the side, so five rows are the least.
        self.side = max(5, math.isqrt(self.features - 1) + 1)
        self.is_image = len(shape) == 3 and min(shape[1:]) >= 5
        self.undefined = 0  # points at which the model returned NaN
        self.asked = 0  # how often the model was asked, about a batch each time
        self.tell: Advance | None = None  # hears of that

    @classmethod
    def around(cls, x: Tensor, model: nn.Module, threat: ThreatModel) -> "Frame":
        """The frame of the bounds, but no wider than the balls reach: that costs precision only."""
        low, high = threat.bounds
        reach = float(x.min()) - threat.epsilon, float(x.max()) + threat.epsilon
        return cls(model, x.shape[1:], (max(low, reach[0]), min(high, reach[1])))

    def enter(self, x: Tensor) -> Tensor:
        """Inputs (n, …) to what the reference attacks; flat inputs get spare pixels at the end."""
        unit = (x - self.low) / (self.high - self.low)
        if self.is_image:
            return unit
        spare = self.side**2 - self.features
        padded = nn.functional.pad(unit.flatten(1), (0, spare))
        return padded.view(len(x), 1, self.side, self.side)

    def leave(self, unit: Tensor) -> Tensor:
        """Back to inputs (n, …)."""
        if not self.is_image:
            unit = unit.flatten(1)[:, : self.features].reshape(len(unit), *self.shape)
        return unit * (self.high - self.low) + self.low

    def forward(self, unit: Tensor) -> Tensor:
        """Logits."""
        self.asked += 1
        if self.tell is not None:  # one attack on one batch may take minutes
            self.tell(0, status=f"model asked {self.asked} times")
        logits: Tensor = self.model(self.leave(unit))
        self.undefined += int((undefined(logits) & unit.flatten(1).isfinite().all(1)).sum())
        return logits

    def flags(self, threat: ThreatModel) -> tuple[str, ...]:
        """A flag if float32 resolves the ball so badly that an attack may miss what is in it."""
        largest = max(self.high - self.low, abs(self.high), abs(self.low))
        step = torch.finfo(torch.float32).eps * largest / threat.epsilon
        if step <= _COARSE:
            return ()
        return (
            f"in float32 the steps between inputs of {self.low:g} to {self.high:g} are up to "
            f"{step:.2g} of epsilon: the robust accuracy is an upper bound at best; rescale the "
            "inputs, feature by feature",
        )
