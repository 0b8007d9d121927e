"""Single instances against the theory: how AMP approaches it with N, and what sampling says."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import f as fisher
from scipy.stats import norm
from scipy.stats import t as student

from fermibose.cavity import Estimate, amp, belief_propagation, hmc, sample_instance
from fermibose.checks import choice
from fermibose.errors import InputError
from fermibose.plotting import COLOURS, canvas
from fermibose.statistics import summary
from fermibose.theory import Problem, Solution, solve
from fermibose_paper.job import Job, measurement
from fermibose_paper.page import Table
from fermibose_paper.scale import Scale, unique
from fermibose_paper.series import Finished, Floats, finished, legend_below
from fermibose_paper.store import Row
from fermibose_paper.verdict import Verdict, number

Found = dict[str, Any]  # what was measured on one instance
WALKS = {"tempered": "tempered sampling", "plain": "plain sampling from w = 1"}
_MESSAGES = {"amp": amp, "bp": belief_propagation}


@measurement("instance", version=4)
def measure_instance(
    *, method: str, n: int, alpha: float, delta: float = 0.5, beta: float = 50.0, seed: int = 0
) -> Found:
    """One instance by message passing, "amp" or "bp"."""
    point = {"alpha": alpha, "delta": delta, "beta": beta}
    sweeps = 80 if method == "bp" else 500  # of BP each costs as much as a hundred of AMP
    return measure_messages(method=method, n=n, seed=seed, max_iterations=sweeps, **point)


@measurement("walk", version=1)
def measure_walk(
    *, method: str, n: int, alpha: float, delta: float = 0.5, beta: float = 50.0, seed: int = 0
) -> Found:
    """One instance by sampling: "tempered" down to β = 5, or "plain" from w = 1."""
    choice("method", method, WALKS)
    plain = method == "plain"
    return measure_sampling(
        n=n, seed=seed, hottest=None if plain else 5.0, aligned=plain, trajectories=1500,
        warm_up=700, alpha=alpha, delta=delta, beta=beta,
    )  # fmt: skip


@measurement("outputs", version=3)
def measure_outputs(*, n: int, delta: float, seed: int = 0) -> Found:
    """Outputs of new inputs for the weights that AMP finds on one instance, α = 2.5."""
    return measure_representation(n=n, seed=seed, delta=delta)


def instance_job(method: str, n: int, seed: int, **point: float) -> Job:
    """The job of one instance at α and whatever differs from Δ = 0.5, β = 50."""
    params = {"method": method, "n": n, "delta": 0.5, "beta": 50.0} | point
    return Job(measure_walk if method in WALKS else measure_instance, params, seed)


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
        "method": "plain" if hottest is None else "tempered", "n": n, "seed": seed, **parameters,
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


POINTS = ((0.5, 50.0), (0.8, 50.0), (1.0, 20.0))  # α, β: replica symmetry is stable
SAMPLED = POINTS[0]
QUANTITIES = {"M": "M", "q": "q", "Q": "Q", "generalization_loss": "$ε_g$"}
TOO_FEW = "fewer than three instances converged"
RARE = float(2 * norm.sf(2))  # how often a Gaussian is off by more than two standard deviations
HEAD = ("α", "β", "N", "converged", "M", "q", "Q", "ε_g")


def plan(scale: Scale) -> list[Job]:
    """AMP at every point and size; at one point also both walks, on the same instances."""
    sizes = [("amp", point, n, scale.sized) for point in POINTS for n in scale.sizes]
    walks = [(method, SAMPLED, n, scale.walked) for n in scale.walks for method in ("amp", *WALKS)]
    return unique(
        instance_job(method, n, seed, alpha=alpha, beta=beta)
        for method, (alpha, beta), n, seeds in sizes + walks
        for seed in range(seeds)
    )


def draw(rows: Sequence[Row], scale: Scale) -> Figure:
    """Deviation from theory against 1/N, the part that converges, and sampling minus AMP."""
    with canvas(rows=2, columns=3, size=(12.6, 7.2)) as (fig, axes):
        panels = axes.ravel()
        for point, colour in zip(POINTS, ("machine", "baseline", "boson"), strict=True):
            _draw_point(panels, rows, point, COLOURS[colour])
        for ax, symbol in zip(panels, QUANTITIES.values(), strict=False):
            ax.axhline(0, color=COLOURS["theory"], lw=0.8)
            ax.set(xlabel="1/N", title=f"{symbol}: instances / theory − 1", xlim=(0, None))
        panels[4].set(xlabel="1/N", title="part of the instances that converge")
        panels[4].set(xlim=(0, None), ylim=(-0.03, 1.03))
        _draw_walks(panels[5], rows)
        legend_below(panels[0], fontsize=8, ncols=1)
    return fig


def verdicts(rows: Sequence[Row], scale: Scale) -> list[Verdict]:
    """AMP at the largest size in standard errors from theory, and jointly; sampling against AMP."""
    found = []
    for alpha, beta in POINTS:
        runs = _runs(rows, "amp", alpha, beta)
        sizes = _sizes(runs)
        if not sizes:
            continue
        here, theory = [r for r in runs if r.params["n"] == sizes[-1]], _theory(alpha, beta)
        good = [r for r in here if r.result["converged"]]
        where = f"AMP, N = {sizes[-1]}, α = {alpha:g}, β = {beta:g}"
        found.append(
            Verdict.near(
                "instances",
                f"{where}: part that converges",
                len(good) / len(here),
                expected=1.0,
                tolerance=0.1,
            )
        )
        for name in QUANTITIES:
            off, note = None, TOO_FEW
            if len(good) > 2:
                mean, error, _ = summary(r.result[name] for r in good)
                off = (mean - getattr(theory, name)) / error
                note = f"{mean:.4f} ± {error:.4f} of {len(good)} instances"
            found.append(
                Verdict.near(
                    "instances",
                    f"{where}: {name} in standard errors from theory",
                    off,
                    expected=0.0,
                    tolerance=two_sigma(len(good)),
                    note=note,
                )
            )
        together = chance(
            [[r.result[name] for name in QUANTITIES] for r in good],
            [getattr(theory, name) for name in QUANTITIES],
        )
        if together is not None:
            found.append(
                Verdict.at_least(
                    "instances",
                    f"{where}: all four together, chance to be as far from theory",
                    together,
                    bound=RARE,
                    note=f"Hotelling's test, {len(good)} instances",
                )
            )
    return found + _walk_verdicts(rows)


def tables(rows: Sequence[Row], scale: Scale) -> list[Table]:
    """Means of the instances that converged, then the theory."""
    lines = []
    for alpha, beta in POINTS:
        runs = _runs(rows, "amp", alpha, beta)
        for n in _sizes(runs):
            here = [r for r in runs if r.params["n"] == n]
            good = [r.result for r in here if r.result["converged"]]
            cells = [_cell(r[name] for r in good) if good else "—" for name in QUANTITIES]
            lines.append((f"{alpha:g}", f"{beta:g}", str(n), f"{len(good)} of {len(here)}", *cells))
        if runs:
            theory = _theory(alpha, beta)
            exact = [f"{getattr(theory, name):.4f}" for name in QUANTITIES]
            lines.append(
                (f"{alpha:g}", f"{beta:g}", "∞", f"AT = {theory.at_eigenvalue:.2f}", *exact)
            )
    return [Table(HEAD, lines, "AMP: mean ± standard error where it converged")]


def _walk_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Each walk minus AMP on the same instances, at the largest size.

    Tempered walks must meet AMP within 1 %; plain ones keep the signs they start with and stay
    above in M.
    """
    found = []
    for method, name in (("tempered", "M"), ("tempered", "q"), ("tempered", "Q"), ("plain", "M")):
        every = _differences(rows, method, name)
        enough = {n: values for n, values in every.items() if len(values) > 2}
        if not every:
            continue
        n, values = max((enough or every).items())
        mean, error, _ = summary(values)
        claim = f"{WALKS[method]}, N = {n}: {name} minus that of AMP"
        measured, error = mean if enough else None, number(error)
        note = f"the same {len(values)} instances" if enough else TOO_FEW
        if method == "plain":
            verdict = Verdict.at_least(
                "instances", claim, measured, bound=0.005, error=error, note=note
            )
        else:
            within = 0.01 * getattr(_theory(*SAMPLED), name)
            verdict = Verdict.near(
                "instances", claim, measured, expected=0.0, tolerance=within, error=error, note=note
            )
        found.append(verdict)
    return found


