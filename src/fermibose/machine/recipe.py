"""A recipe: everything that, with the data, determines a trained machine."""

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from inspect import getmro
from types import CodeType, FunctionType
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from fermibose import __version__, checks
from fermibose.energy import PairEnergy
from fermibose.errors import InputError
from fermibose.machine.adversary import LocalAdversary
from fermibose.machine.augment import Affine
from fermibose.machine.convolution import Conv, Hidden, Pointwise, hidden_of, plain_hidden
from fermibose.machine.free_energy import FreeEnergy
from fermibose.machine.inputs import Sides, Source, image_shape_of
from fermibose.machine.local_rule import ACTIVATIONS
from fermibose.machine.pairing import Augmented, ByLabel, Pairing
from fermibose.machine.queries import Energy
from fermibose.machine.readouts import KernelRidge
from fermibose.threat import ThreatModel

ReadoutKind = Literal["cross_entropy", "ridge", "prototype"]
Schedule = Literal["constant", "cosine"]
_CONSTANTS = (bool, int, float, str, bytes, type(None))


class Lesson(NamedTuple):
    """How one hidden layer learns: what may differ from layer to layer."""

    energy: Energy
    adversary: LocalAdversary | None
    epochs: int
    learning_rate: float

    def check(self) -> None:
        """Refuse what makes no sense."""
        if not isinstance(self.energy, Energy):
            raise InputError(
                f"energy must be a PairEnergy, like PairEnergy(0.4), or a FreeEnergy, got "
                f"{self.energy!r}"
            )
        if not isinstance(self.adversary, LocalAdversary | None):
            raise InputError(f"adversary must be a LocalAdversary or None, got {self.adversary!r}")
        checks.whole("epochs", self.epochs, least=0)
        checks.number("learning_rate", self.learning_rate, above=0)


