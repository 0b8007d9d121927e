r"""How long SGD with N weights takes to leave M = 0, where random weights begin.

M begins at N(0, q/N) and is driven out of 0 by what the finite N leaves of the noise. While it is
small, dM = ΛM dt + η√(V/N) dW with Λ and V of the q that M = 0 has at that time, so

.. math:: M(t) → g\sqrt{S/N}\;e^{∫_0^t Λ}, \qquad g ∼ N(0, 1), \qquad
          S = q_0 + ∫_0^∞ η^2 V e^{-2∫_0^t Λ} dt :

all noise is as if it had been there from the beginning. From |g|√(S/N) on, the equations of motion
lead to the threshold in a time T(|g|), and chance enters through g alone.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp
from scipy.interpolate import PchipInterpolator
from scipy.special import erfc, erfcinv

from fermibose.checks import number, whole
from fermibose.errors import InputError
from fermibose.theory.fixed_point import ConvergenceError
from fermibose.theory.flow import Flow, check_batch
from fermibose.theory.problem import Array, Problem, check_problem
from fermibose.theory.steady import growth, steady_states

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_FORGOTTEN = 16.0  # ∫Λ after which noise no longer counts: e^{−32}
_RESTING = 1e-7  # change of q, relative and in units of 1/η, that is none
_PATIENCE = 1e7  # ηt beyond which nothing is waited for

# Of ln |g|: one g in 10⁴ is smaller, two in 10⁹ are larger, and times are smooth between them.
_NODES = np.log(np.geomspace(1e-4, 6.0, 18))


@dataclass(frozen=True, eq=False)
class EscapeTime:
    """Distribution of the time t = steps/N at which |M| first reaches the threshold."""

    problem: Problem
    learning_rate: float
    batch: int
    n: int  # weights N
    q: float  # self-overlap of the random weights at t = 0
    threshold: float  # of |M|
    S: float  # N × variance of the M that all noise together amounts to
    _logs: Array = field(repr=False)  # ln |g|, increasing
    _times: Array = field(repr=False)  # decreasing

    @property
    def median(self) -> float:
        """The time that half of all runs need."""
        return float(self.quantile(0.5))

    def quantile(self, p: ArrayLike) -> Array:
        """The time within which a fraction p of all runs escapes, 0 < p < 1."""
        share = np.asarray(p, dtype=float)
        if not np.all((share > 0) & (share < 1)):
            raise InputError(f"a quantile is asked for fractions between 0 and 1, got {p!r}")
        return self._time(np.log(math.sqrt(2) * erfcinv(share)))

    def cdf(self, t: ArrayLike) -> Array:
        """The fraction of runs that have escaped by time t."""
        times = np.asarray(t, dtype=float)
        inverse = PchipInterpolator(self._times[::-1], self._logs[::-1])
        inside = np.clip(times, self._times[-1], self._times[0])
        logs = inverse(inside) - (times - inside) * self._slope * (times > inside)
        escaped: Array = np.where(times < self._times[-1], 0.0, erfc(np.exp(logs) / math.sqrt(2)))
        return escaped

    def sample(self, size: int, *, seed: int = 0) -> Array:
        """Times of ``size`` runs."""
        rng = np.random.default_rng(whole("seed", seed, least=0))
        return self._time(np.log(np.abs(rng.standard_normal(whole("size", size, least=1)))))

    @property
    def _slope(self) -> float:
        """−d ln|g|/dt of the smallest |g|: there it is the growth rate at rest."""
        return float((self._logs[1] - self._logs[0]) / (self._times[0] - self._times[1]))

    def _time(self, logs: Array) -> Array:
        inside = np.clip(logs, self._logs[0], self._logs[-1])
        late = np.minimum(logs - inside, 0) / self._slope
        times: Array = PchipInterpolator(self._logs, self._times)(inside) - late
        return times


def escape_time(
    problem: Problem,
    *,
    learning_rate: float,
    n: int,
    batch: int | None = None,
    q: float = 1.0,
    threshold: float | None = None,
) -> EscapeTime:
    """When N = ``n`` weights, N(0, q) at random, reach |M| = ``threshold`` for the first time.

    threshold: half of the M that the equations of motion end at, by default. Arguments else as of
    :func:`fermibose.theory.dynamics.evolve`. For large N: the noise of a step must be small beside
    the threshold.
    """
    check_problem(problem)
    rate, size = number("learning_rate", learning_rate, above=0), check_batch(problem, batch)
    whole("n", n, least=2)
    q = number("q", q, above=0)
    flow = Flow(problem, size)
    S = _collected_noise(flow, rate, q)
    if threshold is None:
        states = steady_states(problem, learning_rate=rate, batch=size)
        ends = [s.M for s in states if s.stable and s.M > 0]
        if not ends:
            raise ConvergenceError("no stable state with M > 0 was found: give a threshold")
        threshold = min(ends) / 2
    threshold = number("threshold", threshold, above=0)
    starts = np.exp(_NODES) * math.sqrt(S / n)
    below = starts**2 < min(threshold**2, q)
    if below.sum() < 2:
        raise InputError(
            f"n = {n} is too small: the noise alone takes |M| to {threshold:g}; use a larger n or "
            "threshold"
        )
    times = np.array([_arrival(flow, rate, M, q, threshold) for M in starts[below]])
    return EscapeTime(problem, rate, size, n, q, threshold, S, _NODES[below], times)


def _collected_noise(flow: Flow, rate: float, q: float) -> float:
    """S: follows q at M = 0 until noise no longer counts."""

    def step(_: float, y: Array) -> tuple[float, float, float]:
        v = max(float(y[0]), 1e-300)
        noise = rate**2 * flow.diffusion(v) * math.exp(-2 * y[1])
        return flow.rates(0.0, v, rate)[1], rate * growth(flow, v), noise

    def forgotten(_: float, y: Array) -> float:
        return float(y[1]) - _FORGOTTEN

    def resting(t: float, y: Array) -> float:
        """Below 0 where q rests and M does not grow."""
        v_dot, grown, _ = step(t, y)
        return max(abs(v_dot) / (rate * float(y[0])) - _RESTING, grown)

    forgotten.terminal = resting.terminal = True  # type: ignore[attr-defined]
    end = solve_ivp(
        step, (0.0, _PATIENCE / rate), (q, 0.0, 0.0), method="LSODA", events=(forgotten, resting),
        rtol=1e-7, atol=1e-10,
    )  # fmt: skip
    if not end.t_events[0].size:
        raise InputError(
            f"at learning rate {rate:g} M = 0 is stable: nothing escapes; use one below "
            "critical_rate(problem)"
        )
    return q + float(end.y[2, -1])


def _arrival(flow: Flow, rate: float, M: float, q: float, threshold: float) -> float:
    """When the equations of motion lead from M to the threshold."""

    def step(_: float, y: Array) -> tuple[float, float]:
        return flow.rates(float(y[0]), max(float(y[1]), 0.0), rate)

    def reached(_: float, y: Array) -> float:
        return float(y[0]) - threshold

    def resting(t: float, y: Array) -> float:
        M_dot, v_dot = step(t, y)
        change = max(abs(M_dot / y[0]), abs(v_dot) / (y[0] ** 2 + y[1]))
        return float(change) / rate - _RESTING

    reached.terminal = resting.terminal = True  # type: ignore[attr-defined]
    end = solve_ivp(
        step, (0.0, _PATIENCE / rate), (M, q - M**2), method="LSODA", events=(reached, resting),
        rtol=1e-7, atol=1e-10,
    )  # fmt: skip
    if not end.t_events[0].size:
        raise InputError(
            f"M does not reach the threshold {threshold:g}: the equations of motion end at "
            f"{end.y[0, -1]:.4g}, use less"
        )
    return float(end.t_events[0][0])
