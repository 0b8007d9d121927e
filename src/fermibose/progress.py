"""One progress bar for all long work: on standard error, off when that is not a terminal."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

Advance = Callable[..., None]


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

    def render(self, task: Task) -> Text:
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
