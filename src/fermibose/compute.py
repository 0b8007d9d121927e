"""How this process computes: with how many threads, over how many processes, with what versions."""

import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import _GeneratorContextManager, contextmanager
from functools import cache
from importlib import metadata
from typing import Any, TypeVar

import joblib
from threadpoolctl import ThreadpoolController

from fermibose.checks import is_whole, whole
from fermibose.errors import InputError
from fermibose.progress import progress_bar

Task = TypeVar("Task")
Result = TypeVar("Result")

# Read by the numerical libraries when they are loaded; the last one by joblib.
ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "LOKY_MAX_CPU_COUNT",
    ),
    "1",
)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with what was finished before it in ``done``.

    The one way in which long work answers Ctrl-C: whoever does not expect half a result is ended by
    it like by any KeyboardInterrupt; whoever does takes ``done``.
    """

    def __init__(self, done: Any) -> None:
        super().__init__()
        self.done = done

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.done,)  # from one process to another, with what was finished


def threads(number: int) -> "_GeneratorContextManager[None]":
    """Compute with so many threads inside (BLAS and torch); what was before comes back.

    A GEMM rounds differently with another number of threads, so the number is part of what makes a
    result reproducible. Also a decorator: ``@threads(1)``.
    """
    return _limited(whole("threads", number, least=1))


@contextmanager
def _limited(number: int) -> Iterator[None]:
    torch = sys.modules.get("torch")  # the theory must run where it is not installed
    before = torch.get_num_threads() if torch is not None else number
    with _controller().limit(limits=number):
        if torch is not None:
            torch.set_num_threads(number)
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)


@cache
def _controller() -> Any:
    return ThreadpoolController()  # takes milliseconds, which a small solve does not have


def parallel_map(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    workers: int | None,
    show: bool | None,
    text: str,
) -> list[Result]:
    """work(task) for every task, in order, over ``workers`` processes (None: one a core).

    show, text: progress bar. Ctrl-C raises :class:`Interrupted` with the results so far.
    """
    if workers is not None and not is_whole(workers, 1):
        raise InputError(f"workers must be at least 1, or None for one a core, got {workers!r}")
    workers = joblib.cpu_count() if workers is None else workers
    results: list[Result] = []
    with progress_bar(text, len(tasks), show=show) as advance:
        try:
            for result in _results(work, tasks, min(workers, len(tasks))):
                results.append(result)
                advance()
        except KeyboardInterrupt as stop:
            raise Interrupted(results) from stop
    return results


def _results(
    work: Callable[[Task], Result], tasks: Sequence[Task], workers: int
) -> Iterator[Result]:
    if workers == 1:
        yield from map(work, tasks)
        return
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        pool = joblib.Parallel(n_jobs=workers, return_as="generator")
        yield from pool(joblib.delayed(work)(task) for task in tasks)


@cache
def versions() -> dict[str, str]:
    """What computes here: packages, Python, platform."""
    packages = {}
    for name in ("fermibose", "numpy", "torch"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # the theory alone
            continue
    return packages | {"python": platform.python_version(), "platform": platform.platform()}
