"""Running a list of jobs: what is missing is computed, everything is stored as it finishes."""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fermibose.errors import InputError
from fermibose.progress import Advance, progress_bar
from fermibose.sweep.claims import Claims
from fermibose.sweep.engines import Engine, InProcess, engine_named
from fermibose.sweep.interrupts import Interrupts, watch_interrupts
from fermibose.sweep.jobs import Job
from fermibose.sweep.rows import Row
from fermibose.sweep.store import Store

_POLL = 1.0  # seconds between looks at what other processes are still computing


@dataclass(frozen=True)
class Outcome:
    """What a run leaves."""

    rows: list[Row]  # one per job, in the order of the jobs
    computed: int  # jobs that this run has computed; the others were stored already
    interrupted: bool  # Ctrl-C ended it: some rows have neither a result nor an error

    @property
    def failures(self) -> list[Row]:
        """The rows that have an error instead of a result; they are tried again by the next run."""
        return [row for row in self.rows if row.error is not None]


def run(
    jobs: Iterable[Job],
    store: Store | str | Path,
    *,
    engine: Engine | str | None = None,
    show: bool | None = None,
) -> Outcome:
    """Compute the jobs that have no result in the store yet, each once.

    store: itself or its path. engine: itself or its name, see :func:`fermibose.sweep.engine_named`;
    this process by default. show: progress bar, see :func:`fermibose.progress.progress_bar`.

    A job that fails is stored with its error and does not stop the others. Ctrl-C ends the workers
    and returns what there is.
    """
    if not isinstance(jobs, Iterable):
        raise InputError(f"jobs must be a list of jobs, not {jobs!r}")
    jobs = list(jobs)
    plan: dict[str, Job] = {}
    for job in jobs:
        if not isinstance(job, Job):
            raise InputError(f"jobs must be a list of jobs, and one of them is {job!r}")
        plan.setdefault(job.key, job)
    if engine is None:
        engine = InProcess()
    elif not isinstance(engine, Engine):
        engine = engine_named(engine)
    store = store if isinstance(store, Store) else Store(store)
    sweep = _Sweep(plan, store, engine)
    interrupted = False
    with watch_interrupts() as interrupts:
        try:
            sweep.compute(interrupts, show)
        except KeyboardInterrupt:
            interrupted = True
    return Outcome(store.rows_of(jobs), sweep.computed, interrupted)


class _Sweep:
    """One run of a plan: the jobs still to do, and the loop that does them."""

    def __init__(self, plan: dict[str, Job], store: Store, engine: Engine) -> None:
        finished = store.finished()
        self.pending = {key: job for key, job in plan.items() if key not in finished}
        self.store = store
        self.engine = engine
        self.computed = 0
        self.failed = 0

    def compute(self, interrupts: Interrupts, show: bool | None) -> None:
        """Compute what is pending until nothing is, here or in other processes."""
        if not self.pending:
            return
        with (
            Claims(self.store) as claims,
            progress_bar("jobs", len(self.pending), show=show) as bar,
        ):
            while self.pending:
                answers = self.engine.answers(self._requests(claims, bar))
                with closing(answers):
                    for answer in answers:
                        if interrupts.requested():  # the function may have returned half a result
                            raise KeyboardInterrupt
                        with interrupts.held():
                            self._record(json.loads(answer), claims)
                        bar(status=f"{self.failed} failed" if self.failed else "")
                if self.pending:  # by other processes
                    time.sleep(_POLL)

    def _requests(self, claims: Claims, bar: Advance) -> Iterator[str]:
        """Requests of the jobs that nobody else has finished or is computing."""
        for key, job in list(self.pending.items()):
            state = claims.take(key)
            if state == "mine":
                yield job.request()
            elif state == "finished":
                del self.pending[key]
                bar()

    def _record(self, answer: dict[str, Any], claims: Claims) -> None:
        job = self.pending.pop(answer["key"])
        self.store.record(job, answer)
        claims.drop(job.key)
        self.computed += 1
        self.failed += answer["result"] is None
