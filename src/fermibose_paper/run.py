"""Running a list of jobs: what is missing is computed, everything is stored as it finishes.

Engines compute, in this process here and in others in ``cluster``, and all give the same answers,
bit for bit. Only the driver, this process, writes the store.
"""

import gc
import re
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import joblib

from fermibose.checks import number
from fermibose.compute import Advance, progress_bar, threads, versions
from fermibose.errors import InputError
from fermibose.summary import Summarised
from fermibose_paper.job import Job, decode, encode, measurement_of
from fermibose_paper.store import Answer, Row, Store

Answers = list[tuple[Job, Answer]]

_LOCAL = re.compile(r"local(:0*(?P<workers>[1-9][0-9]{0,5}))?")
# Of a host by name, or by number as in [::1]; the schemes are Dask's that name a host and a port.
_ADDRESS = re.compile(r"(tcp|tls|ucx|wss?)://([^\s/:@\[\]]+|\[[^\s/\[\]]+\]):(?P<port>[0-9]{1,5})")


@runtime_checkable
class Engine(Protocol):
    """Computes jobs; a context manager that ends its workers on leaving."""

    def answers(self, jobs: Iterator[Job], limit: float | None) -> Generator[Answers, None, None]:
        """Take a job when there is room for it; yield answers as they come, several at a time.

        limit: seconds that a job may take.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def engine_named(name: str) -> Engine:
    """The engine with this name.

    name: ``in-process``, to debug; ``local``, one process per core, or ``local:4``, four of them;
    the address of a Dask scheduler, ``tcp://host:port``. All but the first need the extra
    ``paper``.
    """
    if not isinstance(name, str):
        raise InputError(f"an engine has a name, say local, not {name!r}")
    if name == "in-process":
        return InProcess()
    from fermibose_paper.cluster import DaskEngine

    address = _ADDRESS.fullmatch(name)
    if address and 0 < int(address["port"]) < 2**16:
        return DaskEngine(address=name)
    if local := _LOCAL.fullmatch(name):
        return DaskEngine(int(local["workers"]) if local["workers"] else joblib.cpu_count())
    raise InputError(
        f"there is no engine {name!r}: use in-process, local, local:4 (four processes), or the "
        "address of a Dask scheduler, tcp://host:port"
    )


def perform(job: Job) -> Answer:
    """Compute a job; an exception of the function becomes part of the answer.

    The error text starts at the function's own frame, so that it is the same from every engine.
    """
    mark = measurement_of(job.function)
    result, error, started = None, None, time.perf_counter()
    try:
        if (mark.name, mark.version) != (job.name, job.version):
            raise InputError(
                f"the worker has version {mark.version} of {mark.name!r}, and version "
                f"{job.version} was asked for: give all workers the same code, and start again"
            )
        data = {} if isinstance(job.data, str) else {"data": _checked(job)}
        params = decode(job.text)  # its own: a function may change what it is given
        returned = job.function(**params, **job.context, **data, seed=job.seed)
        if not isinstance(returned, dict):
            raise InputError(f"{mark.name!r} returned {returned!r}, not a dict")
        result = encode(returned, "the result")
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # SystemExit, too, would end the worker
        trace = problem.__traceback__
        error = "".join(traceback.format_exception(problem.with_traceback(trace and trace.tb_next)))
    return Answer(result, error, time.perf_counter() - started, versions(), mark.source)


def _checked(job: Job) -> Any:
    """The data of a job as they are here, which must be those that the job is of."""
    assert not isinstance(job.data, str)
    loaded = job.data.load()
    if str(loaded.checksum) != job.checksum:
        raise InputError(
            f"the data found here as {job.data!r} are not those of the run (checksum "
            f"{loaded.checksum!s:.12}…, not {job.checksum:.12}…): give every worker the same files"
        )
    return loaded


class InProcess:
    """One job after another in this process, to debug."""

    def answers(self, jobs: Iterator[Job], limit: float | None) -> Generator[Answers, None, None]:
        """See :class:`Engine`."""
        if limit is not None:
            raise InputError(
                "a job of this process cannot be ended from outside: leave the time limit out, or "
                'use engine="local"'
            )
        for library in ("scipy.linalg", "torch"):  # loaded inside, they would use every core
            import_module(library)
        for job in jobs:
            with threads(1):
                answer = perform(job)
            yield [(job, answer)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


@dataclass(frozen=True, repr=False)
class Outcome(Summarised):
    """What a run leaves."""

    rows: list[Row]  # one per job, in the order of the jobs
    computed: int  # jobs that this sweep has computed; the others were stored already
    interrupted: bool  # Ctrl-C ended it: some rows have neither a result nor an error

    @property
    def failures(self) -> list[Row]:
        """The rows that have an error instead of a result; the next sweep tries them again."""
        return [row for row in self.rows if row.error is not None]

    @property
    def summary(self) -> str:
        """How many of the jobs are done, and how many of them now."""
        finished = sum(row.result_text is not None for row in self.rows)
        told = f"{finished} of {len(self.rows)} jobs finished, {self.computed} computed now"
        told += f", {len(self.failures)} failed" if self.failures else ""
        return told + (", interrupted" if self.interrupted else "")


def run(
    jobs: Iterable[Job],
    store: Store | str | Path,
    *,
    engine: Engine | str = "in-process",
    time_limit: float | None = None,
    text: str = "runs",
    show: bool | None = None,
) -> Outcome:
    """Compute the jobs that have no result in the store yet, each once.

    store: itself or its path. engine: itself or its name, see :func:`engine_named`. time_limit:
    seconds after which a job counts as failed and its worker is started anew. text, show: progress
    bar, see :func:`fermibose.compute.progress_bar`.

    A job that fails is stored with its error and does not stop the others. Ctrl-C ends the workers
    and returns what there is.
    """
    if not isinstance(jobs, Iterable):
        raise InputError(f"jobs must be a list of jobs, not {jobs!r}")
    jobs = list(jobs)
    for job in jobs:
        if not isinstance(job, Job):
            raise InputError(f"jobs must be a list of jobs, and one of them is {job!r}")
    _check_names(jobs)
    if time_limit is not None:
        number("time_limit", time_limit, above=0)
    with ExitStack() as mine:  # an engine that is given stays open for the next sweep
        if not isinstance(engine, Engine):
            engine = mine.enter_context(engine_named(engine))
        store = store if isinstance(store, Store) else Store(store)
        with _uncollected():
            sweep = _Sweep(jobs, store, engine, time_limit)
        return sweep.finish(text, show)


class _Sweep:
    """One sweep over a list of jobs: those still to do, and the loop that does them."""

    def __init__(
        self, jobs: list[Job], store: Store, engine: Engine, time_limit: float | None
    ) -> None:
        self.jobs, self.store, self.engine, self.time_limit = jobs, store, engine, time_limit
        self.rows = {row.key: row for row in store.rows_of(jobs)}
        self.pending: dict[str, Job] = {}
        for job in jobs:
            if self.rows[job.key].result_text is None:
                self.pending.setdefault(job.key, job)
        self.computed = self.failed = 0
        for name in _edited(self.rows.values(), jobs):
            warnings.warn(
                f"rows of {name!r} were computed by another text of its function: if what it "
                "measures has changed, raise its version",
                stacklevel=3,
            )

    def finish(self, text: str, show: bool | None) -> Outcome:
        """Compute what is pending."""
        pending, interrupted = list(self.pending.values()), False
        try:
            if pending:
                self._compute(text, show)
        except KeyboardInterrupt:
            interrupted = True
        self.rows.update({row.key: row for row in self.store.rows_of(pending)})
        rows = [self.rows[job.key] for job in self.jobs]
        return Outcome(rows, self.computed, interrupted)

    def _compute(self, text: str, show: bool | None) -> None:
        with (
            progress_bar(text, len(self.pending), show=show) as advance,
            _Interrupts() as interrupts,
            closing(self.engine.answers(self._missing(advance), self.time_limit)) as answers,
        ):
            for some in answers:
                interrupts.heed()  # a function that caught it may have returned half a result
                with interrupts.held():
                    self._record(some)
                advance(len(some), status=f"{self.failed} failed" if self.failed else "")

    def _record(self, answers: Answers) -> None:
        self.store.record(answers)
        self.computed += len(answers)
        self.failed += sum(answer.result is None for _, answer in answers)

    def _missing(self, advance: Advance) -> Iterator[Job]:
        """The pending jobs, without those that another process has finished meanwhile."""
        for job in self.pending.values():
            if self.store.has_result(job):
                advance()
            else:
                yield job


@contextmanager
def _uncollected() -> Iterator[None]:
    """Inside, no garbage is looked for: new rows have none, and there may be 100,000 of them."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def _check_names(jobs: list[Job]) -> None:
    """Refuse two functions under one name and version: one would get the other's rows."""
    known: dict[tuple[str, int], Any] = {}
    for job in jobs:
        other = known.setdefault((job.name, job.version), job.function)
        if other is not job.function:
            raise InputError(
                f"two functions, {other.__qualname__} and {job.function.__qualname__}, are both "
                f"the measurement {job.name!r}, version {job.version}: give each a name of its own"
            )


def _edited(rows: Iterable[Row], jobs: list[Job]) -> set[str]:
    """Names of the measurements whose stored results come from another text of the function."""
    functions = {job.name: job.function for job in jobs}
    texts = {name: measurement_of(function).source for name, function in functions.items()}
    return {row.name for row in rows if row.result_text and row.source != texts[row.name]}


class _Interrupts:
    """Ctrl-C during a run: at once while waiting or computing, never in the middle of a row."""

    def __init__(self) -> None:
        self.pressed = self.holding = False
        self.before: Any = None

    def __enter__(self) -> "_Interrupts":
        main = threading.current_thread() is threading.main_thread()  # no other hears signals
        if main and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as nohup has it
            self.before = signal.signal(signal.SIGINT, self._on_press)
        return self

    def __exit__(self, *error: object) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)

    def _on_press(self, signum: int, frame: Any) -> None:
        self.pressed = True
        if not self.holding:
            raise KeyboardInterrupt

    def heed(self) -> None:
        """Stop here if Ctrl-C was pressed."""
        if self.pressed:
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, Ctrl-C waits; it takes effect on leaving."""
        self.holding = True
        try:
            yield
        finally:
            self.holding = False
        self.heed()
