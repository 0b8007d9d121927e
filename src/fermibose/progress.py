"""One progress bar for all long work: on standard error, off when that is not a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

Advance = Callable[..., None]


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
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total, status="")
        yield lambda steps=1, status="": bar.update(task, advance=steps, status=status)
