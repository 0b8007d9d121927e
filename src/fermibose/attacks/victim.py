"""The classifier under attack, with its images: checked, in evaluation mode, in one precision."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fermibose.attacks.threat import Images, ThreatModel
from fermibose.errors import InputError

PRECISIONS = (torch.float32, torch.float64)


@dataclass(frozen=True, eq=False)
class Victim:
    """A classifier with the images it is attacked on."""

    model: nn.Module
    x: Tensor  # (n, …)
    y: Tensor  # (n,)
    correct: Tensor  # (n,) bool: classified correctly without attack; the only ones attacked
    batch_size: int

    def batches(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The row numbers in chunks of the batch size."""
        return rows.split(self.batch_size) if len(rows) else ()

    def wrong(self, points: Tensor, rows: Tensor) -> Tensor:
        """Where the points offered in place of the images ``rows`` are misclassified, (B,)."""
        with torch.no_grad():
            return self.model(points).argmax(1) != self.y[rows]  # type: ignore[no-any-return]


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
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
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
    if torch.isnan(logits).any():
        raise InputError("the model returns NaN for some of the images; no attack can judge that")
    return logits
