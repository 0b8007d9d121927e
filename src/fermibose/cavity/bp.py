r"""Belief propagation: a Gaussian message from every weight to every pair, and back.

.. math::
    ω_{μ→i} = \sum_{j≠i} m_{j→μ}\, x_{μj}, \quad
    V_{μ→i} = \sum_{j≠i} v_{j→μ}\, x_{μj}x_{μj}^T, \quad
    B_{μ→i} = x_{μi}^T f, \quad A_{μ→i} = -x_{μi}^T\, ∂f\, x_{μi},

    v_{i→μ} = \frac{1}{βλ_w + \sum_{ν≠μ} A_{ν→i}}, \qquad m_{i→μ} = v_{i→μ} \sum_{ν≠μ} B_{ν→i},

with f and ∂f of the channel at (ω_{μ→i}, V_{μ→i}). Every sum leaves the receiver out. A sweep takes
N·P two-dimensional integrals; :mod:`fermibose.cavity.amp` takes P.

At a fixed point the free energy of the instance, −ln ∫dw e^{−βE(w)}, is that of the weights and the
pairs less that of the messages between them, which both have counted:

.. math::
    -βNf = \sum_μ \ln Z_μ + \sum_i \Big[\tfrac12\ln 2πv_i + \frac{m_i^2}{2v_i}\Big]
      - \sum_{iμ} \Big[\tfrac12\ln\frac{v_i}{v_{i→μ}} + \frac{m_i^2}{2v_i}
      - \frac{m_{i→μ}^2}{2v_{i→μ}}\Big] .
"""

import math

import numpy as np
from numpy.typing import NDArray

from fermibose import checks
from fermibose.cavity.channel import PairChannel
from fermibose.cavity.instance import Instance, Pairs, symmetric
from fermibose.cavity.messages import Estimate, Marginals, pass_messages, start_means, variances
from fermibose.compute import on_one_thread
from fermibose.errors import InputError
from fermibose.theory import Array

_BLOCK = 20_000  # messages integrated at a time: a bound of memory, 12 MB with ``_PER_INTEGRAL``
_MEMORY = (
    6  # sweeps that acceleration remembers; 4 to 10 do alike: ``memories`` of benchmarks/cavity.py
)
# Bytes: the inputs, A, B, m, v before and after, their step; of each sweep remembered a move and an
# effect, each thrice while the next step is looked for
_PER_MESSAGE = 8 * (2 + 2 + 2 * 3 + 2 * 6 * _MEMORY)
# Bytes at work for each message of a block, and of the table of energies and a chunk of nodes: what
# is used must be between 0.3 of the sum and all of it (tests/cavity/test_messages.py).
_PER_INTEGRAL = 600
_LATTICE = 8e6


Indices = NDArray[np.intp]


class _Bp:
    """The messages m and v from every weight to every pair, in one vector."""

    memory = _MEMORY

    def __init__(self, instance: Instance, m: Array) -> None:
        problem, pairs = instance.problem, instance.train
        assert isinstance(pairs, Pairs)
        self.problem, self.train = problem, pairs
        self.channel = PairChannel(problem)
        self.shape = (2, len(pairs), instance.n)
        prior = np.full_like(m, 1 / (problem.beta * problem.weight_decay))
        self.start = np.concatenate([np.tile(m, self.shape[1]), np.tile(prior, self.shape[1])])

    def sweep(self, x: Array) -> tuple[Array, Marginals]:
        """One undamped sweep."""
        old_m, old_v = x.reshape(self.shape)
        A, B = np.empty_like(old_m), np.empty_like(old_m)
        pairs, n = old_m.shape
        energy = at = log_z = 0.0
        for block in np.array_split(np.arange(pairs), max(1, round(pairs * n / _BLOCK))):
            A[block], B[block], sums = self._to_weights(block, old_m[block], old_v[block])
            energy, at, log_z = energy + sums[0] / pairs, at + sums[1] / n, log_z + sums[2]
        all_A, all_B = A.sum(0), B.sum(0)
        variance = variances(self.problem, all_A)
        mean = variance * all_B
        v = variances(self.problem, all_A - A)
        new = np.concatenate([(v * (all_B - B)).ravel(), v.ravel()])
        change = float(np.abs(new - x).max())
        weights = (np.log(variance) + mean**2 / variance).sum() / 2
        messages = (np.log(old_v) + old_m**2 / old_v).sum() / 2
        log_z += n / 2 * math.log(2 * math.pi) + weights - (pairs * weights - messages)
        free_energy = -float(log_z) / (self.problem.beta * n)
        return new, Marginals(mean, variance, change, energy, at, free_energy)

    def allowed(self, x: Array) -> bool:
        """Whether all variances are positive."""
        return bool(x.reshape(self.shape)[1].min() > 0)

    def _to_weights(
        self, block: Indices, m: Array, v: Array
    ) -> tuple[Array, Array, tuple[float, ...]]:
        """A and B from some pairs to all weights; of the pairs energy, part of AT and ln Z."""
        x1, x2 = self.train.x[:, block]
        same = self.train.same[block]
        mean = np.stack([m * x1, m * x2], -1)
        covariance = symmetric(v * x1**2, v * x1 * x2, v * x2**2)
        omega, V = mean.sum(1), covariance.sum(1)
        complete = self.channel.moments(omega, V, same)
        shape = m.shape
        cavity = self.channel.moments(
            (omega[:, None] - mean).reshape(-1, 2),
            (V[:, None] - covariance).reshape(-1, 2, 2),
            np.repeat(same, shape[1]),
        )
        f, df = cavity.f.reshape(*shape, 2), cavity.df.reshape(*shape, 2, 2)
        A = -(x1**2 * df[..., 0, 0] + 2 * x1 * x2 * df[..., 0, 1] + x2**2 * df[..., 1, 1])
        sums = (complete.energy.sum(), ((V @ complete.df) ** 2).sum(), complete.log_z.sum())
        return A, x1 * f[..., 0] + x2 * f[..., 1], tuple(map(float, sums))


@on_one_thread
def belief_propagation(
    instance: Instance,
    *,
    start: Array | None = None,
    damping: float = 0.5,
    tol: float = 1e-6,
    max_iterations: int = 500,
    seed: int | None = None,
    max_memory: float | None = None,
    show: bool | None = False,
) -> Estimate:
    """Marginals of the weights of one instance by belief propagation.

    Arguments as in :func:`fermibose.cavity.amp.amp`; the change of a sweep is that of the messages
    m_{i→μ} and v_{i→μ}. max_memory: bytes it may use, by default what the machine has free. More is
    refused before anything is allocated.
    """
    # A pair's fields must vary without the weight left out, too.
    m = start_means(instance, start, seed, least=3)
    if not isinstance(instance.train, Pairs):
        raise InputError(
            "belief propagation is for disjoint pairs: amp() is the algorithm for all pairs of "
            "samples"
        )
    pairs = len(instance.train)
    checks.memory(
        f"belief propagation with N = {instance.n} and P = {pairs} keeps {instance.n * pairs} "
        "messages in",
        bp_memory(instance.n, pairs),
        "use amp(), which needs N messages, or a smaller instance",
        free=None if max_memory is None else checks.number("max_memory", max_memory, above=0),
    )
    return pass_messages(instance, _Bp(instance, m), damping, tol, max_iterations, show)


def bp_memory(n: int, pairs: int) -> float:
    """Bytes that belief propagation needs beside the instance."""
    messages = float(n) * pairs
    return _PER_MESSAGE * messages + _PER_INTEGRAL * min(messages, max(_BLOCK, n)) + _LATTICE
