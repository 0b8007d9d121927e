"""A job: a named measurement, its parameters, a seed and the data it reads.

A job is known by name + version + parameters + seed + checksum of the data, and by nothing else:
neither by the text of the function nor by the module it stands in. Files may move, and what was
measured is still found.
"""

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from fermibose.errors import InputError

Measure = TypeVar("Measure", bound=Callable[..., Any])


class Measurement(NamedTuple):
    """What ``@measurement`` attaches to a function."""

    name: str  # by which its rows are known
    version: int  # raised by hand when what is measured changes
    source: str  # sha256 of the function's own text; kept beside its rows, and only warns
    arguments: frozenset[str]  # that it takes
    required: frozenset[str]  # of these, the ones without a default


class Data(Protocol):
    """Where a job's data come from: loaded by the driver for their checksum, then by the worker.

    It travels to the worker by pickle; it is no part of the job's identity, the checksum is.
    """

    def load(self) -> Any:
        """The data; they have a ``checksum``, a text."""


def measurement(name: str, *, version: int) -> Callable[[Measure], Measure]:
    """Mark a module-level function as one that jobs may call, under a name of its own.

    It takes keyword arguments, among them ``seed`` (and ``data``, if its jobs have any), and
    returns a dict. Raise ``version`` when what is measured changes; rows of other versions stay in
    the store and are no longer used.
    """
    if not (isinstance(name, str) and name.isprintable() and name) or type(version) is not int:
        raise InputError(
            'mark a measurement with its name and version, @measurement("training", version=1), '
            f"not with {name!r}, {version!r}"
        )

    def mark(function: Measure) -> Measure:
        try:
            text = inspect.getsource(function)
        except (OSError, TypeError):
            raise InputError(f"{function!r} has no source text; define it in a module") from None
        named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        every = inspect.signature(function).parameters
        parameters = {name: p for name, p in every.items() if p.kind in named}
        source = hashlib.sha256(text.encode()).hexdigest()
        required = {n for n, p in parameters.items() if p.default is p.empty}
        function.__measurement__ = Measurement(  # type: ignore[attr-defined]
            name, version, source, frozenset(parameters), frozenset(required)
        )
        return function

    return mark


def measurement_of(function: Callable[..., Any]) -> Measurement:
    """What ``@measurement`` attached."""
    mark = getattr(function, "__measurement__", None)
    if not isinstance(mark, Measurement):
        raise InputError(
            f"{function!r} is not a measurement: put @measurement(NAME, version=1) above it"
        )
    return mark


@dataclass(frozen=True, eq=False, slots=True)
class Job:
    """One run of ``function(**params, **context, seed=seed)``.

    data: where its data come from; they are loaded, checked and handed over as ``data=…``. Or the
    name or checksum of what the function reads by itself, a text.

    >>> Job(measure, {"d_f": 0.4}, seed=0).key
    """

    function: Callable[..., Any]  # module-level, marked with @measurement
    params: Mapping[str, Any] = field(default_factory=dict)  # part of the identity
    seed: int = 0  # part of the identity
    data: Data | str = ""  # its checksum is part of the identity
    context: Mapping[str, Any] = field(default_factory=dict)  # where files are …; not part of it
    name: str = field(init=False)  # of the measurement
    version: int = field(init=False)  # of the measurement, as the driver has it
    text: str = field(init=False, repr=False)  # the parameters as canonical text
    _checksum: str | None = field(init=False, repr=False)  # None: not asked for yet
    _key: str | None = field(init=False, repr=False)  # None: not asked for yet

    def __post_init__(self) -> None:
        mark = _importable(self.function)
        seed = self.seed
        if type(seed) is not int and isinstance(seed, np.integer):
            seed = int(seed)
        if type(seed) is not int or not 0 <= seed < 2**63:
            raise InputError(f"the seed must be an integer from 0 to 2^63 - 1, not {_short(seed)}")
        if not isinstance(self.data, str) and not callable(getattr(self.data, "load", None)):
            raise InputError(
                "data must be a text (a name or a checksum) or have a method load, "
                f"not {self.data!r}"
            )
        params = _copy(self.params, "params")
        context = _copy(self.context, "context")
        given = [*params, *context, "seed", *([] if isinstance(self.data, str) else ["data"])]
        names = set(given)
        if len(names) < len(given):
            twice = next(name for name in given if given.count(name) > 1)
            raise InputError(
                f"{twice} is given twice: an argument is in params, in context, or the seed "
                "or the data"
            )
        if not mark.required <= names <= mark.arguments:
            wrong = sorted(names - mark.arguments) or sorted(mark.required - names)
            problem = "takes no" if names - mark.arguments else "needs"
            raise InputError(f"the measurement {mark.name!r} {problem} {', '.join(wrong)}")
        self._set(
            params=params,
            context=context,
            seed=seed,
            name=mark.name,
            version=mark.version,
            text=_text(params),
            _checksum=self.data if isinstance(self.data, str) else None,
            _key=None,
        )

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def spec(self) -> tuple[str, int, str, int]:
        """The identity without the data, which a report knows without loading any."""
        return self.name, self.version, self.text, self.seed

    @property
    def checksum(self) -> str:
        """Of the data, loaded for it once; a text is its own. Nothing if there are none."""
        if self._checksum is None:
            assert not isinstance(self.data, str)
            self._set(_checksum=str(self.data.load().checksum))
        return str(self._checksum)

    @property
    def key(self) -> str:
        """The identity: a sha256."""
        if self._key is None:
            self._set(_key=identity(*self.spec, self.checksum))
        return str(self._key)


