"""What is asked of the theory: one unit φ, a Gaussian mixture, and the energy of its pairs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fermibose.checks import number
from fermibose.energy import PairEnergy
from fermibose.errors import InputError

Array: TypeAlias = NDArray[np.float64]
Function: TypeAlias = Callable[[Array], Array]

# How the steepness of φ is found.
_REACH = 12.0  # where the steepest place is looked for, on both sides of 0
_NODES = 961  # of each look
_LOOKS = 4  # each 240 times as close as the one before
_STEP = 1e3  # a slope beyond which φ is a step on every grid

# What the numbers of a problem may be, and why where that is not plain.
_BOUNDS: dict[str, dict[str, float]] = {
    "alpha": {"above": 0},
    "delta": {"above": 0},
    "beta": {"above": 0},
    "d_f": {"least": 0},
    "weight_decay": {"above": 0},
    "m": {"least": 0},
    "rho": {"least": 0, "most": 1},
    "softness": {"least": 0},
}
_REASONS = {
    "alpha": "it is the number of training pairs per weight; use a small number for scarce data",
    "delta": "it is the spread of a cluster; use a small number for sharp clusters",
    "beta": "it is an inverse temperature; use math.inf for zero temperature",
    "weight_decay": "without decay the weights are free along every direction the pairs do not "
    "constrain, the Boltzmann measure cannot be normalised and q diverges; use a small positive "
    "value",
    "rho": "it is the fraction of boson pairs",
}


def _half_tanh(z: Array) -> Array:
    return (1 + np.tanh(z)) / 2


ACTIVATIONS: dict[str, Function] = {"tanh": np.tanh, "half_tanh": _half_tanh}


@dataclass(frozen=True)
class Problem:
    r"""One unit φ(w·x) that learns pairs of two Gaussian clusters, in the limit of many weights.

    Inputs are x = y m/N·1 + Δ/√N·noise with label y = ±1. A pair costs

    .. math:: H = \tfrac12 D^2 \;\text{(boson)}, \qquad
              H = \tfrac12 \varphi(d_F - D^2) \;\text{(fermion)}, \qquad D = φ(z_1) - φ(z_2),

    and the weights follow exp(−β[Σ H + λ_w |w|²/2]). Defaults are the default point of the docs.
    """

    alpha: float = 2.5  # α = P/N: training pairs per weight, > 0
    delta: float = 0.5  # Δ: spread of each cluster, > 0
    beta: float = 50.0  # β: inverse temperature, > 0; math.inf is zero temperature
    d_f: float = 1.0  # d_F: target squared distance of fermion pairs, >= 0
    weight_decay: float = 0.05  # λ_w, > 0
    m: float = 1.0  # strength of the cluster mean, >= 0
    rho: float = 0.5  # ρ: fraction of boson pairs, in [0, 1]
    softness: float = 0.01  # a of the hinge φ(x) = (x + √(x²+a))/2, >= 0; > 0 at zero temperature
    activation: str | Function = "tanh"  # a name in ACTIVATIONS, or a smooth function of arrays
    hinge: Function | None = None  # replaces φ; finite temperature only

    def __post_init__(self) -> None:
        for name in _BOUNDS:
            # A NumPy scalar of fewer bits would drag the whole solver down to its precision.
            object.__setattr__(self, name, _check_number(name, getattr(self, name)))
        if not isinstance(self.activation, str):
            _check_function("activation", self.activation)
        elif self.activation not in ACTIVATIONS:
            names = ", ".join(repr(name) for name in ACTIVATIONS)
            raise InputError(
                f"activation {self.activation!r} is not known: use {names} or give a function"
            )
        if self.hinge is not None:
            _check_function("hinge", self.hinge)
        if self.zero_temperature and (self.hinge is not None or self.softness == 0):
            raise InputError(
                "at zero temperature (beta = inf) the energy must be smooth: "
                "use softness > 0 and no hinge of your own, or a large finite beta"
            )

    def to_dict(self) -> dict[str, Any]:
        """Every parameter by name; a function of your own by its name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: getattr(v, "__name__", repr(v)) if callable(v) else v for k, v in values.items()}

    @property
    def zero_temperature(self) -> bool:
        """True if beta is infinite."""
        return math.isinf(self.beta)

    @property
    def phi(self) -> Function:
        """The activation as a function."""
        return ACTIVATIONS[self.activation] if isinstance(self.activation, str) else self.activation

    @property
    def steepness(self) -> float:
        """max |φ′|, at least 1: lengths along z count for more where φ is steep."""
        return _steepness(self.phi)

    @property
    def pair_energy(self) -> PairEnergy:
        """The package's pair energy with the weights of the theory, ½ and ½."""
        return PairEnergy(self.d_f, self.softness, boson_weight=0.5, fermion_weight=0.5)

    @property
    def odd(self) -> bool:
        """Whether φ is odd up to a constant, which makes both classes mirror images."""
        z = np.linspace(0, 6, 25)
        total = self.phi(z) + self.phi(-z)
        return bool(np.ptp(total) < 1e-12 * (1 + np.abs(total).max()))

    def energies(self, z1: Array, z2: Array) -> Array:
        """H of a boson and of a fermion pair, stacked: shape (2, \\*shape of z1 and z2)."""
        return self.energies_apart((self.phi(z1) - self.phi(z2)) ** 2)

    def energies_apart(self, d2: Array) -> Array:
        """The same at squared distances D²."""
        return np.stack([d2 / 2, self.fermion_energy(d2)])

    def fermion_energy(self, d2: Array) -> Array:
        """H of fermion pairs at squared distances D²."""
        if self.hinge is None:
            energy: Array = self.pair_energy.energy(d2, False)
            return energy
        return self.hinge(self.d_f - d2) / 2


