"""What was solved, as a file that brings it back: solutions, curves, phase diagrams.

The file is JSON: readable, with the versions that computed it and a checksum over everything.
"""

import math
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fermibose.compute import versions
from fermibose.errors import InputError
from fermibose.files import SEAL, UNSEALED, is_sealed, read_json, replacing, seal, write_json
from fermibose.theory.broken import BrokenSolution
from fermibose.theory.broken_curves import BrokenCurve
from fermibose.theory.curves import Curve
from fermibose.theory.phases import PhaseDiagram
from fermibose.theory.points import Failure, Solutions
from fermibose.theory.problem import Problem
from fermibose.theory.rsb import Clusters
from fermibose.theory.solution import Candidate, Conjugates, Overlaps, Solution, Stability

_FORMAT = "fermibose theory 1"
_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        BrokenCurve, BrokenSolution, Candidate, Clusters, Conjugates, Curve, Failure, Overlaps,
        PhaseDiagram, Problem, Solution, Solutions, Stability,
    )
}  # fmt: skip
Result = Solution | BrokenSolution | Solutions | Curve | BrokenCurve | PhaseDiagram


def save(result: Result, path: str | Path) -> None:
    """Write a solution, curve or diagram to a file that :func:`load` reads, whole or not at all.

    A problem with a function of your own cannot be saved so: a file cannot hold the function.
    """
    if not isinstance(result, Result):
        raise InputError(
            f"save takes what the theory solved (a Solution, a Curve …), not {result!r}"
        )
    content = {"format": _FORMAT, SEAL: UNSEALED, "versions": versions(), "result": _encode(result)}
    with replacing(path) as draft:
        write_json(draft, content)
        seal(draft)


def load(path: str | Path) -> Any:
    """What :func:`save` wrote, the same to the last bit."""
    path = Path(path)
    if not is_sealed(path):
        raise InputError(
            f"{path} is not what fermibose.theory.save wrote: its checksum is missing or not that "
            "of its content; save it anew"
        )
    content = read_json(path.read_bytes())
    if content.get("format") != _FORMAT:
        raise InputError(f"{path} is not a file written by fermibose.theory.save")
    try:
        return _decode(content["result"])
    except (KeyError, TypeError) as error:
        by = content.get("versions", {}).get("fermibose", "unknown")
        raise InputError(
            f"{path} was written by fermibose {by}, which this is not: {error}"
        ) from None


def _encode(value: Any) -> Any:
    """Plain JSON, in which a dataclass, an array, a mapping and an infinite number are named."""
    if is_dataclass(value):
        return {"kind": type(value).__name__} | {
            field.name: _encode(getattr(value, field.name)) for field in fields(value)
        }
    if isinstance(value, np.ndarray):
        return {"array": _encode(value.tolist())}
    if isinstance(value, tuple | list):
        return [_encode(part) for part in value]
    if isinstance(value, dict):
        return {"mapping": {name: _encode(part) for name, part in value.items()}}
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    if callable(value):
        raise InputError(
            f"the function {value!r} cannot be written to a file: save_csv writes the numbers, "
            "pickle keeps a function that can be imported"
        )
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(part) for part in value)
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return np.array(_decode(value["array"]))
    if "mapping" in value:
        return {name: _decode(part) for name, part in value["mapping"].items()}
    if "number" in value:
        return float(value["number"])
    parts = {name: _decode(part) for name, part in value.items() if name != "kind"}
    return _KINDS[value["kind"]](**parts)
