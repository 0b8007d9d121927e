"""K units and C classes online. Oracles: the theory of one unit, steps of SGD pair by pair with all
N weights, one-dimensional integrals where units decouple, samples, all binary codes."""

import itertools
import math

import numpy as np
import pytest
from class_sgd import class_means, overlaps, step

from fermibose.errors import InputError
from fermibose.theory import Problem
from fermibose.theory.classes import (
    Averages,
    Classes,
    Codes,
    evolve_classes,
    plotkin_bound,
    random_start,
)
from fermibose.theory.flow import Flow

HARD = Problem(activation="half_tanh", softness=0.0, d_f=0.3, weight_decay=0.02)
GRAM = np.array([[1.2, 0.2, 0.0, -0.1], [0.2, 1.0, 0.3, 0.0], [0.0, 0.3, 0.9, 0.1],
                 [-0.1, 0.0, 0.1, 1.1]])  # fmt: skip
M0 = np.array([[0.5, -0.4, 0.3, -0.2], [-0.3, -0.5, 0.6, 0.4], [0.4, 0.6, -0.3, -0.6]])
Q0 = M0 @ np.linalg.inv(GRAM) @ M0.T + np.array([[0.8, 0.1, 0.0], [0.1, 0.7, -0.2], [0, -0.2, 0.9]])


def mean_rates(classes, M, Q, *, calls, samples=64, **given):
    """Mean and standard error of Ṁ and Q̇ over calls with fresh points."""
    average = Averages(classes, len(M), samples, np.random.default_rng(0))
    found = [average.rates(M, Q, **given) for _ in range(calls)]
    parts = [np.array(part) for part in zip(*found, strict=True)]
    return [(part.mean(0), part.std(0) / math.sqrt(calls)) for part in parts]


@pytest.mark.parametrize("batch", [2, 10])
def test_one_unit_and_two_opposite_classes_are_the_theory_of_one_unit(batch):
    problem, M, q, eta = Problem(m=1.3), 0.4, 1.3, 0.7
    gram = 1.3**2 * np.array([[1.0, -1.0], [-1.0, 1.0]])
    classes = Classes(problem, gram)
    along = np.array([[1.3 * M, -1.3 * M]])
    (M_dot, M_error), (Q_dot, Q_error) = mean_rates(
        classes, along, np.array([[q]]), calls=150, learning_rate=eta, batch=batch
    )
    wanted, v_dot = Flow(problem, batch).rates(M, q - M**2, eta)
    assert (np.abs(M_dot - 1.3 * wanted * np.array([[1, -1]])) < 4 * M_error).all()
    assert abs(Q_dot[0, 0] - v_dot - 2 * M * wanted) < 4 * Q_error[0, 0]
    assert M_error.max() < 1e-3
    assert Q_error.max() < 1e-3


@pytest.mark.parametrize("d_f", [0.3, 0.8])
def test_rates_are_mean_steps_of_sgd_with_all_weights(d_f):
    """Overlaps before and after 1200 independent steps from the same weights, N = 600, B = 5."""
    rng = np.random.default_rng(1)
    classes = Classes(Problem(activation="half_tanh", softness=0.0, d_f=d_f), GRAM)
    n, eta, batch = 600, 4.0, 5
    means = class_means(GRAM, n, rng)
    w = rng.standard_normal((3, n)) + M0 @ means
    M, Q = overlaps(w, means)
    changes = []
    for _ in range(1200):
        after = step(classes, w, means, learning_rate=eta, batch=batch, rng=rng)
        changes.append([n * (new - old).ravel() for new, old in
                        zip(overlaps(after, means), (M, Q), strict=True)])  # fmt: skip
    found = mean_rates(classes, M, Q, calls=40, learning_rate=eta, batch=batch)
    for index, (wanted, error) in enumerate(found):
        steps = np.array([change[index] for change in changes])
        spread = np.hypot(steps.std(0) / math.sqrt(len(steps)), error.ravel())
        assert np.abs((steps.mean(0) - wanted.ravel()) / spread).max() < 3.5
        assert np.abs(steps.mean(0) / spread).max() > 8


