r"""Approximate message passing with all pairs: every sample alone in the potential of all others.

A sample meets n − 1 others at weight 1/n each, so it feels their mean. With a_i the label it is
taught, H_{aa'} the energy of bosons (a = a') or fermions and ⟨·⟩_j the average over sample j,

.. math::
    h_i(z) = \frac1n \sum_{j≠i} ⟨H_{a_i a_j}(z, z_j)⟩_j, \qquad
    Z_i = \int N(z; ω_i, V_i)\, e^{-βh_i(z)} dz, \qquad f_i = ∂_ω \ln Z_i,

    V_i = \sum_k v_k x_{ik}^2, \quad ω_i = \sum_k m_k x_{ik} - V_i f_i^{old}, \quad
    A_k = -\sum_i x_{ik}^2\, ∂f_i, \quad B_k = \sum_i x_{ik} f_i + A_k m_k,

and v, m as in :mod:`fermibose.cavity.amp`. The average ⟨·⟩_i is over N e^{−βh_i}/Z_i, so the h are
messages too, and damped with the others: undamped, they overshoot. The free energy counts the
energy of every pair in both of its samples, and takes it back once:

.. math::
    βf = \tfrac{βλ_w}{2} q - \tfrac{1}{2N}\sum_k \ln 2πe v_k
         - \tfrac1N \sum_i \big[\ln Z_i + \tfrac12 f_i^2 V_i\big]
         - \frac{β}{nN} \sum_{i<j} ⟨H_{ij}⟩ .

It is stationary at a fixed point, in the densities as well: its slope is the energy. What it leaves
out, correlations that one pair of weight 1/n makes, is of order 1/N.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fermibose.cavity.channel import DivergenceError, LatticeError, lattice_steps
from fermibose.cavity.instance import Instance, Samples
from fermibose.cavity.messages import Marginals, variances
from fermibose.theory import Array, Problem

_DEPTH = 30.0  # a Gaussian below e^{−this} = 1e-13, whatever it gains in energy, does not count
_FARTHEST = 1e3  # fields beyond this are those of an iteration that diverges: far from any solution
_WIDEST = 30.0  # reach of the nodes where φ never saturates; fields beyond it are refused
_FLAT = 1e-10  # a change of φ, in units of its range, that no longer counts: far below all errors
_MOST = 4000  # nodes: their table of fermion energies takes 128 MB
# Step over width of a density: the sum of a Gaussian is then off by 2e^{−2π²/1.2²} = 2e-6.
_COARSEST = 1.2


@dataclass(frozen=True)
class Tilted:
    """The n densities N e^{−βh}/Z; arrays of shape (samples,) unless stated."""

    log_z: Array
    f: Array  # ∂ ln Z
    df: Array  # ∂² ln Z
    phi: Array  # ⟨φ⟩
    phi2: Array  # ⟨φ²⟩
    density: Array  # (2, nodes): their sums over those taught 1 and −1


class SampleChannel:
    """The one-dimensional channel of every sample, on one uniform lattice for all.

    Potentials are tables (2, nodes) for samples taught 1 and −1. Beyond the last node φ, and with
    it every potential, no longer changes.
    """

    def __init__(self, problem: Problem, samples: Samples) -> None:
        self.problem, self.samples = problem, len(samples)
        self._row = (samples.taught == -1).astype(np.int64)
        self._sizes = np.array([(self._row == 0).sum(), (self._row == 1).sum()])
        reach, self.saturates = _reach(problem)
        # No narrower than forces of slope 1 on all samples make the fields.
        stiffness = problem.weight_decay + 2 * problem.load * problem.delta**2
        s = problem.delta / math.sqrt(problem.beta * stiffness)
        self.step = min(float(lattice_steps(problem, kind, s)[0]) for kind in (0, 1))
        self._last = math.ceil(reach / self.step)
        if 2 * self._last + 1 > _MOST:
            raise LatticeError(
                f"potentials of beta = {problem.beta:g}, softness = {problem.softness:g} and this "
                f"activation need {2 * self._last + 1} nodes, more than {_MOST}: use a smaller "
                "beta or steepness, or a larger softness"
            )
        self._phi = problem.phi(self.step * np.arange(-self._last, self._last + 1.0))
        self._fermions = problem.fermion_energy((self._phi[:, None] - self._phi) ** 2)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self._phi.size

    def tilt(self, omega: Array, V: Array, potential: Array, own: Array | None) -> Tilted:
        """The densities in a potential of all samples, less what each adds to its own.

        own: ⟨φ⟩ and ⟨φ²⟩ of every sample, (2, samples), with which it counts in the potential; None
        if it does not.
        """
        row, z = self._windows(omega, V, potential)
        values = np.concatenate([self._phi, self._phi])[row]
        felt = potential.ravel()[row]
        if own is not None:
            phi, phi2 = own[:, :, None]
            felt -= (values**2 - 2 * values * phi + phi2) / (2 * self.samples)
        d = z - omega[:, None]
        exponent = d**2 / (-2 * V[:, None]) - self.problem.beta * felt
        top = exponent.max(1)
        p = np.exp(exponent - top[:, None])
        total = p.sum(1)
        p /= total[:, None]
        mean = np.einsum("ik,ik->i", p, d)
        variance = np.einsum("ik,ik,ik->i", p, d, d) - mean**2
        if self.step > _COARSEST * math.sqrt(max(float(variance.min()), 0.0)):
            raise LatticeError(
                "some density is narrower than the lattice can tell: use a smaller beta or a "
                "larger delta"
            )
        density = np.asarray(np.bincount(row.ravel(), p.ravel(), 2 * self.nodes), dtype=float)
        return Tilted(
            log_z=top + np.log(total * self.step) - np.log(2 * math.pi * V) / 2,
            f=mean / V,
            df=(variance - V) / V**2,
            phi=np.einsum("ik,ik->i", p, values),
            phi2=np.einsum("ik,ik,ik->i", p, values, values),
            density=density.reshape(2, -1),
        )

    def _windows(self, omega: Array, V: Array, potential: Array) -> tuple[NDArray[np.int64], Array]:
        """For every sample the nodes near it: places in a raveled potential, and where they are."""
        if not (np.isfinite(omega).all() and V.min() > 0 and np.abs(omega).max() < _FARTHEST):
            raise DivergenceError
        depth = _DEPTH + self.problem.beta * float(np.ptp(potential, axis=1).max())
        near = math.sqrt(2 * depth * float(V.max()))
        count = math.ceil(near / self.step)
        if not self.saturates and np.abs(omega).max() + near > self.step * self._last:
            raise LatticeError(
                f"fields beyond {self.step * self._last:.3g} of an activation that does not "
                "saturate: use a smaller delta or m, or a larger weight_decay"
            )
        centre = np.rint(omega / self.step).astype(np.int64)
        places: NDArray[np.int64] = centre[:, None] + np.arange(-count, count + 1)
        inside = np.clip(places + self._last, 0, 2 * self._last)
        return inside + (self._row * self.nodes)[:, None], np.asarray(places * self.step)

    def potential(self, tilted: Tilted) -> Array:
        """(1/n) Σ_j ⟨H(z, z_j)⟩ over all samples, for samples taught 1 and −1: (2, nodes)."""
        first, second = (
            np.bincount(self._row, moment, 2)[:, None] for moment in (tilted.phi, tilted.phi2)
        )
        bosons = (self._sizes[:, None] * self._phi**2 - 2 * self._phi * first + second) / 2
        fermions = tilted.density[::-1] @ self._fermions
        return np.asarray((bosons + fermions) / self.samples)

    def energy(self, tilted: Tilted, potential: Array) -> float:
        """(1/n) Σ_{i<j} ⟨H_ij⟩, from the densities and the potential they make."""
        with_itself = (tilted.phi2 - tilted.phi**2).sum() / self.samples
        return float((np.vdot(tilted.density, potential) - with_itself) / 2)


def _reach(problem: Problem) -> tuple[float, bool]:
    """Where φ has saturated on both sides, and whether it does."""
    z = np.geomspace(1e-2, _WIDEST, 200)
    ends = problem.phi(np.array([-_FARTHEST, _FARTHEST]))
    left = np.abs(problem.phi(-z) - ends[0]) + np.abs(problem.phi(z) - ends[1])
    flat = np.flatnonzero(left > _FLAT * abs(ends[1] - ends[0]))
    if flat.size == z.size or ends[0] == ends[1]:
        return _WIDEST, False
    return float(z[flat[-1] + 1]) if flat.size else float(z[0]), True


class ExhaustiveAmp:
    """The messages m, v (N each), f, ⟨φ⟩, ⟨φ²⟩ (n each) and two potentials, in one vector."""

    memory = 20

    def __init__(self, instance: Instance, m: Array) -> None:
        self.problem, self.n, samples = instance.problem, m.size, instance.train
        assert isinstance(samples, Samples)
        self.x, self.x2 = samples.x, samples.x**2
        self.channel, count = SampleChannel(instance.problem, samples), len(samples)
        self._ends = np.cumsum([m.size, m.size, count, 2 * count])
        prior = np.full_like(m, 1 / (self.problem.beta * self.problem.weight_decay))
        # The potential that samples make which feel none.
        none = np.zeros((2, self.channel.nodes))
        tilted = self.channel.tilt(self.x @ m, self.x2 @ prior, none, own=None)
        potential = self.channel.potential(tilted)
        self.start = self._join(m, prior, tilted, potential, f=np.zeros(count))

    def _join(self, m: Array, v: Array, tilted: Tilted, potential: Array, f: Array) -> Array:
        return np.concatenate([m, v, f, tilted.phi, tilted.phi2, potential.ravel()])

    def sweep(self, x: Array) -> tuple[Array, Marginals]:
        """One undamped sweep."""
        old_m, old_v, old_f, own, h = np.split(x, self._ends)
        old_h = h.reshape(2, -1)
        V = self.x2 @ old_v
        omega = self.x @ old_m - V * old_f
        tilted = self.channel.tilt(omega, V, old_h, own.reshape(2, -1))
        potential = self.channel.potential(tilted)
        A = -(tilted.df @ self.x2)
        v = variances(self.problem, A)
        m = v * (tilted.f @ self.x + A * old_m)
        changes = (m - old_m, v - old_v, potential - old_h)
        energy = self.channel.energy(tilted, potential)
        found = Marginals(
            mean=m,
            variance=v,
            change=max(float(np.abs(change).max()) for change in changes),
            training_loss=energy / ((V.size - 1) / 2),
            at_eigenvalue=float(((V * tilted.df) ** 2).sum() / self.n),
            free_energy=self._free_energy(m, v, V, tilted, energy),
        )
        return self._join(m, v, tilted, potential, tilted.f), found

    def _free_energy(self, m: Array, v: Array, V: Array, tilted: Tilted, energy: float) -> float:
        beta, decay = self.problem.beta, self.problem.weight_decay
        prior = beta * decay * (m**2 + v).sum() / 2
        entropy = np.log(2 * math.pi * math.e * v).sum() / 2
        samples = (tilted.log_z + tilted.f**2 * V / 2).sum()
        return float((prior - entropy - samples - beta * energy) / (beta * self.n))

    def allowed(self, x: Array) -> bool:
        """Whether all variances are positive."""
        return bool(x[self.n : 2 * self.n].min() > 0)