@dataclass(frozen=True)
class Recipe:
    """Settings of one training.

    The defaults are the paper's for MNIST, but for the energy: the loss as printed, at d_F = 0.4,
    is the choice of this package. Energy, adversary, epochs and learning rate may be tuples, with
    one entry for each hidden layer.
    """

    hidden: tuple[Hidden, ...] = (1000,)  # units of each hidden layer, or what else it is
    energy: Energy | tuple[Energy, ...] = dataclasses.field(default_factory=PairEnergy)
    pairing: Pairing = dataclasses.field(default_factory=ByLabel)
    image_shape: Sides | None = None  # convolutions need it
    # Perturbs the inputs while a hidden layer learns
    adversary: LocalAdversary | tuple[LocalAdversary | None, ...] | None = None
    activation: str = "half_tanh"  # of dense layers: (1 + tanh z)/2, or "tanh", "relu"
    bias: bool = False  # of dense hidden layers
    epochs: int | tuple[int, ...] = 100  # per hidden layer
    batch_size: int = 50  # all samples at once if there are no more
    learning_rate: float | tuple[float, ...] = 0.01  # Adam, hidden layers
    schedule: Schedule = "constant"  # "cosine": the rate falls to 0 along half a cosine
    averaging: float = 0.0  # decay of a running mean of the hidden weights; 0: the last ones
    weight_decay: float = 0.01  # λ of (λ/2N)|W|², N units
    activity: float = 0.0  # μ of the activity penalty μ⟨|h|⟩
    readout: ReadoutKind | KernelRidge = "cross_entropy"
    readout_epochs: int = 100
    readout_learning_rate: float = 0.001  # Adam, readout
    ridge: float = 0.01  # penalty of the closed-form readout, (1/n)Σ|Vh−t|² + ridge·|V|²
    # Weight of each class: how often its samples are drawn, per mean; None: all alike
    class_weight: tuple[float, ...] | None = None
    seed: int = 0
    threads: int = 1  # that share the work; the result is the same to the bit

    def __post_init__(self) -> None:
        widths = self.hidden if isinstance(self.hidden, (tuple, list)) else ()
        if not widths or not all(
            checks.is_whole(layer, 1) or hasattr(layer, "build") for layer in widths
        ):
            raise InputError(
                f"hidden must be a tuple of at least one width, like (1000,), got "
                f"{checks.shown(self.hidden)}"
            )
        for number in range(len(widths)):
            self.lesson(number).check()
        if isinstance(self.pairing, type) or not callable(getattr(self.pairing, "views", None)):
            raise InputError(
                f"pairing must be ByLabel(), SelfSupervised() or the like, got {self.pairing!r}"
            )
        plain: dict[str, Any] = {
            "hidden": tuple(int(w) if checks.is_whole(w) else hidden_of(w) for w in widths),
            "image_shape": None if self.image_shape is None else image_shape_of(self.image_shape),
            "bias": checks.flag("bias", self.bias),
            "averaging": checks.number("averaging", self.averaging, least=0, below=1),
        }
        least = {"batch_size": 2, "readout_epochs": 0, "seed": 0, "threads": 1}
        for name, bound in least.items():  # one sample makes no pair
            plain[name] = checks.whole(name, getattr(self, name), least=bound)
        for name in ("readout_learning_rate", "ridge"):
            plain[name] = checks.number(name, getattr(self, name), above=0)
        for name, kind in (("epochs", int), ("learning_rate", float)):
            given = getattr(self, name)
            each = isinstance(given, tuple)
            plain[name] = tuple(map(kind, given)) if each else kind(given)
        for name in ("weight_decay", "activity"):
            plain[name] = checks.number(name, getattr(self, name), least=0)
        if self.class_weight is not None:
            if not isinstance(self.class_weight, (tuple, list)):
                raise InputError(
                    "class_weight must be a tuple with a number for each class, got "
                    f"{checks.shown(self.class_weight)}"
                )
            numbers = (checks.number("class_weight", w, least=0) for w in self.class_weight)
            plain["class_weight"] = tuple(numbers)
        for name, value in plain.items():  # torch does not take every number of NumPy's
            object.__setattr__(self, name, value)
        if not isinstance(self.readout, KernelRidge):
            checks.choice("readout", self.readout, get_args(ReadoutKind))
        checks.choice("schedule", self.schedule, get_args(Schedule))
        checks.choice("activation", self.activation, ACTIVATIONS)

    def lesson(self, number: int) -> Lesson:
        """How the hidden layer ``number`` learns."""
        entries = []
        for name in Lesson._fields:
            values = getattr(self, name)
            if isinstance(values, tuple):
                if len(values) != len(self.hidden):
                    raise InputError(
                        f"{name} has {len(values)} entries, but there are {len(self.hidden)} "
                        "hidden layers: give one for each, or one for all"
                    )
                values = values[number]
            entries.append(values)
        return Lesson(*entries)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON.

        Pairings and transformations carry the name of their class; a function is named by its
        module and its qualified name.
        """
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}


Preset = Literal["paper", "table", "robust", "accurate"]


def preset(
    name: str, *, shape: Sides | None = None, dense: bool = False, bounded: bool = True
) -> dict[str, Any]:
    """What a preset sets, as fields of a :class:`Recipe`: settings that were measured together.

    "paper" is the paper's machine, "table" the one for features of unlike scales. "robust" and
    "accurate" are for few labels: pairs of a free energy and a readout by kernel ridge, with
    augmentation and convolutions for images (``shape``) or a dense layer for anything else; and for
    "robust" a local adversary. dense: no convolutions for images either. bounded: inputs lie in
    [0, 1], where the adversary stays.
    """
    checks.choice("preset", name, get_args(Preset))
    if name == "paper":
        return {}
    if name == "table":
        return {"energy": PairEnergy(boson_weight=0.3), "weight_decay": 0.001, "bias": True}
    bounds = (0.0, 1.0) if bounded else (-math.inf, math.inf)

    def adversary(epsilon: float, ramp: float) -> LocalAdversary:
        """At first without a ramp and without own pairs: the first filters have to begin."""
        return LocalAdversary(ThreatModel("linf", epsilon, bounds), ramp=ramp, own=ramp > 0)

    settings: dict[str, Any] = {
        "energy": FreeEnergy(5.0), "batch_size": 200, "schedule": "cosine", "weight_decay": 0.0,
        "activation": "relu", "bias": True, "readout": KernelRidge(),
    }  # fmt: skip
    if shape is not None:
        copies = Affine(shape, shift=max(shape[-2:]) / 14)
        settings |= {"image_shape": shape, "pairing": Augmented((copies,))}
    if shape is None:
        settings |= {"epochs": 100, "learning_rate": 0.01, "adversary": adversary(0.3, 0.9)}
    elif dense:
        settings |= {
            "hidden": (2000,),
            "epochs": 150,
            "learning_rate": 0.02,
            "adversary": adversary(0.3, 0.9),
            "readout": KernelRidge(3.0, 1.0, copies=7),
        }
    else:
        settings |= {
            "hidden": (Conv(32), Conv(64, size=3), Conv(64, size=3, pool=1)),
            "energy": (FreeEnergy(2.0), FreeEnergy(5.0), FreeEnergy(5.0)),
            "adversary": (adversary(0.25, 0.0), adversary(0.3, 0.8), adversary(0.25, 0.7)),
            "epochs": (20, 12, 10),
            "learning_rate": (0.005, 0.01, 0.005),
        }
    if name == "accurate":
        del settings["adversary"]
    return settings


def _plain(value: Any) -> Any:
    if isinstance(value, (Conv, Pointwise)):
        return plain_hidden(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return fields if type(value) is PairEnergy else {"kind": type(value).__name__} | fields
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None  # the bound of a threat where there is none; JSON knows no infinity
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return {"kind": type(value).__name__}


def fingerprint(recipe: Recipe, *data: Tensor | Source) -> str:
    """Hash of all that determines a training and its records: version, recipe, data, test data.

    A transformation or an energy of the user's own counts by its code and the numbers in it;
    functions that it calls, by their names.
    """
    transforms = getattr(recipe.pairing, "transforms", ())
    own = [_code_of(each) for each in (recipe.pairing, *transforms)]
    energies = recipe.energy if isinstance(recipe.energy, tuple) else (recipe.energy,)
    own += [code for each in energies if (code := _code_of(each)) is not None]
    settings = dataclasses.replace(recipe, threads=1).as_dict()  # whose number changes nothing
    digest = hashlib.sha256(json.dumps([__version__, settings, own]).encode())
    for part in data:
        digest.update(repr(torch.Size(part.shape)).encode())
        for block in part.blocks() if isinstance(part, Source) else (part,):
            digest.update(np.ascontiguousarray(block.cpu().numpy()).data)
    return digest.hexdigest()


def _code_of(part: Any) -> Any:
    """What tells a part of a recipe from another with the same name and fields."""
    if type(part).__module__.split(".")[0] == "fermibose":
        return None
    if isinstance(part, FunctionType):
        return _function(part)
    if not dataclasses.is_dataclass(part):
        raise _unknowable(part)
    for field in dataclasses.fields(part):
        _require_plain(getattr(part, field.name))
    kinds = [k for k in reversed(getmro(type(part))) if k.__module__.split(".")[0] != "fermibose"]
    members = {n: m for k in kinds for n, m in vars(k).items()}
    own = [n for n in members if n == "__call__" or not n.startswith("__")]  # not dataclass's
    return {name: told for name in own if (told := _member(members[name])) is not None}


def _require_plain(value: Any) -> None:
    """Refuse what would count by its type alone."""
    if isinstance(value, (tuple, list)):
        for item in value:
            _require_plain(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _require_plain(getattr(value, field.name))
    elif not isinstance(value, (*_CONSTANTS, np.generic)) and not hasattr(value, "__qualname__"):
        raise _unknowable(value)


def _member(member: Any) -> Any:
    """A method, property or constant of a class."""
    if isinstance(member, property):
        member = member.fget
    member = getattr(member, "__func__", member)  # of a class or static method
    if isinstance(member, FunctionType):
        return _function(member)
    return repr(member) if _is_constant(member) else None


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return isinstance(value, _CONSTANTS)


def _function(function: FunctionType) -> list[Any]:
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    held = [cell.cell_contents for name, cell in cells if name != "__class__"]  # for super()
    held += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    known = {name: function.__globals__.get(name) for name in _names(code)}
    for value in (*held, *(v for v in known.values() if isinstance(v, (Tensor, np.ndarray)))):
        if not _is_constant(value):
            raise _unknowable(value)
    held += [[name, value] for name, value in known.items() if _is_constant(value)]
    return [repr(held), _bytecode(code)]


def _names(code: CodeType) -> list[str]:
    """Names that the code looks up, also in functions inside it."""
    inner = (name for c in code.co_consts if isinstance(c, CodeType) for name in _names(c))
    return list(dict.fromkeys((*code.co_names, *inner)))


def _bytecode(code: CodeType) -> list[Any]:
    consts = [_bytecode(c) if isinstance(c, CodeType) else _ordered(c) for c in code.co_consts]
    return [code.co_code.hex(), code.co_names, consts]


def _ordered(constant: Any) -> str:
    """A constant as text; the order of a set differs from process to process."""
    return repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


def _unknowable(part: Any) -> InputError:
    return InputError(
        f"a checkpoint cannot tell the recipe from another, for its pairing or energy holds a "
        f"{type(part).__name__}: make the transformation a function, or a frozen dataclass of "
        "numbers with a method __call__, or train without a checkpoint"
    )
