"""Worker processes on this machine, each fed one request at a time over its own pipe.

They are started afresh (torch does not survive a fork), with one thread each before NumPy or torch
are loaded, and in a session of their own, so that Ctrl-C reaches the parent only. A worker whose
parent is gone ends itself.
"""

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread

import joblib

from fermibose.sweep.work import ONE_THREAD, failed

_ATTEMPTS = 2  # of a job whose worker died
_PATIENCE = 2.0  # seconds for a worker that ends by itself to do so, after its pipe has closed
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from fermibose.sweep.worker import serve; serve()"
)


class LocalProcesses:
    """As many worker processes as there are cores, or as many as asked for."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = joblib.cpu_count() if workers is None else workers

    def answers(self, requests: Iterable[str]) -> Generator[str, None, None]:
        """See :class:`fermibose.sweep.engines.Engine`."""
        crew = _Crew(self.workers, iter(requests))
        try:
            while crew.hire():
                answer = crew.wait()
                crew.hire()  # before the answer is stored: no worker waits for the disk
                if answer is not None:
                    yield answer
        finally:
            crew.dismiss()


class _Crew:
    """The workers and what they are at."""

    def __init__(self, size: int, requests: Iterator[str]) -> None:
        self.size = size
        self.requests = requests
        self.again: deque[str] = deque()  # requests whose worker died
        self.attempts: dict[str, int] = {}
        self.idle: list[_Worker] = []
        self.busy: dict[_Worker, str] = {}
        self.events: SimpleQueue[tuple[_Worker, str]] = SimpleQueue()

    def hire(self) -> bool:
        """Give every worker something to do, starting those needed; False if all is done."""
        while len(self.busy) < self.size:
            request = self.again.popleft() if self.again else next(self.requests, None)
            if request is None:
                break
            worker = self.idle.pop() if self.idle else _Worker(self.events)
            self.busy[worker] = request
            worker.send(request)
        return bool(self.busy)

    def wait(self) -> str | None:
        """The next answer, or None if a worker died and its job, if any, is to be tried again."""
        worker, line = self.events.get()
        request = self.busy.pop(worker, None)
        if line:
            self.idle.append(worker)
            return line
        worker.end(patience=_PATIENCE)
        if request is None:  # it died while it waited for a job
            self.idle.remove(worker)
            return None
        self.attempts[request] = self.attempts.get(request, 0) + 1
        if self.attempts[request] < _ATTEMPTS:
            self.again.append(request)
            return None
        status = worker.process.returncode
        hint = " (killed, perhaps for want of memory: use fewer workers)" if status == -9 else ""
        return failed(
            request,
            f"{_ATTEMPTS} workers died while computing it, the last with exit status "
            f"{status}{hint}",
        )

    def dismiss(self) -> None:
        """End all workers, whatever they do."""
        for worker in (*self.idle, *self.busy):
            worker.end()


class _Worker:
    """One process, and the thread that listens to it."""

    def __init__(self, events: "SimpleQueue[tuple[_Worker, str]]") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | ONE_THREAD,
            text=True,
            start_new_session=True,
        )
        self.listener = Thread(target=self._listen, args=(events,), daemon=True)
        self.listener.start()

    def _listen(self, events: "SimpleQueue[tuple[_Worker, str]]") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # or it died while writing
                events.put((self, line))
        events.put((self, ""))

    def send(self, request: str) -> None:
        """Hand over a request. A worker that is dead already is noticed by its listener."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()

    def end(self, *, patience: float = 0.0) -> None:
        """Kill the process if it still lives after so many seconds; nothing of it is left then."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(subprocess.TimeoutExpired):  # killed at once, it would lose its exit status
            self.process.wait(patience)
        self.process.kill()
        self.process.wait()
        self.listener.join()
        self.process.stdout.close()
        with suppress(BrokenPipeError):  # of what could not be sent
            self.process.stdin.close()
