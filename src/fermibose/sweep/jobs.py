"""A job: a measuring function, its parameters and a seed, known by a hash of what it computes."""

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple, Never, TypeVar

from fermibose.errors import InputError
from fermibose.sweep.values import decode, encode

Measure = TypeVar("Measure", bound=Callable[..., Any])


class Code(NamedTuple):
    """What is known of a measuring function's code."""

    version: int  # raised by hand when what the function calls changes what it measures
    source: str  # sha256 of the function's own text, as it was when imported


def measurement(*bare: Never, version: int | None = None) -> Callable[[Measure], Measure]:
    """Mark a module-level function as one that jobs may call.

    It takes keyword arguments, among them ``seed``, and returns a dict. Results are stored under
    its version and its own text: raise ``version`` when something it *calls* changes what is
    measured.
    """
    if bare or type(version) is not int:
        raise InputError(
            "mark a measurement with its version, @measurement(version=1), an integer"
            + ("" if version is None else f", not {version!r}")
        )

    def mark(function: Measure) -> Measure:
        try:
            text = inspect.getsource(function)
        except (OSError, TypeError):
            raise InputError(f"{function!r} has no source text; define it in a module") from None
        source = hashlib.sha256(text.encode()).hexdigest()
        function.__measurement__ = Code(version, source)  # type: ignore[attr-defined]
        return function

    return mark


def name_of(function: Callable[..., Any]) -> str:
    """``module:function``, by which a worker finds it."""
    return f"{function.__module__}:{function.__qualname__}"


def function_named(name: str) -> Callable[..., Any]:
    """The function with this ``module:function``."""
    module, _, qualname = name.partition(":")
    function = import_module(module)
    for part in qualname.split("."):
        function = getattr(function, part)
    return function  # type: ignore[return-value]


def code_of(function: Callable[..., Any]) -> Code:
    """The version and source hash that ``@measurement`` attached."""
    code = getattr(function, "__measurement__", None)
    if not isinstance(code, Code):
        raise InputError(f"{name_of(function)} is not a measurement: put @measurement(version=1)")
    return code


@dataclass(frozen=True, eq=False)
class Job:
    """One run of ``function(**params, **context, seed=seed)``.

    >>> Job(measure, params={"d_f": 0.4}, seed=0, data="sha256 of the images").key
    """

    function: Callable[..., Any]  # module-level, marked with @measurement
    params: Mapping[str, Any] = field(default_factory=dict)  # part of the identity
    seed: int = 0  # part of the identity
    data: str = ""  # checksum or name of the data it will read; part of the identity
    context: Mapping[str, Any] = field(default_factory=dict)  # where files are …; not part of it
    key: str = field(init=False)  # the identity: a sha256

    def __post_init__(self) -> None:
        _check_importable(self.function)
        seed = decode(encode(self.seed, "seed"))
        if type(seed) is not int or not 0 <= seed < 2**63:
            raise InputError(f"the seed must be an integer from 0 to 2^63 - 1, not {self.seed!r}")
        if not isinstance(self.data, str):
            raise InputError(f"data must be a string (a name or a checksum), not {self.data!r}")
        params, context = _copy(self.params, "params"), _copy(self.context, "context")
        given = [*params, *context, "seed"]
        if repeated := [name for name in given if given.count(name) > 1]:
            raise InputError(
                f"{repeated[0]} is given twice: an argument is in params, in context, or the seed"
            )
        try:
            inspect.signature(self.function).bind(**params, **context, seed=seed)
        except TypeError as error:
            raise InputError(f"{name_of(self.function)} cannot be called so: {error}") from None
        for name, value in (("seed", seed), ("params", params), ("context", context)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "key", hashlib.sha256(self._identity().encode()).hexdigest())

    def _identity(self) -> str:
        code = code_of(self.function)
        identity = {"function": name_of(self.function), "version": code.version}
        identity |= {"source": code.source, "params": self.params, "seed": self.seed}
        return encode(identity | {"data": self.data}, "the job")

    def request(self) -> str:
        """One line of text with all a worker needs."""
        return json.dumps(
            {
                "key": self.key,
                "function": name_of(self.function),
                "code": code_of(self.function),
                "arguments": encode({**self.params, **self.context, "seed": self.seed}, "the job"),
            }
        )


def _copy(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The arguments as the worker will see them; what the caller does later changes nothing."""
    if not isinstance(values, Mapping):
        raise InputError(
            f"{name} must be a dict of arguments by name, not a {type(values).__name__}"
        )
    copy: dict[str, Any] = decode(encode(dict(values), name))
    return copy


def _check_importable(function: Callable[..., Any]) -> None:
    """Workers import the function by its name: refuse what they could not find."""
    name = name_of(function) if inspect.isfunction(function) else repr(function)
    remedy = "define it at the top level of a module that can be imported"
    if not inspect.isfunction(function) or function.__module__ == "__main__":
        raise InputError(f"workers cannot import {name}; {remedy}")
    try:
        found = function_named(name)
    except (ImportError, AttributeError):
        found = None
    if found is not function:
        raise InputError(f"workers cannot import {name}; {remedy}")
    code_of(function)
