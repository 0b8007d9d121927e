r"""Where online learning rests, and the learning rate above which it rests at M = 0.

At M = 0 and a given q, both equations are linear in what is asked: M grows at the rate

.. math:: Λ = -η\,\{2m\,∂_M E[y h̄] + (2/q)\,E[(z - y m M) h̄] + λ_w\},

whose sign does not depend on η, and q rests for η = (4 E[z h̄] + 2λ_w q)/(Δ²𝒩). So the critical rate
is that second number at the q where the first changes sign.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, root

from fermibose.checks import number
from fermibose.theory.flow import Flow, check_batch
from fermibose.theory.problem import Array, Problem, check_problem
from fermibose.theory.solution import Predictions

# May be halved or doubled, and no result moves: tests/theory/test_constants.py.
_SMALL = 1e-4  # M/√q at which the growth of M is measured: it is odd in M
_WIDTHS = (1e-2, 1e2, 33)  # Δ√q in units of 1/max φ′ that are searched, and how many
_LOGITS = np.linspace(-12.0, 14.0, 14)  # of M²/q that are searched
_SAME = 1e-4  # states closer than that, relative to √q and q, are one
_STEP = 1e-4  # relative, of derivatives
_ROUGH = 1e-4  # tolerance of averages whose signs alone are asked for
_VANISHING = 1e-6  # Δ²q, in the same units, that stands for the state without weights


@dataclass(frozen=True, repr=False)
class SteadyState(Predictions):
    """A fixed point of the equations of motion, M >= 0 (its mirror image is another)."""

    problem: Problem
    learning_rate: float
    batch: int
    state: tuple[float, float]  # M, q
    eigenvalues: tuple[complex, complex]  # of the linearised equations, in units of 1/t

    @property
    def M(self) -> float:
        """Mean weight Σ w/N."""
        return self.state[0]

    @property
    def q(self) -> float:
        """Self-overlap w·w/N."""
        return self.state[1]

    @property
    def stable(self) -> bool:
        """Whether M and q return after a small change."""
        return max(complex(e).real for e in self.eigenvalues) < 0


def critical_rate(problem: Problem, *, batch: int | None = None) -> float:
    """The learning rate above which M = 0 is stable: SGD then forgets the classes.

    0 if it is stable at every rate; infinite if at none.
    """
    check_problem(problem)
    flow = Flow(problem, check_batch(problem, batch))
    logs, rough = _logs(problem), Flow(problem, flow.batch, _ROUGH)
    rates = [growth(rough, math.exp(x)) for x in logs]
    if rates[-1] > 0:
        return math.inf
    ends = [
        brentq(lambda x: growth(flow, math.exp(x)), low, high, xtol=1e-10)
        for low, high, before, after in zip(logs, logs[1:], rates, rates[1:], strict=False)
        if before > 0 >= after
    ]
    return max([0.0, *(_resting_rate(flow, math.exp(x)) for x in ends)])


def steady_states(
    problem: Problem, *, learning_rate: float, batch: int | None = None
) -> tuple[SteadyState, ...]:
    """Every fixed point with M >= 0 found for Δ√q from 0.01 to 100, by increasing q.

    The first is the one without weights, M = q = 0, which always is a fixed point.
    """
    check_problem(problem)
    rate, size = number("learning_rate", learning_rate, above=0), check_batch(problem, batch)
    flow = Flow(problem, size)
    tiny = _VANISHING / (problem.delta * problem.steepness) ** 2
    shrink = flow.rates(0.0, tiny, rate)[1] / tiny
    origin = SteadyState(problem, rate, size, (0.0, 0.0), (rate * growth(flow, tiny), shrink))
    logs = _logs(problem)
    gaps = [_resting_rate(flow, math.exp(x)) - rate for x in logs]
    found = [
        (0.0, math.exp(brentq(lambda x: _resting_rate(flow, math.exp(x)) - rate, low, high)))
        for low, high, before, after in zip(logs, logs[1:], gaps, gaps[1:], strict=False)
        if (before > 0) != (after > 0)
    ]
    found += _ordered(flow, rate, logs)
    states = [SteadyState(problem, rate, size, s, _eigenvalues(flow, rate, *s)) for s in found]
    return (origin, *sorted(states, key=lambda s: s.q))


def growth(flow: Flow, q: float) -> float:
    """Λ/η: how fast M grows from 0 at fixed q."""
    M = _SMALL * math.sqrt(q)
    return flow.rates(M, q - M**2, 1.0)[0] / M


def _logs(problem: Problem) -> Array:
    """ln q that are searched."""
    logs: Array = 2 * np.log(np.geomspace(*_WIDTHS) / (problem.delta * problem.steepness))
    return logs


def _resting_rate(flow: Flow, q: float) -> float:
    """The learning rate at which q rests at M = 0."""
    a, problem = flow.averages(0.0, q), flow.problem
    drift = 4 * a.stretch + 2 * problem.weight_decay * q
    return drift / (problem.delta**2 * a.noise(flow.batch))


def _ordered(flow: Flow, rate: float, logs: Array) -> list[tuple[float, float]]:
    """Fixed points with M > 0: from every cell of a grid in which both rates change sign."""

    def both(x: Array, flow: Flow = flow) -> Array:
        M, v = _state(*x)
        M_dot, v_dot = flow.rates(M, v, rate)
        return np.array([M_dot / M, v_dot / v]) / rate

    rough = Flow(flow.problem, flow.batch, _ROUGH)
    signs = np.array([[both(np.array([x, c]), rough) > 0 for c in _LOGITS] for x in logs])
    corners = np.stack([signs[:-1, :-1], signs[1:, :-1], signs[:-1, 1:], signs[1:, 1:]])
    mixed = (corners.any(0) & ~corners.all(0)).all(-1)
    found: list[tuple[float, float]] = []
    for i, j in np.argwhere(mixed):
        middle = np.array([logs[i] + logs[i + 1], _LOGITS[j] + _LOGITS[j + 1]]) / 2
        end = root(both, middle, tol=1e-10)
        M, v = _state(*end.x)
        q = M**2 + v
        known = any(abs(M - m) < _SAME * math.sqrt(q) and abs(q - p) < _SAME * q for m, p in found)
        if end.success and not known and _SMALL * math.sqrt(q) < M:
            found.append((M, q))
    return found


def _state(log_q: float, logit: float) -> tuple[float, float]:
    """M and v = q − M² of ln q and the logit of M²/q."""
    q, share = math.exp(log_q), 1 / (1 + math.exp(-logit))
    return math.sqrt(q * share), q / (1 + math.exp(logit))


def _eigenvalues(flow: Flow, rate: float, M: float, q: float) -> tuple[complex, complex]:
    """Of the derivatives of Ṁ and v̇ by M and v."""
    v = q - M**2
    steps = np.diag([_STEP * math.sqrt(q), _STEP * v])
    columns = []
    for step in steps:
        up, down = (np.array(flow.rates(M + s * step[0], v + s * step[1], rate)) for s in (1, -1))
        columns.append((up - down) / (2 * step.sum()))
    first, second = np.linalg.eigvals(np.array(columns).T)
    return complex(first), complex(second)
