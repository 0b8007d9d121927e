"""Workers of a Dask cluster, reached through the address of its scheduler (extra ``cluster``)."""

from collections.abc import Generator, Iterable
from importlib.util import find_spec
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
        request = next(source, None)
        if request is None:
            return
        with self._connect() as client:
            running: dict[Any, str] = {}
            completed = as_completed(loop=client.loop)
            while request is not None or running:
                while request is not None and len(running) < max(1, self._size(client)):
                    future = client.submit(_perform, request, pure=False)
                    running[future] = request
                    completed.add(future)
                    request = next(source, None)
                future = next(completed)
                yield self._answer(future, running.pop(future))

    def _connect(self) -> Any:
        from distributed import Client

        try:
            return Client(self.address, timeout=_PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(
                f"no Dask scheduler answers at {self.address} ({error}): start one with "
                f"`dask scheduler` and its workers with `dask worker {self.address} --nthreads 1`"
            ) from None

    def _size(self, client: Any) -> int:
        """How many threads the cluster has now; workers may come and go."""
        try:
            return sum(client.nthreads().values())
        except OSError as error:
            raise self._lost(error) from None

    def _answer(self, future: Any, request: str) -> str:
        if future.status == "finished":
            return str(future.result())
        if future.status == "error":  # the function's own errors are answers
            return failed(request, f"no worker of the cluster managed it: {future.exception()!r}")
        raise self._lost(future.status)

    def _lost(self, reason: object) -> FermiboseError:
        return FermiboseError(
            f"the Dask cluster at {self.address} is gone ({reason}). What is stored is safe: start "
            "again when it is back; only what is missing will be computed"
        )


def _perform(request: str) -> str:
    """What a thread of a Dask worker runs."""
    use_one_thread()
    return perform(request)
