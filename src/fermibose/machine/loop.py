"""The one training loop: stages of epochs of mini-batches, with Adam, checkpoints and Ctrl-C.

A stage is whatever learns from mini-batches with its own optimiser: a local layer, the readout, the
MLP. The loop shuffles, calls it, keeps the records, and can be stopped and resumed at any epoch
such that the weights come out bit for bit as if it had never stopped.
"""

import json
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from fermibose import compute
from fermibose.errors import FermiboseError, FileFormatError
from fermibose.files import replacing
from fermibose.progress import progress_bar

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # as in the original paper on Adam

Records = dict[str, dict[str, list[float]]]  # stage → quantity → one value per batch or epoch


class Adam:
    """Adam on the gradients found in ``.grad``, with an L2 penalty (weight_decay/2)|W|².

    torch's fused kernel without the bookkeeping of ``torch.optim``, which for a layer of the
    paper's size costs a quarter as much as the update itself. The moments are plain tensors, so a
    checkpoint can keep them as they are. The penalty enters through the gradient, as a part of the
    loss (not decoupled from it).
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], *, learning_rate: float, weight_decay: float = 0.0
    ) -> None:
        self.parameters = list(parameters)
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.first_moments = [torch.zeros_like(p, requires_grad=False) for p in self.parameters]
        self.second_moments = [torch.zeros_like(p, requires_grad=False) for p in self.parameters]
        self.step_counts = [torch.zeros(()) for _ in self.parameters]

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter once."""
        for count in self.step_counts:
            count += 1
        torch._fused_adam_(
            [*self.parameters],
            [parameter.grad for parameter in self.parameters if parameter.grad is not None],
            self.first_moments,
            self.second_moments,
            [],
            self.step_counts,
            lr=self.learning_rate,
            beta1=BETA1,
            beta2=BETA2,
            weight_decay=self.weight_decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )

    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on besides parameters and gradients."""
        kinds = {
            "first": self.first_moments,
            "second": self.second_moments,
            "count": self.step_counts,
        }
        return {f"{kind}.{i}": t for kind, tensors in kinds.items() for i, t in enumerate(tensors)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take over a state found by :meth:`state`."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


class Stage(Protocol):
    """Something that learns from mini-batches."""

    name: str
    epochs: int
    samples: int
    optimiser: Adam

    def step(self, index: Tensor) -> Mapping[str, float]:
        """Learn from the samples ``index``; returns what to record of this mini-batch."""

    def end_epoch(self) -> Mapping[str, float]:
        """Returns what to record of this epoch."""


class Position(NamedTuple):
    """How far a training has come: the stage, and the epochs done in it."""

    stage: int
    epoch: int


class Checkpoint:
    """The checkpoint at ``path`` of a training with the given fingerprint.

    One safetensors file with weights, optimiser moments, the random generator's state and the
    records so far; its header holds the position and the fingerprint of recipe and data. It is
    replaced atomically, so a crash or a full disk leaves the previous one intact.

    every: seconds that must pass between two saves that are not forced; saving each epoch of a
    small network would cost more than training it.
    """

    def __init__(self, path: str | Path, fingerprint: str, *, every: float = 5.0) -> None:
        self.path = Path(path)
        self.fingerprint = fingerprint
        self.every = every
        self._saved_at = time.monotonic()
        self._moments: dict[str, Tensor] = {}

    def exists(self) -> bool:
        """Whether there is something to resume from."""
        return self.path.exists()

    def save(
        self,
        net: nn.Module,
        optimiser: Adam,
        generator: torch.Generator,
        records: Records,
        position: Position,
        *,
        force: bool = False,
    ) -> None:
        """Replace the file, unless the last save is recent and ``force`` is off."""
        if not force and time.monotonic() - self._saved_at < self.every:
            return
        tensors = {f"net.{name}": value for name, value in net.state_dict().items()}
        tensors |= {f"optimiser.{name}": value for name, value in optimiser.state().items()}
        tensors["generator"] = generator.get_state()
        for stage, quantities in records.items():
            for name, values in quantities.items():
                tensors[f"records.{stage}.{name}"] = torch.tensor(values, dtype=torch.float64)
        header = {"position": json.dumps(position), "fingerprint": self.fingerprint}
        try:
            with replacing(self.path) as draft:
                save_file(tensors, draft, metadata=header)
        except (OSError, SafetensorError) as error:
            full = any(text in str(error) for text in ("No space left", "quota exceeded"))
            remedy = "make room" if full else "use a folder that can be written to"
            raise FermiboseError(
                f"could not write the checkpoint {self.path} ({error}); the previous one, if any, "
                f"is intact: {remedy} and resume"
            ) from error
        self._saved_at = time.monotonic()

    def restore(self, net: nn.Module, generator: torch.Generator, records: Records) -> Position:
        """Load weights, generator and records in place; returns where to go on."""
        tensors, header = self._read()
        if header.get("fingerprint") != self.fingerprint:
            raise FermiboseError(
                f"the checkpoint {self.path} belongs to a training with other settings, data or "
                "version; train with the same ones, or remove it to start afresh"
            )
        net.load_state_dict(_under("net.", tensors))
        generator.set_state(tensors["generator"])
        for key, values in _under("records.", tensors).items():
            stage, name = key.split(".", 1)
            records.setdefault(stage, {})[name] = values.tolist()
        self._moments = _under("optimiser.", tensors)
        return Position(*json.loads(header["position"]))

    def restore_optimiser(self, optimiser: Adam) -> None:
        """Hand the moments found by :meth:`restore` to the optimiser of the resumed stage."""
        if self._moments:
            optimiser.restore(self._moments)
        self._moments = {}

    def _read(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        try:
            with safe_open(self.path, framework="pt") as file:
                header = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise FileFormatError(
                f"{self.path} is not a readable checkpoint ({error}); remove it to start afresh"
            ) from error
        return tensors, header


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
    checkpoint: Checkpoint | None = None,
    show: bool | None = None,
) -> Ending:
    """Train the stages one after another, until all are done or Ctrl-C is pressed.

    stages: each is built when its turn comes, since it may need what the ones before have learnt.
    records: filled in place. checkpoint: resumed from if it holds one, and kept up to date.
    """
    start = Position(0, 0)
    if checkpoint is not None and checkpoint.exists():
        start = checkpoint.restore(net, generator, records)
    with stop_on_interrupt() as pressed:
        for number in range(start.stage, len(stages)):
            stage = stages[number]()
            first = 0
            if number == start.stage and checkpoint is not None:
                checkpoint.restore_optimiser(stage.optimiser)
                first = start.epoch
            with progress_bar(stage.name, stage.epochs - first, show=show) as advance:
                for epoch in range(first, stage.epochs):
                    order = torch.randperm(stage.samples, generator=generator)
                    for index in order.split(batch_size):
                        of_batch = dict(stage.step(index))
                        _record(records, stage.name, of_batch)
                    of_epoch = dict(stage.end_epoch())
                    _record(records, stage.name, of_epoch)
                    latest = of_epoch or of_batch
                    advance(status="  ".join(f"{k} {v:.3f}" for k, v in latest.items()))
                    _check_finite(stage.name, epoch, of_batch | of_epoch)
                    last = epoch + 1 == stage.epochs
                    stop = pressed() and not (last and number + 1 == len(stages))
                    if checkpoint is not None:
                        position = Position(number, epoch + 1)
                        checkpoint.save(
                            net, stage.optimiser, generator, records, position, force=stop or last
                        )
                    if stop:
                        return Ending(complete=False, pressed=True)
        return Ending(complete=True, pressed=pressed())


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


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}
