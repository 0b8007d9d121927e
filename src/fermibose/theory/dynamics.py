"""How one unit learns online: M and q in one-pass SGD, for N → ∞ without any noise left.

:func:`evolve` solves the equations of :mod:`fermibose.theory.flow`, :func:`steady_states` finds
where they rest, :func:`critical_rate` the learning rate above which nothing is learned, and
:func:`escape_time` how long N weights take to leave M = 0, where they all begin.
"""

import csv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from fermibose.checks import is_number, number
from fermibose.errors import InputError
from fermibose.files import replacing
from fermibose.plotting import COLOURS, figure
from fermibose.statistics import summary
from fermibose.summary import Summarised, table
from fermibose.theory.escape import EscapeTime, escape_time
from fermibose.theory.flow import Flow, check_batch, check_start, integrate
from fermibose.theory.problem import Array, Problem, check_problem
from fermibose.theory.solution import accuracy, distances, generalization_loss
from fermibose.theory.steady import SteadyState, critical_rate, steady_states

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

__all__ = [
    "EscapeTime",
    "SteadyState",
    "Trajectory",
    "critical_rate",
    "draw_trajectories",
    "escape_time",
    "evolve",
    "steady_states",
    "times",
]

POINTS = 200  # of a trajectory whose times are not given
UNHEEDED = ("alpha", "samples", "beta")  # of a problem: every step takes fresh samples
_DOTS = 12  # of measured runs in a panel
_PANELS = (("M", "mean weight M"), ("q", "self-overlap q"), ("accuracy", "accuracy"))


class Measured(Protocol):
    """Runs of SGD that a trajectory can be compared with."""

    @property
    def t(self) -> Array:
        """Times, (points,)."""

    @property
    def M(self) -> Array:
        """(runs, points)."""

    @property
    def q(self) -> Array:
        """(runs, points)."""


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory(Summarised):
    """M and q along time, and what they predict of new data; arrays of shape (points,)."""

    problem: Problem
    learning_rate: float  # η
    batch: int  # B samples a step; 2 is a single pair
    t: Array  # steps/N
    M: Array  # mean weight
    q: Array  # self-overlap

    @property
    def summary(self) -> str:
        """Where it leads."""
        return (
            f"t up to {self.t[-1]:g}, η = {self.learning_rate:g}, {self.batch} samples a step: "
            f"M {self.M[-1]:.4f}, q {self.q[-1]:.4f}, accuracy {self.accuracy[-1]:.1%}"
        )

    def to_frame(self, measured: Measured | None = None) -> "DataFrame":
        """The columns of :meth:`to_dict` as a pandas DataFrame."""
        return table(self.to_dict(measured))

    @cached_property
    def accuracy(self) -> Array:
        """Classification accuracy on new patterns."""
        return np.array([accuracy(self.problem, M, q) for M, q in self._states])

    @cached_property
    def generalization_loss(self) -> Array:
        """Mean energy of a new pair, ε_g."""
        return np.array([generalization_loss(self.problem, M, q) for M, q in self._states])

    @property
    def fermion_distance(self) -> Array:
        """Mean D² of new fermion pairs."""
        return self._distances[:, 1]

    @property
    def boson_distance(self) -> Array:
        """Mean D² of new boson pairs."""
        return self._distances[:, 0]

    @cached_property
    def _distances(self) -> Array:
        return np.array([distances(self.problem, M, q) for M, q in self._states])

    @property
    def _states(self) -> list[tuple[float, float]]:
        return list(zip(self.M.tolist(), self.q.tolist(), strict=True))

    def to_dict(self, measured: Measured | None = None) -> dict[str, list[float]]:
        """Columns by name, one row a time.

        measured: runs of SGD at the same times, of which mean and standard error are added.
        """
        names = ("t", "M", "q", "accuracy", "generalization_loss", "fermion_distance")
        columns = {name: getattr(self, name).tolist() for name in (*names, "boson_distance")}
        for name in ("M", "q") if measured is not None else ():
            found = summary(getattr(measured, name))
            columns |= {f"{name}_sgd": found.mean.tolist(), f"{name}_error": found.error.tolist()}
        return columns

    def save_csv(self, path: str | Path, measured: Measured | None = None) -> None:
        """The same as a CSV file with a header, whole or not at all."""
        columns = self.to_dict(measured)
        with replacing(path) as draft, draft.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))

    def draw(self, path: str | Path | None = None, measured: Measured | None = None) -> "Figure":
        """M, q and the accuracy along time; runs of SGD beside it as dots."""
        return draw_trajectories(path, {f"η = {self.learning_rate:g}": (self, measured)})


