"""Drawings of one run on one instance: its sweeps, its walk or its descents, beside the theory."""

from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fermibose.cavity.ground import GroundState
from fermibose.cavity.messages import Estimate, state_evolution
from fermibose.cavity.sampling import Sampling
from fermibose.plotting import COLOURS, figure
from fermibose.theory import Array, Solution

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OVERLAPS = (("M", "machine", "|M|"), ("q", "baseline", "q"), ("Q", "boson", "Q"))
_LIMIT = "theory (N → ∞)"
_BLOCKS = 20  # of a walk, whose means are drawn
_CHAINS = ("machine", "baseline", "boson", "fermion", "highlight")


def draw_trajectory(
    path: str | Path | None, found: Estimate, theory: Solution | None, *, damped: bool
) -> "Figure":
    """|M|, q, Q and both losses sweep by sweep, the theory's values as lines.

    damped: leaves out state evolution, which describes AMP without damping only.
    """
    with figure(path, columns=3, size=(12.0, 3.9)) as (fig, axes):
        _title(fig, found)
        overlaps, losses, residual = axes[0]
        _draw_overlaps(overlaps, found, theory)
        if not damped:
            _draw_evolution(overlaps, found)
        _draw_losses(losses, found, theory)
        _draw_sweeps(residual, found.history.residual, "published")
        residual.set(title="largest undamped change", yscale="log")
        for ax in axes[0]:
            ax.set_xlabel("sweep")
            _count_along(ax)
        _legend_below(fig, overlaps, losses)
    return fig


def _title(fig: Any, found: Estimate | Sampling | GroundState) -> None:
    """The verdict, and below it of what."""
    told = f"{found.verdict}\nN = {found.instance.n}, {found.problem.told()}"
    fig.suptitle(told, fontsize=9, wrap=True)


def _draw_sweeps(ax: Any, values: Any, colour: str, label: str | None = None) -> None:
    """A quantity after every sweep; a single sweep is a dot."""
    style = "-" if len(values) > 1 else "."
    ax.plot(np.arange(1, len(values) + 1), values, style, color=COLOURS[colour], label=label)


def _draw_overlaps(ax: Any, found: Estimate, theory: Solution | None) -> None:
    for name, colour, label in _OVERLAPS:
        _draw_sweeps(ax, np.abs(getattr(found.history, name)), colour, label)
        _draw_theory(ax, theory, name, colour)
    ax.set_title("overlaps (dotted: theory)" if theory else "overlaps")
    if found.diverged:  # the last sweeps would flatten all others
        ax.set_yscale("log")


def _draw_evolution(ax: Any, found: Estimate) -> None:
    """State evolution from the first sweep whose M has left chance."""
    history = found.history
    first = max(1, int(np.argmax(np.abs(history.M) > 0.1)))
    M, q, Q = (getattr(history, name)[first - 1] for name in ("M", "q", "Q"))
    limit = state_evolution(found.problem, M=M, Q=Q, V=q - Q, sweeps=found.iterations - first)
    sweeps = np.arange(first + 1, found.iterations + 1)
    for name, _, _ in _OVERLAPS:
        values, label = np.abs(getattr(limit, name)), "state evolution" if name == "M" else None
        ax.plot(sweeps, values, "--", color=COLOURS["theory"], lw=1, label=label)


def _draw_losses(ax: Any, found: Estimate, theory: Solution | None) -> None:
    test, train = found.history.generalization_loss(found.problem), found.history.training_loss
    _draw_sweeps(ax, test, "fermion", "test loss $ε_g$")
    _draw_theory(ax, theory, "generalization_loss", "fermion")
    _draw_sweeps(ax, train, "highlight", "training energy")
    _draw_theory(ax, theory, "training_energy", "highlight")
    ax.set(title="losses (dotted: theory)" if theory else "losses", ylim=(0, None))


def _draw_theory(
    ax: Any, theory: Solution | None, name: str, colour: str = "theory", label: str | None = None
) -> None:
    """The theory's value of a quantity, if there is a theory, as a line across the panel."""
    if theory is not None:
        ax.axhline(getattr(theory, name), color=COLOURS[colour], ls=":", lw=1.2, label=label)


