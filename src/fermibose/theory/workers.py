"""Work shared by processes, with a progress bar: results come in the order of the tasks."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import joblib

from fermibose.compute import Interrupted
from fermibose.progress import progress_bar
from fermibose.theory.checks import check_workers

Task = TypeVar("Task")
Result = TypeVar("Result")


def spread(
    work: Callable[[Task], list[Result]],
    tasks: Sequence[Task],
    *,
    workers: int | None,
    show: bool | None,
    text: str = "solving",
) -> list[list[Result]]:
    """work(task) for every task, in order, over ``workers`` processes (None: one a core).

    Ctrl-C raises Interrupted with the results so far.
    """
    check_workers(workers)
    workers = joblib.cpu_count() if workers is None else workers
    results: list[list[Result]] = []
    with progress_bar(text, len(tasks), show=show) as advance:
        try:
            for result in _results(work, tasks, min(workers, len(tasks))):
                results.append(result)
                advance()
        except KeyboardInterrupt as stop:
            raise Interrupted(results) from stop
    return results


def _results(
    work: Callable[[Task], list[Result]], tasks: Sequence[Task], workers: int
) -> Iterator[list[Result]]:
    if workers == 1:
        yield from (work(task) for task in tasks)
        return
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        pool = joblib.Parallel(n_jobs=workers, return_as="generator")
        yield from pool(joblib.delayed(work)(task) for task in tasks)
