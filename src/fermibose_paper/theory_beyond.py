"""The theory beyond the paper against simulations: all pairs, online learning, attacks, real data.

Everything measured here is held against a prediction without a fitted parameter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fermibose.cavity import amp, ground_state, minima, sample_instance, sgd
from fermibose.plotting import COLOURS, canvas
from fermibose.statistics import summary
from fermibose.theory import Problem, Solution, dynamics, solve
from fermibose_paper import real_data
from fermibose_paper.instances import RARE, chance
from fermibose_paper.job import Job, measurement
from fermibose_paper.scale import Scale
from fermibose_paper.series import Finished, finished, legend
from fermibose_paper.store import Row
from fermibose_paper.verdict import Verdict

NAME = "theory-beyond"
GAMMAS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
METHODS = {"amp": 50.0, "ground": math.inf}  # and the β at which they are compared
NORMS: dict[str, float | str] = {"ℓ₂": 2, "ℓ∞": "inf", "ℓ₃": 3}
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
ATTACKED = 1.0  # γ of the weights that are attacked
RATES, BATCHES = (0.5, 1.0, 2.0), (2, 10, 50)
ONLINE: dict[str, Any] = {"weight_decay": 0.02}
START, TIMES = (0.1, 1.0), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
GLASS = 2.0  # γ at which partners are counted
EVERYONE = 0  # partners: all others
POINTS = 11  # of a line of theory


@dataclass(frozen=True)
class Sizes:
    """How much is simulated."""

    n: int  # weights of an instance
    instances: int
    weights: int  # of SGD
    runs: int
    glass: int  # weights where minima are counted
    starts: int
    graphs: int
    partners: tuple[int, ...]


QUICK = Sizes(300, 4, 1000, 5, 150, 8, 2, (1, 2, 4, EVERYONE))
FULL = Sizes(1000, 20, 4000, 20, 400, 20, 5, (1, 2, 3, 4, 8, EVERYONE))


def _sizes(scale: Scale) -> Sizes:
    return QUICK if scale.sample else FULL


@measurement("all-pairs", version=1)
def measure_all_pairs(
    *, method: str, n: int, samples: float, attacked: list[float], seed: int = 0
) -> dict[str, Any]:
    """One instance of all pairs by "amp" (β = 50) or "ground" (T = 0), and its weights attacked.

    The accuracy under attack is over 4000 new patterns, moved to the worst point of the ball by the
    weights themselves, whatever the theory says of these.
    """
    problem = Problem(samples=samples, pairing="all", beta=METHODS[method])
    instance = sample_instance(problem, n, seed=seed, test_pairs=2000)
    found = amp(instance) if method == "amp" else ground_state(instance, restarts=1)
    weights = getattr(found, "weights", None)
    result = {
        "M": abs(found.M), "q": found.q, "accuracy": found.accuracy, "converged": found.converged,
    }  # fmt: skip
    if weights is None:
        return result
    w = weights * np.sign(found.M)
    right = instance.test.fields(w) * instance.test.y
    under = {}
    for name, norm in NORMS.items():
        dual = 1.0 if norm == "inf" else float(norm) / (float(norm) - 1)
        reach = float((np.abs(w) ** dual).mean() ** (1 / dual))
        under[name] = [float((right > eps * reach).mean()) for eps in attacked]
    return result | {"attacked": under}


@measurement("partners", version=1)
def measure_partners(*, partners: int, n: int, starts: int, seed: int = 0) -> dict[str, Any]:
    """Minima below random starts at T = 0, each sample in so many random pairs (0: in all)."""
    problem = Problem(samples=GLASS, pairing="all", beta=math.inf)
    instance = sample_instance(problem, n, seed=seed, partners=partners or None)
    found = minima(instance, starts=starts)
    return {
        "excess": found.excess, "distinct": found.distinct, "starts": starts,
        "accuracy": float(found.accuracy.mean()),
    }  # fmt: skip


@measurement("online", version=1)
def measure_online(
    *, n: int, learning_rate: float, batch: int, times: list[float], seed: int = 0
) -> dict[str, Any]:
    """One run of one-pass SGD."""
    run = sgd(
        Problem(**ONLINE), n, learning_rate=learning_rate, t=times, batch=batch, start=START,
        seed=seed,
    )  # fmt: skip
    return {"M": run.M[0].tolist(), "q": run.q[0].tolist()}


def plan(scale: Scale) -> list[Job]:
    """Instances along γ, minima along the number of partners, SGD, pairs of classes."""
    size = _sizes(scale)
    jobs = [
        Job(
            measure_all_pairs,
            {"method": method, "n": size.n, "samples": gamma, "attacked": list(STRENGTHS)},
            seed,
        )
        for method in METHODS
        for gamma in GAMMAS
        for seed in range(size.instances)
    ]
    jobs += [
        Job(measure_partners, {"partners": k, "n": size.glass, "starts": size.starts}, seed)
        for k in size.partners
        for seed in range(size.graphs)
    ]
    jobs += [
        Job(
            measure_online,
            {"n": size.weights, "learning_rate": rate, "batch": batch, "times": list(TIMES)},
            seed,
        )
        for rate in RATES
        for batch in BATCHES
        for seed in range(size.runs)
    ]
    return jobs + real_data.plan(scale)


def draw(rows: Sequence[Row], scale: Scale) -> Figure:
    """Six panels: theory as lines, simulations as points with standard errors."""
    with canvas(rows=3, columns=2, size=(9.2, 10.6)) as (fig, axes):
        accuracy, glass, partners, online, attacks, pair = axes.flat
        _draw_accuracy(accuracy, rows)
        _draw_glass(glass)
        _draw_partners(partners, rows)
        _draw_online(online, rows)
        _draw_attacks(attacks, rows)
        real_data.draw_first(pair, rows)
    return fig


def verdicts(rows: Sequence[Row], scale: Scale) -> list[Verdict]:
    """A verdict for each claim."""
    return [
        _glass_verdict(),
        *(_instance_verdict(rows, method) for method in METHODS),
        *_partner_verdicts(rows),
        *_attack_verdicts(rows),
        _online_verdict(rows),
        *real_data.overall_verdicts(rows, NAME),
    ]


@cache
def _theory(gamma: float, beta: float, pairing: str = "all") -> Solution:
    if pairing == "all":
        return solve(Problem(samples=gamma, pairing="all", beta=beta))
    return solve(Problem(alpha=gamma / 2, beta=beta))


@cache
def _path(rate: float, batch: int) -> dynamics.Trajectory:
    times = np.linspace(0, TIMES[-1], 61)
    return dynamics.evolve(Problem(**ONLINE), learning_rate=rate, t=times, batch=batch, start=START)


def _instances(rows: Sequence[Row], method: str, gamma: float) -> list[Finished]:
    runs = finished(rows, "converged", method=method, samples=gamma)
    return [run for run in runs if run.result["converged"]]


def _together(claim: str, points: dict[str, tuple[list[list[float]], list[float]]]) -> Verdict:
    """How often chance alone would put M and q of one of the points as far from the theory.

    points: by name, the (M, q) of every run and those of the theory. The least chance of a point
    times their number (Bonferroni): of many points one is often off by more than two errors.
    """
    chances = {where: chance(*point) for where, point in points.items()}
    known = {where: p for where, p in chances.items() if p is not None}
    measured, note = None, "fewer than four runs"
    if known:
        where = min(known, key=lambda name: known[name])
        values, exact = points[where]
        found = summary(values)
        M, q = (found.mean - exact) / found.error
        measured = min(1.0, len(known) * known[where])
        note = f"farthest at {where}: M by {M:.1f}, q by {q:.1f} errors of {len(values)} runs"
    return Verdict.at_least(
        NAME, f"{claim}: chance to be as far from theory in M and q", measured, bound=RARE,
        note=note, unpublished=True,
    )  # fmt: skip


def _instance_verdict(rows: Sequence[Row], method: str) -> Verdict:
    where = {"amp": "AMP, β = 50", "ground": "ground states"}[method]
    points = {}
    for gamma in GAMMAS:
        theory = _theory(gamma, METHODS[method])
        values = [[r.result["M"], r.result["q"]] for r in _instances(rows, method, gamma)]
        points[f"γ = {gamma:g}"] = (values, [theory.M, theory.q])
    return _together(f"all pairs, {where}, {len(points)} values of γ", points)


def _glass_verdict() -> Verdict:
    worst = max(_theory(gamma, 50.0).at_eigenvalue for gamma in GAMMAS)
    pairs = max(_theory(gamma, 50.0, "disjoint").at_eigenvalue for gamma in GAMMAS)
    return Verdict.at_most(
        NAME, "all pairs: replica symmetry is stable at every γ (largest AT)", worst, bound=1.0,
        note=f"disjoint pairs of the same samples: up to {pairs:.2f}", unpublished=True,
    )  # fmt: skip


def _partner_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    everyone, alone = (finished(rows, "excess", partners=k) for k in (EVERYONE, 1))
    if not everyone or not alone:
        return []
    most = max(run.result["distinct"] for run in everyone)
    excess = summary(run.result["excess"] for run in alone)
    return [
        Verdict.at_most(
            NAME, "all pairs: different minima below random starts", float(most), bound=1.0,
            note=f"{everyone[0].result['starts']} starts on each of {len(everyone)} instances",
            unpublished=True,
        ),
        Verdict.at_least(
            NAME, "disjoint pairs: energy reached, over the lowest known", float(excess.mean),
            bound=1.5, error=float(excess.error), unpublished=True,
        ),
    ]  # fmt: skip


def _attack_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    runs, theory = _instances(rows, "ground", ATTACKED), _theory(ATTACKED, math.inf)
    if not runs:
        return []
    gaps = [
        float(np.mean([r.result["attacked"][name][k] for r in runs]))
        - theory.adversarial_accuracy(eps, norm)
        for name, norm in NORMS.items()
        for k, eps in enumerate(STRENGTHS)
    ]
    return [
        Verdict.at_most(
            NAME, f"attacks in {', '.join(NORMS)}: largest gap of accuracy, γ = {ATTACKED:g}",
            100 * max(map(abs, gaps)), bound=1.5, unit="points", unpublished=True,
            note=f"strengths 0 to 1, {len(runs)} ground states",
        )
    ]  # fmt: skip


def _online_verdict(rows: Sequence[Row]) -> Verdict:
    points = {}
    for rate in RATES:
        for batch in BATCHES:
            path = _path(rate, batch)
            runs = finished(rows, "M", learning_rate=rate, batch=batch)
            values = [[r.result["M"][-1], r.result["q"][-1]] for r in runs]
            exact = [float(path.M[-1]), float(path.q[-1])]
            points[f"η = {rate:g}, B = {batch}"] = (values, exact)
    return _together(f"SGD, t = {TIMES[-1]:g}, {len(points)} pairs of η and B", points)


def _bars(ax: Any, x: Sequence[float], groups: Sequence[Sequence[float]], **look: Any) -> None:
    """Means with standard errors; groups of none are left out."""
    lines = [(a, *summary(g)[:2]) for a, g in zip(x, groups, strict=True) if len(g)]
    if lines:
        at, mean, error = np.nan_to_num(np.array(lines)).T
        ax.errorbar(at, mean, error, **({"fmt": "o", "ms": 4, "lw": 1, "capsize": 2} | look))


def _draw_accuracy(ax: Any, rows: Sequence[Row]) -> None:
    grid = np.geomspace(min(GAMMAS), max(GAMMAS), POINTS)
    for (method, beta), colour in zip(METHODS.items(), ("machine", "boson"), strict=True):
        label = {"amp": "all pairs, β = 50", "ground": "all pairs, T = 0"}[method]
        ax.plot(grid, [_theory(g, beta).accuracy for g in grid], color=COLOURS[colour], label=label)
        groups = [
            [r.result["accuracy"] for r in _instances(rows, method, gamma)] for gamma in GAMMAS
        ]
        _bars(ax, GAMMAS, groups, color=COLOURS[colour])
    pairs = [_theory(g, 50.0, "disjoint").accuracy for g in grid]
    ax.plot(grid, pairs, "--", color=COLOURS["theory"], label="disjoint pairs, β = 50")
    ax.set(xscale="log", xlabel="samples per weight γ", title="theory and instances")
    ax.set_ylabel("test accuracy")
    legend(ax, fontsize=8)


def _draw_glass(ax: Any) -> None:
    grid = np.geomspace(min(GAMMAS), max(GAMMAS), POINTS)
    for pairing, style in (("disjoint", "--"), ("all", "-")):
        at = [_theory(g, 50.0, pairing).at_eigenvalue for g in grid]
        colour = COLOURS["machine" if pairing == "all" else "theory"]
        ax.plot(grid, at, style, color=colour, label=f"{pairing} pairs")
    ax.axhline(1, color="0.3", lw=1, ls=":", label="replica symmetry ends")
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="samples per weight γ",
        title="all and disjoint pairs, β = 50",
    )
    ax.set_ylabel("AT eigenvalue")
    legend(ax, fontsize=8)


def _draw_partners(ax: Any, rows: Sequence[Row]) -> None:
    found = finished(rows, "excess")
    known = sorted({r.params["partners"] for r in found}, key=lambda k: (k == EVERYONE, k))
    groups = {k: [r.result for r in found if r.params["partners"] == k] for k in known}
    places = range(len(known))
    share = [[r["distinct"] / r["starts"] for r in groups[k]] for k in known]
    excess = [[r["excess"] - 1 for r in groups[k]] for k in known]
    wrong = [[1 - r["accuracy"] for r in groups[k]] for k in known]
    _bars(ax, places, share, fmt="s-", color=COLOURS["fermion"], label="different minima / starts")
    _bars(
        ax,
        places,
        excess,
        fmt="o-",
        color=COLOURS["machine"],
        label="energy above the lowest, relative",
    )
    _bars(ax, places, wrong, fmt="^-", color=COLOURS["theory"], label="test error")
    ax.set_xticks(list(places), ["all" if k == EVERYONE else str(k) for k in known])
    ax.set(
        xlabel="pairs of each sample",
        title=f"T = 0 from random starts, γ = {GLASS:g}",
        ylabel="fractions",
        ylim=(-0.05, None),
    )
    legend(ax, fontsize=8)


def _draw_online(ax: Any, rows: Sequence[Row]) -> None:
    rate = RATES[-1]
    for batch, colour in zip(BATCHES, ("machine", "baseline", "boson"), strict=True):
        path, runs = _path(rate, batch), finished(rows, "M", learning_rate=rate, batch=batch)
        ax.plot(path.t, path.q, color=COLOURS[colour], label=f"B = {batch}")
        groups = [[r.result["q"][k] for r in runs] for k in range(len(TIMES))]
        _bars(ax, TIMES, groups, color=COLOURS[colour])
    ax.set(xlabel="steps/N", ylabel="self-overlap q", title=f"SGD, η = {rate:g}")
    legend(ax, fontsize=8)


def _draw_attacks(ax: Any, rows: Sequence[Row]) -> None:
    runs, theory = _instances(rows, "ground", ATTACKED), _theory(ATTACKED, math.inf)
    grid = np.linspace(0, max(STRENGTHS), 60)
    for (name, norm), colour in zip(NORMS.items(), ("machine", "fermion", "boson"), strict=True):
        ax.plot(grid, theory.adversarial_accuracy(grid, norm), color=COLOURS[colour], label=name)
        groups = [[r.result["attacked"][name][k] for r in runs] for k in range(len(STRENGTHS))]
        _bars(ax, STRENGTHS, groups, color=COLOURS[colour])
    ax.set(xlabel="strength ε", title=f"attacks, T = 0, γ = {ATTACKED:g}")
    ax.set_ylabel("accuracy under attack")
    legend(ax, fontsize=8)
