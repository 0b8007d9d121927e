"""From stores of format 1 to the present one: ``python -m fermibose_paper.migration OLD NEW``.

Format 1 knew a run by the module and the text of its function, and trained the same net up to four
times to look at it in four ways. Here the rows of a net become one row with all that is known of
it. What cannot be told apart, and rows without a result, is left out: the next sweep computes it.
"""

import json
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from fermibose.errors import FermiboseError, FileFormatError, InputError
from fermibose_paper.job import decode, encode, identity, measurement_of
from fermibose_paper.store import Store

# Function and version, as format 1 has them, to the look at a trained net that it was.
_LOOKS = {
    ("measure_training", 1): "courses",
    ("measure_robustness", 2): "curves",
    ("measure_pgd", 1): "pgd",  # at ε = 0.1
    ("measure_representation", 1): "components",
}
_SUMMARY = "test_accuracy"  # which the first two of these looks have, and every row must


class OldRow(NamedTuple):
    """A row with a result, as far as it matters."""

    function: str
    version: int
    params: dict[str, Any]
    seed: int
    data: str
    result: dict[str, Any]
    seconds: float
    versions: str
    finished: str

    @property
    def net(self) -> str:
        """What tells one trained net from another."""
        params = {name: value for name, value in self.params.items() if name != "epsilon"}
        return encode([params, self.seed, self.data], "a row")


def migrate(old: str | Path, new: str | Path) -> tuple[int, int]:
    """Make a store at ``new`` of what ``old`` holds; returns the numbers of rows read and written.

    ``old`` stays as it is. ``new`` must not exist.
    """
    if Path(new).exists():
        raise InputError(f"{new} exists: name a file that does not")
    rows = list(_read(Path(old)))
    trained = [
        row
        for row in rows
        if (row.function, row.version) in _LOOKS and row.params.get("epsilon", 0.1) == 0.1
    ]
    others = [row for row in rows if (row.function, row.version) in _others()]
    written = [*_merged(trained), *map(_renamed, others)]
    Store(new).insert(written)
    return len(rows), len(written)


def _read(path: Path) -> Iterator[OldRow]:
    """The rows that have a result which can be read, oldest first."""
    if not path.is_file():
        raise InputError(f"there is no store at {path}: name the file that is one")
    columns = "function, version, params, seed, data, result, seconds, versions, finished"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            (found,) = opened.execute("PRAGMA user_version").fetchone()
            if found != 1:
                raise FileFormatError(f"{path} has format {found}, not 1: nothing to convert")
            query = f"SELECT {columns} FROM results WHERE result IS NOT NULL ORDER BY finished"
            rows = opened.execute(query).fetchall()
    except sqlite3.DatabaseError as error:
        raise FileFormatError(f"{path} is not a store, or it is damaged ({error})") from None
    for function, version, params, seed, data, result, *others in rows:
        try:
            params, result = decode(params), decode(result)
            json.loads(others[1])
        except (ValueError, TypeError):
            continue  # damaged
        yield OldRow(function.partition(":")[2], version, params, seed, data, result, *others)


def _others() -> dict[tuple[str, int], Any]:
    """Functions that measure as they did, under a name of their own now."""
    from fermibose_paper.instances import measure_instance, measure_outputs
    from fermibose_paper.theory_curves import measure_attack, measure_curve

    return {
        ("measure_instance", 3): measure_instance,
        ("measure_outputs", 3): measure_outputs,
        ("measure_curve", 1): measure_curve,
        ("measure_theory", 1): measure_attack,
    }


def _renamed(row: OldRow) -> list[Any]:
    return _columns(_others()[row.function, row.version], row, row.params, row.result)


def _merged(rows: Iterable[OldRow]) -> Iterator[list[Any]]:
    """One row for every net of which the summary is known, with every look that agrees with it."""
    from fermibose_paper.measure import measure_training

    for _, group in groupby(sorted(rows, key=lambda row: row.net), key=lambda row: row.net):
        looks = {_LOOKS[row.function, row.version]: row for row in group}  # the newest of each
        summarised = next((looks[name] for name in ("courses", "curves") if name in looks), None)
        if summarised is None or _SUMMARY not in summarised.result:
            continue
        result = dict(summarised.result)
        for name, row in list(looks.items()):
            known = {key: result.get(key, value) for key, value in row.result.items()}
            same = encode(known, name) == encode(row.result, name)
            if not same or row.versions != summarised.versions:
                del looks[name]  # of another machine: perhaps not the same net to the last bit
            else:
                result |= row.result
        params = {name: value for name, value in summarised.params.items() if name != "epsilon"}
        summarised = summarised._replace(seconds=sum(row.seconds for row in looks.values()))
        yield _columns(measure_training, summarised, params | {"also": sorted(looks)}, result)


def _columns(function: Any, row: OldRow, params: dict[str, Any], result: Any) -> list[Any]:
    mark, text = measurement_of(function), encode(params, "params")
    key = identity(mark.name, mark.version, text, row.seed, row.data)
    known = [key, mark.name, mark.version, text, row.seed, row.data, mark.source]
    return [*known, encode(result, "result"), None, row.seconds, row.versions, row.finished]


def main(arguments: list[str]) -> int:
    """The command."""
    if len(arguments) != 2:
        print("usage: python -m fermibose_paper.migration OLD NEW", file=sys.stderr)
        return 2
    try:
        read, written = migrate(*arguments)
    except FermiboseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{arguments[1]}: {written} rows, of {read} rows with a result in {arguments[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
