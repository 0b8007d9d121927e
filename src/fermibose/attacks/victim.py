"""The classifier under attack with its images, and what comes of an attack on it.

A public function makes the victim once, at its door: checked, in evaluation mode, in one precision.
Everything behind the door takes the victim.
"""

import copy
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fermibose import compute
from fermibose.checks import choice, whole
from fermibose.compute import fraction, progress_bar
from fermibose.errors import InputError
from fermibose.summary import Summarised, table
from fermibose.threat import Images, ThreatModel

if TYPE_CHECKING:
    from pandas import DataFrame

ZERO_GRADIENT = "the gradient was exactly zero"  # how the flag begins


@dataclass(frozen=True, eq=False, repr=False)
class AttackResult(Summarised):
    """The outcome of one attack on n images.

    ``robust_accuracy`` is the worst case per example: an image counts only if it is classified
    correctly without attack and withstood everything that was tried on it.
    """

    attack: str
    threat: ThreatModel
    examples: Tensor  # (n, …): the worst input found; the image itself where it is misclassified
    correct: Tensor  # (n,) bool: classified correctly without attack
    robust: Tensor  # (n,) bool: correct, and withstood the attack
    parameters: dict[str, Any] = field(default_factory=dict)  # steps, restarts, seed, …
    flags: tuple[str, ...] = ()  # reasons not to trust the number
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """What withstood which attack, and whether that is to be doubted."""
        flags = f"; {len(self.flags)} reasons for doubt in flags" if self.flags else ""
        return (
            f"{self.attack} within {self.threat.norm} {self.threat.epsilon:g}: "
            f"{100 * self.robust_accuracy:.1f} ± {100 * self.standard_error:.1f} % of "
            f"{len(self.robust)} images withstand (clean {100 * self.clean_accuracy:.1f} %){flags}"
        )

    def to_frame(self) -> "DataFrame":
        """Image by image: classified correctly without attack, and withstood it."""
        return table({"correct": self.correct.tolist(), "robust": self.robust.tolist()})

    @property
    def clean_accuracy(self) -> float:
        """Fraction of images classified correctly without attack."""
        return fraction(self.correct)

    @property
    def robust_accuracy(self) -> float:
        """Fraction of images still classified correctly at the worst example found."""
        return fraction(self.robust)

    @property
    def standard_error(self) -> float:
        """Binomial standard error of the robust accuracy, from the finite number of images."""
        return binomial_error(self.robust_accuracy, len(self.robust))

    def as_dict(self) -> dict[str, Any]:
        """Numbers, parameters and versions, ready for JSON (without the examples)."""
        return {
            "attack": self.attack,
            "threat": self.threat.as_dict(),
            "images": len(self.robust),
            "clean_accuracy": self.clean_accuracy,
            "robust_accuracy": self.robust_accuracy,
            "standard_error": self.standard_error,
            "parameters": self.parameters,
            "flags": list(self.flags),
            "seconds": round(self.seconds, 3),
            "versions": versions(),
        }


def binomial_error(fraction: float, images: int) -> float:
    """√(p(1 − p)/n), the standard error of a fraction p of n images."""
    return float((fraction * (1 - fraction) / images) ** 0.5)


def versions() -> dict[str, str]:
    """The versions a robustness number may depend on."""
    return {name: compute.versions()[name] for name in ("fermibose", "torch", "python")}