def _draw_point(panels: Any, rows: Sequence[Row], point: tuple[float, float], colour: str) -> None:
    runs = _runs(rows, "amp", *point)
    sizes = _sizes(runs)
    if not sizes:
        return
    theory, label = _theory(*point), f"α = {point[0]:g}, β = {point[1]:g}"
    groups = {n: [r.result for r in runs if r.params["n"] == n] for n in sizes}
    for ax, name in zip(panels, QUANTITIES, strict=False):
        exact = getattr(theory, name)
        good = {n: [r[name] for r in group if r["converged"]] for n, group in groups.items()}
        lines = [(1 / n, *summary(values)[:2]) for n, values in good.items() if values]
        if lines:
            x, mean, error = np.nan_to_num(np.array(lines)).T
            ax.errorbar(x, mean / exact - 1, error / exact, fmt="o-", ms=4, lw=1, capsize=2,
                        color=colour, label=label)  # fmt: skip
    part = [np.mean([r["converged"] for r in group]) for group in groups.values()]
    panels[4].plot(1 / np.array(sizes), part, "o-", ms=4, color=colour)


def _draw_walks(ax: Any, rows: Sequence[Row]) -> None:
    for (method, name), colour in zip(WALKS.items(), ("fermion", "highlight"), strict=True):
        lines = [
            (1 / n, *summary(v)[:2]) for n, v in sorted(_differences(rows, method, "M").items())
        ]
        if lines:
            x, mean, error = np.nan_to_num(np.array(lines)).T
            ax.errorbar(x, mean, error, fmt="o-", ms=4, lw=1, capsize=2, color=COLOURS[colour],
                        label=name)  # fmt: skip
    ax.axhline(0, color=COLOURS["theory"], lw=0.8)
    ax.set(xlabel="1/N", title="M: sampling − AMP, same instances")
    ax.set_xlim(0, None)
    legend_below(ax, fontsize=8, ncols=1)