def decoupled_rates(classes, M, q, *, learning_rate, batch):
    """Ṁ_c and Q̇ of one unit whose hinge is linear, by sums over one Gaussian."""
    u = np.linspace(-8, 8, 1601)
    p = np.exp(-(u**2) / 2) * (u[1] - u[0]) / math.sqrt(2 * math.pi)
    count, delta = classes.count, classes.problem.delta
    noise = delta * math.sqrt(q) * u
    z = M[:, None] + noise
    phi = (1 + np.tanh(z)) / 2
    slope = (1 - np.tanh(z) ** 2) / 2
    mean, square = phi @ p, phi**2 @ p
    sign = np.where(np.eye(count, dtype=bool), 1.0, -1.0)  # bosons attract, fermions repel
    h = slope * (sign[:, :, None] * (phi[:, None] - mean[None, :, None])).mean(1)
    h2 = slope**2 * (phi**2 - 2 * phi * mean.mean() + square.mean())
    eta, decay = learning_rate, classes.problem.weight_decay
    pull = classes.gram @ (h @ p) / count + M / q * ((h * noise) @ p).mean()
    drift = ((h * z) @ p).mean()
    force = 4 / (batch * (batch - 1)) * ((h2 @ p).mean() + (batch - 2) * (h**2 @ p).mean())
    M_dot = -2 * eta * pull - eta * decay * M
    return M_dot, -4 * eta * drift - 2 * eta * decay * q + (eta * delta) ** 2 * force


def largest_deviation(d_f):
    """From decoupled units, in standard errors."""
    classes = Classes(Problem(activation="half_tanh", softness=0.0, d_f=d_f), GRAM)
    given = {"learning_rate": 2.0, "batch": 6}
    (M_dot, M_error), (Q_dot, Q_error) = mean_rates(classes, M0, Q0, calls=40, **given)
    apart = []
    for k in range(3):
        wanted, q_dot = decoupled_rates(classes, M0[k], Q0[k, k], **given)
        apart += list(np.abs(M_dot[k] - wanted) / M_error[k])
        apart.append(abs(Q_dot[k, k] - q_dot) / Q_error[k, k])
    assert M_error.max() < 2e-3
    return max(apart)


def test_units_decouple_where_the_hinge_is_linear():
    """φ in [0, 1], so D² <= 1 <= d_F; below that they do not."""
    assert largest_deviation(1.0) < 4
    assert largest_deviation(1.7) < 4
    assert largest_deviation(0.3) > 20


def test_sgd_with_all_weights_follows_the_equations_of_motion():
    """K = 3, C = 4, N = 200, each run beside the equations from its own start.

    Sixteen runs: a standard error of a few is itself so uncertain that it proves nothing.
    """
    classes, n, runs = Classes(HARD, np.eye(4)), 200, 16
    given = {"learning_rate": 8.0, "batch": 4}
    apart, moved = [], []
    for run in range(runs):
        rng = np.random.default_rng(run)
        means = class_means(np.eye(4), n, rng)
        w = rng.standard_normal((3, n)) + 2 * M0 @ means
        start = overlaps(w, means)
        for _ in range(2 * n):
            w = step(classes, w, means, rng=rng, **given)
        path = evolve_classes(classes, t=[2.0], start=start, step=0.5, samples=32, **given)
        theory = path.codes()
        found, before = Codes(classes, *overlaps(w, means)), Codes(classes, *start)
        assert np.array_equal(found.signs, theory.signs)
        for name in ("fermion_distance", "boson_distance", "accuracy"):
            apart.append(getattr(found, name) - getattr(theory, name))
            moved.append(getattr(theory, name) - getattr(before, name))
    apart, moved = np.reshape(apart, (runs, 3)), np.reshape(moved, (runs, 3))
    error = apart.std(0, ddof=1) / math.sqrt(runs)
    assert (np.abs(apart.mean(0)) < 3 * error).all()
    assert (np.abs(moved[:, :2].mean(0)) > 8 * error[:2]).all()


def test_codes_are_those_of_samples():
    classes = Classes(HARD, GRAM)
    codes = Codes(classes, 2 * M0, 3 * Q0)
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(3 * Q0)
    phi = np.array([
        (1 + np.tanh(2 * M0[:, c] + 0.5 * rng.standard_normal((100000, 3)) @ root.T)) / 2
        for c in range(4)
    ])  # fmt: skip
    assert codes.means == pytest.approx(phi.mean(1).T, abs=4e-3)
    boson = np.mean([((p[::2] - p[1::2]) ** 2).mean() for p in phi])
    fermion = np.mean([((phi[c] - phi[d]) ** 2).mean() for c, d in
                       itertools.combinations(range(4), 2)])  # fmt: skip
    assert codes.boson_distance == pytest.approx(boson, abs=1e-3)
    assert codes.fermion_distance == pytest.approx(fermion, abs=1e-3)
    far = ((phi[:, :, None] - codes.means.T) ** 2).sum(-1)
    right = (far.argmin(-1) == np.arange(4)[:, None]).mean()
    assert codes.accuracy == pytest.approx(right, abs=3e-3)


