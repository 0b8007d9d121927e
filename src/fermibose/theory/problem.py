"""What is asked of the theory: one unit, a Gaussian mixture, and the energy of its pairs."""

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fermibose.energy import PairEnergy
from fermibose.errors import InputError
from fermibose.theory.activation import ACTIVATIONS, Array, Function, check_function, steepness

__all__ = ["ACTIVATIONS", "Array", "Function", "Problem"]

_POSITIVE = {
    "alpha": "the number of training pairs per weight; use a small number for scarce data",
    "delta": "the spread of a cluster; use a small number for sharp clusters",
}


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
        for field in fields(self):
            if field.name not in ("activation", "hinge"):
                value = getattr(self, field.name)
                _check_number(field.name, value)
                # A NumPy scalar of fewer bits would drag the whole solver down to its precision.
                object.__setattr__(self, field.name, float(value))
        if self.rho > 1:
            raise InputError(f"rho is the fraction of boson pairs: 0 <= rho <= 1, got {self.rho!r}")
        if not isinstance(self.activation, str):
            check_function("activation", self.activation)
        elif self.activation not in ACTIVATIONS:
            names = ", ".join(repr(name) for name in ACTIVATIONS)
            raise InputError(
                f"activation {self.activation!r} is not known: use {names} or give a function"
            )
        if self.hinge is not None:
            check_function("hinge", self.hinge)
        if self.zero_temperature and (self.hinge is not None or self.softness == 0):
            raise InputError(
                "at zero temperature (beta = inf) the energy must be smooth: "
                "use softness > 0 and no hinge of your own, or a large finite beta"
            )

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
        return steepness(self.phi)

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


def _check_number(name: str, value: Any) -> None:
    """Refuse what is not a number in the parameter's range, and say which range that is."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise InputError(f"{name} must be a number, got {value!r}")
    if math.isnan(value):
        raise InputError(f"{name} is NaN: give a number")
    if name == "beta":
        if value <= 0:
            raise InputError(
                f"beta is an inverse temperature and must be > 0 (math.inf for zero temperature), "
                f"got {value!r}"
            )
        return
    if math.isinf(value):
        raise InputError(f"{name} must be finite, got {value!r}")
    if name == "weight_decay" and value <= 0:
        raise InputError(
            f"weight_decay must be > 0, got {value!r}: without decay the weights are free along "
            "every direction the pairs do not constrain, the Boltzmann measure cannot be "
            "normalised and q diverges; use a small positive value"
        )
    if name in _POSITIVE and value <= 0:
        raise InputError(f"{name} must be > 0, got {value!r}: it is {_POSITIVE[name]}")
    if value < 0:
        raise InputError(f"{name} must be >= 0, got {value!r}")
