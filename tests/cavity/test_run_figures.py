"""Pictures of one run. Oracle: the numbers it recorded, and the theory's, against the axes."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fermibose.cavity import (
    amp,
    draw_descents,
    draw_trajectory,
    draw_walk,
    ground_state,
    hmc,
    sample_instance,
    state_evolution,
)
from fermibose.theory import Problem, solve

PROBLEM = Problem(alpha=0.7, beta=10.0)
COLD = Problem(alpha=0.5, beta=math.inf)


@pytest.fixture
def drawn(monkeypatch):
    """The axes of what a drawing would have saved."""
    figures = []
    monkeypatch.setattr("fermibose.plotting.save_figure", lambda fig, _: figures.append(fig))
    return lambda: figures[-1].axes


def levels(ax):
    """Heights of the lines across a panel."""
    return [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == ":"]


def curves(ax):
    """What the other lines hold, in the order in which they were drawn."""
    return [line.get_xydata().T for line in ax.lines if line.get_linestyle() != ":"]


def labels(ax):
    return [text.get_text() for text in ax.figure.legends[0].get_texts()]


@pytest.mark.parametrize("known", [True, False])
def test_sweeps_are_those_recorded(drawn, known):
    found = amp(sample_instance(PROBLEM, 40, seed=0), max_iterations=20)
    theory = solve(PROBLEM) if known else None
    draw_trajectory("any.png", found, theory, damped=True)
    overlaps, losses, residual = drawn()
    h = found.history
    for (x, y), values in zip(curves(overlaps), (np.abs(h.M), h.q, h.Q), strict=True):
        np.testing.assert_array_equal(x, np.arange(1, 21))
        np.testing.assert_array_equal(y, values)
    for (_, y), values in zip(
        curves(losses), (h.generalization_loss(PROBLEM), h.training_loss), strict=True
    ):
        np.testing.assert_array_equal(y, values)
    np.testing.assert_array_equal(curves(residual)[0][1], h.residual)
    assert levels(overlaps) == ([theory.M, theory.q, theory.Q] if known else [])
    expected = [theory.generalization_loss, theory.training_energy] if known else []
    assert levels(losses) == expected
    assert overlaps.figure.get_suptitle().splitlines() == [
        found.verdict,
        f"N = {found.instance.n}, {found.problem.told()}",
    ]


def test_state_evolution_goes_on_from_a_sweep(drawn):
    found = amp(sample_instance(PROBLEM, 200, seed=0), damping=0.0, max_iterations=12)
    draw_trajectory("any.png", found, None, damped=False)
    x, y = curves(drawn()[0])[3]
    k = int(x[0]) - 2  # the sweep it starts from
    h = found.history
    limit = state_evolution(PROBLEM, M=h.M[k], Q=h.Q[k], V=h.q[k] - h.Q[k], sweeps=x.size)
    assert x[-1] == found.iterations
    np.testing.assert_array_equal(y, np.abs(limit.M))


def test_a_single_sweep_and_a_divergence_can_be_seen(drawn):
    one = amp(sample_instance(PROBLEM, 40, seed=0), max_iterations=1)
    draw_trajectory("any.png", one, None, damped=True)
    assert {line.get_marker() for ax in drawn() for line in ax.lines} == {"."}
    assert drawn()[0].get_yscale() == "linear"
    low, high = drawn()[0].get_xlim()
    assert [x for x in drawn()[0].get_xticks() if low <= x <= high] == [1]
    draw_trajectory("any.png", replace(one, diverged=True), None, damped=True)
    assert drawn()[0].get_yscale() == "log"


@pytest.mark.parametrize("chains", [1, 2, 3])
def test_the_walk_is_that_of_every_chain(drawn, chains):
    instance, theory = sample_instance(PROBLEM, 10, seed=0), solve(PROBLEM)
    with np.errstate(all="ignore"):
        found = hmc(instance, chains=chains, trajectories=60, warm_up=5)
    draw_walk("any.png", found, theory)
    walk, names = found.history, ["M", "q", "Q", "training_energy"]
    series = dict(zip(names, (walk.M, walk.q, walk.Q[:, None], walk.energy), strict=True))
    if chains == 1:
        del series["Q"]
    for ax, (name, recorded) in zip(drawn(), series.items(), strict=True):
        assert levels(ax) == [getattr(theory, name)]
        lines = curves(ax)
        for (x, y), values in zip(lines[::2], recorded.T, strict=True):
            np.testing.assert_array_equal(x, np.arange(1, 61))
            np.testing.assert_array_equal(y, values)
        for (x, y), values in zip(lines[1::2], recorded.T, strict=True):  # blocks of three
            np.testing.assert_allclose(x, np.arange(2, 61, 3))
            np.testing.assert_allclose(y, [values[k : k + 3].mean() for k in range(0, 60, 3)])
    assert labels(drawn()[0]) == [f"chain {k + 1}" for k in range(chains)] + ["theory (N → ∞)"]
    assert drawn()[0].figure.get_suptitle().startswith(found.verdict)


def test_descents_stand_in_the_order_of_their_energies(drawn):
    found = ground_state(sample_instance(COLD, 30, seed=2), restarts=8)
    theory = solve(COLD)
    draw_descents("any.png", found, theory)
    ends = found.history
    energy, overlap = drawn()
    assert (levels(energy), levels(overlap)) == ([theory.free_energy], [theory.M])
    for ax, values in ((energy, ends.energy), (overlap, np.abs(ends.M))):
        (first, random) = curves(ax)
        marks = sorted(np.concatenate([first, random], axis=1).T.tolist())
        order = np.argsort(ends.energy)
        assert marks == [[k + 1, values[order[k]]] for k in range(8)]
        assert first[1].tolist() == [values[0]]
    assert labels(energy) == ["first start (w = 1 by default)", "random starts", "theory (N → ∞)"]


def test_descents_that_stopped_early_are_open_marks(drawn):
    found = ground_state(sample_instance(COLD, 30, seed=2), restarts=3)
    history = replace(found.history, converged=np.array([True, True, False]))
    draw_descents("any.png", replace(found, history=history), None)
    energy = drawn()[0]
    assert [line.get_markerfacecolor() for line in energy.lines][1:] == ["#0072B2", "white"]
    assert energy.lines[2].get_ydata().tolist() == [found.history.energy[2]]
    assert labels(energy)[-1] == "random starts, not converged"
