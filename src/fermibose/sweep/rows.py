"""Rows of a store: what is known of one job, and how it is read from the table."""

import json
import sqlite3
from dataclasses import dataclass, field, replace
from typing import Any

from fermibose.sweep.jobs import Job, code_of, name_of
from fermibose.sweep.values import decode

COLUMNS = "key, function, version, params, seed, data, result, error, seconds, versions, finished"


@dataclass(frozen=True)
class Row:
    """One job of the store. ``result`` is None if it failed, or was not finished (no error).

    What is stored of a damaged row cannot be read: it has an error and no result, as if failed.
    """

    key: str
    function: str  # module:function
    version: int
    params: dict[str, Any]
    seed: int
    data: str
    result: dict[str, Any] | None = None
    error: str | None = None  # the traceback of a job that failed, or the damage
    seconds: float | None = None
    versions: dict[str, str] = field(default_factory=dict)
    finished: str | None = None  # UTC
    damaged: bool = False
    job: Job | None = field(default=None, compare=False, repr=False)  # in the rows of a run


def _find(connection: sqlite3.Connection, key: str) -> Row | None:
    query = f"SELECT {COLUMNS} FROM results WHERE key = ?"
    found = connection.execute(query, (key,)).fetchone()
    return None if found is None else read_row(found)


def has_result(connection: sqlite3.Connection, key: str) -> bool:
    """Whether a job has a result that can be read."""
    row = _find(connection, key)
    return row is not None and row.result is not None


def row_of(connection: sqlite3.Connection, job: Job) -> Row:
    """The row of a job; without result and error where the store has none."""
    row = _find(connection, job.key)
    if row is None:
        function, code = name_of(job.function), code_of(job.function)
        row = Row(job.key, function, code.version, {}, job.seed, job.data)
    return replace(row, params=row.params or dict(job.params), job=job)


def read_row(found: tuple[Any, ...]) -> Row:
    """A row from its columns."""
    row = dict(zip(COLUMNS.split(", "), found, strict=True))
    try:
        "".join(map(str, found)).encode()  # fails on bytes that were no text
        row |= {"params": decode(row["params"]), "versions": json.loads(row["versions"])}
        row["result"] = None if row["result"] is None else decode(row["result"])
    except (ValueError, TypeError) as error:
        row |= {"params": {}, "versions": {}, "result": None, "damaged": True}
        remedy = "the next run computes it again"
        row["error"] = f"what the store holds of it cannot be read ({error}); {remedy}"
    return Row(**row)
