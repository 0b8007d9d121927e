"""Fig. 2: the theory of one unit, and single instances by BP, AMP and sampling beside it."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from fermibose.plotting import COLOURS, canvas
from fermibose.statistics import summary
from fermibose.theory import SYMBOLS
from fermibose_paper.instances import Found, instance_job, measure_outputs
from fermibose_paper.job import Job
from fermibose_paper.scale import Scale, unique
from fermibose_paper.series import Finished, finished, legend
from fermibose_paper.store import Row
from fermibose_paper.theory_curves import curve_job, curve_of, draw_curve, figure_values
from fermibose_paper.verdict import Verdict, number

_MARKS = {
    "bp": ("s", "boson", "BP"),
    "amp": ("o", "machine", "AMP"),
    "tempered": ("^", "baseline", "sampling"),
    "plain": ("v", "highlight", "sampling, not tempered"),
}


DEFAULT = {"alpha": 2.5, "delta": 0.5}  # of the panels against the other parameter
INSETS = (0.2, 0.7, 1.5)  # Δ
PANELS = {"alpha": "(a)", "delta": "(b)"}
TOLERANCE = 10.0  # per cent of ε_g, at N = 200
FEWEST = 3  # instances of which a mean is judged


def plan(scale: Scale) -> list[Job]:
    """Three curves of the theory, instances along α and Δ, and the insets."""
    grid = {name: figure_values(name, scale.theory_points) for name in (*PANELS, "d_f")}
    for name in PANELS:  # the theory is solved where instances are measured
        grid[name] = np.unique(np.concatenate([grid[name], _values(scale, name)]))
    return unique(  # both panels have the default point
        [
            *(curve_job(name, values) for name, values in grid.items()),
            *_instances(scale),
            *(Job(measure_outputs, {"n": 200, "delta": delta}) for delta in INSETS),
        ]
    )


def draw(rows: Sequence[Row], scale: Scale) -> Figure:
    """(a), (b): test loss, theory and instances; (c), (d): accuracy and fermion distance."""
    with canvas(rows=2, columns=2, size=(10.4, 8.2)) as (fig, axes):
        for ax, (parameter, title) in zip(axes[0], PANELS.items(), strict=True):
            _draw_loss(ax, rows, parameter, title)
        insets = finished(rows, "outputs")
        for k, run in enumerate(sorted(insets, key=lambda run: run.params["delta"])):
            box = axes[0, 1].inset_axes((0.60, 0.14 + 0.19 * k, 0.37, 0.13))
            draw_inset(box, run.result, last=k == 0)
        curve = curve_of(rows, "d_f")
        for ax, quantity, label, title in (
            (axes[1, 0], "accuracy", "test accuracy", "(c)"),
            (axes[1, 1], "fermion_distance", "fermion distance $D_F^2$", "(d)"),
        ):
            draw_curve(ax, curve, quantity, "$d_F$")
            ax.set(ylabel=label)
            ax.set_title(title, loc="left")
        if curve is not None:
            axes[1, 1].plot([0, 4], [0, 4], "--", color=COLOURS["published"], label="$D_F^2 = d_F$")
        for ax in axes[1]:
            legend(ax, loc="lower right")
    return fig


def verdicts(rows: Sequence[Row], scale: Scale) -> list[Verdict]:
    """Instances against theory, and the trends along d_F that the paper states."""
    found = [
        verdict
        for parameter in PANELS
        for method, name in (("amp", "AMP"), ("bp", "BP"), ("tempered", "sampling"))
        for verdict in _against_theory(rows, parameter, method, name)
    ]
    curve = curve_of(rows, "d_f")
    if curve is not None and len(curve["values"]) > 1:
        for quantity, name in (("accuracy", "accuracy"), ("fermion_distance", "D_F²")):
            step = float(np.diff(curve[quantity]).min())
            found.append(
                Verdict.at_least(
                    "fig2",
                    f"theory: {name} increases with d_F, least step",
                    step,
                    bound=0.0,
                    tolerance=1e-6,
                )
            )
    return found


def _instances(scale: Scale) -> Iterator[Job]:
    for method, n, parameter, values, seeds in scale.fig2_instances:
        for value in values:
            for seed in range(seeds):
                yield instance_job(method, n, seed, **(DEFAULT | {parameter: value}))


def _draw_loss(ax: Any, rows: Sequence[Row], parameter: str, title: str) -> None:
    symbol = SYMBOLS[parameter]
    draw_curve(ax, curve_of(rows, parameter), "generalization_loss", symbol)
    draw_methods(ax, [run.result for run in _runs(rows, parameter)], parameter)
    ax.set_ylabel("test loss $ε_g$")
    ax.set_ylim(0, None)
    ax.set_title(title, loc="left")
    legend(ax, loc="upper right" if parameter == "alpha" else "upper left", fontsize=8)


def _runs(rows: Sequence[Row], parameter: str, **params: Any) -> list[Finished]:
    """Instances of the panel against ``parameter``: the other one has its default."""
    fixed = {name: value for name, value in DEFAULT.items() if name != parameter}
    return finished(rows, "generalization_loss", **fixed, **params)


def _against_theory(
    rows: Sequence[Row], parameter: str, method: str, name: str
) -> Iterator[Verdict]:
    """How far the mean of the converged instances is from the theory, where it is farthest.

    A point is a size and a value of the parameter. If few instances converge at most of the points,
    the others do not speak for the curve.
    """
    curve, runs = curve_of(rows, parameter), _runs(rows, parameter, method=method)
    if curve is None or not runs:
        return
    groups = _deviations(runs, parameter, curve)
    means = {where: summary(values) for where, values in groups.items() if len(values) >= FEWEST}
    symbol, many = SYMBOLS[parameter], "s" * (len(groups) > 1)
    claim = f"{name}: ε_g / theory − 1 along {symbol}, means of instances, farthest"
    claim += f" at {len(means)} of {len(groups)} point{many}"
    note = f"{sum(r.result['converged'] for r in runs)} of {len(runs)} instances converged"
    if 2 * len(means) < len(groups):
        note += f"; at fewer than half of the points at least {FEWEST}, too few to judge"
        yield Verdict.near(
            "fig2", claim, None, expected=0.0, tolerance=TOLERANCE, unit="%", note=note
        )
        return
    (n, value), (mean, error, _) = max(means.items(), key=lambda item: abs(item[1].mean))
    note += f"; farthest at N = {n}, {symbol} = {value:g}"
    yield Verdict.near(
        "fig2",
        claim,
        mean,
        expected=0.0,
        tolerance=TOLERANCE,
        error=number(error),
        unit="%",
        note=note,
    )


def _deviations(
    runs: Sequence[Finished], parameter: str, curve: dict[str, Any]
) -> dict[tuple[int, float], list[float]]:
    """100·(ε_g / theory − 1) of the converged instances at every point that has any instances."""
    theory = dict(zip(curve["values"].tolist(), curve["generalization_loss"], strict=True))
    found: dict[tuple[int, float], list[float]] = {}
    for run in runs:
        value = run.params[parameter]
        here = found.setdefault((run.params["n"], value), [])
        if run.result["converged"] and value in theory:
            here.append(100 * (run.result["generalization_loss"] / theory[value] - 1))
    return found


def _values(scale: Scale, parameter: str) -> list[float]:
    """Where instances lie in the panel against ``parameter``."""
    found = {DEFAULT[parameter]}
    for _, _, name, values, _ in scale.fig2_instances:
        found |= set(values) if name == parameter else set()
    return sorted(found)


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
    if last:
        box.set_xlabel("output φ(w·x): y = −1 blue, +1 red", fontsize=7, labelpad=1)
    note = "" if inset["converged"] else ", last sweep"
    box.set_title(f"Δ = {inset['delta']:g}{note}", fontsize=7, pad=1)
