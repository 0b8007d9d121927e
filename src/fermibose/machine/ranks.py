r"""One training on many ranks: each holds all weights, and its rows of one Gram matrix.

Of a mini-batch of B inputs rank r of K takes the rows :math:`R_r`. Once the representations of all
rows are gathered, the forces on its own are rows of the same Laplacian, and the gradient is a sum
over ranks,

.. math:: \frac{\partial L}{\partial h_i} = \frac{2}{NP} \sum_j S_{ij}\,(h_i - h_j),
    \quad i \in R_r, \qquad
    \frac{\partial L}{\partial W} = \sum_r \frac{\partial h_{R_r}}{\partial W} \cdot
    \frac{\partial L}{\partial h_{R_r}} ,

with P the pairs of the whole batch. So a step is two messages: one all_gather of B·N numbers and
one all_reduce of the gradient. Where those who feel and those who are felt differ (queries and
keys, or the free energy, whose S is not symmetric), the forces on the keys are summed too.

Every rank draws the same random numbers, so that all know who is in the batch and what its labels
are, and the outcome depends on K by rounding only.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from fermibose.errors import FermiboseError, InputError
from fermibose.machine.checkpoint import Checkpoint
from fermibose.machine.loop import ALONE, Sharing

ANSWER = timedelta(seconds=10)  # within which torchrun's store must say who tells of an error


class RankLost(FermiboseError):
    """Another rank died, or torchrun ends this one because of it."""


def _lost(reason: str) -> RankLost:
    return RankLost(
        f"the training ended because a rank was lost ({reason}); the last checkpoint, if there is "
        "one, is intact: the same command goes on from there, on any number of ranks"
    )


class Ranks(Sharing):
    """The ranks of one training, as one of them sees it."""

    def share(self, size: int) -> slice:
        """Which of ``size`` rows are this rank's, perhaps none."""
        each = -(-size // self.count)
        return slice(min(self.rank * each, size), min((self.rank + 1) * each, size))

    def part(self, rows: Tensor) -> Tensor:
        """This rank's rows, as many on every rank: where they are too few, the first row is added.

        Whoever uses them lets no force act on what is added.
        """
        part = rows[self.share(len(rows))]
        missing = -(-len(rows) // self.count) - len(part)
        return torch.cat([part, *[rows[:1]] * missing]) if missing else part

    def gather(self, part: Tensor, size: int) -> Tensor:
        """All ``size`` rows, of which every rank gives those that :meth:`part` gave it."""
        rows = part.new_empty(self.count, *part.shape)
        self._send(dist.all_gather, list(rows.unbind()), part.contiguous())
        return rows.flatten(0, 1)[:size]

    def total(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """The sums over all ranks, in one message, in the precision of the first that has one."""
        kind = next(part.dtype for part in parts if part.is_floating_point())
        flat = torch.cat([part.reshape(-1).to(kind) for part in parts])
        self._send(dist.all_reduce, flat)
        sums = flat.split([part.numel() for part in parts])
        return tuple(s.reshape(part.shape) for s, part in zip(sums, parts, strict=True))

    def same(self, tensors: Iterable[Tensor]) -> None:
        """What the first rank has in these tensors, for all: other processors round otherwise."""
        for tensor in tensors:
            self._send(dist.broadcast, tensor.detach(), 0)

    def told(self, value: Any) -> Any:
        """What the first rank says; an error of its is raised everywhere."""
        box = [value]
        self._send(dist.broadcast_object_list, box, 0)
        if isinstance(box[0], Exception):
            raise box[0]
        return box[0]

    def any(self, here: bool) -> bool:
        """Whether it is so on any rank."""
        answers: list[Any] = [None] * self.count
        self._send(dist.all_gather_object, answers, here)
        return any(answers)

    def check_same(self, what: str) -> None:
        """Refuse a rank whose data or settings differ from the first's."""
        if self.told(what if self.first else None) != what:
            raise InputError(
                f"rank {self.rank} has other data or settings than rank 0: start every rank by the "
                "same command, on the same data"
            )

    def _send(self, message: Callable[..., Any], *tensors: Any) -> None:
        """The one place through which messages pass."""
        try:
            message(*tensors)
        except RuntimeError as error:
            raise _lost("its connection broke") from error


@contextmanager
def joined(device: str | torch.device = "cpu") -> Iterator[Sharing]:
    """The ranks that torchrun started, joined to one training on this device; else only this one.

    They speak to each other by NCCL on a GPU, by gloo elsewhere.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    dist.init_process_group(backend_for(device))
    try:
        with _ended_by_torchrun():
            yield Ranks(dist.get_rank(), dist.get_world_size())
    except BaseException:
        tells()  # before the others notice that this rank is gone, and speak of that
        raise
    finally:
        dist.destroy_process_group()


def device_of(name: str) -> torch.device:
    """The device of this name; of several GPUs that of this rank's number on its machine."""
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        return torch.ones(1, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).split("\n", 1)[0][:150]
        raise InputError(f"there is no device {name!r} here ({reason}): use cpu") from error


def backend_for(device: str | torch.device) -> str:
    """By what ranks on such devices speak to each other."""
    return "nccl" if torch.device(device).type == "cuda" else "gloo"


@contextmanager
def _ended_by_torchrun() -> Iterator[None]:
    """SIGTERM, by which torchrun ends the others when a rank has died, as an error for people.

    Once a rank is lost this process is deaf to it, so that it can still tell of the loss; torchrun
    kills what lingers.
    """

    def on_end(signum: int, frame: Any) -> NoReturn:
        raise _lost("torchrun ended the others")

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    after = signal.signal(signal.SIGTERM, on_end)
    try:
        yield
    except RankLost:
        after = signal.SIG_IGN
        raise
    finally:
        signal.signal(signal.SIGTERM, after)


@cache
def tells() -> bool:
    """Whether this rank is the one to tell of an error: the first of its job that asks."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return True
    try:
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(host, port, None, False, ANSWER)  # type: ignore[attr-defined]
        return bool(store.add(f"fermibose.{os.environ['TORCHELASTIC_RESTART_COUNT']}", 1) == 1)
    except (RuntimeError, KeyError, ValueError):  # nobody to ask: better twice than not at all
        return True


class SharedCheckpoint(Checkpoint):
    """A checkpoint that only the first rank reads and writes; the others hear of it."""

    def __init__(self, path: str | Path, fingerprint: str, ranks: Ranks, **how: Any) -> None:
        super().__init__(path, fingerprint, **how)
        self.ranks = ranks

    def exists(self) -> bool:
        """Whether there is something to resume from."""
        return bool(self.ranks.told(self.ranks.first and super().exists()))

    def save(self, *state: Any, force: bool = False) -> None:
        """Replace the file, on the first rank."""
        if self.ranks.first:
            super().save(*state, force=force)

    def _read(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        found: Any = None
        if self.ranks.first:
            try:
                found = super()._read()
            except FermiboseError as error:
                found = error
        tensors, header = self.ranks.told(found)
        return tensors, header
