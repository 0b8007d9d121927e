"""Engines: where requests are computed. All return the same answers, in the order they finish."""

from collections.abc import Generator, Iterable
from typing import Protocol

from fermibose.errors import InputError
from fermibose.sweep.work import one_thread, perform


class Engine(Protocol):
    """Computes requests (one line of text each) into answers."""

    def answers(self, requests: Iterable[str]) -> Generator[str, None, None]:
        """Take a request when a worker is free for it; yield answers as they come.

        Closing the iterator ends the workers and what they are doing.
        """


class InProcess:
    """One job after another in this process."""

    def answers(self, requests: Iterable[str]) -> Generator[str, None, None]:
        """See :class:`Engine`."""
        for request in requests:
            with one_thread():
                answer = perform(request)
            yield answer


def engine_named(name: str) -> Engine:
    """The engine with this name.

    name: ``in-process``; ``local``, one process per core, or ``local:4``, four of them; the address
    of a Dask scheduler, ``tcp://host:port`` (needs the extra ``cluster``).
    """
    from fermibose.sweep.cluster import DaskCluster
    from fermibose.sweep.local import LocalProcesses

    if "://" in name:
        return DaskCluster(name)
    if name == "in-process":
        return InProcess()
    kind, _, detail = name.partition(":")
    if kind == "local" and not name.endswith(":"):
        if not detail:
            return LocalProcesses()
        if detail.isascii() and detail.isdigit() and int(detail) > 0:
            return LocalProcesses(int(detail))
    raise InputError(
        f"there is no engine {name!r}: use in-process, local, local:4 (four processes), or the "
        "address of a Dask scheduler, tcp://host:port"
    )