def check_problem(problem: Any) -> None:
    """Refuse what is not a Problem."""
    if not isinstance(problem, Problem):
        raise InputError(f"the theory needs a fermibose.theory.Problem, got {problem!r}")


def _check_number(name: str, value: Any) -> float:
    """A number of the problem as a float; the refusal of what it may not be says why."""
    if name == "beta" and isinstance(value, Real) and value == math.inf:
        return math.inf
    try:
        return number(name, value, **_BOUNDS[name])
    except InputError as error:
        reason = f": {_REASONS[name]}" if name in _REASONS else ""
        raise InputError(f"{error}{reason}") from None


def _check_function(name: str, function: Any) -> None:
    """Refuse what is not a hashable function from float arrays to finite ones of their shape."""
    if not callable(function):
        raise InputError(f"{name} must be a function of a NumPy array, got {function!r}")
    try:
        hash(function)
    except TypeError as error:
        raise InputError(
            f"{name} must be hashable, which {type(function).__name__} is not: "
            "wrap it in a function, def phi(z): return it(z)"
        ) from error
    _try(name, function)


@lru_cache(maxsize=256)
def _try(name: str, function: Callable[[Array], Any]) -> None:
    """One call on a small grid, once a function."""
    z = np.linspace(-3, 3, 15).reshape(3, 5)
    try:
        with np.errstate(all="ignore"):
            values = function(z.copy())
    except Exception as error:
        raise InputError(
            f"{name} {function!r} fails on a NumPy array ({type(error).__name__}: {error}): "
            "give a function such as numpy.tanh that takes the array as a whole"
        ) from error
    if not isinstance(values, np.ndarray) or values.shape != z.shape:
        raise InputError(f"{name} {function!r} must return an array of the shape of its argument")
    if values.dtype != np.float64:
        raise InputError(f"{name} {function!r} must return float64 numbers, not {values.dtype}")
    if not np.all(np.isfinite(values)):
        where = float(z[~np.isfinite(values)][0])
        raise InputError(f"{name} {function!r} must be finite everywhere, and is not at {where:g}")


@lru_cache(maxsize=64)
def _steepness(phi: Function) -> float:
    """max |φ′|, between 1 and 1000: what the distances of nodes along z are divided by.

    φ(kz) is φ with every length divided by k. The steepest cell of a coarse look is looked at
    closer until it is no steeper than it seemed.
    """
    centre, reach, steepest = 0.0, _REACH, 0.0
    for _ in range(_LOOKS):
        z = centre + np.linspace(-reach, reach, _NODES)
        slopes = np.abs(np.diff(phi(z)) / np.diff(z))
        cell = int(slopes.argmax())
        before, steepest = steepest, max(steepest, float(slopes[cell]))
        if steepest < 1.001 * before:
            break
        centre, reach = float(z[cell] + z[cell + 1]) / 2, 4 * reach / (_NODES - 1)
    return min(max(1.0, steepest), _STEP)
