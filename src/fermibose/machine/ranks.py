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

from fermibose.energy import PairEnergy
from fermibose.errors import FermiboseError, InputError
from fermibose.machine.checkpoint import Checkpoint
from fermibose.machine.free_energy import FreeEnergy
from fermibose.machine.local_rule import (
    BLOCK,
    CHUNK,
    Energy,
    LocalDense,
    LocalLayer,
    PairReport,
    check_labels,
)
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

    def own(self, rows: Tensor) -> Tensor:
        """This rank's rows, as many on every rank: where they are too few, the first row is added.

        Whoever uses them lets no force act on what is added.
        """
        part = rows[self.share(len(rows))]
        missing = -(-len(rows) // self.count) - len(part)
        return torch.cat([part, *[rows[:1]] * missing]) if missing else part

    def gather(self, part: Tensor, size: int) -> Tensor:
        """All ``size`` rows, of which every rank gives those that :meth:`own` gave it."""
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
    """SIGTERM, by which torchrun ends the others when a rank has died, as an error for people."""

    def on_end(signum: int, frame: Any) -> NoReturn:
        raise _lost("torchrun ended the others")

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    before = signal.signal(signal.SIGTERM, on_end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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


@torch.no_grad()
def learn_together(
    layer: LocalLayer,
    x: Tensor,
    labels: Tensor,
    energy: Energy,
    ranks: Sharing,
    *,
    activity: float = 0.0,
    perturbed: Tensor | None = None,
    extra: bool = False,
    own: bool = False,
) -> PairReport:
    """Write the gradient of L for the whole batch into ``.grad``, on every rank the same.

    x, perturbed: this rank's inputs, see :meth:`Ranks.own`. labels: (B,), of the whole batch. The
    rest as in :meth:`LocalLayer.learn_from`.
    """
    size, here = len(labels), ranks.share(len(labels))
    check_labels(labels, size)
    rows = here.stop - here.start  # without those added
    inputs = x if perturbed is None else torch.cat([perturbed, x])
    # A dense layer leaves nothing big behind for the way back.
    chunk = len(inputs) if isinstance(layer, LocalDense) else CHUNK
    parameters = list(layer.requires_grad_(True).parameters())
    try:
        with torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
            heads = [layer.head(layer(part)) for part in inputs.split(chunk)]
        h = torch.cat([head.detach() for head in heads])
        queries, keys = h[: len(x)], ranks.gather(h[-len(x) :], size)
        force = torch.zeros_like(h)
        copies = force.view(-1, len(x), h.shape[1])  # perturbed rows, rows themselves
        if perturbed is None and isinstance(energy, PairEnergy):
            counts = count_pairs(labels)
            copies[-1, :rows], sums = row_forces(keys, here, labels, energy, counts)
        else:
            counts = count_pairs(labels, perturbed=perturbed is not None, extra=extra, own=own)
            same, pairs = own_pairs(labels, ranks, own=own and perturbed is not None)
            if perturbed is not None and extra:
                others = own_pairs(labels, ranks)[1]
                queries, same, pairs = h, same.repeat(2, 1), torch.cat([pairs, others])
            times = 2 if perturbed is None else 1
            on_queries, on_keys, sums = between_ranks(
                queries, keys, same, pairs, energy, ranks, counts, times=times
            )
            force[: len(queries)] += on_queries
            copies[-1, :rows] += ranks.total(on_keys)[0][here]
        if activity:
            moved = h.view_as(copies)[:, :rows].sign()
            copies[:, :rows].add_(moved, alpha=activity / (len(copies) * size * h.shape[1]))
        gradients = torch.autograd.grad(heads, parameters, force.split(chunk))
    finally:
        layer.requires_grad_(False)
    *summed, sums = ranks.total(*gradients, sums)
    for parameter, gradient in zip(parameters, summed, strict=True):
        parameter.grad = gradient
    value, bosons, fermions = sums.tolist()
    return PairReport(
        energy=value,
        boson_distance=bosons / counts[0] if counts[0] else float("nan"),
        fermion_distance=fermions / counts[1] if counts[1] else float("nan"),
        n_boson=counts[0],
        n_fermion=counts[1],
    )


def count_pairs(
    labels: Tensor, *, perturbed: bool = False, extra: bool = False, own: bool = False
) -> tuple[int, int]:
    """Boson and fermion pairs of the whole batch; queries and keys as in :func:`learn_together`."""
    members = labels.unique(return_counts=True)[1]
    bosons = int((members * (members - 1)).sum())
    fermions = int((members * (len(labels) - members)).sum())
    if not perturbed:
        return bosons // 2, fermions // 2
    return bosons * (1 + extra) + len(labels) * own, fermions * (1 + extra)


def own_pairs(labels: Tensor, ranks: Sharing, *, own: bool = False) -> tuple[Tensor, Tensor]:
    """Of each own row (those added too) and each key: same class, and whether they are a pair.

    own: a row and the key of the same number are one. Rows that were added have no pair.
    """
    here = ranks.share(len(labels))
    same = ranks.own(labels)[:, None] == labels
    pairs = torch.zeros_like(same)
    pairs[: here.stop - here.start] = True
    if not own and here.start < len(labels):
        pairs.diagonal(here.start).fill_(False)
    return same, pairs


def row_forces(
    keys: Tensor, here: slice, labels: Tensor, energy: PairEnergy, counts: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """∂L/∂h of the rows ``here`` of all representations, and their part of what is reported."""
    units, pairs = keys.shape[1], max(sum(counts), 1)
    keys = keys - keys.mean(0)  # what all have in common would cost digits in the Gram matrix
    squares = keys.square().sum(1)
    force, sums = torch.empty_like(keys[here]), keys.new_zeros(3)
    each = max(BLOCK // len(keys), 1)
    for block, part in zip(keys[here].split(each), force.split(each), strict=True):
        start = here.start
        here = slice(start + len(block), here.stop)
        rows = slice(start, start + len(block))
        d2 = torch.addmm(squares + squares[rows, None], block, keys.T, alpha=-2)
        d2.mul_(1 / units).clamp_(min=0).diagonal(start).fill_(0)
        same = labels[rows, None] == labels
        energies, s = energy.energy_and_force(d2, same, counts)
        for matrix in (energies, s):  # a sample is no pair with itself
            matrix.diagonal(start).fill_(0)
        torch.addmm(s.sum(1, keepdim=True) * block, s, keys, alpha=-1, out=part)
        bosons = (d2 * same).sum()
        sums += torch.stack([energies.sum() / pairs, bosons, d2.sum() - bosons]) / 2
    return force.mul_(2 / (units * pairs)), sums


def between_ranks(
    h: Tensor,
    g: Tensor,
    same: Tensor,
    pairs: Tensor,
    energy: Energy,
    ranks: Sharing,
    counts: tuple[int, int],
    *,
    times: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """The forces of own queries h and all keys g on each other, and their part of a report.

    As in :func:`query_forces`, of which these are some rows; counts are those of all ranks. The
    forces on the keys are this rank's part of them.
    """
    centre = g.mean(0)
    h, g = h - centre, g - centre
    units = h.shape[1]
    d2 = torch.addmm(g.square().sum(1) + h.square().sum(1, keepdim=True), h, g.T, alpha=-2)
    d2.mul_(1 / units).clamp_(min=0)
    if isinstance(energy, FreeEnergy):
        value, s = energy.between(d2, same, pairs, total=ranks.total)
        value = value / ranks.count  # every rank has all of it
    else:
        standing = times * max(sum(counts), 1)
        energies, s = energy.energy_and_force(d2, same, counts)
        value = energies.masked_fill(~pairs, 0).sum() / standing
        s = s.masked_fill(~pairs, 0) / standing
    on_queries = torch.addmm(s.sum(1, keepdim=True) * h, s, g, alpha=-1).mul_(2 / units)
    on_keys = torch.addmm(s.sum(0)[:, None] * g, s.T, h, alpha=-1).mul_(2 / units)
    apart = [(d2 * (kind & pairs)).sum() / times for kind in (same, ~same)]
    return on_queries, on_keys, torch.stack([value, *apart])