def _count_along(ax: Any) -> None:
    """Ticks of what is counted."""
    from matplotlib.ticker import MaxNLocator

    steps = [1, 2, 5, 10]
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, steps=steps, min_n_ticks=1))


def _legend_below(fig: Any, *axes: Any, title: str | None = None) -> None:
    """One legend for the figure, outside its panels, of what these panels label."""
    handles = [line for ax in axes for line in ax.get_legend_handles_labels()[0]]
    fig.legend(
        handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8,
        title=title, title_fontsize=8,
    )  # fmt: skip


def draw_walk(path: str | Path | None, found: Sampling, theory: Solution | None) -> "Figure":
    """|M|, q, Q and energy of the coldest copies, trajectory by trajectory: a colour per chain.

    Q is of all chains together, in grey, and left out if there is only one.
    """
    walk = found.history
    panels = [("|M|", walk.M, "M"), ("q", walk.q, "q")]
    panels += [("Q between chains", walk.Q[:, None], "Q")] * (walk.M.shape[1] > 1)
    panels.append(("training energy of a pair", walk.energy, "training_energy"))
    with figure(path, columns=len(panels), size=(3.6 * len(panels), 4.1)) as (fig, axes):
        _title(fig, found)
        for ax, (title, series, name) in zip(axes[0], panels, strict=True):
            colours = ("published",) if name == "Q" else _CHAINS
            for k, (values, colour) in enumerate(zip(series.T, cycle(colours), strict=False)):
                _draw_chain(ax, values, COLOURS[colour], f"chain {k + 1}")
            _draw_theory(ax, theory, name, label=_LIMIT)
            ax.set(title=title, xlabel="trajectory after warm-up")
        _legend_below(
            fig, axes[0, 0], title=f"thin: every trajectory; thick: means of {_BLOCKS} blocks"
        )
    return fig


def _draw_chain(ax: Any, values: Array, colour: str, label: str) -> None:
    """Every trajectory thin; means of blocks thick, which thousands of trajectories would hide."""
    kept = np.arange(1, values.size + 1)
    ax.plot(kept, values, color=colour, lw=0.5, alpha=0.3)
    x, mean = ([part.mean() for part in np.array_split(array, _BLOCKS)] for array in (kept, values))
    ax.plot(x, mean, color=colour, label=label, zorder=3)  # above the thin lines of all chains


def draw_descents(path: str | Path | None, found: GroundState, theory: Solution | None) -> "Figure":
    """Energy per weight and |M| that every start led to, from the lowest energy up.

    The first start, w = 1 unless another was given, is a diamond; open marks did not converge.
    """
    ends = found.history
    panels = (("energy per weight", ends.energy, "free_energy"), ("|M|", np.abs(ends.M), "M"))
    with figure(path, columns=2, size=(9.0, 3.9)) as (fig, axes):
        _title(fig, found)
        for ax, (title, values, name) in zip(axes[0], panels, strict=True):
            _draw_ends(ax, found, values)
            _draw_theory(ax, theory, name, label=_LIMIT)
            ax.set(title=title, xlabel="descent, by energy")
            _count_along(ax)
        _legend_below(fig, axes[0, 0])
    return fig


def _draw_ends(ax: Any, found: GroundState, values: Array) -> None:
    """A mark for every descent, placed by its rank in energy."""
    rank = found.history.energy.argsort(kind="stable").argsort() + 1
    first, converged = np.arange(rank.size) == 0, found.history.converged
    for start, mine, mark, colour in (
        ("first start (w = 1 by default)", first, "D", COLOURS["baseline"]),
        ("random starts", ~first, "o", COLOURS["machine"]),
    ):
        for label, which, face in (
            (start, mine & converged, colour),
            (f"{start}, not converged", mine & ~converged, "white"),
        ):
            if which.any():
                ax.plot(rank[which], values[which], mark, color=colour, mfc=face, ms=5, label=label)