def test_the_rank_of_codes():
    """One pattern of all units has rank 1; a unit for each class has rank C − 1."""
    classes = Classes(HARD, np.eye(4))
    line = np.outer([1.0, 2.0, 3.0], [1.0, -1.0, 1.0, -1.0])
    assert Codes(classes, line, 0.1 * np.eye(3)).rank == pytest.approx(1)
    assert Codes(classes, 4 * np.eye(4) - 2, 0.1 * np.eye(4)).rank == pytest.approx(3)
    assert Codes(classes, np.ones((3, 4)), np.eye(3)).rank == 0
    assert Codes(classes, line, np.eye(3)).signs.tolist() == [[True, False, True, False]] * 3


@pytest.mark.parametrize("count", [2, 4, 6])
def test_no_binary_code_of_an_even_number_of_classes_beats_the_bound_and_one_reaches_it(count):
    pairs = list(itertools.combinations(range(count), 2))
    best = max(
        np.mean([code[c] != code[d] for c, d in pairs])
        for code in itertools.product((0, 1), repeat=count)
    )
    assert plotkin_bound(count) == pytest.approx(best)
    assert plotkin_bound(10) == pytest.approx(0.5556, abs=1e-4)


def test_a_trajectory_obeys_the_bound_and_carries_its_parameters():
    classes = Classes(Problem(activation="half_tanh", softness=0.0, d_f=1.0), 25 * np.eye(4))
    start = random_start(classes, 3, n=50, seed=2)
    found = evolve_classes(classes, learning_rate=4.0, t=[0.0, 10.0], start=start, samples=16,
                           step=1.0, seed=3)  # fmt: skip
    codes = found.codes()
    assert codes.fermion_distance > 2 * found.codes(0).fermion_distance
    assert codes.fermion_distance < plotkin_bound(4)
    assert np.array_equal(found.M[0], start[0])
    assert np.array_equal(found.Q[0], start[1])
    assert (found.learning_rate, found.batch, found.samples, found.seed) == (4.0, 2, 16, 3)
    again = evolve_classes(classes, learning_rate=4.0, t=[10.0], start=start, samples=16,
                           step=1.0, seed=3)  # fmt: skip
    assert np.array_equal(again.M[0], found.M[1])


def test_random_starts_are_overlaps_of_random_weights():
    """Second moments over 3000 draws: E M_kc M_kd = qG/N, E Q = q·1, Var Q_kl = q²/N."""
    classes = Classes(HARD, GRAM)
    drawn = [random_start(classes, 2, n=40, q=1.5, seed=s) for s in range(3000)]
    M, Q = (np.array(part) for part in zip(*drawn, strict=True))
    products = np.einsum("skc,skd->cd", M, M) / (2 * len(M))
    assert products == pytest.approx(1.5 * GRAM / 40, abs=0.004)
    assert Q.mean(0) == pytest.approx(1.5 * np.eye(2), abs=0.03)
    assert Q[:, 0, 1].var() == pytest.approx(1.5**2 / 40, rel=0.12)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Classes(HARD, [[1.0]]), "two classes or more"),
        (lambda: Classes(HARD, [[1.0, 2.0], [0.0, 1.0]]), "symmetric"),
        (lambda: Classes(HARD, [[1.0, 2.0], [2.0, 1.0]]), "no eigenvalue below 0"),
        (lambda: Classes(HARD, "x"), "matrix of finite numbers"),
        (lambda: Classes(Problem(hinge=np.tanh), GRAM), "hinge of your own"),
        (lambda: Classes(3, GRAM), "fermibose.theory.Problem"),
        (lambda: plotkin_bound(1), "classes must be"),
        (lambda: random_start(Classes(HARD, GRAM), 3, n=5), "n = 5 weights"),
        (lambda: random_start(3, 3, n=50), "classes.Classes"),
        (lambda: run(start=(M0, np.eye(2))), r"Q of shape \(K, K\)"),
        (lambda: run(start=(M0, -np.eye(3))), "eigenvalues above 0"),
        (lambda: run(start=3), "two matrices"),
        (lambda: run(samples=48), "a power of 2"),
        (lambda: run(batch=1), "batch must be"),
        (lambda: run(step=0), "step must be"),
    ],
)
def test_what_is_refused(call, says):
    with pytest.raises(InputError, match=says):
        call()


def run(**given):
    usual = {"learning_rate": 1.0, "t": 1.0, "start": (M0, Q0)}
    return evolve_classes(Classes(HARD, GRAM), **usual | given)