def evolve(
    problem: Problem,
    *,
    learning_rate: float,
    t: ArrayLike,
    batch: int | None = None,
    start: tuple[float, float] = (0.1, 1.0),
) -> Trajectory:
    """M and q under one-pass SGD of a learning rate η, from ``start`` = (M, q) at t = 0.

    Every step takes fresh samples, so that neither the load nor the temperature of the problem
    matters. batch: samples of a step, whose loss is the mean over all their pairs; None, like 2, is
    a single pair, a boson pair with the probability the problem says. With pairing "all" classes
    are drawn by ``balance`` and labels are wrong with probability ``mislabelled``. t: the end, with
    200 points up to it, or increasing times; t = 1 is N steps. What is predicted of new data takes
    their labels to be right.
    """
    check_problem(problem)
    size, points = check_batch(problem, batch), times(t)
    rate, (M, q) = number("learning_rate", learning_rate, above=0), check_start(start)
    found = integrate(Flow(problem, size), (M, q), points, learning_rate=rate)
    return Trajectory(problem, rate, size, points, found[0], found[1])


def times(t: Any) -> Array:
    """Times asked for: up to a number, or an array of them."""
    if is_number(t):
        return np.linspace(0, number("t", t, above=0), POINTS)
    try:
        array = np.array(t, dtype=float)
    except (TypeError, ValueError):
        array = np.empty(0)
    wrong = array.ndim != 1 or not array.size or not np.all(np.isfinite(array))
    if wrong or array[0] < 0 or np.any(np.diff(array) <= 0):
        raise InputError(f"t must be a number > 0 or increasing times >= 0, got {t!r}")
    return array


def draw_trajectories(
    path: str | Path | None, trajectories: "dict[str, tuple[Trajectory, Measured | None]]"
) -> "Figure":
    """Trajectories by name: M, q and the accuracy; means of runs as dots with errors."""
    with figure(path, columns=len(_PANELS), size=(4.2 * len(_PANELS), 3.5)) as (fig, axes):
        colours = [c for name, c in COLOURS.items() if name not in ("theory", "published")]
        for (label, (line, dots)), colour in zip(trajectories.items(), colours, strict=False):
            for ax, (name, title) in zip(axes[0], _PANELS, strict=True):
                ax.plot(line.t, getattr(line, name), color=colour, label=label)
                ax.set(xlabel="t = steps/N", ylabel=title)
                if dots is not None:
                    once = "SGD" if label == [*trajectories][-1] else None
                    _draw_dots(ax, line.problem, dots, name, color=colour, label=once)
        axes[0][-1].legend(loc="lower right")  # where accuracies never go
        problems = [line.problem for line, _ in trajectories.values()]
        if all(problem == problems[0] for problem in problems):
            fig.suptitle(problems[0].told(*UNHEEDED), fontsize=9)
    return fig


def _draw_dots(ax: Any, problem: Problem, dots: Measured, name: str, **look: str | None) -> None:
    if name == "accuracy":
        pairs = np.stack([dots.M, dots.q], -1)
        values = np.apply_along_axis(lambda s: accuracy(problem, *s), -1, pairs)
    else:
        values = getattr(dots, name)
    found, some = summary(values), slice(None, None, max(1, len(dots.t) // _DOTS))
    error = found.error[some] if len(values) > 1 else None
    ax.errorbar(dots.t[some], found.mean[some], error, fmt="o", ms=3.5, mfc="white", **look)
