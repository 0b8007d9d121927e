"""How long work is done: with how many threads, over how many processes, with what versions.

It shows one progress bar, on standard error, off when that is not a terminal.
"""

import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import _GeneratorContextManager, contextmanager
from datetime import timedelta
from functools import cache
from importlib import metadata
from typing import Any, TypeVar

import joblib
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Task as BarTask
from rich.text import Text
from threadpoolctl import ThreadpoolController

from fermibose.checks import is_whole, whole
from fermibose.errors import InputError

Task = TypeVar("Task")
Result = TypeVar("Result")
Advance = Callable[..., None]

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


def pace(done: int, total: int, seconds: float, idle: float = 0.0) -> str:
    """Rate and time left after ``done`` steps in ``seconds``, and ``idle`` seconds since the last.

    The mean over all steps: a step may take minutes, and parallel ones end in bursts. No time is
    told once the steps that are left take longer than that.
    """
    if not done or seconds <= 0:
        return ""
    rate = done / seconds
    left = round((total - done) / rate - idle)
    scaled = {"s": rate, "min": 60 * rate, "h": 3600 * rate}
    unit = next((unit for unit, value in scaled.items() if value >= 1), "h")
    told = f"{scaled[unit]:.3g}/{unit}"
    return f"{told}, {timedelta(seconds=left)} left" if left > 0 else told


class _Pace(ProgressColumn):
    """The column of :func:`pace`."""

    def render(self, task: BarTask) -> Text:
        moved = task.fields["moved"]
        idle = (task.elapsed or 0.0) - moved
        return Text(pace(int(task.completed), int(task.total or 0), moved, idle), style="cyan")


@contextmanager
def progress_bar(description: str, total: int, *, show: bool | None = None) -> Iterator[Advance]:
    """Yield ``advance(steps=1, status="")``, which moves the bar and shows a short status text.

    show: True or False forces the bar on or off; None shows it only on a terminal.
    """
    if show is None:
        show = sys.stderr.isatty()
    if not show:
        yield lambda steps=1, status="": None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        _Pace(),
        TextColumn("{task.fields[status]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total, status="", moved=0.0)
        started = time.monotonic()

        def advance(steps: int = 1, status: str = "") -> None:
            moved = time.monotonic() - started
            bar.update(task, advance=steps, status=status, moved=moved)

        yield advance