@dataclass(eq=False)
class Victim:
    """A classifier with the images it is attacked on, and what gave reason for doubt."""

    model: nn.Module
    x: Tensor  # (n, …)
    y: Tensor  # (n,)
    correct: Tensor  # (n,) bool: classified correctly without attack; the only ones attacked
    classes: int
    batch_size: int
    stuck: int = 0  # starting points at which the gradient was exactly 0
    undefined: int = 0  # points at which the model returned NaN

    def part(self, rows: Tensor) -> "Victim":
        """The images ``rows`` as a victim of its own, with a clean record."""
        x, y, correct = self.x[rows], self.y[rows], self.correct[rows]
        return Victim(self.model, x, y, correct, self.classes, self.batch_size)

    def converted(self, dtype: torch.dtype) -> "Victim":
        """The victim in the precision ``dtype``: a copy of the model, asked anew who is correct.

        A model that cannot be converted (``Adapted``) goes on computing in its own precision.
        """
        if dtype == self.x.dtype:
            return self
        x = self.x.to(dtype)
        try:
            return _look(_copy(self.model, dtype), x, self.y, self.batch_size)
        except Exception:  # of the model's own making: weights out of reach, or no copy of it
            model = Adapted(self.model, self.x.dtype)
            return _look(model, x, self.y, self.batch_size)

    def one_by_one(self) -> "Victim":
        """The victim with a model that answers for a single image, too."""
        try:
            with torch.no_grad():
                self.model(self.x[:1])
        except Exception:  # of the model's own making
            model = Adapted(self.model, self.x.dtype, least=2)
            return _look(model, self.x, self.y, self.batch_size)
        return self

    def batches(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The row numbers in chunks of the batch size."""
        return rows.split(self.batch_size) if len(rows) else ()

    def rounds(
        self, name: str, robust: Tensor, tries: Sequence[Any], show: bool | None
    ) -> Iterator[tuple[Tensor, Any]]:
        """Every try in turn on every batch: yields the rows that are ``robust`` still, and the try.

        Only images classified correctly are attacked, and only as long as they withstand.
        """
        batches = self.batches(self.correct.nonzero()[:, 0])
        with progress_bar(name, len(tries) * len(batches), show=show) as advance:
            for rows in batches:
                for attempt in tries:
                    rows = rows[robust[rows]]
                    if len(rows):
                        yield rows, attempt
                    advance(status=f"{100 * fraction(robust):.1f} % withstand")

    def wrong(self, points: Tensor, rows: Tensor) -> Tensor:
        """Where the points offered in place of the images ``rows`` are misclassified, (B,)."""
        with torch.no_grad():
            logits = self.model(points)
        self.undefined += int(undefined(logits).sum())
        return misclassified(logits, self.y[rows])

    def result(
        self,
        attack: str,
        threat: ThreatModel,
        examples: Tensor,
        robust: Tensor,
        parameters: dict[str, Any],
        *,
        started: float,
        flags: tuple[str, ...] | None = None,
    ) -> AttackResult:
        """What came of an attack that began at ``started``; flags: by default those met so far."""
        return AttackResult(
            attack,
            threat,
            examples,
            self.correct,
            robust,
            parameters | {"dtype": str(self.x.dtype)},
            self.flags if flags is None else flags,
            time.perf_counter() - started,
        )

    @property
    def flags(self) -> tuple[str, ...]:
        """Reasons not to trust what an attack found, as far as it has come."""
        doubts = {
            f"{ZERO_GRADIENT} at {_count(self.stuck, 'starting point')}: the attack "
            "could not move there, so the robust accuracy is an upper bound at best": self.stuck,
            f"the model returned NaN at {_count(self.undefined, 'point')} on the way of the "
            "attack; an image for which it ends there counts as fooled": self.undefined,
        }
        return tuple(doubt for doubt, occurred in doubts.items() if occurred)


def undefined(logits: Tensor) -> Tensor:
    """Where a logit is NaN, (B,): nobody can say which class wins there."""
    return logits.isnan().any(1)


def misclassified(logits: Tensor, y: Tensor) -> Tensor:
    """Where the label does not win, (B,); with NaN among the logits it never does.

    An argmax alone takes NaN for the largest, so that it would answer class 0 if all are NaN.
    Infinite logits are in order: the logarithm of a probability that is 0, say.
    """
    return (logits.argmax(1) != y) | undefined(logits)


def seeded(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Random numbers that follow from a seed, which may be a number of NumPy's."""
    return torch.Generator(device).manual_seed(whole("seed", seed, least=0))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"


@contextmanager
def victim_of(
    model: nn.Module,
    x: Images,
    y: Images,
    threat: ThreatModel,
    *,
    dtype: torch.dtype | None = None,
    batch_size: int = 1000,
) -> Iterator[Victim]:
    """Check everything, then yield the victim; the model is left as it was found.

    dtype: torch.float32 or torch.float64 (a copy of the model is converted); by default the
    precision of the model's own parameters.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"the model must be a torch module, got {type(model).__name__}")
    choice("dtype", dtype, (None, torch.float32, torch.float64))
    whole("batch_size", batch_size, least=1)
    images, labels = threat.check_images(x, y)
    own = next((t for t in _tensors(model) if t.is_floating_point()), images)
    precision = own.dtype if own.dtype in (torch.float32, torch.float64) else torch.float32
    with torch.inference_mode(False):  # in which nothing could be differentiated
        if dtype is not None and dtype != own.dtype:
            model = _copy(model, dtype)
        elif any(tensor.is_inference() for tensor in _tensors(model)):
            model = _copy(model, own.dtype)
        # A copy, if need be: what was made in inference mode could not be differentiated.
        images = images.clone() if images.is_inference() else images
        images = images.to(device=own.device, dtype=dtype or precision)
        labels = labels.to(own.device).clone() if labels.is_inference() else labels.to(own.device)
        was_training = [module for module in model.modules() if module.training]
        model.eval()  # dropout and batch statistics would make a moving target
        try:
            yield _look(model, images, labels, batch_size)
        finally:
            for module in was_training:
                module.training = True


class Adapted(nn.Module):
    """A model that takes one precision only, or several images only, as one that takes any.

    Inputs and logits are converted on the way in and out; a single image goes in twice; and what
    was computed in inference mode is copied, so that it can be used outside.
    """

    def __init__(self, model: nn.Module, takes: torch.dtype, least: int = 1) -> None:
        super().__init__()
        self.model, self.takes, self.least = model, takes, least

    def forward(self, x: Tensor) -> Tensor:
        """The logits, in the precision of x."""
        rows = x.to(self.takes)
        if len(x) < self.least:
            rows = rows.repeat(self.least, *[1] * (x.ndim - 1))
        logits: Tensor = self.model(rows)[: len(x)]
        return (logits.clone() if logits.is_inference() else logits).to(x.dtype)


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    """What a model computes with: parameters, buffers, and tensors that are neither."""
    yield from model.parameters()
    yield from model.buffers()
    for module in model.modules():
        yield from (value for value in vars(module).values() if isinstance(value, Tensor))


def _copy(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy in another precision, with the tensors that are neither parameters nor buffers."""
    model = copy.deepcopy(model).to(dtype)
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and value.is_floating_point():
                setattr(module, name, value.to(dtype))
    return model


def _look(model: nn.Module, x: Tensor, y: Tensor, batch_size: int) -> Victim:
    """The victim, after a look at what it makes of the images as they are."""
    try:
        answers = _answers(model, x, y, batch_size)
    except RuntimeError as error:
        model = _in_another_precision(model, x, error)
        answers = _answers(model, x, y, batch_size)
    if answers[0].dtype != x.dtype or answers[0].is_inference():
        model = Adapted(model, x.dtype)
        answers = [logits.to(x.dtype) for logits in answers]
    correct = torch.cat([logits.argmax(1) for logits in answers]) == y
    return Victim(model, x, y, correct, answers[0].shape[1], batch_size)


def _answers(model: nn.Module, x: Tensor, y: Tensor, batch_size: int) -> list[Tensor]:
    parts = zip(x.split(batch_size), y.split(batch_size), strict=True)
    return [_checked_logits(model, *part) for part in parts]


@torch.no_grad()
def _in_another_precision(model: nn.Module, x: Tensor, error: Exception) -> nn.Module:
    """The model, converting its inputs to the first precision in which it works at all."""
    own = (tensor.dtype for tensor in _tensors(model) if tensor.is_floating_point())
    for takes in dict.fromkeys([*own, torch.float32, torch.float64]):
        try:
            model(x[:2].to(takes))
        except Exception:  # of the model's own making
            continue
        return Adapted(model, takes)
    raise InputError(
        f"the model fails on the images, of shape {tuple(x.shape)} and {x.dtype}: {error}"
    ) from error


@torch.no_grad()
def _checked_logits(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    logits = model(x)
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(x):
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise InputError(
            f"the model must return logits of shape ({len(x)}, classes) for {len(x)} images, "
            f"got {shape}"
        )
    if logits.shape[1] < 2:
        raise InputError(
            "the model returns one logit per image; give two classes as two logits, (−z, z) say"
        )
    if int(y.max()) >= logits.shape[1]:
        raise InputError(
            f"the labels go up to {int(y.max())}, but the model knows {logits.shape[1]} classes; "
            "attack it on the kind of data it was trained on"
        )
    if undefined(logits).any():
        raise InputError("the model returns NaN for some of the images; no attack can judge that")
    return logits
