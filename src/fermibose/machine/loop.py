"""The one training loop: stages of epochs of mini-batches, with Adam, checkpoints and Ctrl-C.

A stage is whatever learns from mini-batches with its own optimiser: a local layer, the readout, the
MLP. The loop shuffles, calls it, keeps the records, and can be stopped and resumed at any epoch
such that the weights come out bit for bit as if it had never stopped.
"""

import math
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from fermibose import compute
from fermibose.compute import progress_bar, widest
from fermibose.errors import FermiboseError
from fermibose.machine import cores
from fermibose.machine.checkpoint import Checkpoint, Position, Records

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # as in the original paper on Adam


class Piece(NamedTuple):
    """What Adam moves at once: some parameters, or rows of them as matrices, and their moments."""

    owners: list[nn.Parameter]  # which have the gradients
    rows: list[slice]  # none: all of them, as they are
    parameters: list[Tensor]
    first_moments: list[Tensor]
    second_moments: list[Tensor]


class Adam:
    """Adam on the gradients found in ``.grad``, with an L2 penalty (weight_decay/2)|W|².

    torch's fused kernel without the bookkeeping of ``torch.optim``, which for a layer of the
    paper's size costs a quarter as much as the update itself. The moments are plain tensors, so a
    checkpoint can keep them as they are. The penalty enters through the gradient, as a part of the
    loss (not decoupled from it).

    cosine: steps over which the rate falls to 0 along half a cosine; 0: it is constant. averaging:
    decay a of the running mean w̄ ← a w̄ + (1−a) w, with a smaller a in the first steps, that
    :meth:`finish` puts in place of the weights; 0: they stay what they are.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        learning_rate: float,
        weight_decay: float = 0.0,
        cosine: int = 0,
        averaging: float = 0.0,
    ) -> None:
        self.parameters = list(parameters)
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.cosine, self.averaging = cosine, averaging
        self.averages = [p.detach().clone() for p in self.parameters] if averaging else []
        self.first_moments = [torch.zeros_like(p, requires_grad=False) for p in self.parameters]
        self.second_moments = [torch.zeros_like(p, requires_grad=False) for p in self.parameters]
        where = self.parameters[0].device if self.parameters else None
        self.count = torch.zeros((), device=where)  # of steps
        self.rate = learning_rate

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter once."""
        self.begin()
        cores.on_threads(self.move, self.pieces)
        self.end()

    def begin(self) -> None:
        """Begin a step: count it, and find its rate."""
        done = self.done if self.cosine else 0  # reading a tensor takes time
        self.count += 1
        self.rate = self._rate(done)

    def move(self, piece: Piece) -> None:
        """Move a piece, by the gradients that are there by now."""
        gradients = [_present(owner.grad) for owner in piece.owners]
        if piece.rows:
            gradients = [_matrix(g)[rows] for g, rows in zip(gradients, piece.rows, strict=True)]
        torch._fused_adam_(
            piece.parameters,
            gradients,
            piece.first_moments,
            piece.second_moments,
            [],
            [self.count] * len(gradients),
            lr=self.rate,
            beta1=BETA1,
            beta2=BETA2,
            weight_decay=self.weight_decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )

    def end(self) -> None:
        """End a step: the averages follow."""
        if self.averages:
            done = self.done - 1
            share = 1 - min(self.averaging, (1 + done) / (10 + done))
            for average, parameter in zip(self.averages, self.parameters, strict=True):
                average.lerp_(parameter, share)

    @cached_property
    def pieces(self) -> list[Piece]:
        """All that is moved: rows of each parameter, or nothing of it."""
        number = cores.pieces_of(sum(p.numel() for p in self.parameters), cores.NUMBERS)
        cuts = [cores.cut(len(_matrix(p)), number) for p in self.parameters]
        return [self._rows(rows) for rows in zip_longest(*cuts, fillvalue=slice(0, 0))]

    def whole(self, parameters: Iterable[nn.Parameter]) -> Piece:
        """These parameters as one piece, for whoever moves them by himself."""
        numbers = {id(p): number for number, p in enumerate(self.parameters)}
        chosen = [numbers[id(p)] for p in parameters]
        state = self.parameters, self.first_moments, self.second_moments
        parts = [[kind[n].detach() for n in chosen] for kind in state]
        return Piece([self.parameters[n] for n in chosen], [], *parts)

    def _rows(self, rows: Sequence[slice]) -> Piece:
        state = self.parameters, self.first_moments, self.second_moments
        parts = [
            [_matrix(p.detach())[part] for p, part in zip(kind, rows, strict=True)]
            for kind in state
        ]
        return Piece(self.parameters, list(rows), *parts)

    @property
    def done(self) -> int:
        """Steps made so far."""
        return int(self.count)

    def _rate(self, done: int) -> float:
        """The learning rate after so many steps."""
        if not self.cosine:
            return self.learning_rate
        return self.learning_rate * (1 + math.cos(math.pi * min(done / self.cosine, 1))) / 2

    @torch.no_grad()
    def finish(self) -> None:
        """Put the averages, if there are any, in place of the weights."""
        for average, parameter in zip(self.averages, self.parameters, strict=False):
            parameter.copy_(average)

    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on besides parameters and gradients."""
        kinds = {
            "first": self.first_moments,
            "second": self.second_moments,
            "average": self.averages,
        }
        state = {f"{kind}.{i}": t for kind, tensors in kinds.items() for i, t in enumerate(tensors)}
        return state | {"count": self.count}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take over a state found by :meth:`state`."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


def _present(gradient: Tensor | None) -> Tensor:
    assert gradient is not None  # or nobody has found it
    return gradient


def _matrix(tensor: Tensor) -> Tensor:
    """All its numbers, in the order in which the kernel walks through memory, by rows."""
    return tensor.flatten(1) if tensor.dim() > 1 else tensor.reshape(-1, 1)


class Stage(Protocol):
    """Something that learns from mini-batches."""

    name: str
    epochs: int
    samples: int
    optimiser: Adam

    def step(self, index: Tensor, following: Tensor | None = None) -> Mapping[str, float]:
        """Learn from the samples ``index``; returns what to record of this mini-batch.

        following: the samples of the next mini-batch of this epoch, which may be made ready now.
        """

    def end_epoch(self) -> Mapping[str, float]:
        """Returns what to record of this epoch."""

    def finish(self) -> None:
        """Called after the last epoch, also of a stage that a checkpoint had finished."""


@dataclass(frozen=True)
class Sharing:
    """Who has which rows of a mini-batch: here one process has all; :class:`Ranks` are many."""

    rank: int = 0
    count: int = 1  # K

    @property
    def first(self) -> bool:
        """Whether this is the one that shows, warns and writes."""
        return self.rank == 0

    def share(self, size: int) -> slice:
        """Which of ``size`` rows are its own."""
        return slice(0, size)

    def part(self, rows: Tensor) -> Tensor:
        """Its rows."""
        return rows

    def gather(self, part: Tensor, size: int) -> Tensor:
        """All ``size`` rows, of which this is its part."""
        return part

    def total(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """Sums over all that share."""
        return parts

    def same(self, tensors: Iterable[Tensor]) -> None:
        """Make these tensors the same for all."""

    def any(self, here: bool) -> bool:
        """Whether it is so for any."""
        return here


ALONE = Sharing()


class Ending(NamedTuple):
    """How the stages ended."""

    complete: bool  # all epochs of all stages are done
    pressed: bool  # Ctrl-C was pressed meanwhile, if only in the last epoch


@contextmanager
def compute_settings(threads: int) -> Iterator[None]:
    """Use ``threads`` threads, flush denormals to zero, and no autocast inside; all are restored.

    Denormals (in the moments of weights on inputs that are always zero) slow the optimiser, and
    rounding to half precision would break the closed forms.
    """
    flushed_before = float(torch.tensor(1e-308, dtype=torch.float64) * 0.01) == 0.0
    with compute.threads(threads), torch.autocast("cpu", enabled=False):
        torch.set_flush_denormal(True)
        try:
            yield
        finally:
            torch.set_flush_denormal(flushed_before)


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Yield ``pressed()``, true once Ctrl-C was pressed; a second Ctrl-C stops at once."""
    pressed = False
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread may handle signals
        return

    def on_interrupt(signum: int, frame: Any) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        print("\nstopping after this epoch; Ctrl-C again stops at once", file=sys.stderr)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)