def _copy(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The arguments as the worker will see them; later changes do not reach it."""
    if type(values) is not dict and not isinstance(values, Mapping):
        raise InputError(
            f"{name} must be a dict of arguments by name, not a {type(values).__name__}"
        )
    copy = dict(values)
    if _SCALARS.issuperset(map(type, copy.values())) and _STRINGS.issuperset(map(type, copy)):
        return copy
    return dict(decode(encode(copy, name)))


def _text(params: dict[str, Any]) -> str:
    """The canonical text of parameters that were copied."""
    try:
        return _canonical(params)
    except ValueError:  # of NaN, which has a text of its own, or an integer that has none
        return encode(params, "params")


def _short(value: Any) -> str:
    """An integer may have more digits than Python writes."""
    huge = isinstance(value, int) and value.bit_length() > _BITS
    return f"one of {value.bit_length()} bits" if huge else repr(value)


def identity(name: str, version: int, params: str, seed: int, data: str) -> str:
    """The key of a job. params: their canonical text."""
    return digest(name, version, params, seed, data)


def digest(*values: str | int | float | None) -> str:
    """A sha256 of these values, told apart by type; of as many as there are, quickly."""
    return hashlib.sha256(ascii(values).encode()).hexdigest()


_known: dict[Callable[..., Any], Measurement] = {}


def _importable(function: Callable[..., Any]) -> Measurement:
    """The mark of a function that workers can import by its name; anything else is refused."""
    try:
        return _known[function]
    except (KeyError, TypeError):
        pass
    remedy = "define it at the top level of a module that can be imported"
    if not inspect.isfunction(function) or function.__module__ == "__main__":
        raise InputError(f"workers cannot import {function!r}; {remedy}")
    found: Any = import_module(function.__module__)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not function:
        raise InputError(
            f"workers cannot import {function.__module__}:{function.__qualname__}; {remedy}"
        )
    return _known.setdefault(function, measurement_of(function))


# Parameters and results as text: one canonical JSON, from which every value comes back exactly.
# Keys are sorted, floats are written by repr (the shortest text with the same bits), and NaN and
# the infinities, which JSON does not know, become {"$float": "nan"}. An integer and the float of
# the same value are different (1 and 1.0; True too): a function may tell them apart.

_TAG = "$float"
_BITS = 14_000  # of an integer: Python neither writes nor reads more than 4300 digits
_SCALARS = {str, bool, int, float, type(None)}
_STRINGS = {str}
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def encode(value: Any, name: str) -> str:
    """The canonical text of ``value``; ``name`` says in an error what could not be written.

    Tuples become lists; NumPy's bool, integers and float64, which Python can hold exactly, become
    Python's. Anything else is refused.
    """
    try:
        return _canonical(_plain(value, name))
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
