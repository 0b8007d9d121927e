"""The store: one SQLite file with a row per job, written as the jobs finish.

Rows are written in transactions with a rollback journal and ``synchronous = EXTRA``: what is
written survives ``kill -9`` and a power cut. Write-ahead logging would be quicker, but it keeps the
newest rows in a second file beside the store and needs shared memory, which network folders lack.
Every operation opens the file anew, so a store has nothing to close and may be used by several
threads and processes at once.

Every row carries a sha256 of its own content. A row that does not match it is damaged: it has an
error and no result, it costs no other row, and the next sweep computes it again.
"""

import hashlib
import json
import os
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fermibose.errors import FermiboseError, FileFormatError, InputError
from fermibose_paper.job import Job, decode, digest, measurement_of

_APPLICATION = 0x46425357  # "FBSW": tells our stores from other SQLite files
_FORMAT = 2
# checksum: of all columns before it
_TABLES = """
CREATE TABLE results (
    key TEXT PRIMARY KEY, name TEXT NOT NULL, version INTEGER NOT NULL, params TEXT NOT NULL,
    seed INTEGER NOT NULL, data TEXT NOT NULL, source TEXT NOT NULL, result TEXT, error TEXT,
    seconds REAL NOT NULL, versions TEXT NOT NULL, finished TEXT NOT NULL, checksum TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE store (id TEXT NOT NULL);
"""
COLUMNS = (
    "key", "name", "version", "params", "seed", "data", "source", "result", "error", "seconds",
    "versions", "finished",
)  # fmt: skip
_EVERYTHING = f"{', '.join(COLUMNS)}, checksum"
_SYNCHRONOUS = "EXTRA"
_MANY = 500  # keys that one query may ask for: SQLite takes so many variables at least
_WAIT = 60.0  # seconds to wait for another process that is writing
_REMEDY = "What is stored is safe: {}, and start again; only what is missing will be computed"

Found = TypeVar("Found")


class StoreError(FermiboseError, OSError):
    """The store cannot be read or written; what it holds is safe."""


class Answer(NamedTuple):
    """What came of a job: a result (canonical text) or an error."""

    result: str | None
    error: str | None
    seconds: float
    versions: dict[str, str]  # of what computed it
    source: str  # sha256 of the function's text where it was computed


@dataclass
class Row:
    """One row of a store. ``result`` is None if it failed, or was not finished (no error).

    Rows of jobs have the parameters of the job; what a damaged row holds is not trusted.
    """

    key: str
    name: str  # of the measurement
    version: int
    params_text: str = field(repr=False)
    seed: int
    data: str  # checksum of the data
    source: str = ""
    result_text: str | None = field(default=None, repr=False)
    error: str | None = None  # the traceback of a job that failed, or the damage
    seconds: float | None = None
    versions_text: str = field(default="{}", repr=False)
    finished: str | None = None  # UTC
    damaged: bool = False

    @cached_property
    def params(self) -> dict[str, Any]:
        """What the measurement was called with, apart from seed and data."""
        return dict(decode(self.params_text))

    @cached_property
    def result(self) -> dict[str, Any] | None:
        """What it returned."""
        return None if self.result_text is None else dict(decode(self.result_text))

    @cached_property
    def versions(self) -> dict[str, str]:
        """What computed it."""
        return dict(json.loads(self.versions_text))


