"""The theory behind the published figures: each function returns its curves and can draw them."""

from pathlib import Path

import numpy as np

from fermibose.plotting import COLOURS, figure
from fermibose.theory.curves import Curve, trace
from fermibose.theory.problem import Array, Problem


def figure_values(parameter: str, points: int) -> Array:
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
