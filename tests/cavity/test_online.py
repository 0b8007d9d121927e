"""SGD on fresh samples. Oracles: a step written pair by pair; the equations of motion; the same law
with all weights and with projections only."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import ks_2samp

from fermibose.cavity import sgd
from fermibose.cavity.online import _Projections, _Vectors
from fermibose.errors import InputError
from fermibose.theory import Problem
from fermibose.theory.dynamics import evolve

SKEWED = Problem(pairing="all", balance=0.3, mislabelled=0.1, delta=0.8, d_f=0.6)


def test_a_step_is_that_of_the_mean_energy_of_all_pairs():
    """w(1 − ηλ/N) − η∇, ∇ by finite differences of the energy of the very samples it drew."""
    problem, n, eta, batch = SKEWED, 30, 1.3, 4
    sim = _Vectors(problem, n, eta, batch, 1, np.random.default_rng(3))
    sim.begin(0.2, 0.9)
    before = sim.w[0].copy()
    again = _Vectors(problem, n, eta, batch, 1, np.random.default_rng(3))
    again.begin(0.2, 0.9)
    y, labels = (part[0, 0] for part in again.classes(1))
    x = problem.delta / math.sqrt(n) * again.rng.standard_normal((batch, n))
    x += problem.m * y[:, None] / n

    def energy(w):
        pairs = list(itertools.combinations(range(batch), 2))
        H = [problem.energies(x[i] @ w, x[j] @ w)[int(labels[i] != labels[j])] for i, j in pairs]
        return sum(H) / len(pairs)

    h = 1e-5
    slope = [(energy(before + h * e) - energy(before - h * e)) / (2 * h) for e in np.eye(n)]
    sim.advance(1)
    wanted = before * (1 - eta * problem.weight_decay / n) - eta * np.array(slope)
    assert sim.w[0] == pytest.approx(wanted, abs=1e-8)


def test_labels_follow_the_problem():
    rng = np.random.default_rng(0)
    y, labels = _Projections(SKEWED, 10, 1.0, 5, 4, rng).classes(5000)
    assert (y == 1).mean() == pytest.approx(0.3, abs=0.006)
    assert (labels != y).mean() == pytest.approx(0.1, abs=0.004)
    y, labels = _Projections(Problem(rho=0.8), 10, 1.0, 2, 4, rng).classes(5000)
    assert (y[..., 0] == y[..., 1]).mean() == pytest.approx(0.8, abs=0.012)
    assert y.mean() == pytest.approx(0, abs=0.03)
    assert np.array_equal(y, labels)


@pytest.mark.parametrize("start", [(0.3, 1.2), 1.2])
def test_projections_have_the_law_of_all_weights(start):
    """Kolmogorov-Smirnov of M and q; N so small that what is of order 1/N would show."""
    common = {"learning_rate": 3.0, "t": [2.0], "start": start, "batch": 4}
    ours = sgd(SKEWED, 12, runs=3000, seed=1, **common)
    full = sgd(SKEWED, 12, runs=3000, seed=2, vectors=True, **common)
    for name in ("M", "q"):
        assert ks_2samp(getattr(ours, name)[:, 0], getattr(full, name)[:, 0]).pvalue > 0.01


@pytest.mark.parametrize(
    ("problem", "rate", "batch"),
    [(Problem(), 1.0, 2), (SKEWED, 3.0, 8), (Problem(rho=0.3), 2.0, 2)],
)
def test_all_weights_follow_the_equations_of_motion(problem, rate, batch):
    """N = 1000, all inputs of every sample drawn; within three standard errors of ten runs."""
    common = {"learning_rate": rate, "batch": batch, "start": (0.3, 1.0), "t": [0.5, 1.0]}
    runs = sgd(problem, 1000, runs=10, vectors=True, seed=4, **common)
    theory = evolve(problem, **common)
    for name in ("M", "q"):
        found, wanted = getattr(runs, name), getattr(theory, name)
        error = found.std(0, ddof=1) / math.sqrt(10)
        assert (np.abs(found.mean(0) - wanted) < 3 * error).all()
        assert (error < 0.02).all()
        assert abs(wanted[1] - (0.3, 1.0)[name == "q"]) > 3 * error[1]


@pytest.mark.parametrize(("rate", "batch"), [(0.5, 2), (2.0, 10), (1.0, 50)])
def test_four_thousand_weights_follow_the_equations_of_motion(rate, batch):
    common = {"learning_rate": rate, "batch": batch, "start": (0.3, 1.0), "t": [0.75]}
    runs = sgd(Problem(), 4000, runs=10, seed=5, **common)
    theory = evolve(Problem(), **common)
    for name in ("M", "q"):
        found, wanted = getattr(runs, name)[:, 0], getattr(theory, name)[0]
        assert abs(found.mean() - wanted) < 2 * found.std(ddof=1) / math.sqrt(10)


def test_a_run_follows_from_its_seed_and_carries_its_parameters():
    a, b = (sgd(Problem(), 50, learning_rate=1, t=2.0, runs=3, seed=7) for _ in range(2))
    assert np.array_equal(a.M, b.M)
    other = sgd(Problem(), 50, learning_rate=1, t=2.0, runs=3, seed=8)
    assert not np.array_equal(a.M[:, -1], other.M[:, -1])
    assert (a.n, a.learning_rate, a.batch, a.seed, a.t[-1]) == (50, 1.0, 2, 7, 2.0)
    assert (a.M[:, 0], a.q[:, 0]) == (pytest.approx([0.1] * 3), pytest.approx([1.0] * 3))
    assert a.M.shape == (3, 200)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n": 2}, "n must be a whole number of at least 3"),
        ({"runs": 0}, "runs must be"),
        ({"batch": 3, "problem": Problem(rho=0.2)}, "balance=π"),
        ({"start": (2.0, 1.0)}, "q of start must be"),
        ({"start": -1.0}, "q of start must be"),
        ({"t": [2, 1]}, "increasing times"),
        ({"problem": Problem(hinge=np.tanh)}, "hinge of your own"),
        ({"problem": 3}, "fermibose.theory.Problem"),
        ({"seed": -1}, "seed must be"),
        ({"vectors": 1}, "vectors must be True or False"),
    ],
)
def test_what_is_refused(arguments, says):
    given = {"problem": Problem(), "n": 10, "learning_rate": 1.0, "t": 1.0} | arguments
    with pytest.raises(InputError, match=says):
        sgd(given.pop("problem"), given.pop("n"), **given)
