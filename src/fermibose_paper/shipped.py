"""Rows that travel with the package: long measurements, each with parameters, seed and versions."""

import json
from collections.abc import Iterable
from importlib import resources

from fermibose_paper.job import decode, encode, identity
from fermibose_paper.store import Row


def shipped(name: str) -> list[Row]:
    """The rows of an experiment, by its name in ``fbm reproduce``."""
    file = resources.files("fermibose_paper") / "measured" / f"{name}.jsonl"
    return read_lines(file.read_text(encoding="utf-8"))


def write_lines(rows: Iterable[Row]) -> str:
    """A line for every row: what it is of, what came of it, when and with which versions."""
    lines = []
    for row in rows:
        told = {"name": row.name, "version": row.version, "params": row.params, "seed": row.seed}
        told |= {"data": row.data, "result": row.result, "seconds": row.seconds}
        told |= {"versions": row.versions, "finished": row.finished}
        lines.append(encode(told, "the row"))
    return "".join(f"{line}\n" for line in lines)


def read_lines(text: str) -> list[Row]:
    """The rows that :func:`write_lines` wrote."""
    rows = []
    for line in text.splitlines():
        told = decode(line)
        params = encode(told["params"], "params")
        spec = (told["name"], told["version"], params, told["seed"])
        rows.append(
            Row(
                identity(*spec, told["data"]),
                *spec,
                told["data"],
                result_text=encode(told["result"], "the result"),
                seconds=told["seconds"],
                versions_text=json.dumps(told["versions"]),
                finished=told["finished"],
            )
        )
    return rows
