r"""Several cores, the same bits: work is cut into pieces that do not depend on how many there are.

A sum of floating-point numbers depends on how it is grouped, and libraries group by the number of
threads. So libraries get one thread while a machine is trained, and what is worth more is cut here:
a GEMM along the rows or columns of its result, which leaves every sum :math:`\sum_k a_{ik} b_{kj}`
whole; a batch into chunks. One thread does the same pieces one after another. (Torch holds Python's
lock only between its operations, so threads of Python do.)
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any, TypeVar

import torch
from torch import Tensor

Piece = TypeVar("Piece")
Result = TypeVar("Result")

# Multiplications, and numbers of an array, that are a piece: they take several times as long as two
# threads need to meet (meeting() in benchmarks/machine.py).
PRODUCTS, NUMBERS = 1 << 24, 1 << 18
EDGE = 16  # numbers of a cache line: cuts leave vector instructions where they were
NARROW = 128  # rows or columns of a result that are cut no further: thin products are slow ones
THIN = 16  # columns below which a product is turned (thin() in benchmarks/machine.py)
LONG = 256  # rows of a result from which they are cut, not its columns: rows lie apart in memory


class Crew:
    """Threads that wait for work; the one that calls works too."""

    def __init__(self, helpers: int) -> None:
        self.calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.answers: SimpleQueue[BaseException | None] = SimpleQueue()
        self.helpers = [threading.Thread(target=self._wait, daemon=True) for _ in range(helpers)]
        for helper in self.helpers:
            helper.start()

    def _wait(self) -> None:
        torch.set_num_threads(1)  # each thread has these for itself
        torch.set_flush_denormal(True)
        while (call := self.calls.get()) is not None:
            try:
                call()
                self.answers.put(None)
            except BaseException as error:
                self.answers.put(error)

    def call(self, work: Callable[[], None]) -> None:
        """Have everyone do ``work`` and wait until all have."""
        for _ in self.helpers:
            self.calls.put(work)
        try:
            work()
        finally:
            errors = [error for _ in self.helpers if (error := self.answers.get()) is not None]
        if errors:
            raise errors[0]

    def dismiss(self) -> None:
        """End the threads."""
        for _ in self.helpers:
            self.calls.put(None)
        for helper in self.helpers:
            helper.join()


# Of this thread; none while it works with others, so that work inside work stays on its thread.
_crew: ContextVar[Crew | None] = ContextVar("crew", default=None)


@contextmanager
def several(threads: int) -> Iterator[None]:
    """Let the functions of this file use ``threads`` threads inside."""
    crew = Crew(threads - 1) if threads > 1 else None
    before = _crew.set(crew)
    try:
        yield
    finally:
        _crew.reset(before)
        if crew is not None:
            crew.dismiss()


def on_threads(work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> list[Result]:
    """work(piece) for each piece, in order, by as many threads as there are."""
    pieces, crew = list(pieces), _crew.get()
    if crew is None or len(pieces) == 1:
        return [work(piece) for piece in pieces]
    todo = iter(range(len(pieces)))
    results: list[Any] = [None] * len(pieces)
    graded = torch.is_grad_enabled()

    def some() -> None:
        torch.set_grad_enabled(graded)  # which each thread has for itself, too
        for number in todo:
            results[number] = work(pieces[number])

    before = _crew.set(None)  # the caller is one of the crew now
    try:
        crew.call(some)
    finally:
        _crew.reset(before)
    return results


def cut(length: int, pieces: int, edge: int = EDGE) -> list[slice]:
    """0 … length in about so many parts of the same length, which is a multiple of ``edge``."""
    step = max(edge, -(-length // (pieces * edge)) * edge)
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


def pieces_of(amount: int, piece: int) -> int:
    """How many pieces an amount of work is: a power of 2, so that threads have equal shares."""
    return 1 << max(amount // piece, 1).bit_length() - 1


def product(
    a: Tensor,
    b: Tensor,
    *,
    bias: Tensor | None = None,
    factor: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """factor (a b + bias), or without bias, of two matrices; without a tape."""
    rows, columns = a.shape[0], b.shape[1]  # len() of a tensor takes time
    result = a.new_empty(rows, columns) if out is None else out  # autocast leaves given ones alone
    number = pieces_of(rows * b.numel(), PRODUCTS)
    if number == 1:
        _product(a, b, bias, factor, result)
    elif rows >= LONG:
        strips = cut(rows, min(number, pieces_of(rows, NARROW)))
        on_threads(lambda r: _product(a[r], b, bias, factor, result[r]), strips)
    else:
        strips = cut(columns, min(number, pieces_of(columns, NARROW)))
        on_threads(
            lambda c: _product(a, b[:, c], None if bias is None else bias[c], factor, result[:, c]),
            strips,
        )
    return result


def _product(a: Tensor, b: Tensor, bias: Tensor | None, factor: float, out: Tensor) -> None:
    if b.shape[1] < THIN <= a.shape[0]:  # the same sums, lying
        lying = out.new_empty(out.shape[::-1])  # given, it is not cast by autocast
        out.copy_(torch.mm(b.T, a.T, out=lying).T)
        if bias is not None:
            out.add_(bias)
        if factor != 1:
            out.mul_(factor)
    elif bias is not None:
        torch.addmm(bias, a, b, beta=factor, alpha=factor, out=out)
    elif factor != 1:
        torch.addmm(out, a, b, beta=0, alpha=factor, out=out)
    else:
        torch.mm(a, b, out=out)
