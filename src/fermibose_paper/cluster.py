"""Jobs computed by worker processes: of this machine, or of a cluster that has an address.

Both are Dask's (extra ``paper``), which starts and watches the workers and moves the jobs. Answers
are those of one process, bit for bit, in any order.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from importlib.util import find_spec
from itertools import chain, islice
from queue import Empty, SimpleQueue
from typing import Any, Self

from threadpoolctl import threadpool_limits

from fermibose.compute import ONE_THREAD, versions
from fermibose.errors import FermiboseError, InputError
from fermibose_paper.job import Job
from fermibose_paper.run import Answers, perform
from fermibose_paper.store import Answer

_SAFE = "What is stored is safe: start again{}; only what is missing will be computed"
_STARTS = 3  # of the workers of this machine
_ATTEMPTS = 2  # of a job whose worker died
_CHUNK_SECONDS = 0.1  # jobs that are quicker travel together; benchmarks/sweep.py measures the rate
_CHUNK = 100  # at the most
_PATIENCE = 15.0  # seconds for a scheduler to answer, to have workers, and to start one anew
_POLL = 0.5  # seconds between looks at workers and at the clock


def dask_is_installed() -> bool:
    """Whether there is more than this process to compute with."""
    return find_spec("distributed") is not None


class DaskEngine:
    """Worker processes of Dask: a cluster of its own on this machine, or one with an address.

    The own cluster listens on loopback only. It is started when the first job needs it.
    """

    def __init__(self, workers: int | None = None, *, address: str | None = None) -> None:
        if not dask_is_installed():
            raise InputError(
                f"the engine {address or 'local'} needs Dask: pip install 'fermibose[paper]', or "
                "use the engine in-process"
            )
        self.workers, self.address = workers, address
        self._open = ExitStack()
        self._client: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers of this machine, or leave the cluster; the next jobs open it anew."""
        if self.address and self._client is not None and self._client.status == "running":
            self._client.cancel(list(self._client.futures))
        self._client = None
        with _deaf_to_interrupts():
            self._open.close()

    def answers(self, jobs: Iterator[Job], limit: float | None) -> Generator[Answers, None, None]:
        """See :class:`Engine`."""
        first = next(jobs, None)
        if first is None:
            return  # nothing to do needs nobody
        if self._client is None:
            self._client = self._connect() if self.address else self._start()
        work = _Work(self, self._client, chain([first], jobs), limit)
        try:
            while work.hand_out():
                answers = work.wait()
                work.hand_out()  # before the answers are stored: no worker waits for the disk
                if answers:
                    yield answers
        finally:
            if work.running:  # Ctrl-C, or an error: what runs must not keep a worker busy
                self.close()

    def _start(self) -> Any:
        """A cluster of this machine: as many processes as asked for, one thread each."""
        import dask
        from distributed import Client, LocalCluster

        settings = {
            # A death counts at once, here, where a job that travelled with others is tried alone.
            "distributed.scheduler.allowed-failures": 0,
            # A worker has one task at a time: what waits elsewhere does not die with it.
            "distributed.scheduler.worker-saturation": 1.0,
            "distributed.nanny.pre-spawn-environ": {},  # it would be set in this process, too
            "distributed.worker.profile.enabled": False,
        }
        self._open.enter_context(dask.config.set(settings))
        self._open.enter_context(_quiet())
        for attempt in range(_STARTS):
            try:
                cluster = LocalCluster(
                    n_workers=self.workers,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    memory_limit=0,
                    silence_logs=logging.CRITICAL,
                )
                break
            except RuntimeError as error:  # a worker died before it could be of use
                if attempt + 1 == _STARTS:
                    self.close()
                    raise FermiboseError(
                        f"the worker processes of this machine do not start ({error}): make sure "
                        "that there is memory for them, or use the engine in-process"
                    ) from None
        self._open.enter_context(cluster)
        client = self._open.enter_context(Client(cluster, set_as_default=False))
        client.register_plugin(_deafness())
        return client

    def _connect(self) -> Any:
        from distributed import Client

        client: Any = Client.__new__(Client)
        with ExitStack() as half_made:
            half_made.callback(_leave, client)  # or it does so at exit, with a traceback
            try:
                client.__init__(self.address, timeout=_PATIENCE, set_as_default=False)
            except Exception as error:  # of whatever type: another server may answer anything
                raise InputError(
                    f"no Dask scheduler answers at {self.address} ({error}): start one with `dask "
                    f"scheduler` and its workers with `dask worker {self.address} --nthreads 1`"
                ) from None
            self._open.push(half_made.pop_all())
        return client


def _leave(client: Any) -> None:
    """Close a client; one without the certificate that its address needs has nothing to close."""
    with suppress(AttributeError):
        client.close()


