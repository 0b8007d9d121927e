"""The training page. Oracles: one long training, eigenvalues, the theory's own trajectory."""

import re

import numpy as np
import pytest
import torch

from fermibose.data import load_dataset
from fermibose.energy import PairEnergy
from fermibose.errors import InputError
from fermibose.explore import training_page
from fermibose.explore.choices import EPOCHS
from fermibose.machine import Recipe, train
from fermibose.theory import Problem, dynamics


@pytest.fixture(scope="module")
def short(module_patch):
    module_patch.setattr(training_page, "EPOCHS", (0, 1, 2))
    module_patch.setattr(training_page, "UNITS", 20)
    training_page.lesson.cache_clear()
    yield training_page.lesson(0.5)
    training_page.lesson.cache_clear()


@pytest.fixture(scope="module")
def module_patch():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def test_looks_are_at_the_beginning_of_one_training(short):
    data = load_dataset("mnist5k")
    recipe = Recipe((20,), PairEnergy(0.5), epochs=2, readout="ridge", seed=0)
    long = train(data.x_train, data.y_train, recipe, show=False)
    batches = long.history["layer 1"]["fermion_distance"]
    per_epoch = len(batches) // 2
    assert short.fermions[0] == pytest.approx(np.mean(batches[:per_epoch]))
    assert short.fermions[1] == pytest.approx(np.mean(batches[per_epoch:]))
    assert short.bosons[1] < short.fermions[1]
    # In the plane of the last epoch, the last places keep the largest variance there is.
    shown = np.linspace(0, 999, 300).astype(int)
    h = long.net.represent(torch.tensor(data.x_train[shown])).numpy().astype(float)
    largest = np.sort(np.linalg.eigvalsh(np.cov(h.T)))[:-3:-1]
    np.testing.assert_allclose(np.var(short.places[-1], axis=0, ddof=1), largest, rtol=1e-4)
    assert short.names == [str(label) for label in data.y_train[shown]]
    assert not np.allclose(short.places[0], short.places[1])


def test_the_page_shows_the_epoch_asked_for(short):
    html = training_page.digits_page(short, 1)
    assert "Training images after 1 epochs" in html
    assert "says nothing about this course" in html
    with pytest.raises(InputError, match="epoch must be"):
        training_page.digits_page(short, 7)


def test_the_theory_is_drawn_where_it_applies():
    html = training_page.clusters_page(0.5, 1.0, 1.0)
    line = dynamics.evolve(Problem(delta=0.5, d_f=1.0), learning_rate=1.0, t=20.0)
    chart = html[html.index("Mean weight and size") :]
    path = re.search(r'<path d="(M[^"]+)" fill="none" stroke="#0072B2"', chart)[1]
    heights = np.array([float(p.split()[1]) for p in re.split("[ML]", path)[1:]])
    assert len(heights) == len(line.M)
    assert np.corrcoef(heights, -line.M)[0, 1] > 0.9999
    assert chart.count("<circle") >= 2 * 25


def test_predictions_along_a_run_are_those_of_the_theory():
    problem = Problem(delta=0.5)
    M, q = np.array([0.1, 1.0]), np.array([1.0, 1.5])
    line = dynamics.evolve(problem, learning_rate=1.0, t=[0.0, 1.0], start=(0.1, 1.0))
    found = training_page.evolved(problem, M, q, "boson_distance")
    assert found[0] == pytest.approx(line.boson_distance[0])
    assert training_page.evolved(problem, M, q, "accuracy")[0] == pytest.approx(line.accuracy[0])


@pytest.mark.parametrize("wrong", [(9.0, 1.0, 1.0), (0.5, -1.0, 1.0), (0.5, 1.0, 1e9)])
def test_out_of_range(wrong):
    with pytest.raises(InputError, match="finite number"):
        training_page.clusters_page(*wrong)
    with pytest.raises(InputError, match="d_F"):
        training_page.lesson(1e9)


def test_the_choices_end_with_the_whole_training():
    assert EPOCHS[0] == 0
    assert list(EPOCHS) == sorted(EPOCHS)