def train_stages(
    net: nn.Module,
    stages: Sequence[Callable[[], Stage]],
    *,
    batch_size: int,
    generator: torch.Generator,
    records: Records,
    weights: Tensor | None = None,
    checkpoint: Checkpoint | None = None,
    show: bool | None = None,
    ranks: Sharing = ALONE,
) -> Ending:
    """Train the stages one after another, until all are done or Ctrl-C is pressed.

    stages: each is built when its turn comes, since it may need what the ones before have learnt.
    records: filled in place. weights: of the samples, see :func:`drawn`. checkpoint: resumed from
    if it holds one, and kept up to date. ranks: that share each mini-batch.
    """
    show = show if ranks.first else False
    start = Position(0, 0)
    if checkpoint is not None and checkpoint.exists():
        start = checkpoint.restore(net, generator, records, stages=len(stages))
    with stop_on_interrupt() as pressed:
        for number in range(start.stage, len(stages)):
            stage = stages[number]()
            first = 0
            if number == start.stage and checkpoint is not None:
                checkpoint.restore_optimiser(stage.optimiser, epochs=stage.epochs)
                first = start.epoch
            count = f"{stage.name}, epoch"
            with progress_bar(count, stage.epochs - first, show=show) as advance:
                for epoch in range(first, stage.epochs):
                    ranks.same([*stage.optimiser.parameters, *stage.optimiser.state().values()])
                    order = drawn(stage.samples, weights, generator)
                    for index, following in pairwise([*order.split(batch_size), None]):
                        of_batch = dict(stage.step(index, following))
                        _record(records, stage.name, of_batch)
                    of_epoch = dict(stage.end_epoch())
                    _record(records, stage.name, of_epoch)
                    advance(status=_status(of_epoch or of_batch))
                    _check_finite(stage.name, epoch, of_batch | of_epoch)
                    last = epoch + 1 == stage.epochs
                    stop = ranks.any(pressed()) and not (last and number + 1 == len(stages))
                    if checkpoint is not None:
                        position = Position(number, epoch + 1)
                        checkpoint.save(
                            net, stage.optimiser, generator, records, position, force=stop or last
                        )
                    if stop:
                        return Ending(complete=False, pressed=True)
            stage.finish()
        return Ending(complete=True, pressed=pressed())


