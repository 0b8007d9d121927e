r"""The energy of training pairs as a function of the activations φ of their samples.

All pairs of n samples count 1/n each. Bosons, the pairs within a class, need two moments of it;
fermions a cosine series of their energy h(D), which tells the two samples of a pair apart:

.. math:: \sum_{i<j∈c} \tfrac12(φ_i-φ_j)^2 = \tfrac12\big[n_c\sumφ^2 - (\sumφ)^2\big], \qquad
          \sum_{ij} h(φ_i-φ_j) = \sum_k c_k\, \mathrm{Re}\, S^+_k \bar S^-_k, \quad
          S^±_k = \sum_{i∈±} e^{iπkφ_i/P} .

That takes modes × n operations instead of n². |D| is at most ``span``; the cosines have the longer
half period P, and their coefficients are those of a least-squares fit on |D| ≤ span (a Fourier
extension): nothing has to be periodic, and the fit converges as fast as the corner of the hinge, a
singularity at Im D ≈ √a/2√d_F, allows. Energy and forces are those of one series, whose forces are
true to ``_ACCURACY``.
"""

from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from fermibose.cavity.instance import Pairs, Samples
from fermibose.energy import PairEnergy
from fermibose.theory import Array, Problem

# Largest error of the fermion force, in units of the largest force. It is none of a walk or a
# descent, whose energy and forces are of one series; only that series is so far from the energy.
_ACCURACY = 1e-5
_PERIOD = 1.05  # P/span: closer to 1 fits cusps at ±span badly, above it wastes modes
# Numbers of modes that are tried: each 1.3 times the last, so that few are wasted, as long as all
# fits together take about two seconds.
_FEWEST, _MOST, _GROWTH = 48, 700, 1.3
_SPAN = {"tanh": 2.0, "half_tanh": 1.0}  # largest |D| of the activations that have one
# n₊n₋ over n·modes from which on a series is fitted: gradients then take less time than those
# pair by pair, at half as many more (``worth`` of benchmarks/cavity.py).
_WORTH = 0.5


class Forces(Protocol):
    """Energy of the training pairs of an instance."""

    weight: float  # total weight of the pairs: the energy of all over the mean energy of one

    def energy_and_slope(self, phi: Array) -> tuple[Array, Array]:
        """Energy (k,) and its derivatives (samples, k) for activations phi (samples, k)."""


class Disjoint:
    """Forces of pairs that share no sample, at weight 1."""

    def __init__(self, problem: Problem, pairs: Pairs) -> None:
        self._energy, self._same = problem.pair_energy, pairs.same[:, None]
        self.weight = float(len(pairs))

    def energy_and_slope(self, phi: Array) -> tuple[Array, Array]:
        """Sum over the pairs; the first members of all come before the second ones."""
        one, other = phi.reshape(2, -1, phi.shape[1])
        D = one - other
        energy, force = self._energy.energy_and_force(D**2, self._same)
        push = 2 * D * force
        return energy.sum(0), np.concatenate([push, -push])


class Partners:
    """Forces of samples that have k partners each, at weight 1/k, pair by pair."""

    def __init__(self, problem: Problem, samples: Samples) -> None:
        assert samples.meetings is not None
        pairs, n = samples.meetings.shape[1], len(samples)
        self._energy, self.weight = problem.pair_energy, n / 2
        self._scale = self.weight / pairs
        signs = np.repeat([1.0, -1.0], pairs)
        columns = np.tile(np.arange(pairs), 2)
        self._ends = csr_matrix((signs, (samples.meetings.ravel(), columns)), shape=(n, pairs))
        one, other = samples.taught[samples.meetings]
        self._same = (one == other)[:, None]

    def energy_and_slope(self, phi: Array) -> tuple[Array, Array]:
        """Sum over the pairs that meet."""
        D = self._ends.T @ phi
        energy, force = self._energy.energy_and_force(D**2, self._same)
        return self._scale * energy.sum(0), self._scale * (self._ends @ (2 * D * force))


