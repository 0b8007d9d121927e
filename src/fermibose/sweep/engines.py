"""Engines: where requests are computed. All return the same answers, in the order they finish."""

import re
from collections.abc import Generator, Iterable
from typing import Protocol, runtime_checkable

from fermibose.errors import InputError
from fermibose.sweep.work import one_thread, perform

_LOCAL = re.compile(r"local(:0*(?P<workers>[1-9][0-9]{0,5}))?")
# Of a host by name, or by number as in [::1]; the schemes are Dask's that name a host and a port.
_ADDRESS = re.compile(r"(tcp|tls|ucx|wss?)://([^\s/:@\[\]]+|\[[^\s/\[\]]+\]):(?P<port>[0-9]{1,5})")


@runtime_checkable
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

    if not isinstance(name, str):
        raise InputError(f"an engine has a name, say local, not {name!r}")
    if (address := _ADDRESS.fullmatch(name)) and 0 < int(address["port"]) < 2**16:
        return DaskCluster(name)
    if name == "in-process":
        return InProcess()
    if local := _LOCAL.fullmatch(name):
        return LocalProcesses(int(local["workers"]) if local["workers"] else None)
    raise InputError(
        f"there is no engine {name!r}: use in-process, local, local:4 (four processes), or the "
        "address of a Dask scheduler, tcp://host:port"
    )