class _Work:
    """Jobs on their way to the workers of a client, in chunks, and back."""

    def __init__(
        self, engine: DaskEngine, client: Any, jobs: Iterator[Job], limit: float | None
    ) -> None:
        self.engine, self.client, self.jobs, self.limit = engine, client, jobs, limit
        self.again: list[Job] = []  # whose worker died
        self.deaths: dict[str, int] = {}
        self.running: dict[Any, list[Job]] = {}  # by future
        self.since: dict[str, float] = {}  # when the task with this key was first seen at work
        self.done: SimpleQueue[Any] = SimpleQueue()
        self.pace = _CHUNK_SECONDS  # seconds a job, of late
        self.slots = 0
        self.looked = self.manned = time.monotonic()
        self._count_workers()

    def hand_out(self) -> bool:
        """Give every worker something to do; False if all is done."""
        while len(self.running) < max(1, self.slots):
            size = max(1, min(_CHUNK, int(_CHUNK_SECONDS / max(self.pace, 1e-6))))
            chunk = [self.again.pop()] if self.again else list(islice(self.jobs, size))
            if not chunk:
                break
            future = self.client.submit(_perform_all, chunk, pure=False)
            self.running[future] = chunk
            future.add_done_callback(self.done.put)
        return bool(self.running)

    def wait(self) -> Answers:
        """Answers that have come; none if a worker died and its jobs are to be tried again."""
        answers: Answers = []
        with suppress(Empty):
            answers = self._answers_of(self.done.get(timeout=_POLL))
        if time.monotonic() - self.looked > _POLL:
            self.looked = time.monotonic()
            self._count_workers()
            answers += self._end_what_takes_too_long()
        return answers

    def _answers_of(self, future: Any) -> Answers:
        chunk = self.running.pop(future, None)
        if chunk is None:  # ended by us
            return []
        if future.status == "finished":
            return self._finished(chunk, future)
        if future.status == "error":
            return self._died(chunk, future.exception())
        raise self._gone(future.status)  # cancelled or lost, and not by us

    def _finished(self, chunk: list[Job], future: Any) -> Answers:
        try:
            answers = future.result()
        except (OSError, FermiboseError, RuntimeError) as error:
            raise self._gone(error) from None
        self.pace = max(answer.seconds for answer in answers)
        self.again += chunk[len(answers) :]  # for which there was no time
        return list(zip(chunk, answers, strict=False))

    def _died(self, chunk: list[Job], problem: Any) -> Answers:
        """Jobs whose worker died are tried again, each alone; twice, and it is the job's fault."""
        from distributed import KilledWorker

        if not isinstance(problem, KilledWorker):  # it could not even be asked
            reason = f"no worker of the cluster managed it: {problem!r}"
            return [(job, _failed(reason)) for job in chunk]
        answers = []
        for job in chunk:
            self.deaths[job.key] = self.deaths.get(job.key, 0) + 1
            if self.deaths[job.key] < _ATTEMPTS:
                self.again.append(job)
            else:
                reason = f"{_ATTEMPTS} workers died while computing it"
                hint = "killed from outside, perhaps for want of memory: use fewer workers"
                answers.append((job, _failed(f"{reason} ({hint})")))
        return answers

    def _count_workers(self) -> None:
        """How many there are now; none for long is an error and not a reason to wait."""
        try:
            self.slots = sum(self.client.nthreads().values())
        except Exception as error:
            raise self._gone(error) from None
        if self.slots:
            self.manned = time.monotonic()
        elif time.monotonic() - self.manned > _PATIENCE:
            where = self.engine.address or "local"
            remedy = f" with `dask worker {where} --nthreads 1`" if self.engine.address else ""
            raise FermiboseError(
                f"the Dask scheduler {where} has had no workers for {_PATIENCE:.0f} s: start some"
                f"{remedy}. {_SAFE.format(' then')}"
            )

    def _end_what_takes_too_long(self) -> Answers:
        """Jobs beyond the time limit fail, and their workers are started anew."""
        if self.limit is None:
            return []
        busy = {key: worker for worker, keys in self.client.processing().items() for key in keys}
        now, answers = time.monotonic(), []
        for future, chunk in list(self.running.items()):
            if future.key not in busy:
                self.since.pop(future.key, None)  # waiting, or back from a worker that died
                continue
            if now - self.since.setdefault(future.key, now) <= self.limit + _CHUNK_SECONDS:
                continue
            del self.running[future]
            future.cancel()
            with suppress(ValueError):  # of a worker that nobody watches over
                # Dask waits for as many workers as it had counted, one that was just leaving among
                # them, for two minutes if it may; one that is late comes all the same.
                self.client.restart_workers(
                    [busy[future.key]], timeout=_PATIENCE, raise_for_error=False
                )
            if len(chunk) > 1:  # one of them is the slow one
                self.again += chunk
            else:
                reason = f"it took longer than the time limit of {self.limit:g} s"
                answers.append((chunk[0], _failed(reason, self.limit)))
        return answers

    def _gone(self, problem: object) -> FermiboseError:
        where = self.engine.address or "of this machine"
        return FermiboseError(
            f"the Dask cluster {where} is gone ({problem}). {_SAFE.format(' when it is back')}"
        )


def _failed(reason: str, seconds: float = 0.0) -> Answer:
    """The answer of an engine that could not get one from a worker."""
    return Answer(None, reason, seconds, versions(), "")


def _perform_all(jobs: list[Job]) -> list[Answer]:
    """What a worker runs: the first job, and the next ones as long as they are quick.

    One thread from now on; what a function prints is not our output.
    """
    os.environ.update(ONE_THREAD)
    threadpool_limits(1)
    if "torch" in sys.modules:  # it may link its libraries statically, out of the limits' reach
        sys.modules["torch"].set_num_threads(1)
    answers: list[Answer] = []
    end = time.monotonic() + _CHUNK_SECONDS
    with redirect_stdout(sys.stderr):
        for job in jobs:
            answers.append(perform(job))
            if time.monotonic() > end:
                break
    return answers


def _deafness() -> Any:
    """Workers are deaf to Ctrl-C: the terminal tells them too, and the driver ends them."""
    from distributed import WorkerPlugin

    class Deafness(WorkerPlugin):
        def setup(self, worker: Any) -> None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    return Deafness()


@contextmanager
def _quiet() -> Iterator[None]:
    """Dask's remarks about workers that die are ours to make."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """While the cluster closes, another Ctrl-C would leave processes behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
