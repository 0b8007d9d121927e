"""What tells one training from another, so that a checkpoint resumes nothing but its own.

That is version, recipe, data, and the code of whatever the user brings: a transformation or a
pairing may be any function or object, and its name says little about what it does.
"""

import hashlib
import json
import pickle
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fermibose import __version__
from fermibose.errors import InputError
from fermibose.machine.recipe import Recipe

CONSTANTS = (type(None), type(...), bool, int, float, complex, str, bytes)


def fingerprint(recipe: Recipe, *data: Tensor) -> str:
    """Hash of all that determines a training and its records: version, recipe, data, test data."""
    told = [__version__, recipe.as_dict(), _identity(recipe.pairing, {})]
    digest = hashlib.sha256(json.dumps(told).encode())
    for tensor in data:
        digest.update(repr(tensor.shape).encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _identity(value: Any, seen: dict[int, Any]) -> Any:
    """``value`` as plain values, which differ if it may do something else.

    seen: what was met before, by its address; each thing is told once, so cycles end.
    """
    if isinstance(value, CONSTANTS):
        return repr(value)
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, tuple):
        return [_identity(part, seen) for part in value]
    if isinstance(value, (set, frozenset)):  # their order differs from process to process
        return sorted(json.dumps(_identity(part, seen)) for part in value)
    if isinstance(value, CodeType):
        return [value.co_code.hex(), value.co_names, _identity(value.co_consts, seen)]
    if id(value) in seen:
        return list(seen).index(id(value))
    seen[id(value)] = value
    if isinstance(value, Mapping):
        return [_identity(item, seen) for item in value.items()]
    if isinstance(value, Tensor):
        return _array(value.detach().cpu().flatten().view(torch.uint8).numpy(), value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return _array(value, value)
    return [_identity(part, seen) for part in _parts(value)]


def _array(content: Any, array: Any) -> list[Any]:
    return [str(array.dtype), list(array.shape), hashlib.sha256(content.tobytes()).hexdigest()]


def _parts(value: Any) -> Iterator[Any]:
    """What the doings of a list, a function, a class or an object depend on."""
    if isinstance(value, list):
        yield from value
    elif isinstance(value, (FunctionType, type)):
        yield f"{value.__module__}.{value.__qualname__}"
        if not _installed(value.__module__):
            yield from _function(value) if isinstance(value, FunctionType) else _class(value)
    elif isinstance(value, CellType):  # of a closure
        yield from () if value == CellType() else (value.cell_contents,)
    else:  # as pickle takes it apart: class, arguments, state, items
        try:
            reduced = value.__reduce_ex__(2)
        except (TypeError, ValueError, RuntimeError, pickle.PickleError) as error:
            raise InputError(
                f"a checkpoint cannot tell the pairing from another, for it holds a "
                f"{type(value).__name__} ({error}): make the transformation a frozen dataclass of "
                "numbers with a method __call__, or train without a checkpoint"
            ) from error
        yield type(value).__name__
        if isinstance(reduced, str):
            yield reduced
        else:
            yield from reduced[:3]
            yield from (list(items) for items in reduced[3:5] if items is not None)


def _function(function: FunctionType) -> Iterator[Any]:
    """Code, defaults, and the values of the names in it."""
    code = function.__code__
    yield from (code, function.__defaults__, function.__kwdefaults__, function.__closure__)
    known = function.__globals__
    yield {name: known[name] for name in sorted(_names(code)) if name in known}


def _names(code: CodeType) -> set[str]:
    inner = [_names(part) for part in code.co_consts if isinstance(part, CodeType)]
    return set(code.co_names).union(*inner)


def _class(kind: type) -> Iterator[Any]:
    """Bases, methods and constants."""
    yield kind.__bases__
    for name, member in vars(kind).items():
        bare = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
        constant = isinstance(member, CONSTANTS) and not name.startswith("__")
        if constant or isinstance(bare, FunctionType):
            yield name, bare


def _installed(module: str | None) -> bool:
    """Whether it is code that is known by its name: of this package, of Python, of a library."""
    top = (module or "").split(".")[0]
    if top == "fermibose" or top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)
