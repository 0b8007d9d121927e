"""The store: one SQLite file with a row per job, written as the jobs finish.

A row is one transaction with a rollback journal and ``synchronous = EXTRA``: what is written
survives ``kill -9`` and a power cut. Write-ahead logging would be quicker, but it keeps the newest
rows in a second file beside the store and needs shared memory, which network folders lack; jobs
take seconds, a transaction milliseconds. Every operation opens the file anew, so a store has
nothing to close and may be used by several threads and processes at once.
"""

import hashlib
import inspect
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fermibose.errors import FermiboseError, FileFormatError, InputError
from fermibose.sweep.jobs import Job, code_of, name_of
from fermibose.sweep.rows import COLUMNS, Row, has_result, read_row, row_of
from fermibose.sweep.values import encode

_APPLICATION = 0x46425357  # "FBSW": tells our stores from other SQLite files
_SCHEMA = 1
_TABLE = """
CREATE TABLE results (
    key TEXT PRIMARY KEY, function TEXT NOT NULL, version INTEGER NOT NULL, source TEXT NOT NULL,
    params TEXT NOT NULL, seed INTEGER NOT NULL, data TEXT NOT NULL,
    result TEXT, error TEXT, seconds REAL NOT NULL, versions TEXT NOT NULL, finished TEXT NOT NULL
) WITHOUT ROWID
"""
_SYNCHRONOUS = "EXTRA"
_WAIT = 60.0  # seconds to wait for another process that is writing
_REMEDY = "What is stored is safe: {}, and start again; only what is missing will be computed"


class StoreError(FermiboseError, OSError):
    """The store cannot be read or written; what it holds is safe."""


class Store:
    """A file of results; made with its folders if it does not exist.

    create: False for those who only read: what is no store yet is refused and stays as it is.
    """

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        if not isinstance(path, str | os.PathLike) or "\0" in str(path):
            raise InputError(f"a store is the path of one file, say results.db, not {path!r}")
        self.path = Path(path)
        try:
            if self.path.is_dir():
                raise InputError(f"{self.path} is a folder; a store is one file, say results.db")
            if not create and not self.path.exists():
                raise InputError(f"there is no store at {self.path}: name the file that is one")
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"no store can be made at {self.path}: {error}") from None
        with self._open() as connection:  # a finished store may lie where one can only read
            connection.execute("BEGIN")
            empty = self._is_empty(connection)
        if empty and not create:
            raise FileFormatError(f"{self.path} is empty, and not a store: name the file that is")
        if empty:
            with self.transaction() as connection:
                if self._is_empty(connection):  # or another process was quicker
                    connection.execute(_TABLE)
                    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                    connection.execute(f"PRAGMA user_version = {_SCHEMA}")

    def _is_empty(self, connection: sqlite3.Connection) -> bool:
        """Whether the file is a new one; otherwise it must be a store, whole and of this format."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        if self.path.stat().st_size % page:  # SQLite itself would fill it up with zeros
            raise _damaged(self.path, "truncated")
        if not (application or schema or tables):
            return True
        if application != _APPLICATION:
            raise FileFormatError(f"{self.path} is another program's database; name another file")
        if schema != _SCHEMA:
            raise FileFormatError(
                f"{self.path} has format {schema}, this version reads {_SCHEMA}: "
                "use the fermibose that wrote it (or newer), or another file"
            )
        (state,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise _damaged(self.path, state)
        return False

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection with the write lock; commits on leaving, or changes nothing."""
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")  # waits its turn here, never half-way
            yield connection
            connection.execute("COMMIT")  # on an error, closing rolls back

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)) as opened:
                opened.execute(f"PRAGMA synchronous = {_SYNCHRONOUS}")
                # bytes that are no text must not keep the other rows from being read; see read_row
                opened.text_factory = lambda raw: raw.decode(errors="surrogateescape")
                yield opened
        except sqlite3.DatabaseError as error:
            raise _explained(self.path, error) from error

    def record(self, job: Job, answer: dict[str, Any]) -> None:
        """Write the answer of a worker; a failure gives way to a result, a result to nothing.

        Damage gives way like a failure, and the whole row is written anew.
        """
        code = code_of(job.function)
        identity = (job.key, name_of(job.function), *code, encode(job.params, "params"))
        found = [answer[name] for name in ("result", "error", "seconds")]
        now = datetime.now(UTC).isoformat(timespec="seconds")
        row = (*identity, job.seed, job.data, *found, json.dumps(answer["versions"]), now)
        with self.transaction() as connection:
            if not has_result(connection, job.key):
                marks = ", ".join("?" * len(row))
                connection.execute(f"INSERT OR REPLACE INTO results VALUES ({marks})", row)

    def finished(self) -> set[str]:
        """The keys of the jobs that have a result (failed and damaged ones have none)."""
        return {row.key for row in self.rows() if row.result is not None}

    def has_result(self, key: str) -> bool:
        """Whether this job has a result by now."""
        with self._open() as connection:
            return has_result(connection, key)

    def rows_of(self, jobs: Iterable[Job]) -> list[Row]:
        """The rows of these jobs; without result and error where the store has none."""
        with self._open() as connection:
            return [row_of(connection, job) for job in jobs]

    def rows(self, function: Callable[..., Any] | str | None = None) -> list[Row]:
        """All rows, or those of one function, in an order that does not depend on the run.

        function: itself or its ``module:function``. Rows of its older versions are among them.
        """
        name = name_of(function) if inspect.isfunction(function) else function
        if not isinstance(name, str | None):
            raise InputError(f"rows are of a function or its 'module:function', not of {name!r}")
        query = f"SELECT {COLUMNS} FROM results ORDER BY function, params, seed, key"
        with self._open() as connection:
            rows = [read_row(found) for found in connection.execute(query)]
        return [row for row in rows if name is None or row.function == name]

    def digest(self) -> str:
        """A sha256 of all jobs and results; the same for the same results, whenever computed."""
        digest = hashlib.sha256()
        with self._open() as connection:
            for found in connection.execute("SELECT key, result FROM results ORDER BY key"):
                digest.update(json.dumps(found).encode())
        return digest.hexdigest()


def _damaged(path: Path, detail: object) -> FileFormatError:
    return FileFormatError(
        f"{path} is not a store, or it is damaged ({detail}): name another file, or restore a copy "
        f"(`sqlite3 {path.name} .recover` may save rows)"
    )


def _explained(path: Path, error: sqlite3.DatabaseError) -> FermiboseError:
    kind = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code of an extended one
    if kind in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return _damaged(path, error)
    if kind == sqlite3.SQLITE_CANTOPEN and not os.path.exists(path):
        return StoreError(
            f"there is no store at {path} and none can be made ({error}): name another file, or "
            "allow writing to its folder"
        )
    remedies = {
        sqlite3.SQLITE_FULL: "make room on the disk",
        sqlite3.SQLITE_IOERR: "make sure that the disk works and is not full",
        sqlite3.SQLITE_BUSY: f"another process has kept it locked for {_WAIT:.0f} s: end that one",
        sqlite3.SQLITE_READONLY: "allow writing to the file and its folder",
        sqlite3.SQLITE_CANTOPEN: "allow reading and writing of the file and its folder",
    }
    if kind in remedies:
        return StoreError(f"{path}: {error}. {_REMEDY.format(remedies[kind])}")
    return StoreError(f"{path}: {error}")
