r"""The energy of the weights of one instance and its gradient, for many weight vectors at once.

.. math:: E(w) = \sum_μ H_μ(w·x_{μ1}, w·x_{μ2}) + \tfrac{λ_w}{2}|w|^2

Nothing here knows the cavity method: sampling and minimising this energy is the referee.
"""

from collections.abc import Callable

import numpy as np

from fermibose.cavity.instance import Instance
from fermibose.errors import InputError
from fermibose.theory import Array, Problem

_STENCIL = 1e-3  # step of the five-point derivative of an activation other than tanh


class Landscape:
    """E and ∇E of one instance."""

    def __init__(self, instance: Instance) -> None:
        self.problem, train = instance.problem, instance.train
        self.pairs = len(train)
        if self.problem.hinge is not None:
            raise InputError("a hinge of your own has no known slope: use the softness instead")
        self._patterns = train.x.reshape(-1, instance.n)
        self._same = train.same[:, None]
        self._phi = _with_slope(self.problem)

    def energy_and_gradient(self, w: Array) -> tuple[Array, Array]:
        """E (k,) and ∇E (N, k) of k weight vectors, the columns of w (N, k)."""
        phi, slope = self._phi((self._patterns @ w).reshape(2, -1, w.shape[1]))
        D = phi[0] - phi[1]
        energy, force = self.problem.pair_energy.energy_and_force(D**2, self._same)
        push = 2 * D * force
        pull = np.concatenate([push * slope[0], -push * slope[1]])
        decay = self.problem.weight_decay
        return energy.sum(0) + decay / 2 * (w**2).sum(0), self._patterns.T @ pull + decay * w

    def pair_energy(self, w: Array) -> Array:
        """Mean energy of a training pair, (k,)."""
        energy = self.energy_and_gradient(w)[0] - self.problem.weight_decay / 2 * (w**2).sum(0)
        return np.asarray(energy / self.pairs)


def _with_slope(problem: Problem) -> Callable[[Array], tuple[Array, Array]]:
    """φ and φ′ of an array."""
    phi = problem.phi
    if problem.activation == "tanh":
        return lambda z: (p := phi(z), 1 - p**2)

    def differences(z: Array) -> tuple[Array, Array]:
        a, b, d, e = (phi(z + k * _STENCIL) for k in (-2, -1, 1, 2))
        return phi(z), (a - e + 8 * (d - b)) / (12 * _STENCIL)

    return differences
