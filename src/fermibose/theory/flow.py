r"""The equations of motion of M and q in one-pass SGD, with their Gaussian averages.

A step takes B fresh samples x = y m/N·1 + Δ/√N·ξ and follows the mean energy of all their pairs,

.. math:: w ← w\,(1 - ηλ_w/N) - η \sum_i g_i x_i, \qquad
          g_i = \frac{2}{B(B-1)} \sum_{j≠i} ∂_i H(z_i, z_j), \qquad z_i = w·x_i .

For N → ∞, with t = steps/N, h̄ the mean of h = ∂₁H over the partner of sample 1, and
z = y m M + Δ√q u with u ~ N(0, 1),

.. math::
    \dot M &= -2η\{m\,E[y h̄] + (M/q)\,E[(z - y m M) h̄]\} - ηλ_w M \\
    \dot q &= -4η\,E[z h̄] - 2ηλ_w q + η^2Δ^2\,𝒩, \qquad
    𝒩 = \frac{4}{B(B-1)}\{E h^2 + (B-2)\,E h̄^2\} .

The averages are trapezoidal sums over z₁ and z₂. What the fermion force is at two nodes does not
depend on M and q: it is tabulated, and an average is a product with the densities of the classes.
Every average is also taken over every second node; where that differs the grid is refined. For
functions this smooth the error of all the grid is about the square of that difference.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from fermibose.checks import number, whole
from fermibose.errors import InputError
from fermibose.theory.fixed_point import ConvergenceError
from fermibose.theory.problem import ACTIVATIONS, Array, Problem, activation_derivatives

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_TAIL = 7.5  # widths of a Gaussian that averages cover; only doubled
_FIRST = 24  # nodes on half an axis to begin with
_GROWTH = 1.4  # by which they grow where they are too few; only doubled
_RTOL, _ATOL = 1e-9, 1e-12  # of a step in time

# Chosen by reason.
# Most that half of the nodes may change an average, relative to the force. Over all of them it is
# far better: trapezoidal sums converge exponentially.
_COARSE = 1e-8
_ENTRIES = 2**23  # most entries of a table: 64 MB
_REACH = 1e6  # pre-activations beyond which q counts as infinite
_LABELS = np.array([1.0, -1.0])  # classes y, in the order of every array over them


def check_batch(problem: Problem, batch: int | None) -> int:
    """The number of samples in a batch, 2 where it is None; refuse what the problem cannot have."""
    size = 2 if batch is None else whole("batch", batch, least=2)
    if size > 2 and problem.pairing == "disjoint" and problem.rho != 0.5:
        raise InputError(
            f"samples that share a batch of {size} cannot have any fraction of boson pairs (rho = "
            f'{problem.rho:g}): use Problem(pairing="all", balance=π), whose classes make '
            "π² + (1 − π)² of them, or batch=2"
        )
    return size


def check_start(start: Any) -> tuple[float, float]:
    """M and q to begin from."""
    try:
        M, q = start
    except (TypeError, ValueError):
        raise InputError(f"start must be two numbers (M, q), got {start!r}") from None
    M = number("M of start", M)
    return M, number("q of start", q, above=0, least=M**2)


@dataclass(frozen=True)
class Population:
    """What a sample is and whom it meets. First index: assigned label; both in the order +, −."""

    joint: Array  # (2, 2): probability of assigned label and class
    same: Array  # (2,): probability that the partner has the same label

    @classmethod
    def of(cls, problem: Problem) -> "Population":
        """Of fresh samples."""
        if problem.pairing == "disjoint":
            return cls(np.eye(2) / 2, np.full(2, problem.rho))
        right, wrong = 1 - problem.mislabelled, problem.mislabelled
        first, second = problem.balance, 1 - problem.balance
        joint = np.array([[first * right, second * wrong], [first * wrong, second * right]])
        return cls(joint, joint.sum(1))

    @property
    def label(self) -> Array:
        """Probability of an assigned label, (2,)."""
        label: Array = self.joint.sum(1)
        return label


@dataclass(frozen=True)
class Axis:
    """Nodes along one pre-activation, with the activation on them."""

    z: Array  # (n,)
    weights: Array  # (n,) of the trapezoidal rule
    phi: Array
    slope: Array  # φ′

    @classmethod
    def of(cls, problem: Problem, reach: float, count: int) -> "Axis":
        """2·count + 1 nodes up to ``reach``; the farther out, the wider apart, where φ is flat."""
        flat = 1.0 if problem.activation in ACTIVATIONS else math.inf
        if math.isinf(flat):
            z = reach / count * np.arange(-count, count + 1.0)
            weights = np.full(z.size, reach / count)
        else:
            step = math.asinh(reach / flat) / count
            s = step * np.arange(-count, count + 1.0)
            z, weights = flat * np.sinh(s), flat * np.cosh(s) * step
        return cls(z, weights, *activation_derivatives(problem, z)[:2])

    def densities(self, mean: float, width: float) -> Array:
        """N(z; y·mean, width²) times the weights, for y = ±1: (2, n)."""
        v = (self.z - _LABELS[:, None] * mean) / width
        density: Array = np.exp(-(v**2) / 2) * (self.weights / (width * math.sqrt(2 * math.pi)))
        return density


@dataclass(frozen=True)
class Grid:
    """Two axes and the fermion force K = Dφ_a′(d_F − D²) on them: ∂₁H = −φ₁′K, ∂₂H = φ₂′K."""

    first: Axis
    second: Axis
    K: Array  # (first, second)
    K2: Array  # K²

    @classmethod
    def of(cls, problem: Problem, reach: float, counts: tuple[int, int]) -> "Grid":
        """Up to pre-activations of ``reach``."""
        first, second = (Axis.of(problem, reach, count) for count in counts)
        D = first.phi[:, None] - second.phi
        K = -2 * D * problem.pair_energy.force(D**2, False)
        return cls(first, second, K, K**2)


@dataclass(frozen=True)
class Averages:
    """Gaussian averages at one M and q, over a sample and its partner."""

    pull: float  # E[y h̄]
    stretch: float  # E[(z − y m M) h̄]
    h2: float  # E h²
    mean2: float  # E h̄²

    def apart(self, other: "Averages", width: float) -> float:
        """The largest difference, relative to the size of the force."""
        if not self.h2:
            return 0.0
        scale = math.sqrt(self.h2)
        return max(
            abs(self.pull - other.pull) / scale,
            abs(self.stretch - other.stretch) / (scale * width),
            abs(self.h2 - other.h2) / self.h2,
            abs(self.mean2 - other.mean2) / self.h2,
        )

    def noise(self, batch: int) -> float:
        """𝒩: mean squared force on the samples of a batch."""
        return 4 / (batch * (batch - 1)) * (self.h2 + (batch - 2) * self.mean2)


@dataclass
class Flow:
    """dM/dt and dq/dt of a problem. Grids are made as needed, and only ever refined."""

    problem: Problem
    batch: int
    tolerance: float = _COARSE  # of averages over every second node
    population: Population = field(init=False)
    _levels: dict[float, list[int]] = field(default_factory=dict, init=False)  # by reach
    _kept: tuple[Any, Grid] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.population = Population.of(self.problem)
        if self.problem.hinge is not None:
            raise InputError("a hinge of your own has no known slope: use the softness instead")
        if not self.problem.softness:
            raise InputError(
                "the averages over pairs need a smooth hinge: use softness > 0 (say 1e-3)"
            )

    def rates(self, M: float, v: float, learning_rate: float) -> tuple[float, float]:
        """Ṁ and v̇ where q = M² + v, v the variance of the weights."""
        q = M**2 + v
        if q == 0:
            return 0.0, 0.0
        a, decay = self.averages(M, q), self.problem.weight_decay
        shrink = learning_rate * (2 * a.stretch / q + decay)
        noise = (learning_rate * self.problem.delta) ** 2 * a.noise(self.batch)
        return -2 * learning_rate * self.problem.m * a.pull - shrink * M, noise - 2 * shrink * v

    def averages(self, M: float, q: float) -> Averages:
        """The averages, on a grid fine enough for them."""
        width, reach = self.problem.delta * math.sqrt(q), self._reach(M, q)
        while True:
            found, thin = self._measure(self._grid(reach), M, width)
            wrong = [found.apart(other, width) > self.tolerance for other in thin]
            if not any(wrong):
                return found
            levels = zip(self._levels[reach], wrong, strict=True)
            self._levels[reach] = [level + w for level, w in levels]

    def diffusion(self, q: float) -> float:
        r"""V = m² E(Σᵢ yᵢ gᵢ)² + Δ² 𝒩 at M = 0: N V η² is what M diffuses by in unit time.

        With k = y₁∂₁H + y₂∂₂H and its mean k̄ over the partner,
        E(Σᵢ yᵢ gᵢ)² = 2/(B(B−1)) {E k² + 2(B−2) E k̄²}, for E k = 0.
        """
        a, grid = self.averages(0.0, q), self._grid(self._reach(0.0, q))
        width, batch = self.problem.delta * math.sqrt(q), self.batch
        one, two = grid.first, grid.second
        given = self.population.joint / self.population.label[:, None]
        lean = given @ _LABELS  # E[y] of a label
        density = two.densities(0.0, width)[0]
        same, weight = self.population.same, self.population.label
        mean, steep = density @ two.phi, density @ two.slope
        curve = density @ (two.phi * two.slope)
        pushed = grid.K @ density, grid.K @ (density * two.slope)
        h = one.slope * (same[:, None] * (one.phi - mean) - (1 - same)[:, None] * pushed[0])
        back = (same * lean)[:, None] * (curve - one.phi * steep)
        back += ((1 - same) * lean[::-1])[:, None] * pushed[1]
        on = one.densities(0.0, width)[0]
        # E k̄² = E h̄² + 2 E[y h̄ e] + E e², with e the mean of y₂∂₂H over the partner
        mean2 = a.mean2 + weight @ ((2 * lean[:, None] * h * back + back**2) @ on)
        square = density @ (two.phi**2 * two.slope)
        boson = -2 * (steep * square - curve**2)
        fermion = (on * one.slope) @ (grid.K2 @ (density * two.slope))
        cross = weight @ (same * lean**2 * boson - (1 - same) * lean * lean[::-1] * fermion)
        pairs = 2 / (batch * (batch - 1)) * (2 * a.h2 + 2 * cross + 2 * (batch - 2) * mean2)
        return float(self.problem.m**2 * pairs + self.problem.delta**2 * a.noise(batch))

    def _reach(self, M: float, q: float) -> float:
        """Pre-activations that count; one of few numbers, so that grids can be kept."""
        problem = self.problem
        need = problem.m * abs(M) + _TAIL * problem.delta * math.sqrt(q)
        if not need < _REACH:
            raise ConvergenceError(
                f"the weights grow without bound (q = {q:.3g}): use a smaller learning rate or "
                "more weight decay",
                (M, q),
            )
        return float(2 ** (math.ceil(2 * math.log2(need)) / 2))

    def _grid(self, reach: float) -> Grid:
        problem, levels = self.problem, self._levels.setdefault(reach, [0, 0])
        counts = tuple(2 * round(_FIRST * _GROWTH**level / 2) for level in levels)
        if (2 * counts[0] + 1) * (2 * counts[1] + 1) > _ENTRIES:
            raise InputError(
                f"the hinge (softness = {problem.softness:g}) or the activation is too sharp for "
                "averages over pairs: use a larger softness or a smoother activation"
            )
        if self._kept is None or self._kept[0] != (reach, counts):
            self._kept = (reach, counts), Grid.of(problem, reach, (counts[0], counts[1]))
        return self._kept[1]

    def _measure(self, grid: Grid, M: float, width: float) -> tuple[Averages, list[Averages]]:
        """The averages; and with every second node of the first axis, and of the second."""
        one, two, mean = grid.first, grid.second, self.problem.m * M
        given = self.population.joint / self.population.label[:, None]
        fields = two.densities(mean, width)
        labels = given @ np.stack([fields, _thinned(fields)])  # (2 all or thin, label, second)
        partners = labels[:, ::-1].reshape(4, -1)
        K = (partners @ grid.K.T).reshape(2, 2, -1)
        K2 = (partners @ grid.K2.T).reshape(2, 2, -1)
        same, other = self.population.same[:, None], 1 - self.population.same[:, None]
        centre = (labels @ two.phi)[..., None]
        variance = ((two.phi - centre) ** 2 * labels).sum(-1)[..., None]
        away = one.phi - centre
        h = one.slope * (same * away - other * K)
        h2 = one.slope**2 * (same * (away**2 + variance) + other * K2)
        on = one.densities(mean, width)
        found = [
            self._reduce(one, mean, on, h[0], h2[0]),
            self._reduce(one, mean, _thinned(on), h[0], h2[0]),
            self._reduce(one, mean, on, h[1], h2[1]),
        ]
        return found[0], found[1:]

    def _reduce(self, one: Axis, mean: float, on: Array, h: Array, h2: Array) -> Averages:
        """Averages over the first sample: ``on`` densities (class, z), h and h² (label, z)."""
        joint = self.population.joint
        off = one.z - _LABELS[:, None] * mean
        return Averages(
            pull=float(((joint * (h @ on.T)) @ _LABELS).sum()),
            stretch=float((joint * (h @ (on * off).T)).sum()),
            h2=float((joint * (h2 @ on.T)).sum()),
            mean2=float((joint * (h**2 @ on.T)).sum()),
        )


def _thinned(density: Array) -> Array:
    """The same integral over every second node."""
    thin = 2 * density
    thin[..., 1::2] = 0
    return thin


def integrate(
    flow: Flow,
    start: tuple[float, float],
    times: Array,
    *,
    learning_rate: float,
) -> Array:
    """M and q, (2, times), from ``start`` at t = 0."""

    def step(_: float, y: Array) -> tuple[float, float]:
        return flow.rates(float(y[0]), max(float(y[1]), 0.0), learning_rate)

    M, q = start
    if times[-1] == 0:
        return np.array([[M], [q]])
    end = solve_ivp(
        step, (0.0, times[-1]), (M, q - M**2), method="LSODA", t_eval=times, rtol=_RTOL, atol=_ATOL
    )
    if not end.success:
        raise ConvergenceError(f"the equations of motion could not be followed: {end.message}")
    M_t, v_t = end.y
    return np.stack([M_t, M_t**2 + np.maximum(v_t, 0)])
