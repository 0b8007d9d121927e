"""Curves of the replica theory, as measurements that figures share, and of the published figures.

The last, ``figure_2`` and so on, are the theory alone, without store and instances; what ``fbm
reproduce`` makes stands in the modules of the figures.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fermibose.plotting import COLOURS, figure
from fermibose.theory import (
    SYMBOLS,
    BrokenCurve,
    Curve,
    Problem,
    draw_stability,
    missing,
    trace,
    trace_broken,
)
from fermibose_paper.job import Job, measurement
from fermibose_paper.series import Floats, finished
from fermibose_paper.store import Row

QUANTITIES = ("M", "q", "generalization_loss", "accuracy", "fermion_distance", "rs_stable")


@measurement("theory curve", version=1)
def measure_curve(*, parameter: str, values: list[float], seed: int = 0) -> dict[str, Any]:
    """The theory of the paper's default problem along one parameter.

    Points that could not be solved are missing from the lists and named in "failures".
    """
    curve = trace(Problem(), parameter, values, show=False)
    columns = {name: curve.column(name).tolist() for name in QUANTITIES}
    return {"values": curve.values.tolist(), "failures": list(curve.failures)} | columns


@measurement("theory attack", version=1)
def measure_attack(*, points: int, seed: int = 0) -> dict[str, list[float]]:
    """Area under the accuracy against the strength ε of an ℓ₂ attack, over d_F.

    One unit on a Gaussian mixture, at the parameters of the paper's Fig. 2; ε from 0 to 1.
    """
    curve = trace(Problem(), "d_f", figure_values("d_f", points), show=False)
    return {
        "theory_d_f": curve.values.tolist(),
        "theory_area": curve.column("adversarial_area").tolist(),
    }


def curve_job(parameter: str, values: Floats) -> Job:
    """The job of one curve."""
    return Job(measure_curve, {"parameter": parameter, "values": values.tolist()})


def curve_of(rows: Sequence[Row], parameter: str) -> dict[str, Any] | None:
    """The finished curve along ``parameter``, as arrays, with its failures."""
    for run in finished(rows, "values", parameter=parameter):
        return {k: v if k == "failures" else np.array(v) for k, v in run.result.items()}
    return None


def draw_curve(ax: Any, curve: dict[str, Any] | None, quantity: str, label: str) -> None:
    """A quantity along the curve, if there is one; ``label`` and what it lacks below the axis."""
    ax.set_xlabel(label + missing(curve["failures"] if curve else ()))
    if curve is not None:
        look = {"linewidth": 1.3, "label": "theory"}
        draw_stability(ax, curve["values"], curve[quantity], curve["rs_stable"] > 0, **look)


def figure_values(parameter: str, points: int) -> Floats:
    """Values along the axis of the published figure against α, Δ, d_F or ρ.

    They lie closer where the curves are steep: along α and d_F at the beginning, along ρ in the
    last tenth.
    """
    if parameter == "rho":
        last = np.linspace(0.9, 1, points - points // 2 + 1)[1:]
        return np.concatenate([np.linspace(0, 0.9, points // 2), last])
    axes = {
        "alpha": np.linspace(0.3, 5**0.5, points) ** 2,
        "delta": np.linspace(0.1, 1.5, points),
        "d_f": np.linspace(0, 2, points) ** 2,
    }
    return axes[parameter]


def figure_2(
    path: str | Path | None = None,
    *,
    problem: Problem | None = None,
    points: int = 30,
    show: bool | None = None,
) -> dict[str, Curve]:
    """Fig. 2: ε_g against α (a) and Δ (b), accuracy (c) and fermion distance (d) against d_F.

    Returns the curves along ``alpha``, ``delta`` and ``d_f``. The published setting is the default.
    """
    problem = Problem() if problem is None else problem
    curves = {
        name: trace(problem, name, figure_values(name, points), show=show)
        for name in ("alpha", "delta", "d_f")
    }
    if path is not None:
        with figure(path, rows=2, columns=2, size=(8.6, 6.4)) as (_, axes):
            panels = (
                ("alpha", "generalization_loss", "test loss $ε_g$"),
                ("delta", "generalization_loss", "test loss $ε_g$"),
                ("d_f", "accuracy", "test accuracy"),
                ("d_f", "fermion_distance", "fermion distance $D_F^2$"),
            )
            for ax, letter, (name, quantity, label) in zip(axes.flat, "abcd", panels, strict=True):
                curves[name].draw_panel(ax, quantity, label)
                ax.set_title(f"({letter})", loc="left")
            span = curves["d_f"].values[[0, -1]]
            axes[1, 1].plot(span, span, "--", color=COLOURS["published"], label="$D_F^2 = d_F$")
            axes[1, 1].legend(loc="lower right")
    return curves


def figure_broken(
    path: str | Path | None = None,
    *,
    problem: Problem | None = None,
    points: int = 30,
    show: bool | None = None,
) -> tuple[Curve, BrokenCurve]:
    """M and ε_g against Δ, replica-symmetric and, where that is unstable, broken once."""
    problem = Problem() if problem is None else problem
    curve = trace(problem, "delta", figure_values("delta", points), show=show)
    unstable = curve.values[curve.column("rs_stable") == 0]
    broken = trace_broken(problem, "delta", unstable, show=show)
    if path is not None:
        with figure(path, columns=2, size=(8.6, 3.4)) as (_, axes):
            panels = (("M", "mean weight M"), ("generalization_loss", "test loss $ε_g$"))
            for ax, (name, label) in zip(axes[0], panels, strict=True):
                curve.draw_panel(ax, name, label)
                look = {"color": COLOURS["machine"], "label": "broken once"}
                ax.plot(broken.values, broken.column(name), **look)
                ax.set_xlabel(SYMBOLS["delta"] + missing([*curve.failures, *broken.failures]))
            axes[0, 0].get_legend().remove()  # the curves fill that panel
            axes[0, 1].legend(loc="lower right")
    return curve, broken


def figure_rho(
    path: str | Path | None = None,
    *,
    problem: Problem | None = None,
    points: int = 40,
    show: bool | None = None,
) -> Curve:
    """Accuracy against the fraction ρ of boson pairs, which it survives up to ρ_c."""
    problem = Problem() if problem is None else problem
    curve = trace(problem, "rho", figure_values("rho", points), show=show)
    if path is not None:
        with figure(path, size=(5.0, 3.6)) as (_, ax):
            curve.draw_panel(ax, "accuracy", "test accuracy")
    return curve


def figure_attack(
    path: str | Path | None = None,
    *,
    problem: Problem | None = None,
    points: int = 30,
    show: bool | None = None,
) -> Curve:
    """Inset of Fig. 5(c): accuracy under an ℓ₂ attack, and the area under it, against d_F."""
    problem = Problem() if problem is None else problem
    curve = trace(problem, "d_f", figure_values("d_f", points), show=show)
    if path is not None:
        with figure(path, columns=2, size=(8.6, 3.4)) as (_, axes):
            left, right = axes[0]
            strengths = np.linspace(0, 1, 60)
            for d_f, colour in ((0.1, "machine"), (1.0, "baseline"), (4.0, "boson")):
                s = curve[int(np.argmin(np.abs(curve.values - d_f)))]
                accuracy = s.adversarial_accuracy(strengths)
                label = f"$d_F$ = {s.problem.d_f:.1f}"
                left.plot(strengths, accuracy, color=COLOURS[colour], label=label)
            left.set(xlabel="attack strength ε", ylabel="accuracy", ylim=(0, 1.02))
            left.legend(loc="lower left")
            curve.draw_panel(right, "adversarial_area", "area under accuracy, ε from 0 to 1")
    return curve
