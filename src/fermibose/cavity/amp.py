r"""Approximate message passing: belief propagation with N messages instead of N·P.

For every pair μ and weight i, with x_{μi} the two inputs of pair μ at weight i,

.. math::
    V_μ = \sum_i v_i x_{μi}x_{μi}^T, \quad ω_μ = \sum_i m_i x_{μi} - V_μ f_μ^{old}, \quad
    A_i = -\sum_μ x_{μi}^T ∂f_μ\, x_{μi}, \quad B_i = \sum_μ x_{μi}^T f_μ + A_i m_i,

    v_i = 1/(βλ_w + A_i), \qquad m_i = v_i B_i .

At a fixed point the free energy of the instance, −ln ∫dw e^{−βE(w)} per weight, is

.. math::
    βf = \tfrac{βλ_w}{2} q - \tfrac{1}{2N}\sum_i \ln 2πe v_i
         - \tfrac{1}{N}\sum_μ \big[\ln Z_μ + \tfrac12 f_μ^T V_μ f_μ\big] .

The last term of ω (Onsager's) removes what pair μ itself told the weights one sweep before. Damped
means remember earlier sweeps too, so f is damped with them: without that the correction belongs to
other means than those it corrects, and the iteration neither settles nor has the right q.

All pairs of samples have equations of their own: :mod:`fermibose.cavity.exhaustive`.
"""

import math

import numpy as np

from fermibose import checks
from fermibose.cavity.channel import Moments, PairChannel
from fermibose.cavity.exhaustive import ExhaustiveAmp
from fermibose.cavity.instance import Instance, Pairs, symmetric
from fermibose.cavity.messages import (
    Estimate,
    Marginals,
    Messages,
    pass_messages,
    start_means,
    variances,
)
from fermibose.compute import on_one_thread
from fermibose.errors import InputError
from fermibose.theory import Array


class _Products:
    """Products of the inputs of a pair, made once: every sweep is six matrix-vector products."""

    def __init__(self, pairs: Pairs) -> None:
        self.x1, self.x2 = pairs.x
        self.x11, self.x12, self.x22 = self.x1**2, self.x1 * self.x2, self.x2**2

    def covariance(self, v: Array) -> Array:
        """V_μ, shape (pairs, 2, 2)."""
        return symmetric(self.x11 @ v, self.x12 @ v, self.x22 @ v)

    def fields(self, m: Array) -> Array:
        """Σ_i m_i x_{μi}, shape (pairs, 2)."""
        return np.stack([self.x1 @ m, self.x2 @ m], -1)

    def precision(self, df: Array) -> Array:
        """A_i, shape (N,)."""
        a, b, c = df[:, 0, 0], 2 * df[:, 0, 1], df[:, 1, 1]
        return np.asarray(-(a @ self.x11 + b @ self.x12 + c @ self.x22))

    def pull(self, f: Array) -> Array:
        """Σ_μ x_{μi}ᵀ f_μ, shape (N,)."""
        return np.asarray(f[:, 0] @ self.x1 + f[:, 1] @ self.x2)


class _Amp:
    """The messages m, v (N each) and f (two of every pair), in one vector."""

    memory = 20

    def __init__(self, instance: Instance, m: Array) -> None:
        problem, pairs = instance.problem, instance.train
        assert isinstance(pairs, Pairs)
        self.problem, self.same = problem, pairs.same
        self.channel, self.products = PairChannel(problem), _Products(pairs)
        self.n = m.size
        prior = np.full_like(m, 1 / (problem.beta * problem.weight_decay))
        self.start = np.concatenate([m, prior, np.zeros(2 * len(pairs))])

    def sweep(self, x: Array) -> tuple[Array, Marginals]:
        """One undamped sweep."""
        products = self.products
        old_m, old_v, old_f = x[: self.n], self._variances(x), x[2 * self.n :].reshape(-1, 2)
        V = products.covariance(old_v)
        omega = products.fields(old_m) - (V @ old_f[:, :, None])[:, :, 0]
        pair = self.channel.moments(omega, V, self.same)
        A = products.precision(pair.df)
        v = variances(self.problem, A)
        m = v * (products.pull(pair.f) + A * old_m)
        change = max(float(np.abs(m - old_m).max()), float(np.abs(v - old_v).max()))
        at = float((np.abs(V @ pair.df) ** 2).sum() / m.size)
        found = Marginals(
            m, v, change, float(pair.energy.mean()), at, self._free_energy(m, v, V, pair)
        )
        return np.concatenate([m, v, pair.f.ravel()]), found

    def _free_energy(self, m: Array, v: Array, V: Array, pair: Moments) -> float:
        beta, decay = self.problem.beta, self.problem.weight_decay
        work = np.einsum("pa,pab,pb->", pair.f, V, pair.f) / 2
        entropy = np.log(2 * math.pi * math.e * v).sum() / 2
        prior = beta * decay * (m**2 + v).sum() / 2
        return float((prior - entropy - pair.log_z.sum() - work) / (beta * self.n))

    def allowed(self, x: Array) -> bool:
        """Whether all variances are positive."""
        return bool(self._variances(x).min() > 0)

    def _variances(self, x: Array) -> Array:
        return x[self.n : 2 * self.n]


@on_one_thread
def amp(
    instance: Instance,
    *,
    start: Array | None = None,
    damping: float = 0.5,
    tol: float = 1e-6,
    max_iterations: int = 500,
    seed: int | None = None,
    show: bool | None = False,
) -> Estimate:
    """Marginals of the weights of one instance by approximate message passing.

    start: means m_i, shape (N,); by default m ~ N(0, 1), drawn from ``seed`` (the instance's own if
    None), which says nothing about the clusters. Near m = 0 fermion pairs would sit on the ridge
    D = 0, where A turns negative. Converged is an undamped change of every m_i and v_i of at most
    ``tol``. damping: the part of the old state that is kept, 0 <= damping < 1. Damped sweeps take
    turns with accelerated ones (:mod:`fermibose.cavity.messages`); damping 0 is plain AMP, which
    :func:`fermibose.cavity.messages.state_evolution` describes sweep by sweep.

    show: a progress bar; None shows it on a terminal only.

    Where it does not converge the estimate says so (``converged``, ``verdict``).
    """
    m = start_means(instance, start, seed, least=2)
    train = instance.train
    pairs = isinstance(train, Pairs)
    checks.memory(
        f"AMP keeps the products of {len(train)} {'pairs' if pairs else 'samples'} of "
        f"N = {instance.n} inputs in",
        (24.0 if pairs else 8.0) * instance.n * len(train),
        f"use a smaller n or {'alpha' if pairs else 'samples'}",
    )
    messages: Messages
    if isinstance(train, Pairs):
        messages = _Amp(instance, m)
    elif train.meetings is None:
        messages = ExhaustiveAmp(instance, m)
    else:
        raise InputError(
            "AMP is for samples that meet all others (partners=None) or for disjoint pairs "
            '(pairing="disjoint"): with a few partners each, use hmc() or ground_state()'
        )
    return pass_messages(instance, messages, damping, tol, max_iterations, show)
