"""The theory of given means and covariances, against round clusters, trained units, derivatives."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.covariance import ledoit_wolf

from fermibose.errors import InputError
from fermibose.theory import ConvergenceError, DataTheory, Problem, from_dataset, learning
from fermibose.theory.crowd import Group, gather

PROBLEM = Problem(pairing="all", beta=math.inf, weight_decay=0.2)


def uneven(d, *, problem=PROBLEM, knee=6.0):
    """Classes of unlike covariances that do not commute, the first of them twice as frequent."""
    rng = np.random.default_rng(5)
    spectrum = 1 / (1 + np.arange(d) * knee / d)
    spectrum *= 0.32 / spectrum.mean()
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    covariances = np.array([np.diag(spectrum), 1.5 * turn @ np.diag(spectrum) @ turn.T]) * 4 / d
    mean = rng.standard_normal((2, d)) * 1.5 / d
    mean[1] += 2 / d
    return DataTheory(problem, np.array([2 / 3, 1 / 3]), mean, covariances)


def round_clusters(share, *, samples, delta=0.5, decay=0.05):
    """M, q, χ and AT by the scalar equations of two round clusters, damped, to 1e-9."""
    M, q, chi, crowd = 0.6, 0.7, 5.0, None
    problem = replace(PROBLEM, weight_decay=decay)
    for _ in range(300):
        width, c = delta * math.sqrt(q), delta**2 * chi
        groups = [Group(share, 1, M, width, c), Group(1 - share, 0, -M, width, c)]
        crowd = gather(problem, groups, start=crowd)
        up, down = crowd.averages
        M_hat = samples * (share * up.force - (1 - share) * down.force)
        Q_hat = -samples * delta**2 * crowd.mean("force2")
        new_chi = 1 / (decay + samples * delta / math.sqrt(q) * crowd.mean("slope"))
        new = -new_chi * M_hat, new_chi**2 * (M_hat**2 - Q_hat), new_chi
        change = max(abs(a - b) for a, b in zip(new, (M, q, chi), strict=True))
        M, q, chi = ((a + b) / 2 for a, b in zip(new, (M, q, chi), strict=True))
        if change < 1e-9:
            break
    return M, q, chi, samples * c**2 * crowd.mean("curvature2")


@pytest.mark.parametrize("share", [0.5, 0.35])
def test_round_clusters_obey_the_replica_equations(share):
    N, delta = 20, 0.5
    mean = np.ones(N) / N
    theory = DataTheory(
        replace(PROBLEM, weight_decay=0.05),
        np.array([1 - share, share]),
        np.array([-mean, mean]),
        np.array([np.eye(N)] * 2) * delta**2 / N,
    )
    found = theory.predict(3 * N)
    M, q, chi, at = round_clusters(share, samples=3.0)
    assert found.means == pytest.approx([-M, M], rel=1e-6)
    assert found.variances == pytest.approx(delta**2 * q, rel=1e-6)
    assert found.stiffness == pytest.approx(delta**2 * chi, rel=1e-6)
    assert found.norm2 == pytest.approx(N * q, rel=1e-6)
    assert found.at_eigenvalue == pytest.approx(at, rel=1e-5)


def test_the_energy_grows_with_the_decay_by_half_the_norm():
    step, ends = 0.004, []
    for decay in (0.2 - step, 0.2, 0.2 + step):
        theory = uneven(30, problem=replace(PROBLEM, weight_decay=decay), knee=60.0)
        ends.append(theory.predict(60, tol=1e-9))
    slope = (ends[2].energy - ends[0].energy) / (2 * step)
    assert slope == pytest.approx(ends[1].norm2 / 2, rel=1e-4)


def trained(problem, x, second, start):
    """A minimum of E by sums over all pairs."""
    same = second[:, None] == second
    n = len(x)

    def energy(w):
        z = x @ w
        phi = np.tanh(z)
        D = phi[:, None] - phi
        H, force = problem.pair_energy.energy_and_force(D**2, same)
        push = (2 * D * force).sum(1) * (1 - phi**2) / n
        decay = problem.weight_decay
        return H.sum() / (2 * n) + decay * w @ w / 2, x.T @ push + decay * w

    return minimize(energy, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-12}).x, energy


def test_units_trained_on_samples_meet_the_prediction():
    d, n, draws = 120, 180, 12
    theory = uneven(d)
    found = theory.predict(n)
    roots = [np.linalg.cholesky(S).T for S in theory.covariances]
    rng = np.random.default_rng(2)
    second = np.arange(n) >= 2 * n // 3
    seen = []
    for _ in range(draws):
        noise = rng.standard_normal((n, d))
        x = np.where(second[:, None], noise @ roots[1], noise @ roots[0])
        x += theory.means[second.astype(int)]
        w, energy = trained(PROBLEM, x, second, (theory.means[1] - theory.means[0]) * d / 20)
        spread = [w @ S @ w for S in theory.covariances]
        seen.append([*(theory.means @ w), *spread, w @ w, energy(w)[0]])
    mean, error = np.mean(seen, 0), np.std(seen, 0, ddof=1) / math.sqrt(draws)
    expected = [*found.means, *found.variances, found.norm2, found.energy]
    # Three errors, and 2 % for what a finite dimension adds
    assert np.all(np.abs(mean - expected) < 3 * error + 0.02 * np.abs(expected))
    assert np.all(error < 0.08 * np.abs(expected))  # so that a wrong factor would be seen


def test_what_is_said_of_new_data_is_what_samples_show():
    found = uneven(30).predict(60)
    rng = np.random.default_rng(0)
    count = 400_000
    z = found.means[:, None] + np.sqrt(found.variances)[:, None] * rng.standard_normal((2, count))
    right = found.shares @ [(z[0] < 0).mean(), (z[1] > 0).mean()]
    assert found.accuracy == pytest.approx(right, abs=0.003)
    phi = np.tanh(z)
    fermions = (phi[0] - phi[1]) ** 2
    assert found.fermion_distance == pytest.approx(fermions.mean(), abs=0.006)
    half = count // 2
    bosons = ((phi[:, :half] - phi[:, half:]) ** 2).mean(1)
    assert found.boson_distance == pytest.approx((4 * bosons[0] + bosons[1]) / 5, abs=0.006)
    assert abs(bosons[0] - bosons[1]) > 0.02  # or the weights of the classes would not show


def images(seed=0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat([3, 5, 8], [60, 40, 90]))
    x = rng.standard_normal((190, 12)) * np.linspace(0.2, 1.5, 12) + 0.3
    x[y == 8, :3] += 1.0
    return x, y


def test_moments_are_those_of_the_chosen_classes():
    x, y = images()
    theory = from_dataset(x, y, classes=(3, 8), shrinkage=0.0)
    pair = x[(y == 3) | (y == 8)]
    assert theory.shares == pytest.approx([60 / 150, 90 / 150])
    assert theory.means[1] == pytest.approx(x[y == 8].mean(0) - pair.mean(0))
    assert theory.covariances[0] == pytest.approx(np.cov(x[y == 3].T, bias=True))
    assert theory.project(x) == pytest.approx(x - pair.mean(0))


def test_default_shrinkage_is_that_of_ledoit_and_wolf():
    x, y = images()
    theory = from_dataset(x, y, classes=(3, 8))
    for c, label in enumerate((3, 8)):
        assert theory.covariances[c] == pytest.approx(ledoit_wolf(x[y == label])[0], rel=1e-10)


def test_principal_axes_keep_the_largest_variances():
    x, y = images()
    full, few = (from_dataset(x, y, classes=(3, 8), components=k, shrinkage=0.0) for k in (12, 4))
    centred = x[(y == 3) | (y == 8)] - full.centre
    kept = np.sort(np.linalg.eigvalsh(centred.T @ centred / len(centred)))[::-1][:4]
    assert few.project(x[(y == 3) | (y == 8)]).var(0) == pytest.approx(kept)
    plain = from_dataset(x, y, classes=(3, 8), shrinkage=0.0)
    a, b = plain.predict(100), full.predict(100)  # a rotation changes nothing
    assert (a.accuracy, a.energy) == pytest.approx((b.accuracy, b.energy), rel=1e-6)


def test_units_of_pixels_and_order_of_classes_do_not_matter():
    x, y = images()
    found = from_dataset(x, y, classes=(3, 8)).predict(80)
    problem = Problem(pairing="all", beta=math.inf, weight_decay=9.0)
    scaled = from_dataset(3 * x + 1, y, classes=(8, 3), problem=problem).predict(80)
    assert scaled.accuracy == pytest.approx(found.accuracy, rel=1e-6)
    assert scaled.boson_distance == pytest.approx(found.boson_distance, rel=1e-6)
    assert scaled.training_energy == pytest.approx(found.training_energy, rel=1e-6)
    assert scaled.means == pytest.approx(-found.means[::-1], rel=1e-6)


def test_a_curve_is_its_points():
    theory = uneven(20)
    curve = theory.curve([40, 80, 160])
    assert [p.n for p in curve] == [40, 80, 160]
    assert curve[2].accuracy == pytest.approx(theory.predict(160).accuracy, abs=1e-6)
    assert curve[0].accuracy < curve[1].accuracy < curve[2].accuracy


def test_of_two_states_the_lower_wins(monkeypatch):
    theory = uneven(10)
    low = theory.predict(20)
    high = replace(low, norm2=low.norm2 + 5)  # whose decay costs 0.2·5/2 more
    states = iter([high, low])
    monkeypatch.setattr(learning, "_solved", lambda *_: next(states))
    found = theory.predict(20)
    assert found.energy == low.energy
    assert [rival.energy for rival in found.rivals] == [pytest.approx(low.energy + 0.5)]


def test_refusals(monkeypatch):
    x, y = images()
    with pytest.raises(InputError, match="two classes are needed, not 3: choose them"):
        from_dataset(x, y)
    with pytest.raises(InputError, match="class 4 has fewer than two images"):
        from_dataset(x, y, classes=(3, 4))
    with pytest.raises(InputError, match="components = 13 of 12 pixels"):
        from_dataset(x, y, classes=(3, 8), components=13)
    with pytest.raises(InputError, match="zero temperature: use beta"):
        from_dataset(x, y, classes=(3, 8), problem=Problem(pairing="all"))
    with pytest.raises(InputError, match="needs an odd activation"):
        uneven(5, problem=replace(PROBLEM, activation=lambda z: np.tanh(z) + np.tanh(z) ** 2))
    with pytest.raises(InputError, match="not finite"):
        from_dataset(np.where(x > 2, np.nan, x), y, classes=(3, 8))
    with pytest.raises(InputError, match="n must be a whole number of at least 2"):
        uneven(5).predict(1)
    monkeypatch.setattr("fermibose.theory.learning._ITERATIONS", 2)
    with pytest.raises(ConvergenceError, match="n = 50 were not solved"):
        uneven(5).predict(50)


def test_moments_may_be_lists_and_what_they_are_not_is_told():
    given = ([0.5, 0.5], [[-1.0, 0.0], [1.0, 0.0]], [[[1.0, 0.0], [0.0, 1.0]]] * 2)
    theory = DataTheory(PROBLEM, *given)
    arrays = DataTheory(PROBLEM, *map(np.array, given))
    assert theory.predict(10).accuracy == arrays.predict(10).accuracy
    for place, wrong, says in (
        (0, (0.5, 0.6), "two positive numbers of sum 1"),
        (0, ("a", "b"), "shares must be finite numbers"),
        (1, 3.0, "one of each class"),
        (2, [[[math.nan]]], "covariances must be finite numbers"),
    ):
        with pytest.raises(InputError, match=says):
            DataTheory(PROBLEM, *(wrong if k == place else g for k, g in enumerate(given)))
