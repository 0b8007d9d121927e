"""Workers of a Dask cluster, reached through the address of its scheduler (extra ``cluster``)."""

import asyncio
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from itertools import chain
from typing import Any

from fermibose.errors import FermiboseError, InputError
from fermibose.sweep.work import failed, perform, use_one_thread

_PATIENCE = "15s"  # for the scheduler to answer


class DaskCluster:
    """As many jobs at once as the cluster has threads; fermibose must be installed there too."""

    def __init__(self, address: str) -> None:
        if find_spec("distributed") is None:
            raise InputError(
                f"{address} is the address of a Dask scheduler, which needs the extra: "
                "pip install 'fermibose[cluster]'"
            )
        self.address = address

    def answers(self, requests: Iterable[str]) -> Generator[str, None, None]:
        """See :class:`fermibose.sweep.engines.Engine`."""
        from distributed import as_completed

        source = iter(requests)
        first = next(source, None)
        if first is None:
            return
        source = chain([first], source)
        with self._connect() as client:
            running: dict[Any, str] = {}
            completed = as_completed(loop=client.loop)
            while self._fill(client, source, running, completed):
                with self._talking():
                    future = next(completed)
                    answer = self._answer(future, running.pop(future))
                self._fill(client, source, running, completed)  # before the answer is stored
                yield answer

    def _fill(
        self, client: Any, source: Iterator[str], running: dict[Any, str], completed: Any
    ) -> bool:
        """Hand over a job per thread there is now (workers come and go); False if all is done."""
        with self._talking():
            threads = sum(client.nthreads().values())
        while len(running) < max(1, threads) and (request := next(source, None)) is not None:
            future = client.submit(_perform, request, pure=False)
            running[future] = request
            completed.add(future)
        return bool(running)

    def _connect(self) -> Any:
        from distributed import Client

        client: Any = Client.__new__(Client)
        with ExitStack() as half_made:
            half_made.callback(client.close)  # or it does so at exit, with a traceback
            try:
                client.__init__(self.address, timeout=_PATIENCE, set_as_default=False)
            except Exception as error:  # of whatever type: another server may answer anything
                raise InputError(
                    f"no Dask scheduler answers at {self.address} ({error}): start one with `dask "
                    f"scheduler` and its workers with `dask worker {self.address} --nthreads 1`"
                ) from None
            half_made.pop_all()
        return client

    def _answer(self, future: Any, request: str) -> str:
        if future.status == "error":  # the function's own errors are answers
            return failed(request, f"no worker of the cluster managed it: {future.exception()!r}")
        return str(future.result())

    @contextmanager
    def _talking(self) -> Iterator[None]:
        """Turn what a lost connection raises into an error for people."""
        try:
            yield
        except (OSError, CancelledError, asyncio.CancelledError) as error:
            raise FermiboseError(
                f"the Dask cluster at {self.address} is gone ({error}). What is stored is safe: "
                "start again when it is back; only what is missing will be computed"
            ) from None


def _perform(request: str) -> str:
    """What a thread of a Dask worker runs."""
    use_one_thread()
    return perform(request)
