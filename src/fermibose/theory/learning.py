r"""Learning curves of one unit on data whose classes have given means and covariances.

n samples x of two classes, x|c ~ N(μ_c, Σ_c), a share π_c of them in class c, all their pairs:

.. math:: E(w) = \tfrac1n \sum_{i<j} H_{ij} + \tfrac{λ_w}2 |w|^2, \qquad z_i = w·x_i .

The minimum of E solves λ_w w + Σ_i h′(z_i) x_i = 0. Left out of it, sample i would have the field
ω = w·x_i, Gaussian with mean m_c and variance q_c; taking part, it moves w by −A⁻¹x_i g with the
Hessian A of E, so that z = ω − χ_c g: the proximal map of :mod:`fermibose.theory.crowd`, c = χ_c.

.. math::
    A = λ_w 1 + \sum_c \hatχ_c Σ_c, \quad \hatχ_c = n_c E[v g]/\sqrt{q_c}, \quad
    \bar w = -A^{-1} \sum_c n_c E_c[g]\, μ_c, \quad n_c = π_c n

    m_c = μ_c·\bar w, \quad χ_c = \mathrm{tr}\, Σ_c A^{-1}, \quad
    q_c = \bar w^T Σ_c \bar w + \sum_d n_d E_d[g^2]\, \mathrm{tr}(Σ_c A^{-1} Σ_d A^{-1})

New data have z ~ N(m_c, q_c). The replica equations of two round clusters are the case Σ_c = Δ²/N.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from fermibose.checks import number, whole
from fermibose.errors import InputError
from fermibose.theory.crowd import Crowd, Group, gather
from fermibose.theory.fixed_point import ConvergenceError, iterate
from fermibose.theory.problem import Array, Problem, check_problem

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_FIRST = 0.05  # E g′ of a cold start
_APART = (1.0, 4.0)  # means of z in a cold start, in units of 1/max φ′: close, and saturated
_ALIKE = 1e-5  # relative difference of energies up to which two states are one

# Chosen by reason.
_GROWTH = 1e-6  # of the stability eigenvalue with β, from which forces that jump count: replica.py
_ITERATIONS = 300  # at most; a state that needs more is not returned
_V = np.linspace(-9.0, 9.0, 1801)  # a standard normal variable; trapezoidal sums converge at once
_P = np.exp(-(_V**2) / 2) / np.exp(-(_V**2) / 2).sum()


@dataclass(frozen=True, eq=False)
class Prediction:
    """What the theory says of a unit trained on all pairs of n samples."""

    problem: Problem
    n: int  # training samples
    shares: Array  # (2,), of the classes
    means: Array  # m_c of z = w·x for new data, (2,); that of the second class is the larger
    variances: Array  # q_c, (2,)
    stiffness: Array  # χ_c, (2,)
    norm2: float  # |w|²
    crowd: Crowd  # the training samples
    at_eigenvalue: float  # replica symmetry is stable below 1; infinite where forces jump
    residual: float  # largest undamped change of m_c/√q_c, q_c/q_c and χ_c/χ_c
    iterations: int
    rivals: tuple["Prediction", ...] = ()  # other states, of higher energy

    @property
    def accuracy(self) -> float:
        """Fraction of new data on the right side of z = 0: the second class above, the first below.

        Of an odd φ the sign of w is a symmetry, and chosen so that this is the better side.
        """
        right = ndtr(np.array([-1.0, 1.0]) * self.means / np.sqrt(self.variances))
        return float(self.shares @ right)

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        """E φ and E φ² of new data of either class."""
        phi = self.problem.phi(self.means[:, None] + np.sqrt(self.variances)[:, None] * _V)
        return phi @ _P, phi**2 @ _P

    @property
    def fermion_distance(self) -> float:
        """Mean D² of new pairs of different classes."""
        first, second = self._moments
        return float(second.sum() - 2 * first[0] * first[1])

    @property
    def boson_distance(self) -> float:
        """Mean D² of new pairs of one class."""
        first, second = self._moments
        weight = self.shares**2 / (self.shares**2).sum()
        return float(weight @ (2 * (second - first**2)))

    @property
    def training_energy(self) -> float:
        """Mean H of a pair of training samples."""
        return self.crowd.pair_energy

    @property
    def energy(self) -> float:
        """E of the minimum: n/2 times the mean H, and the decay."""
        decay = self.problem.weight_decay * self.norm2 / 2
        return self.n * self.training_energy / 2 + decay


@dataclass(frozen=True, eq=False)
class DataTheory:
    """One unit on two classes of given means and covariances, at zero temperature.

    Of the problem, the energy of a pair and the weight decay count; its clusters are replaced.
    """

    problem: Problem
    shares: Array  # π_c: (2,), adding up to 1
    means: Array  # μ_c: (2, d)
    covariances: Array  # Σ_c: (2, d, d)
    centre: Array | None = None  # (pixels,), what was subtracted from images
    axes: Array | None = None  # (pixels, d), what they were projected on

    def __post_init__(self) -> None:
        check_problem(self.problem)
        if not self.problem.zero_temperature:
            raise InputError("the theory of given data is at zero temperature: use beta=math.inf")
        if not self.problem.odd:
            raise InputError(
                "the theory of given data needs an odd activation (tanh): with another the sign of "
                "the weights matters, and it is taken for a symmetry"
            )
        for name in ("shares", "means", "covariances"):
            object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        d = self.means.shape[-1] if self.means.ndim else 0
        if self.means.shape != (2, d) or self.covariances.shape != (2, d, d):
            raise InputError(
                f"means of shape {self.means.shape} and covariances of {self.covariances.shape}: "
                "give (2, d) and (2, d, d), one of each class"
            )
        if (
            self.shares.shape != (2,)
            or not np.isclose(self.shares.sum(), 1)
            or min(self.shares) <= 0
        ):
            raise InputError(f"shares must be two positive numbers of sum 1, got {self.shares}")

    def project(self, x: Any) -> Array:
        """Images as the theory sees them: centred, on the principal axes."""
        x = np.asarray(x, dtype=np.float64)
        centred: Array = x if self.centre is None else x - self.centre
        return centred if self.axes is None else centred @ self.axes

    def curve(self, sizes: Iterable[int], *, tol: float = 1e-7) -> tuple[Prediction, ...]:
        """Predictions along sizes, each also tried from the one before."""
        found: list[Prediction] = []
        for n in sizes:
            found.append(self.predict(n, start=found[-1] if found else None, tol=tol))
        return tuple(found)

    def predict(self, n: int, *, start: Prediction | None = None, tol: float = 1e-7) -> Prediction:
        """The state of lowest energy for n training samples.

        There can be two: fermions just d_F apart, and all samples where φ saturates, which brings
        bosons together too. The equations are iterated from either, and from ``start``.
        """
        n = whole("n", n, least=2)
        tol = number("tol", tol, above=0, below=1)
        found: list[Prediction] = []
        failed: list[ConvergenceError] = []
        for begin in _APART if start is None else (*_APART, start):
            try:
                found.append(_solved(self, n, begin, tol))
            except ConvergenceError as error:
                failed.append(error)
        if not found:
            raise failed[-1]
        best = min(found, key=lambda state: state.energy)
        rivals = [p for p in found if p.energy > best.energy * (1 + _ALIKE)]
        return replace(best, rivals=tuple(rivals))


def _numbers(name: str, values: Any) -> Array:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.array(math.nan)
    if not np.all(np.isfinite(array)):
        raise InputError(f"{name} must be finite numbers, got {values!r}")
    return array


def _solved(theory: DataTheory, n: int, begin: Prediction | float, tol: float) -> Prediction:
    """The equations iterated from a state, or from means of z so far apart."""
    equations = _Equations(theory, n, begin.crowd if isinstance(begin, Prediction) else None)
    x = _vector(begin) if isinstance(begin, Prediction) else equations.cold(begin)
    point = iterate(equations.step, x, tol=tol, max_iterations=_ITERATIONS, accelerate_below=0.3)
    if not point.converged:
        raise ConvergenceError(
            f"the equations of n = {n} were not solved: a residual of {point.residual:.1e} "
            f"after {point.iterations} steps; start from a neighbouring n, or decay faster",
            point.x,
        )
    return equations.prediction(point.x, point.residual, point.iterations)


def _vector(state: Prediction) -> Array:
    return np.concatenate([state.means, np.log(state.variances), np.log(state.stiffness)])


class _Response(NamedTuple):
    """How the weights answer forces."""

    A: Array
    noise: tuple[Array, Array]  # A⁻¹ Σ_c
    signal: Array  # A⁻¹ μ_c, (d, 2)

    def weights(self, force: Array) -> Array:
        """w̄ = −A⁻¹ Σ_c n_c E_c[g] μ_c."""
        return -self.signal @ force


class _Update(NamedTuple):
    """What the plain equations make of a state."""

    m: Array
    q: Array
    chi: Array
    norm2: float
    trace: Array  # tr Σ_c A⁻¹ Σ_d A⁻¹


class _Equations:
    """One iteration of the equations in (m_c, ln q_c, ln χ_c)."""

    def __init__(self, theory: DataTheory, n: int, crowd: Crowd | None) -> None:
        self._theory, self._n, self._crowd = theory, n, crowd

    def cold(self, apart: float) -> Array:
        """All samples of a class feel one force, which brings the means of z apart."""
        theory = self._theory
        response = self._respond(np.full(2, _FIRST))
        assert response is not None
        pull = np.array([1.0, -1.0])  # n_c E[g]
        m = theory.means @ response.weights(pull)
        pull *= apart / theory.problem.steepness / abs(m[1] - m[0])
        new = self._new(response, pull, pull**2 / (self._n * theory.shares))
        return np.concatenate([new.m, np.log(new.q), np.log(new.chi)])

    def _hessian(self, stiffness: Array) -> Array:
        """A = λ_w 1 + Σ n_c E[g′] Σ_c."""
        theory = self._theory
        A = np.tensordot(self._n * theory.shares * stiffness, theory.covariances, 1)
        A[np.diag_indices_from(A)] += theory.problem.weight_decay
        return A

    def gather(self, x: Array) -> Crowd:
        """The training samples in given fields."""
        mean, width, c = x[:2], np.exp(x[2:4] / 2), np.exp(x[4:])
        groups = [
            Group(float(self._theory.shares[k]), k, float(mean[k]), float(width[k]), float(c[k]))
            for k in (0, 1)
        ]
        self._crowd = gather(self._theory.problem, groups, start=self._crowd)
        return self._crowd

    def step(self, x: Array) -> tuple[Array, float]:
        """The plain equations, and the undamped change."""
        new = self.update(x)
        if new is None:
            # The pairs push the weights apart faster than decay holds them: let them grow.
            return x + np.array([*(0.3 * np.sign(x[:2])), 0.4, 0.4, 0.4, 0.4]), math.inf
        residual = max(
            float(np.abs((new.m - x[:2]) / np.sqrt(new.q)).max()),
            float(np.abs(np.exp(x[2:4]) / new.q - 1).max()),
            float(np.abs(np.exp(x[4:]) / new.chi - 1).max()),
        )
        return np.concatenate([new.m, np.log(new.q), np.log(new.chi)]), residual

    def update(self, x: Array) -> "_Update | None":
        """What the plain equations make of a state; None if A is not positive."""
        crowd, n = self.gather(x), self._n * self._theory.shares
        slope, force, force2 = (
            np.array([getattr(a, name) for a in crowd.averages])
            for name in ("slope", "force", "force2")
        )
        response = self._respond(slope / np.exp(x[2:4] / 2))
        return None if response is None else self._new(response, n * force, n * force2)

    def _respond(self, stiffness: Array) -> "_Response | None":
        theory = self._theory
        A = self._hessian(stiffness)
        try:
            np.linalg.cholesky(A)
        except np.linalg.LinAlgError:
            return None
        d = A.shape[0]
        both = np.linalg.solve(A, np.concatenate([*theory.covariances, theory.means.T], axis=1))
        return _Response(A, (both[:, :d], both[:, d : 2 * d]), both[:, 2 * d :])

    def _new(self, response: "_Response", force: Array, force2: Array) -> "_Update":
        """m_c, q_c, χ_c and |w|² of forces n_c E[g] and n_c E[g²]."""
        w, R = response.weights(force), response.noise
        trace = np.array([[float(np.sum(a * b.T)) for b in R] for a in R])
        fluctuation = [float(np.trace(np.linalg.solve(response.A, r))) for r in R]
        return _Update(
            m=self._theory.means @ w,
            q=np.array([w @ S @ w for S in self._theory.covariances]) + trace @ force2,
            chi=np.array([float(np.trace(r)) for r in R]),
            norm2=float(w @ w + fluctuation @ force2),
            trace=trace,
        )

    def prediction(self, x: Array, residual: float, iterations: int) -> Prediction:
        """Everything that is known at a solution."""
        theory, found, crowd = self._theory, self.update(x), self._crowd
        assert found is not None
        assert crowd is not None
        n = self._n * theory.shares
        bend2, growth = (
            np.array([getattr(a, name) for a in crowd.averages])
            for name in ("curvature2", "growth")
        )

        def largest(strength: Array) -> float:
            return float(np.abs(np.linalg.eigvals(found.trace * (n * strength))).max())

        return Prediction(
            problem=theory.problem,
            n=self._n,
            shares=theory.shares,
            means=x[:2],
            variances=np.exp(x[2:4]),
            stiffness=np.exp(x[4:]),
            norm2=found.norm2,
            crowd=crowd,
            at_eigenvalue=math.inf if largest(growth) > _GROWTH else largest(bend2),
            residual=residual,
            iterations=iterations,
        )
