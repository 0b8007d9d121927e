"""One measurement on one instance, as plain numbers: what a job runner calls."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fermibose.cavity.amp import amp
from fermibose.cavity.bp import belief_propagation
from fermibose.cavity.estimate import Estimate
from fermibose.cavity.instance import sample_instance
from fermibose.cavity.sampling import hmc
from fermibose.errors import InputError
from fermibose.theory import Problem

Row = dict[str, Any]
_MESSAGES = {"amp": amp, "bp": belief_propagation}


def _method(name: str) -> Callable[..., Estimate]:
    if name not in _MESSAGES:
        raise InputError(f'method must be "amp" or "bp", got {name!r}')
    return _MESSAGES[name]


def measure_messages(
    *,
    method: str,
    n: int,
    seed: int,
    damping: float = 0.5,
    tol: float = 1e-6,
    max_iterations: int = 500,
    **parameters: Any,
) -> Row:
    """Message passing ("amp" or "bp") on one instance of Problem(\\*\\*parameters).

    Where it does not converge, M, q, Q and the losses are those of the last sweep, and
    ``converged`` is False; where it diverged there is no test loss.
    """
    algorithm = _method(method)
    instance = sample_instance(Problem(**parameters), n, seed=seed)
    found: Estimate = algorithm(instance, damping=damping, tol=tol, max_iterations=max_iterations)
    return {
        "method": method, "n": n, "seed": seed, **parameters,
        "M": abs(found.M), "q": found.q, "Q": found.Q,
        "generalization_loss": found.generalization_loss,
        "training_loss": found.training_loss,
        "test_loss": None if found.diverged else found.test_loss,
        "at_eigenvalue": found.at_eigenvalue, "converged": found.converged,
        "iterations": found.iterations, "residual": found.residual,
    }  # fmt: skip


def measure_sampling(
    *,
    n: int,
    seed: int,
    hottest: float | None = 5.0,
    aligned: bool = False,
    trajectories: int = 2000,
    warm_up: int = 1000,
    **parameters: Any,
) -> Row:
    """Hamiltonian Monte Carlo on one instance, tempered down to β = hottest unless that is None.

    aligned: start from w = 1, where every fermion pair has the sign of its labels.
    """
    instance = sample_instance(Problem(**parameters), n, seed=seed)
    found = hmc(
        instance,
        hottest=hottest,
        start=np.ones(n) if aligned else None,
        trajectories=trajectories,
        warm_up=warm_up,
    )
    return {
        "method": "hmc" if hottest is None else "tempered", "n": n, "seed": seed, **parameters,
        "hottest": hottest, "aligned": aligned, "M": found.M, "q": found.q, "Q": found.Q,
        **{f"{name}_error": error for name, error in found.errors.items()},
        "generalization_loss": found.generalization_loss, "training_loss": found.training_loss,
        "agreement_M": found.agreement["M"], "agreement_q": found.agreement["q"],
        "acceptance": found.acceptance, "exchange": found.exchange,
        "converged": found.converged, "iterations": found.iterations,
    }  # fmt: skip


def measure_representation(
    *, n: int, seed: int, method: str = "amp", patterns: int = 200, **parameters: Any
) -> Row:
    """Outputs φ(w·x) of new patterns for the means of one instance: the insets of Fig. 2(b)."""
    problem = Problem(**parameters)
    instance = sample_instance(problem, n, seed=seed, test_pairs=(patterns + 1) // 2)
    found: Estimate = _method(method)(instance)
    test = instance.test
    outputs = problem.phi(test.fields(found.mean) * (1 if found.M >= 0 else -1))
    return {
        "method": method, "n": n, "seed": seed, **parameters, "converged": found.converged,
        "outputs": outputs.ravel().tolist(), "labels": test.y.ravel().tolist(),
    }  # fmt: skip
