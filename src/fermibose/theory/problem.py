"""What is asked of the theory: one unit φ, a Gaussian mixture, and the energy of its pairs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fermibose.checks import choice, number
from fermibose.energy import PairEnergy
from fermibose.errors import InputError

Array: TypeAlias = NDArray[np.float64]
Function: TypeAlias = Callable[[Array], Array]

# How the steepness of φ is found.
_REACH = 12.0  # where the steepest place is looked for, on both sides of 0
_NODES = 961  # of each look
_LOOKS = 4  # each 240 times as close as the one before
_STEP = 1e3  # a slope beyond which φ is a step on every grid
# Of the five-point derivatives of a φ without a name, if it is not steep: it leaves 1e-12 of φ′ and
# 1e-9 of φ″, where rounding and the formula cost about as much.
_STENCIL = 1e-3

# What the numbers of a problem may be, and why where that is not plain.
_BOUNDS: dict[str, dict[str, float]] = {
    "alpha": {"above": 0},
    "samples": {"above": 0},
    "delta": {"above": 0},
    "beta": {"above": 0},
    "d_f": {"least": 0},
    "weight_decay": {"above": 0},
    "m": {"least": 0},
    "rho": {"least": 0, "most": 1},
    "softness": {"least": 0},
    "balance": {"above": 0, "below": 1},
    "mislabelled": {"least": 0, "below": 0.5},
}
_REASONS = {
    "alpha": "it is the number of training pairs per weight; use a small number for scarce data",
    "samples": "it is the number of training samples per weight; use a small number for scarce "
    "data",
    "delta": "it is the spread of a cluster; use a small number for sharp clusters",
    "beta": "it is an inverse temperature; inf is zero temperature",
    "weight_decay": "without decay the weights are free along every direction the pairs do not "
    "constrain, the Boltzmann measure cannot be normalised and q diverges; use a small positive "
    "value",
    "rho": "it is the fraction of boson pairs",
    "balance": "it is the fraction of samples of class y = 1; one class alone has no fermions",
    "mislabelled": "it is the fraction of samples with the wrong label; at one half labels say "
    "nothing, beyond it exchange the classes",
}
PAIRINGS = ("disjoint", "all")
SYMBOLS = {
    "alpha": "α",
    "samples": "γ",
    "delta": "Δ",
    "beta": "β",
    "d_f": "d_F",
    "weight_decay": "λ_w",
    "m": "m",
    "rho": "ρ",
    "softness": "a",
    "balance": "π",
    "mislabelled": "mislabelled",
}  # the numbers of a problem
_OF_THE_OTHER = {"disjoint": ("balance", "mislabelled"), "all": ("rho",)}  # pairing
_PAIRS, _SAMPLES = 2.5, 5.0  # α and γ = 2α that are not given


def _half_tanh(z: Array) -> Array:
    return (1 + np.tanh(z)) / 2


def _tanh_derivatives(z: Array) -> tuple[Array, Array, Array]:
    phi = np.tanh(z)
    slope = 1 - phi**2
    return phi, slope, -2 * phi * slope


def _half_tanh_derivatives(z: Array) -> tuple[Array, Array, Array]:
    phi, slope, bend = _tanh_derivatives(z)
    return (1 + phi) / 2, slope / 2, bend / 2


ACTIVATIONS: dict[str, Function] = {"tanh": np.tanh, "half_tanh": _half_tanh}
# φ, φ′ and φ″ of activations known by name, at the price of φ
DERIVATIVES: dict[str, Callable[[Array], tuple[Array, Array, Array]]] = {
    "tanh": _tanh_derivatives,
    "half_tanh": _half_tanh_derivatives,
}


@dataclass(frozen=True)
class Problem:
    r"""One unit φ(w·x) that learns pairs of two Gaussian clusters, in the limit of many weights.

    Inputs are x = y m/N·1 + Δ/√N·noise with label y = ±1. A pair costs

    .. math:: H = \tfrac12 D^2 \;\text{(boson)}, \qquad
              H = \tfrac12 \varphi(d_F - D^2) \;\text{(fermion)}, \qquad D = φ(z_1) - φ(z_2),

    and the weights follow exp(−βE). With pairing "disjoint", the paper's model, no two of the
    P = αN training pairs share a sample; with "all", every pair of n = γN samples counts:

    .. math:: E = \sum_{μ=1}^{P} H_μ + \tfrac{λ_w}2 |w|^2, \qquad
              E = \tfrac1n \sum_{i<j} H_{ij} + \tfrac{λ_w}2 |w|^2 .

    As many samples have pairs of the same total weight in both, that of α = γ/2 pairs per weight.
    Defaults are the default point of the docs, 2.5 pairs or 5 samples per weight.
    """

    alpha: float | None = None  # α = P/N: disjoint training pairs per weight, > 0
    delta: float = 0.5  # Δ: spread of each cluster, > 0
    beta: float = 50.0  # β: inverse temperature, > 0; math.inf is zero temperature
    d_f: float = 1.0  # d_F: target squared distance of fermion pairs, >= 0
    weight_decay: float = 0.05  # λ_w, > 0
    m: float = 1.0  # strength of the cluster mean, >= 0
    rho: float = 0.5  # ρ: fraction of boson pairs, in [0, 1]; disjoint pairs only
    softness: float = 0.01  # a of the hinge φ(x) = (x + √(x²+a))/2, >= 0; > 0 at zero temperature
    activation: str | Function = "tanh"  # a name in ACTIVATIONS, or a smooth function of arrays
    hinge: Function | None = None  # replaces φ; finite temperature only
    samples: float | None = None  # γ = n/N: training samples per weight, > 0; all pairs only
    pairing: str = "disjoint"  # or "all"
    balance: float = 0.5  # π: fraction of samples of class y = 1, in (0, 1); all pairs only
    mislabelled: float = 0.0  # fraction of samples that learn as the other class; all pairs only

    def __post_init__(self) -> None:
        self._check_pairing()
        for name in _BOUNDS:
            if getattr(self, name) is not None:
                # A NumPy scalar of fewer bits would drag all of the solver down to its precision.
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

        if self.balance != 0.5 and not self.odd:
            raise InputError(
                "classes of unequal size need an odd activation (tanh): with another the sign of "
                "the weights matters, and the theory takes it for a symmetry"
            )

    def _check_pairing(self) -> None:
        """Refuse what does not go with the pairing; fill in what was not given."""
        choice("pairing", self.pairing, PAIRINGS)
        if self.pairing == "all":
            if self.alpha is not None:
                raise InputError(
                    "alpha counts disjoint pairs: with all pairs leave it out and give samples, "
                    "the number of training samples per weight"
                )
            if self.rho != 0.5:
                raise InputError(
                    "rho is the fraction of bosons among disjoint pairs: among all pairs it "
                    "follows from the classes, give balance"
                )
            if self.samples is None:
                object.__setattr__(self, "samples", _SAMPLES)
            return
        if self.samples is not None:
            raise InputError(
                "samples goes with all pairs (pairing all); disjoint pairs are counted by alpha, "
                "and as many samples make alpha = samples/2 of them"
            )
        if self.balance != 0.5 or self.mislabelled != 0:
            raise InputError(
                "balance and mislabelled go with all pairs (pairing all); among disjoint pairs "
                "classes of fractions π and 1 − π make rho = π² + (1 − π)² bosons"
            )
        if self.alpha is None:
            object.__setattr__(self, "alpha", _PAIRS)

    @property
    def load(self) -> float:
        """Total weight of the pairs, per weight w: α of disjoint ones, γ/2 of all."""
        if self.alpha is not None:
            return self.alpha
        assert self.samples is not None
        return self.samples / 2

    @property
    def bosons(self) -> float:
        """Fraction of boson pairs among new ones: ρ, or π² + (1 − π)²."""
        return self.rho if self.pairing == "disjoint" else self.balance**2 + (1 - self.balance) ** 2

    def to_dict(self) -> dict[str, Any]:
        """Every parameter by name; a function of your own by its name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: getattr(v, "__name__", repr(v)) if callable(v) else v for k, v in values.items()}

    def told(self, *without: str) -> str:
        """The numbers that matter in one line, for a title; without those named."""
        names = [n for n in SYMBOLS if n not in (*without, *_OF_THE_OTHER[self.pairing])]
        values = {name: getattr(self, name) for name in names}
        parts = [f"{SYMBOLS[n]} = {v:g}" for n, v in values.items() if v is not None]
        parts = [part.replace("inf", "∞") for part in parts]
        if self.pairing == "all":
            parts.insert(0, "all pairs")
        plain = self.to_dict()
        parts += [str(plain[name]) for name in ("activation", "hinge") if plain[name] is not None]
        return ", ".join(parts)

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
        return _odd(self.phi)

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


