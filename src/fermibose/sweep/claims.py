"""Claims: how processes that work on one store at once share the jobs.

A process claims a job before it starts it, by locking one byte of an empty file beside the store,
at an offset given by the job's key. The system drops the locks of a process that ends, however it
ends: a claimant that was killed blocks nothing. Where locks do not work (Windows, some network
folders), or in two threads of one process, a job may be computed twice; its row is written once.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Literal

from fermibose.sweep.store import Store

if sys.platform != "win32":
    import fcntl


class Claims:
    """The claims of one run; a context manager that drops them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.path = Path(f"{store.path}-claims")
        self._file = -1

    def take(self, key: str) -> Literal["mine", "finished", "taken"]:
        """Claim a job, unless it is another's or has a result by now."""
        if not self._lock(1, _offset(key)):
            return "taken"
        if self.store.has_result(key):  # looked up under the claim: nobody can finish it meanwhile
            self.drop(key)
            return "finished"
        return "mine"

    def drop(self, key: str) -> None:
        """Give a job back, finished or not."""
        if sys.platform != "win32":
            with suppress(OSError):  # no locks in this file system
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _offset(key))

    def _lock(self, length: int, start: int) -> bool:
        """Lock this range (length 0: to the end) unless another process has a part of it."""
        if sys.platform != "win32":
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
            except (BlockingIOError, PermissionError):
                return False
            except OSError:  # no locks in this file system
                return True
        return True

    def __enter__(self) -> "Claims":
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        return self

    def __exit__(self, *error: object) -> None:
        alone = self._lock(0, 0)
        os.close(self._file)
        if alone:
            self.path.unlink(missing_ok=True)


def _offset(key: str) -> int:
    return int(key[:15], 16)  # 60 bits of the hash