def _differences(rows: Sequence[Row], method: str, name: str) -> dict[int, list[float]]:
    """A quantity of a walk minus that of AMP, by size, over instances on which both converged."""
    found: dict[int, list[float]] = {}
    base = {(r.params["n"], r.seed): r.result for r in _runs(rows, "amp", *SAMPLED)}
    for run in _runs(rows, method, *SAMPLED):
        other = base.get((run.params["n"], run.seed))
        if other is not None and other["converged"] and run.result["converged"]:
            found.setdefault(run.params["n"], []).append(run.result[name] - other[name])
    return found


def _runs(rows: Sequence[Row], method: str, alpha: float, beta: float) -> list[Finished]:
    return finished(rows, "Q", method=method, alpha=alpha, beta=beta)


def _sizes(runs: Iterable[Finished]) -> list[int]:
    return sorted({run.params["n"] for run in runs})


@cache
def _theory(alpha: float, beta: float) -> Solution:
    return solve(Problem(alpha=alpha, beta=beta))


def _cell(values: Iterable[float]) -> str:
    mean, error, _ = summary(values)
    return f"{mean:.4f}" if np.isnan(error) else f"{mean:.4f} ± {error:.4f}"


def two_sigma(instances: int) -> float:
    """Standard errors that a mean exceeds as rarely as a Gaussian exceeds two of its own.

    Few instances give an uncertain error (Student's distribution); 20 make it 2.1.
    """
    return float(student.isf(RARE / 2, max(instances - 1, 1)))


def chance(values: Sequence[Sequence[float]], expected: Sequence[float]) -> float | None:
    r"""How often n instances of k quantities would miss their true means by as much or more.

    Hotelling's test: T² = n·dᵀS⁻¹d with d the mean deviation and S the covariance over instances;
    (n − k)/(k(n − 1))·T² has Fisher's distribution with k and n − k degrees of freedom. One number
    for quantities that are correlated, of which some one would often be off. None if instances are
    too few (n < k + 2) or a quantity follows from the others.
    """
    sample: Floats = np.array(values, dtype=float).reshape(len(values), len(expected))
    n, k = sample.shape
    covariance = np.atleast_2d(np.cov(sample.T)) if n >= k + 2 else np.zeros((k, k))
    if np.linalg.matrix_rank(covariance) < k:
        return None
    off = sample.mean(0) - np.asarray(expected)
    squared = n * off @ np.linalg.solve(covariance, off)
    return float(fisher.sf(squared * (n - k) / (k * (n - 1)), k, n - k))
