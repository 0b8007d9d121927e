"""Single instances against the theory: how AMP approaches it with N, and what sampling says."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fermibose.paper.agreement import RARE, chance, two_sigma
from fermibose.paper.cavity_measure import measure_messages, measure_sampling
from fermibose.paper.drawing import legend
from fermibose.paper.scale import Scale
from fermibose.paper.series import Run, finished
from fermibose.paper.verdict import Sense, Verdict, number
from fermibose.plotting import COLOURS, canvas
from fermibose.statistics import summary
from fermibose.sweep import Job, Row, measurement
from fermibose.theory import Problem, Solution, solve

POINTS = ((0.5, 50.0), (0.8, 50.0), (1.0, 20.0))  # α, β: replica symmetry is stable
SAMPLED = POINTS[0]
QUANTITIES = {"M": "M", "q": "q", "Q": "Q", "generalization_loss": "$ε_g$"}
WALKS = {"hmc": "tempered sampling", "plain": "plain sampling from w = 1"}
TOO_FEW = "fewer than three instances converged"
HEAD = ("α", "β", "N", "converged", "M", "q", "Q", "ε_g")


@measurement(version=3)
def measure_instance(
    *, method: str, n: int, alpha: float, delta: float = 0.5, beta: float = 50.0, seed: int = 0
) -> dict[str, Any]:
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


def plan(scale: Scale) -> list[Job]:
    """AMP at every point and size; at one point also both walks, on the same instances."""
    sizes = [("amp", point, n, scale.sized) for point in POINTS for n in scale.sizes]
    walks = [(method, SAMPLED, n, scale.walked) for n in scale.walks for method in ("amp", *WALKS)]
    jobs = [
        instance_job(method, n, seed, alpha=alpha, beta=beta)
        for method, (alpha, beta), n, seeds in sizes + walks
        for seed in range(seeds)
    ]
    return list({job.key: job for job in jobs}.values())


def instance_job(method: str, n: int, seed: int, **point: float) -> Job:
    """The job of one instance at α and whatever differs from Δ = 0.5, β = 50."""
    params = {"method": method, "n": n, "delta": 0.5, "beta": 50.0} | point
    return Job(measure_instance, params=params, seed=seed)


def draw(rows: Sequence[Row], scale: Scale) -> Figure:
    """Deviation from theory against 1/N, the part that converges, and sampling minus AMP."""
    with canvas(rows=2, columns=3, size=(12.6, 7.2)) as (fig, axes):
        panels = axes.ravel()
        for point, colour in zip(POINTS, ("machine", "baseline", "boson"), strict=True):
            _draw_point(panels, rows, point, COLOURS[colour])
        for ax, symbol in zip(panels, QUANTITIES.values(), strict=False):
            ax.axhline(0, color=COLOURS["theory"], lw=0.8)
            ax.set(xlabel="1/N", title=f"{symbol}: instances / theory − 1")
        panels[4].set(xlabel="1/N", title="part of the instances that converge", ylim=(-0.03, 1.03))
        _draw_walks(panels[5], rows)
        legend(panels[0], fontsize=8)
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
            Verdict("instances", f"{where}: part that converges", len(good) / len(here), 1.0, 0.1)
        )
        for name in QUANTITIES:
            off, note = None, TOO_FEW
            if len(good) > 2:
                mean, error, _ = summary(r.result[name] for r in good)
                off = (mean - getattr(theory, name)) / error
                note = f"{mean:.4f} ± {error:.4f} of {len(good)} instances"
            found.append(
                Verdict("instances", f"{where}: {name} in standard errors from theory",
                        off, 0.0, two_sigma(len(good)), note=note)
            )  # fmt: skip
        together = chance(
            [[r.result[name] for name in QUANTITIES] for r in good],
            [getattr(theory, name) for name in QUANTITIES],
        )
        if together is not None:
            found.append(
                Verdict("instances", f"{where}: all four together, chance to be as far from theory",
                        together, RARE, 0.0, "at least",
                        note=f"Hotelling's test, {len(good)} instances")
            )  # fmt: skip
    return found + _walk_verdicts(rows)


def table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Under HEAD: mean ± standard error of the instances that converged, then the theory."""
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
    return lines


def _walk_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Each walk minus AMP on the same instances, at the largest size.

    Tempered walks must meet AMP within 1 %; plain ones keep the signs they start with and stay
    above in M.
    """
    found = []
    cases: tuple[tuple[str, str, float, Sense], ...] = (
        ("hmc", "M", 0.0, "near"),
        ("hmc", "q", 0.0, "near"),
        ("hmc", "Q", 0.0, "near"),
        ("plain", "M", 0.005, "at least"),
    )
    for method, name, expected, sense in cases:
        every = _differences(rows, method, name)
        enough = {n: values for n, values in every.items() if len(values) > 2}
        if every:
            n, values = max((enough or every).items())
            mean, error, _ = summary(values)
            tolerance = 0.01 * getattr(_theory(*SAMPLED), name) if sense == "near" else 0.0
            found.append(
                Verdict("instances", f"{WALKS[method]}, N = {n}: {name} minus that of AMP",
                        mean if enough else None, expected, tolerance, sense, error=number(error),
                        note=f"the same {len(values)} instances" if enough else TOO_FEW)
            )  # fmt: skip
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
    legend(ax, fontsize=8)


def _differences(rows: Sequence[Row], method: str, name: str) -> dict[int, list[float]]:
    """A quantity of a walk minus that of AMP, by size, over instances on which both converged."""
    found: dict[int, list[float]] = {}
    base = {(r.params["n"], r.seed): r.result for r in _runs(rows, "amp", *SAMPLED)}
    for run in _runs(rows, method, *SAMPLED):
        other = base.get((run.params["n"], run.seed))
        if other is not None and other["converged"] and run.result["converged"]:
            found.setdefault(run.params["n"], []).append(run.result[name] - other[name])
    return found


def _runs(rows: Sequence[Row], method: str, alpha: float, beta: float) -> list[Run]:
    return finished(rows, "Q", method=method, alpha=alpha, beta=beta)


def _sizes(runs: Iterable[Run]) -> list[int]:
    return sorted({run.params["n"] for run in runs})


@cache
def _theory(alpha: float, beta: float) -> Solution:
    return solve(Problem(alpha=alpha, beta=beta))


def _cell(values: Iterable[float]) -> str:
    mean, error, _ = summary(values)
    return f"{mean:.4f}" if np.isnan(error) else f"{mean:.4f} ± {error:.4f}"
