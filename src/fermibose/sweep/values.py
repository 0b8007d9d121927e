"""Parameters and results as text: one canonical JSON, from which every value comes back exactly.

Keys are sorted, floats are written by ``repr`` (the shortest text with the same bits), and NaN and
the infinities, which JSON does not know, become ``{"$float": "nan"}``. An integer and the float of
the same value are different (``1`` and ``1.0``; ``True`` too): a function may tell them apart.
"""

import json
import math
from typing import Any

import numpy as np

from fermibose.errors import InputError

_TAG = "$float"
_BITS = 14_000  # of an integer: Python neither writes nor reads more than 4300 digits


def encode(value: Any, name: str) -> str:
    """The canonical text of ``value``; ``name`` says in an error what could not be written.

    Tuples become lists; NumPy's bool, integers and float64, which Python can hold exactly, become
    Python's. Anything else is refused.
    """
    try:
        plain = _plain(value, name)
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise InputError(f"{name} contains itself, or is nested too deeply") from None


def decode(text: str) -> Any:
    """The value that :func:`encode` wrote."""
    return json.loads(text, object_hook=_untagged)


def _plain(value: Any, name: str) -> Any:
    if isinstance(value, np.bool_ | np.integer | np.float64):
        value = value.item()
    if isinstance(value, int) and value.bit_length() > _BITS:
        raise InputError(f"{name} is an integer of more than {_BITS} bits; write it as a string")
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_TAG: repr(value)}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{name}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise InputError(f"{name} has the key {key!r}: keys must be strings")
            if key == _TAG:
                raise InputError(f"{name} has the key {_TAG!r}, which is reserved: use another")
        return {key: _plain(item, f"{name}[{key!r}]") for key, item in value.items()}
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise InputError(
        f"{name} is a {kind}, which has no exact text; use None, bool, int, float, str and lists "
        "and dicts of these (float(x), x.tolist(), str(path))"
    )


def _untagged(content: dict[str, Any]) -> Any:
    return float(content[_TAG]) if _TAG in content else content