def check_disjoint(problem: Any) -> None:
    """Refuse what is not a Problem of disjoint pairs."""
    check_problem(problem)
    if problem.pairing != "disjoint":
        raise InputError(
            "broken replica symmetry is worked out for disjoint pairs: use solve() for all pairs, "
            "whose at_eigenvalue says whether anything is broken"
        )


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
            "give a function such as numpy.tanh that takes an array"
        ) from error
    if not isinstance(values, np.ndarray) or values.shape != z.shape:
        raise InputError(f"{name} {function!r} must return an array of the shape of its argument")
    if values.dtype != np.float64:
        raise InputError(f"{name} {function!r} must return float64 numbers, not {values.dtype}")
    if not np.all(np.isfinite(values)):
        where = float(z[~np.isfinite(values)][0])
        raise InputError(f"{name} {function!r} must be finite everywhere, and is not at {where:g}")


@lru_cache(maxsize=64)
def _odd(phi: Function) -> bool:
    z = np.linspace(0, 6, 25)
    total = phi(z) + phi(-z)
    return bool(np.ptp(total) < 1e-12 * (1 + np.abs(total).max()))


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


def activation_derivatives(problem: Problem, z: Array) -> tuple[Array, Array, Array]:
    """φ, φ′ and φ″; by five-point differences where it has no name: any smooth one will do."""
    name = problem.activation
    if isinstance(name, str) and name in DERIVATIVES:
        return DERIVATIVES[name](z)
    h, phi = _STENCIL / problem.steepness, problem.phi
    a, b, mid, d, e = (phi(z + k * h) for k in (-2, -1, 0, 1, 2))
    first = (a - e + 8 * (d - b)) / (12 * h)
    second = (16 * (b + d) - 30 * mid - a - e) / (12 * h**2)
    return mid, first, second