class Everyone:
    """Forces between all pairs, at weight 1/n."""

    def __init__(self, problem: Problem, samples: Samples) -> None:
        n = len(samples)
        self.weight = (n - 1) / 2
        self._classes = [np.flatnonzero(samples.taught == y) for y in (1, -1)]
        self._energy = problem.pair_energy
        self.series = _worthwhile_series(problem, *(c.size for c in self._classes))

    def energy_and_slope(self, phi: Array) -> tuple[Array, Array]:
        """Sum over all pairs."""
        n, copies = phi.shape
        energy, slope = np.zeros(copies), np.empty_like(phi)
        for members in self._classes:
            mine = phi[members]
            total = mine.sum(0)
            energy += (members.size * (mine**2).sum(0) - total**2) / 2
            slope[members] = members.size * mine - total
        one, other = self._classes
        fermions = self._directly if self.series is None else self.series.fermions
        for k in range(copies):
            E, pull, push = fermions(phi[one, k], phi[other, k])
            energy[k] += E
            slope[one, k] += pull
            slope[other, k] += push
        return energy / n, slope / n

    def _directly(self, one: Array, other: Array) -> tuple[float, Array, Array]:
        D = one[:, None] - other
        energy, force = self._energy.energy_and_force(D**2, False)
        force = 2 * D * force
        return float(energy.sum()), force.sum(1), -force.sum(0)


class Series:
    """h(D) = Σ_k c_k cos(πkD/P) for |D| ≤ span."""

    def __init__(self, coefficients: Array, half_period: float) -> None:
        self.coefficients = coefficients
        self._base = np.pi / half_period
        self._slopes = coefficients * self._base * np.arange(coefficients.size)

    def at(self, D: Array) -> tuple[Array, Array]:
        """The series and its derivative."""
        angles = np.outer(D, self._base * np.arange(self.coefficients.size))
        return np.cos(angles) @ self.coefficients, -np.sin(angles) @ self._slopes

    def fermions(self, one: Array, other: Array) -> tuple[float, Array, Array]:
        """Energy of all pairs of two classes, and its derivatives by each member of both."""
        waves, others = self._waves(one), self._waves(other)
        sums, other_sums = waves.sum(1), others.sum(1)
        energy = self.coefficients @ (sums * other_sums.conj()).real
        pull = -((self._slopes * other_sums.conj()) @ waves).imag
        push = -((self._slopes * sums.conj()) @ others).imag
        return float(energy), pull, push

    def _waves(self, phi: Array) -> NDArray[np.complex128]:
        """e^{iπkφ/P}, shape (modes, samples): powers, each of two smaller ones."""
        modes = self.coefficients.size
        waves = np.empty((modes, phi.size), dtype=complex)
        waves[0], waves[1] = 1, np.exp(1j * self._base * phi)
        made = 2
        while made < modes:
            more = min(made - 1, modes - made)
            np.multiply(waves[1 : more + 1], waves[made - 1], out=waves[made : made + more])
            made += more
        return waves


def _worthwhile_series(problem: Problem, one: int, other: int) -> Series | None:
    """The series of the fermion energy, if it is known and cheaper than one × other pairs."""
    span = _SPAN.get(problem.activation) if isinstance(problem.activation, str) else None
    if span is None or one * other < _WORTH * _FEWEST * (one + other):
        return None
    series = fitted_series(problem.pair_energy, span)
    if series is None or one * other < _WORTH * series.coefficients.size * (one + other):
        return None
    return series


@lru_cache(maxsize=32)
def fitted_series(energy: PairEnergy, span: float) -> Series | None:
    """The shortest of the series tried that is true to ``_ACCURACY``; None if none is."""
    modes = _FEWEST
    while modes <= _MOST:
        # Dense at the ends, where a fit of waves would else go astray.
        fitted = span * np.sin(np.linspace(0, np.pi / 2, 6 * modes))
        angles = np.outer(fitted, np.pi / (_PERIOD * span) * np.arange(modes))
        h = energy.energy(fitted**2, False)
        found = Series(np.linalg.lstsq(np.cos(angles), h, rcond=1e-13)[0], _PERIOD * span)
        D = span * np.sin(np.linspace(0, np.pi / 2, 15 * modes))
        force = 2 * D * energy.force(D**2, False)
        if np.abs(found.at(D)[1] - force).max() <= _ACCURACY * np.abs(force).max():
            return found
        modes = int(_GROWTH * modes)
    return None