class Store:
    """A file of results; made with its folders if it does not exist.

    create: False for those who only read: what is no store yet is refused and stays as it is.
    """

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        if not isinstance(path, str | os.PathLike) or "\0" in str(path):
            raise InputError(f"a store is the path of one file, say results.db, not {path!r}")
        self.path = Path(path)
        self._id: str | None = None
        try:
            if self.path.is_dir():
                raise InputError(f"{self.path} is a folder; a store is one file, say results.db")
            if not create and not self.path.exists():
                raise InputError(f"there is no store at {self.path}: name the file that is one")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():  # from here on, a file that vanishes is not made anew
                with _explaining(self.path), closing(sqlite3.connect(self.path)) as new:
                    new.execute("PRAGMA schema_version")
        except OSError as error:
            if isinstance(error, FermiboseError):
                raise
            raise InputError(f"no store can be made at {self.path}: {error}") from None
        with self._open() as connection:  # a finished store may lie where one can only read
            connection.execute("BEGIN")
            empty = self._is_empty(connection)
        if empty and not create:
            raise FileFormatError(f"{self.path} is empty, and not a store: name the file that is")
        if empty:
            with self._open() as connection:
                connection.execute("BEGIN IMMEDIATE")
                if self._is_empty(connection):  # or another process was quicker
                    for statement in _TABLES.split(";"):
                        connection.execute(statement)
                    connection.execute("INSERT INTO store VALUES (?)", (uuid.uuid4().hex,))
                    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                    connection.execute(f"PRAGMA user_version = {_FORMAT}")
                connection.execute("COMMIT")
        with self._open() as connection:
            self._id = _id_of(connection)

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
        if schema == 1:
            raise FileFormatError(
                f"{self.path} has format 1, this version reads {_FORMAT}: convert it with "
                f"`python -m fermibose_paper.migration {self.path} NEW_FILE`"
            )
        if schema != _FORMAT:
            raise FileFormatError(
                f"{self.path} has format {schema}, this version reads {_FORMAT}: "
                "use the fermibose that wrote it (or newer), or another file"
            )
        (state,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise _damaged(self.path, state)
        return False

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection to the file that was opened first: a file put in its place is refused."""
        if self._id is not None and not self.path.exists():
            raise StoreError(f"{self.path} is no longer there: put it back, or start again")
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        with (
            _explaining(self.path),
            closing(sqlite3.connect(uri, uri=True, timeout=_WAIT, isolation_level=None)) as opened,
        ):
            opened.execute(f"PRAGMA synchronous = {_SYNCHRONOUS}")
            if self._id is not None and _id_of(opened) != self._id:
                raise StoreError(
                    f"{self.path} is no longer the store that was opened: another program replaced "
                    "or emptied it. Put the store back, or start again to compute what is missing"
                )
            yield opened

    def record(self, answers: Iterable[tuple[Job, Answer]]) -> None:
        """Write answers in one transaction: on the disk, all of them, when this returns.

        A failure gives way to a result, a result to nothing; damage gives way like a failure.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        answers = list(answers)
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")  # waits its turn here, never half-way
            found = _find(connection, [job.key for job, _ in answers])
            settled = {key for key, row in found.items() if row.result_text is not None}
            for job, answer in answers:
                if job.key not in settled:
                    _insert(connection, column_values(job, answer, now))
                if answer.result is not None:
                    settled.add(job.key)
            connection.execute("COMMIT")  # on an error, closing rolls back

    def insert(self, rows: Iterable[Sequence[Any]]) -> None:
        """Write rows, each with its columns in the order of COLUMNS, in one transaction."""
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            for row in rows:
                _insert(connection, tuple(row))
            connection.execute("COMMIT")

    def finished(self) -> set[str]:
        """The keys of the jobs that have a result (failed and damaged ones have none)."""
        return {row.key for row in self.rows() if row.result_text is not None}

    def has_result(self, job: Job) -> bool:
        """Whether this job has a result by now."""
        return self.rows_of([job])[0].result_text is not None

    def rows_of(self, jobs: Iterable[Job]) -> list[Row]:
        """The rows of these jobs; without result and error where the store has none."""
        jobs = list(jobs)
        with self._open() as connection:
            found = _find(connection, [job.key for job in jobs])
        return [_row_of(job, job.key, found.get(job.key)) for job in jobs]

    def select(self, jobs: Iterable[Job]) -> list[Row]:
        """The rows with the names, versions, parameters and seeds of these jobs, on any data.

        Needs no data. Of several rows a result comes before a failure, the newest first.
        """
        found: dict[tuple[Any, ...], Row] = {}
        for row in sorted(self.rows(), key=_worth):
            found[row.name, row.version, row.params_text, row.seed] = row
        return [_row_of(job, "", found.get(job.spec)) for job in jobs]

    def rows(self, name: str | None = None) -> list[Row]:
        """All rows, or those of one measurement, in an order that does not depend on the run.

        Rows of older versions of the measurement are among them.
        """
        if not isinstance(name, str | None):
            raise InputError(f"rows are of a measurement by its name, not of {name!r}")
        query = f"SELECT {_EVERYTHING} FROM results ORDER BY name, params, seed, key"
        with self._open() as connection:
            rows = _rows(connection, query)
        return [row for row in rows if name is None or row.name == name]

    def digest(self) -> str:
        """A sha256 of all jobs and results; the same for the same results, whenever computed."""
        content = hashlib.sha256()
        with self._open() as connection:
            query = "SELECT key, result FROM results ORDER BY key"
            for text in _fetch(connection, query, of=lambda row: json.dumps(row, default=repr)):
                content.update(text.encode())
        return content.hexdigest()


def column_values(job: Job, answer: Answer, finished: str) -> tuple[Any, ...]:
    """The columns of the row of a job."""
    # An error may quote what no file can hold, say half of a character.
    error = answer.error and answer.error.encode(errors="backslashreplace").decode()
    return (
        job.key, job.name, job.version, job.text, job.seed, job.checksum, answer.source,
        answer.result, error, float(answer.seconds), json.dumps(answer.versions), finished,
    )  # fmt: skip


def _insert(connection: sqlite3.Connection, columns: tuple[Any, ...]) -> None:
    marks = ", ".join("?" * (len(COLUMNS) + 1))
    row = (*columns, digest(*columns))
    connection.execute(f"INSERT OR REPLACE INTO results VALUES ({marks})", row)


def _find(connection: sqlite3.Connection, keys: Sequence[str]) -> dict[str, Row]:
    found = {}
    if len(keys) > _MANY:  # SQLite counts by walking through them all
        (rows,) = connection.execute("SELECT count(*) FROM results").fetchone()
        if 4 * len(keys) > rows:  # all at once is quicker
            wanted, query = set(keys), f"SELECT {_EVERYTHING} FROM results"
            return {row.key: row for row in _rows(connection, query) if row.key in wanted}
    for start in range(0, len(keys), _MANY):
        some = keys[start : start + _MANY]
        marks = ", ".join("?" * len(some))
        query = f"SELECT {_EVERYTHING} FROM results WHERE key IN ({marks})"
        found.update({row.key: row for row in _rows(connection, query, some)})
    return found


def _rows(connection: sqlite3.Connection, query: str, values: Sequence[str] = ()) -> list[Row]:
    """The rows of a query for everything, each checked as it is read: none is held twice."""
    return _fetch(connection, query, values, of=_read)


def _fetch(
    connection: sqlite3.Connection,
    query: str,
    values: Sequence[str] = (),
    *,
    of: Callable[[tuple[Any, ...]], Found],
) -> list[Found]:
    """What ``of`` makes of each row. Bytes that are no text must not keep the others unread."""
    try:
        return [of(found) for found in connection.execute(query, values)]
    except sqlite3.OperationalError as error:
        if "decode" not in str(error):
            raise
    connection.text_factory = lambda raw: raw.decode(errors="surrogateescape")
    return [of(found) for found in connection.execute(query, values)]


def _read(found: tuple[Any, ...]) -> Row:
    """A row from its columns; what does not match its checksum is damaged."""
    columns = found[:-1]
    if digest(*columns) == found[-1]:
        return Row(*columns)
    key, name, version, params, seed, data = columns[:6]
    reason = "what the store holds of it cannot be read: it does not match its checksum"
    return Row(
        str(key), str(name), version, params if _is_params(params) else "{}", seed, str(data),
        error=f"{reason}; the next sweep computes it again", damaged=True,
    )  # fmt: skip


def _worth(row: Row) -> tuple[bool, str]:
    return row.result_text is not None, row.finished or ""


def _is_params(text: Any) -> bool:
    try:
        return isinstance(decode(text), dict)
    except (ValueError, TypeError):
        return False


def _row_of(job: Job, key: str, row: Row | None) -> Row:
    """The row of a job, with the job's own parameters whatever the file says."""
    if row is not None and not row.damaged:
        row.params_text = job.text
        return row
    error = None if row is None else row.error
    data = row.data if row is not None else job.checksum if key else ""
    return Row(
        key if row is None else row.key, job.name, job.version, job.text, job.seed,
        data, measurement_of(job.function).source,
        error=error, damaged=row is not None,
    )  # fmt: skip


def _id_of(connection: sqlite3.Connection) -> str | None:
    try:
        found = connection.execute("SELECT id FROM store").fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return None
        raise
    return None if found is None else str(found[0])


def _damaged(path: Path, detail: object) -> FileFormatError:
    return FileFormatError(
        f"{path} is not a store, or it is damaged ({detail}): name another file, or restore a copy "
        f"(`sqlite3 {path.name} .recover` may save rows)"
    )


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into an error for people."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _explained(path, error) from error


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
