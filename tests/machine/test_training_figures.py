"""Figures of a training. Oracle: the axes as drawn, and where matplotlib puts them."""

from contextlib import contextmanager

import numpy as np
import pytest

from fermibose import PairEnergy
from fermibose.machine import Recipe, evaluation, train
from fermibose.plotting import canvas


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """The left panel for a readout of a kind, drawn but not written."""
    kept = []

    @contextmanager
    def keep(path, **layout):
        with canvas(**layout) as (fig, axes):
            yield fig, axes
            fig.draw_without_rendering()
            kept.append(axes[0, 0])

    def draw(**readout):
        x = np.random.default_rng(0).random((40, 6), dtype=np.float32)
        y = np.arange(40) % 2
        recipe = Recipe((4,), PairEnergy(0.4), epochs=1, batch_size=20, **readout)
        evaluation.draw_curves(
            {"machine": train(x, y, recipe, test=(x, y))}, tmp_path / "unused.png"
        )
        return kept.pop()

    monkeypatch.setattr(evaluation, "figure", keep)
    return draw


@pytest.mark.parametrize(
    ("readout", "told"),
    [
        ({"readout": "ridge"}, "closed-form readout"),
        ({"readout_epochs": 1}, ""),
    ],
)
def test_accuracies_without_a_course_are_levels_and_the_legend_is_not_on_them(readout, told, drawn):
    axes = drawn(**readout)
    assert axes.get_xlabel() == told
    assert not axes.get_xticks().size
    assert len(axes.lines) == 2
    assert axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1 - 1


def test_accuracies_of_several_epochs_are_drawn_against_them(drawn):
    axes = drawn(readout_epochs=3)
    assert axes.get_xlabel() == "epoch of the classifier"
    assert [line.get_xdata().tolist() for line in axes.lines] == [[1, 2, 3]] * 2


def test_the_last_layer_that_was_trained_is_drawn():
    x, y = np.random.default_rng(0).random((40, 6), dtype=np.float32), np.arange(40) % 2
    energies = PairEnergy(0.2), PairEnergy(0.4)
    recipe = Recipe((4, 4), energies, epochs=(1, 0), batch_size=20, readout_epochs=1)
    figure = evaluation.draw_curves({"machine": train(x, y, recipe)}, None)
    assert figure.axes[1].get_xlabel() == "mini-batch (machine, layer 1)"
    labels = [text.get_text() for text in figure.axes[1].get_legend().get_texts()]
    assert labels[-1] == "target $d_F$ = 0.2"


def test_a_training_without_records_has_an_empty_table():
    x, y = np.random.default_rng(0).random((40, 6), dtype=np.float32), np.arange(40) % 2
    training = train(x, y, Recipe((4,), epochs=0, readout_epochs=0))
    assert training.to_frame().empty
