"""Claims: how processes that work on one store at once share the jobs.

A process claims a job before it starts it. A claim holds for a minute and is renewed by a thread,
so a claimant that was killed blocks nothing: on the same machine its claims are void at once, from
elsewhere within that minute. If a claim lapses by mistake, a job is computed twice, no more.
"""

import os
import socket
import time
import uuid
from contextlib import suppress
from threading import Event, Thread
from typing import Literal

from fermibose.errors import FermiboseError
from fermibose.sweep.store import Store

_HOLDS = 60.0  # seconds


class Claims:
    """The claims of one run; a context manager that drops those left over."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.owner = f"{os.getpid()} {uuid.uuid4().hex} {socket.gethostname()}"
        self._over = Event()
        self._renewer = Thread(target=self._renew, daemon=True)

    def take(self, key: str) -> Literal["mine", "finished", "taken"]:
        """Claim a job, unless it has a result by now or is another's."""
        with self.store.transaction() as connection:
            query = "SELECT 1 FROM results WHERE key = ? AND result IS NOT NULL"
            if connection.execute(query, (key,)).fetchone():
                return "finished"
            query = "SELECT owner, until FROM claims WHERE key = ?"
            claim = connection.execute(query, (key,)).fetchone()
            if claim and claim[1] > time.time() and _alive(claim[0]):
                return "taken"
            until = time.time() + _HOLDS
            connection.execute("REPLACE INTO claims VALUES (?, ?, ?)", (key, self.owner, until))
        return "mine"

    def _renew(self) -> None:
        while not self._over.wait(_HOLDS / 3):
            with suppress(FermiboseError), self.store.transaction() as connection:
                update = "UPDATE claims SET until = ? WHERE owner = ?"
                connection.execute(update, (time.time() + _HOLDS, self.owner))

    def __enter__(self) -> "Claims":
        self._renewer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._renewer.join()
        # On a full disk they stay; they lapse by themselves.
        with suppress(FermiboseError), self.store.transaction() as connection:
            connection.execute("DELETE FROM claims WHERE owner = ?", (self.owner,))


def _alive(owner: str) -> bool:
    """False if the claimant is known to be gone: a process of this machine that is no more."""
    pid, _, host = owner.split(" ", 2)
    if host != socket.gethostname() or os.name != "posix":  # elsewhere signal 0 is not harmless
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True
