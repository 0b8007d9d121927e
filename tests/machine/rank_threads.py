"""Ranks that are threads of one process: quick, and every message can be counted."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from fermibose.machine import Ranks

PATIENCE = 120.0  # seconds, of a machine that does other things besides


@dataclass
class Board:
    """Where the threads leave what they send."""

    count: int
    sent: list[Any] = field(default_factory=list)
    messages: list[tuple[str, int]] = field(default_factory=list)  # name, bytes of the whole result

    def __post_init__(self) -> None:
        self.sent = [None] * self.count
        self.barrier = threading.Barrier(self.count)

    def swap(self, rank: int, value: Any) -> list[Any]:
        self.barrier.wait(PATIENCE)
        self.sent[rank] = value
        self.barrier.wait(PATIENCE)
        return list(self.sent)


@dataclass(frozen=True)
class ThreadRanks(Ranks):
    """What the ranks say to each other goes over a board instead of a network."""

    board: Board = None  # type: ignore[assignment]

    def _send(self, message: Callable[..., Any], *args: Any) -> None:
        if message is dist.all_gather:
            rows, part = args
            for row, other in zip(rows, self.board.swap(self.rank, part.clone()), strict=True):
                row.copy_(other)
            size = sum(row.nbytes for row in rows)
        elif message is dist.all_reduce:
            (part,) = args
            part.copy_(torch.stack(self.board.swap(self.rank, part.clone())).sum(0))
            size = part.nbytes
        elif message is dist.broadcast:
            tensor, source = args
            tensor.copy_(self.board.swap(self.rank, tensor.clone())[source])
            size = tensor.nbytes
        elif message is dist.all_gather_object:
            answers, answer = args
            answers[:] = self.board.swap(self.rank, answer)
            return
        elif message is dist.broadcast_object_list:
            box, source = args
            box[:] = self.board.swap(self.rank, list(box))[source]
            return
        else:
            raise AssertionError(f"no such message: {message}")
        if self.first:
            self.board.messages.append((message.__name__, size))


def together(count: int, work: Callable[[Ranks], Any]) -> tuple[list[Any], Board]:
    """What ``work`` gives on each of ``count`` ranks, and the board with their messages."""
    board = Board(count)
    with ThreadPoolExecutor(count) as pool:
        tasks = [pool.submit(work, ThreadRanks(r, count, board)) for r in range(count)]
        return [task.result(2 * PATIENCE) for task in tasks], board