def drawn(samples: int, weights: Tensor | None, generator: torch.Generator) -> Tensor:
    r"""The samples of an epoch in random order: each once, or with weights w, (n,),

    .. math:: c_i = n\,w_i / \textstyle\sum_j w_j

    times on average: ⌊c_i⌋ or ⌈c_i⌉ copies, n in all. That is what duplicating samples does, to
    pairs as to the readout: a pair counts by the product of its weights.
    """
    device = generator.device
    order = torch.randperm(samples, generator=generator, device=device)
    if weights is None:
        return order
    ends = weights.to(widest(device))[order].cumsum(0)
    offset = torch.rand(1, generator=generator, dtype=ends.dtype, device=device)
    levels = (ends * (samples / ends[-1]) + offset).floor().long().clamp(max=samples)
    levels[-1] = samples  # whatever rounding says
    copies = order.repeat_interleave(levels.diff(prepend=levels.new_zeros(1)))
    return copies[torch.randperm(len(copies), generator=generator, device=device)]


# What a bar shows of the records: short, for there is room for thirty characters
_SHOWN = {
    "boson_distance": "D²_B {:.3f}",
    "fermion_distance": "D²_F {:.3f}",
    "loss": "loss {:.3f}",
    "test_accuracy": "test {:.1%}",
}


def _status(latest: Mapping[str, float]) -> str:
    return ", ".join(text.format(latest[k]) for k, text in _SHOWN.items() if k in latest)


def _check_finite(stage: str, epoch: int, values: Mapping[str, float]) -> None:
    for name in ("energy", "loss"):
        if not math.isfinite(values.get(name, 0.0)):
            raise FermiboseError(
                f"the training of {stage} diverged in epoch {epoch + 1}: its {name} is "
                f"{values[name]}; use a smaller learning rate, d_f or weight"
            )


def _record(records: Records, stage: str, values: Mapping[str, float]) -> None:
    for name, value in values.items():
        records.setdefault(stage, {}).setdefault(name, []).append(value)
