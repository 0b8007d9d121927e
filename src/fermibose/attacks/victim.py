"""The classifier under attack, with its images: checked, in evaluation mode, in one precision."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor, nn

from fermibose.attacks.threat import Images, ThreatModel
from fermibose.errors import InputError

PRECISIONS = (torch.float32, torch.float64)
ZERO_GRADIENT = "the gradient was exactly zero"  # how the flag begins


@dataclass(eq=False)
class Victim:
    """A classifier with the images it is attacked on, and what gave reason for doubt."""

    model: nn.Module
    x: Tensor  # (n, …)
    y: Tensor  # (n,)
    correct: Tensor  # (n,) bool: classified correctly without attack; the only ones attacked
    batch_size: int
    stuck: int = 0  # starting points at which the gradient was exactly 0
    undefined: int = 0  # points at which the model returned NaN

    def batches(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The row numbers in chunks of the batch size."""
        return rows.split(self.batch_size) if len(rows) else ()

    def wrong(self, points: Tensor, rows: Tensor) -> Tensor:
        """Where the points offered in place of the images ``rows`` are misclassified, (B,)."""
        with torch.no_grad():
            logits = self.model(points)
        self.undefined += int(undefined(logits).sum())
        return misclassified(logits, self.y[rows])

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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"


def check_counts(**counts: int) -> None:
    """Refuse steps, restarts and the like that are not whole numbers of at least 1."""
    for name, count in counts.items():
        if not isinstance(count, Integral) or count < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {count}")


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
    if dtype not in (None, *PRECISIONS):
        raise InputError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
    check_counts(batch_size=batch_size)
    images, labels = threat.check_images(x, y)
    tensors = [*model.parameters(), *model.buffers(), images]
    own = next(tensor for tensor in tensors if tensor.is_floating_point())
    if dtype is not None and dtype != own.dtype:
        model = copy.deepcopy(model).to(dtype)
    images = images.to(device=own.device, dtype=dtype or own.dtype)
    labels = labels.to(own.device)
    was_training = [module for module in model.modules() if module.training]
    model.eval()  # dropout and batch statistics would make a moving target
    try:
        correct = torch.cat(
            [
                _checked_logits(model, images[rows], labels[rows]).argmax(1) == labels[rows]
                for rows in torch.arange(len(images), device=own.device).split(batch_size)
            ]
        )
        yield Victim(model, images, labels, correct, batch_size)
    finally:
        for module in was_training:
            module.training = True


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
