"""How long work is done: with how many threads, over how many processes, on what devices.

It shows progress bars on standard error, off when that is not a terminal; a command then says in
a line that it is at work.
"""

import math
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import _GeneratorContextManager, contextmanager
from datetime import timedelta
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import joblib
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
)
from rich.progress import Task as BarTask
from rich.table import Column
from rich.text import Text
from threadpoolctl import threadpool_limits

from fermibose.checks import is_whole, whole
from fermibose.errors import InputError

if TYPE_CHECKING:
    import torch

Task = TypeVar("Task")
Result = TypeVar("Result")
Work = TypeVar("Work", bound=Callable[..., Any])
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


WITHOUT_FLOAT64 = ("mps",)  # types of devices that refuse it


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


class _Decorator(Protocol):
    def __call__(self, work: Work, /) -> Work: ...


# What numpy computes inside is on one thread; what was before comes back. A GEMM rounds differently
# with another number of threads, so the number is part of what makes a result reproducible.
on_one_thread: _Decorator = threadpool_limits.wrap(limits=1, user_api="blas")


def threads(number: int) -> "_GeneratorContextManager[None]":
    """The same for torch too, and any number of threads: ``with threads(4):``."""
    return _limited(whole("threads", number, least=1))


@contextmanager
def _limited(number: int) -> Iterator[None]:
    torch = sys.modules.get("torch")  # the theory must run where it is not installed
    before = torch.get_num_threads() if torch is not None else number
    with threadpool_limits(limits=number):
        if torch is not None:
            torch.set_num_threads(number)
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)


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
            for result in _results(work, tasks, max(1, min(workers, len(tasks)))):
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


def widest(device: "torch.device") -> "torch.dtype":
    """The most precise numbers that the device has."""
    numbers: Any = sys.modules["torch"]  # whose device it is; the theory runs without it
    kind: torch.dtype = numbers.float32 if device.type in WITHOUT_FLOAT64 else numbers.float64
    return kind


def fraction(mask: "torch.Tensor") -> float:
    """Fraction of entries that are true, exact on any device; NaN if there is no entry."""
    return int(mask.sum()) / mask.numel() if mask.numel() else math.nan


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
    """Time left and rate after ``done`` steps in ``seconds``, and ``idle`` seconds since the last.

    The mean over all steps: a step may take minutes, and parallel ones end in bursts. The time that
    has passed is told instead before the first step, and once the steps left take longer than that.
    """
    passed = f"{timedelta(seconds=round(seconds + idle))} passed"
    if not done or seconds <= 0:
        return passed
    rate = done / seconds
    left = round((total - done) / rate - idle)
    scaled = {"s": rate, "min": 60 * rate, "h": 3600 * rate}
    unit = next((unit for unit, value in scaled.items() if value >= 1), "h")
    told = f"{timedelta(seconds=left)} left" if left > 0 else passed
    return f"{told}, {scaled[unit]:.3g}/{unit}"


class _Pace(ProgressColumn):
    """The column of :func:`pace`."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True))

    def render(self, task: BarTask) -> Text:
        moved = task.fields["moved"]
        idle = (task.elapsed or 0.0) - moved
        return Text(pace(int(task.completed), int(task.total or 0), moved, idle), style="cyan")


class _Status(ProgressColumn):
    """A short text; where the line is full it is cut, and nothing before it."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=False))  # the one column that may be made narrower

    def render(self, task: BarTask) -> Text:
        return Text(task.fields["status"], no_wrap=True, overflow="ellipsis")


_WIDE = 100  # columns of a terminal that has room for a long bar
_screens: list[Progress] = []  # what is on the screen: bars inside a bar are lines below it


@contextmanager
def _screen() -> Iterator[Progress]:
    """The lines of bars on the screen, which are opened by the first of them."""
    if _screens:
        yield _screens[-1]
        return
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=28 if console.width >= _WIDE else 12),
        MofNCompleteColumn(),
        _Pace(),
        _Status(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        _screens.append(bars)
        try:
            yield bars
        finally:
            _screens.pop()


_QUIET = 5.0  # seconds that work may take without a word
_logs: list[list[str]] = []  # of a command: what is at work, of which the first speaks


@contextmanager
def spoken() -> Iterator[None]:
    """Inside, work without a terminal for its bar says in a line that it takes its time.

    For a command, whose reader may be waiting; a library stays silent.
    """
    _logs.append([])
    try:
        yield
    finally:
        _logs.pop()


@contextmanager
def _line(description: str, total: int) -> Iterator[Advance]:
    """One line on standard error, unless the work is done before."""
    done = 0

    def advance(steps: int = 1, status: str = "") -> None:
        nonlocal done
        done += steps

    def tell() -> None:
        told = f"{description}: {done} of {total} done after {_QUIET:g} s, still at work"
        print(told, file=sys.stderr, flush=True)

    later, at_work = threading.Timer(_QUIET, tell), _logs[-1]
    later.daemon = True
    later.start()
    at_work.append(description)
    try:
        yield advance
    finally:
        later.cancel()
        later.join()  # at once, or when its line is out: nothing speaks after the work
        at_work.pop()


@contextmanager
def progress_bar(description: str, total: int, *, show: bool | None = None) -> Iterator[Advance]:
    """Yield ``advance(steps=1, status="")``, which moves the bar and shows a short status text.

    Inside another bar it is a line below that. show: True or False forces the bar on or off; None
    shows it only on a terminal, see :func:`spoken`.
    """
    if show is None:
        show = sys.stderr.isatty()
        if not show and _logs and not _logs[-1]:
            with _line(description, total) as advance:
                yield advance
            return
    if not show:
        yield lambda steps=1, status="": None
        return
    with _screen() as bars:
        task = bars.add_task(description, total=total, status="", moved=0.0)
        started, moved = time.monotonic(), 0.0

        def advance(steps: int = 1, status: str = "") -> None:
            nonlocal moved
            moved = time.monotonic() - started if steps else moved
            bars.update(task, advance=steps, status=status, moved=moved)

        try:
            yield advance
        finally:
            if len(bars.tasks) > 1:  # the first one ends with the screen
                bars.remove_task(task)
