"""The pair energy: what one boson or fermion pair costs at a given squared distance.

Everything else in the package (the machine, the theory, single instances) minimises or samples
this one energy. It is written with plain operators, so NumPy arrays, torch tensors and floats all
work and keep their type.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from fermibose.checks import choice, number
from fermibose.errors import InputError

Array: TypeAlias = Any  # a NumPy array, a torch tensor or a float
Coupling = Literal["labelled", "averaged"]


@dataclass(frozen=True)
class PairEnergy:
    r"""Energy of a pair at squared distance D²: bosons attract, fermions repel up to d_F.

    .. math:: E = b\,\sigma D^2 + f\,(1-\sigma)\,\varphi(d_F - D^2)

    with σ = 1 for a boson pair (same class) and 0 for a fermion pair, and the hinge

    .. math:: \varphi(x) = \max(x, 0) \quad\text{or}\quad \varphi(x) = (x + \sqrt{x^2 + a})/2 .

    The *coupling* says which σ a pair feels. ``labelled`` is the loss as printed: its own.
    ``averaged`` is what the published figures were made with: every pair feels the numbers of boson
    and fermion pairs in its batch, E = b n_B D² + f n_F φ(d_F − D²), so that labels act only on
    average (and the pair term outweighs weight decay by the number of pairs).
    """

    d_f: float = 0.4  # target squared distance of fermion pairs, d_F
    softness: float = 0.0  # a of the smooth hinge; 0 is the hard hinge
    boson_weight: float = 1.0  # b
    fermion_weight: float = 1.0  # f
    coupling: Coupling = "labelled"

    def __post_init__(self) -> None:
        for name in ("d_f", "softness", "boson_weight", "fermion_weight"):
            # A NumPy scalar would widen the float32 arrays it meets; a plain number does not.
            object.__setattr__(self, name, number(name, getattr(self, name), least=0))
        if self.boson_weight == self.fermion_weight == 0:
            raise InputError(
                "boson_weight and fermion_weight are both 0: there is nothing to learn"
            )
        choice("coupling", self.coupling, get_args(Coupling))

    def energy(self, d2: Array, same: Array, counts: tuple[Array, Array] | None = None) -> Array:
        """E(D²) of each pair.

        d2: squared distances. same: True (1) for boson pairs, False (0) for fermion pairs,
        broadcast against d2. counts: numbers of boson and fermion pairs, which only the averaged
        coupling needs; counted from ``same`` (each pair standing there once) if not given.
        """
        return self.energy_and_force(d2, same, counts)[0]

    def force(self, d2: Array, same: Array, counts: tuple[Array, Array] | None = None) -> Array:
        """dE/dD² of each pair (arguments as in :meth:`energy`)."""
        return self.energy_and_force(d2, same, counts)[1]

    def energy_and_force(
        self, d2: Array, same: Array, counts: tuple[Array, Array] | None = None
    ) -> tuple[Array, Array]:
        """Both at the price of one, for inner loops (arguments as in :meth:`energy`)."""
        attraction, repulsion = self._couple(d2, same, counts)
        hinge, slope = self._hinge(self.d_f - d2)
        return attraction * d2 + repulsion * hinge, attraction - repulsion * slope

    def curvature(self, d2: Array, same: Array, counts: tuple[Array, Array] | None = None) -> Array:
        """d²E/d(D²)² of each pair (arguments as in :meth:`energy`); 0 for the hard hinge."""
        _, repulsion = self._couple(d2, same, counts)
        x = self.d_f - d2
        if not self.softness:
            return repulsion * (x * 0)
        square = x * x + self.softness
        return repulsion * (self.softness / square / (2 * square**0.5))  # no power overflows

    def _couple(
        self, d2: Array, same: Array, counts: tuple[Array, Array] | None
    ) -> tuple[Array, Array]:
        """How strongly each pair feels attraction and repulsion, in the precision of d2."""
        sigma = d2 * 0 + same
        if self.coupling == "labelled":
            return self.boson_weight * sigma, self.fermion_weight * (1 - sigma)
        if counts is None:
            shape = getattr(sigma, "shape", ())
            bosons = sigma.sum() if shape else sigma
            counts = (bosons, math.prod(shape) - bosons)
        return self.boson_weight * counts[0], self.fermion_weight * counts[1]

    def _hinge(self, x: Array) -> tuple[Array, Array]:
        """φ(x) and its slope φ'(x); for the smooth hinge φ' = φ/√(x²+a).

        Where x < 0 the terms of (x + √(x²+a))/2 cancel, and it is written a/(2(√(x²+a) − x)); where
        x > 0 it is x + φ(−x). So every digit counts at any distance, and for autograd, which takes
        x = 0 to be on the left, derivatives of every order are those of φ.
        """
        if not self.softness:
            slope = x * 0 + (x > 0)
            return x * slope, slope
        positive = x * (x > 0)
        root = (x * x + self.softness) ** 0.5
        hinge = positive + self.softness / 2 / (root + (2 * positive - x))
        return hinge, hinge / root
