"""Single instances: one measured by one method, as plain numbers; many of them in a drawing."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.transforms import ScaledTranslation

from fermibose.cavity import Estimate, amp, belief_propagation, hmc, sample_instance
from fermibose.errors import InputError
from fermibose.plotting import COLOURS
from fermibose.statistics import summary
from fermibose.theory import Problem
from fermibose_paper.job import Job, measurement

Found = dict[str, Any]  # what was measured on one instance
WALKS = {"hmc": "tempered sampling", "plain": "plain sampling from w = 1"}
# What results call the two kinds of sampling. The plain walk has been "hmc" there since the first
# rows were stored, and stays so; everywhere else hmc is tempered, and what is not is called plain.
TEMPERED, PLAIN = "tempered", "hmc"
_MESSAGES = {"amp": amp, "bp": belief_propagation}
_MARKS = {
    "bp": ("s", "boson", "BP"),
    "amp": ("o", "machine", "AMP"),
    TEMPERED: ("^", "baseline", "sampling"),
    PLAIN: ("v", "highlight", "sampling, not tempered"),
}


@measurement("instance", version=3)
def measure_instance(
    *, method: str, n: int, alpha: float, delta: float = 0.5, beta: float = 50.0, seed: int = 0
) -> Found:
    """One instance by "bp", "amp", tempered sampling ("hmc"), or "plain": HMC from w = 1."""
    point = {"alpha": alpha, "delta": delta, "beta": beta}
    if method in WALKS:
        hot = 5.0 if method == "hmc" else None
        return measure_sampling(
            n=n, seed=seed, hottest=hot, aligned=method == "plain", trajectories=1500, warm_up=700,
            **point,
        )  # fmt: skip
    sweeps = 80 if method == "bp" else 500  # of BP each costs as much as a hundred of AMP
    return measure_messages(method=method, n=n, seed=seed, max_iterations=sweeps, **point)


@measurement("outputs", version=3)
def measure_outputs(*, n: int, delta: float, seed: int = 0) -> Found:
    """Outputs of new inputs for the weights that AMP finds on one instance, α = 2.5."""
    return measure_representation(n=n, seed=seed, delta=delta)


def instance_job(method: str, n: int, seed: int, **point: float) -> Job:
    """The job of one instance at α and whatever differs from Δ = 0.5, β = 50."""
    params = {"method": method, "n": n, "delta": 0.5, "beta": 50.0} | point
    return Job(measure_instance, params, seed)


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
) -> Found:
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
) -> Found:
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
        "method": PLAIN if hottest is None else TEMPERED, "n": n, "seed": seed, **parameters,
        "hottest": hottest, "aligned": aligned, "M": found.M, "q": found.q, "Q": found.Q,
        **{f"{name}_error": error for name, error in found.errors.items()},
        "generalization_loss": found.generalization_loss, "training_loss": found.training_loss,
        "agreement_M": found.agreement["M"], "agreement_q": found.agreement["q"],
        "acceptance": found.acceptance, "exchange": found.exchange,
        "converged": found.converged, "iterations": found.iterations,
    }  # fmt: skip


def measure_representation(
    *, n: int, seed: int, method: str = "amp", patterns: int = 200, **parameters: Any
) -> Found:
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


def draw_methods(ax: Any, rows: Sequence[Found], parameter: str) -> None:
    """ε_g against ``parameter``: one marker series for every method and size, means and errors.

    A filled mark is the mean of the instances that converged; an open one, where none did, of the
    last sweeps of all. Marks of several series at one value stand side by side around it, so as not
    to hide each other.
    """
    series = sorted({(r["method"], r["n"]) for r in rows})
    measured = {(r["method"], r["n"], r[parameter]) for r in rows}
    for k, (method, n) in enumerate(series):
        mark, colour, name = _MARKS[method]
        mine = [r for r in rows if (r["method"], r["n"]) == (method, n)]
        label: str | None = f"{name}, N = {n}"
        for value in sorted({r[parameter] for r in mine}):
            here = [r for r in mine if r[parameter] == value]
            good = [r for r in here if r["converged"]]
            mean, error, _ = summary(r["generalization_loss"] for r in good or here)
            error = np.nan_to_num(error)
            face = COLOURS[colour] if good else "white"
            together = [s for s in series if (*s, value) in measured]
            points = 2.5 * (together.index((method, n)) - (len(together) - 1) / 2)
            aside = ScaledTranslation(points / 72, 0, ax.figure.dpi_scale_trans)
            ax.errorbar(
                value, mean, error, fmt=mark, ms=4 + k % 2, color=COLOURS[colour],
                mfc=face, capsize=2, label=label, transform=ax.transData + aside,
            )  # fmt: skip
            label = None


def draw_inset(box: Any, inset: Found, *, last: bool) -> None:
    """Outputs of new inputs of both classes on one line, blue y = −1 and red y = +1."""
    outputs, labels = np.array(inset["outputs"]), np.array(inset["labels"])
    for y, colour in ((-1, "#0072B2"), (1, "#D55E00")):
        mine = outputs[labels == y]
        box.plot(mine, np.full(mine.size, 0.2 * y), "|", color=colour, ms=5, mew=0.5)
    box.set(xlim=(-1.05, 1.05), ylim=(-0.6, 0.6), yticks=[])
    box.grid(False)
    box.set_xticks([-1, 0, 1] if last else [])
    box.tick_params(labelsize=7)
    settled = "" if inset["converged"] else ", last sweep"
    box.set_title(f"Δ = {inset['delta']:g}{settled}", fontsize=7, pad=1)
