"""Sampling and ground states. Oracles: finite differences and plain loops for the energy, exact
integration in two dimensions, replica theory, a grid search."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import roots_legendre

from fermibose.cavity import Instance, Pairs, ground_state, hmc, sample_instance, sampling
from fermibose.cavity.ground import Landscape
from fermibose.cavity.sampling import ladder, overlap
from fermibose.errors import InputError
from fermibose.theory import Problem, solve


def plain_energy(problem, x, same, w):
    """E of one weight vector, with loops and the energy as printed."""
    total = problem.weight_decay / 2 * sum(c * c for c in w)
    for mu in range(x.shape[1]):
        D = float(problem.phi(x[0, mu] @ w) - problem.phi(x[1, mu] @ w))
        gap = problem.d_f - D * D
        total += D * D / 2 if same[mu] else (gap + math.sqrt(gap**2 + problem.softness)) / 4
    return total


@pytest.mark.parametrize("activation", ["tanh", "half_tanh", lambda z: np.tanh(z) + 0.1 * z])
def test_energy_and_gradient(activation):
    problem = Problem(alpha=1.5, activation=activation, weight_decay=0.3)
    instance = sample_instance(problem, 8, seed=0)
    landscape, train = Landscape(instance), instance.train
    rng = np.random.default_rng(0)
    w, move = rng.standard_normal((2, 8, 3))
    energy, gradient = landscape.energy_and_gradient(w)
    for k in range(3):
        assert energy[k] == pytest.approx(plain_energy(problem, train.x, train.same, w[:, k]))
    h = 1e-5
    up, down = (landscape.energy_and_gradient(w + s * h * move)[0] for s in (1, -1))
    np.testing.assert_allclose((gradient * move).sum(0), (up - down) / (2 * h), rtol=1e-6)
    decay = problem.weight_decay / 2 * (w**2).sum(0)
    np.testing.assert_allclose(landscape.pair_energy(w), (energy - decay) / 12)


@pytest.mark.parametrize("k", [3, 30, 300, 1000])
def test_a_steep_activation_is_tanh_of_larger_weights(k):
    """φ(z) = tanh(kz) at w is tanh at kw, whose slope is known: the gradient of the pairs is k
    times that, and only the decay, made weak here, knows the weights themselves."""
    tiny = 1e-12
    steep = Problem(alpha=1.5, activation=lambda z: np.tanh(k * z), weight_decay=tiny)
    instance = sample_instance(steep, 8, seed=0)
    w = np.random.default_rng(0).standard_normal((8, 3)) / k
    energy, gradient = Landscape(instance).energy_and_gradient(w)
    plain = replace(instance, problem=Problem(alpha=1.5, weight_decay=tiny))
    expected, slope = Landscape(plain).energy_and_gradient(k * w)
    np.testing.assert_allclose(energy, expected, rtol=1e-9)
    np.testing.assert_allclose(gradient, k * slope, rtol=0, atol=1e-9 * k * np.abs(slope).max())


def two_weights(beta):
    """Three pairs that two weights feel strongly; fermions make two modes."""
    problem = Problem(alpha=1.5, beta=beta, weight_decay=0.4)
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, 3, 2))
    y = np.array([[1, 1, -1], [-1, 1, 1]])
    pairs = Pairs(x, y)
    return Instance(problem, pairs, pairs, 0)


def exact(instance):
    """⟨|M|⟩, ⟨q⟩ and ⟨energy of a pair⟩ by integration over the two weights."""
    u, c = roots_legendre(160)
    grid = 7 * u
    w = np.stack([a.ravel() for a in np.meshgrid(grid, grid)])
    E = Landscape(instance).energy_and_gradient(w)[0]
    weight = np.outer(c, c).ravel() * np.exp(-instance.problem.beta * (E - E.min()))
    weight /= weight.sum()
    q = (w**2).mean(0)
    energy = (E - instance.problem.weight_decay * q) / len(instance.train)
    return weight @ np.abs(w.mean(0)), weight @ q, weight @ energy


@pytest.mark.parametrize(("beta", "hottest"), [(3.0, None), (12.0, 1.5)])
def test_sampling_is_exact_integration(beta, hottest):
    instance = two_weights(beta)
    found = hmc(instance, hottest=hottest, trajectories=2500, warm_up=300, seed=1)
    M, q, energy = exact(instance)
    assert abs(found.M - M) < 5 * found.errors["M"]
    assert abs(found.q - q) < 5 * found.errors["q"]
    assert found.errors["q"] < 0.05 * q
    assert found.training_loss == pytest.approx(energy, rel=0.1)


def test_sampling_meets_replica_theory_at_high_temperature():
    """α = 1, β = 5: a small instance scatters around theory by its size, not by its errors."""
    problem = Problem(alpha=1.0, beta=5.0)
    theory = solve(problem)
    found = [
        hmc(sample_instance(problem, 80, seed=s, counts="exact"), trajectories=250, warm_up=150)
        for s in range(6)
    ]
    for name in ("M", "q", "Q"):
        values = np.array([getattr(f, name) for f in found])
        error = values.std(ddof=1) / math.sqrt(values.size)
        assert abs(values.mean() - getattr(theory, name)) < 4 * error + 1 / 80
    assert all(0.5 < f.acceptance < 0.99 for f in found)
    assert all(f.exchange == 1.0 for f in found)  # no colder than the hottest: no ladder


def test_a_chain_that_keeps_its_signs_is_noticed():
    """Chains that start in different modes at low temperature disagree; tempered they do not."""
    problem = Problem(alpha=1.5, beta=60.0)
    x = np.random.default_rng(12).standard_normal((2, 3, 2))
    pairs = Pairs(x, np.array([[1, 1, -1], [-1, -1, 1]]))
    instance = Instance(problem, pairs, pairs, 0)
    stuck = hmc(instance, hottest=None, trajectories=400, warm_up=200, chains=4, seed=3)
    tempered = hmc(instance, hottest=1.0, trajectories=3000, warm_up=300, chains=4, seed=3)
    assert not stuck.converged
    assert tempered.converged
    assert abs(tempered.M - exact(instance)[0]) < 6 * tempered.errors["M"]
    assert tempered.exchange > 0.1


def test_what_never_moves_has_not_converged():
    """Spreads of a walk that stands still are 0/0: NaN, which no comparison of maxima may hide."""
    instance = sample_instance(Problem(alpha=0.5), 20, seed=0)
    with np.errstate(all="ignore"):
        found = hmc(instance, start=np.full(20, 1e200), trajectories=20, warm_up=5)
    assert found.acceptance == 0
    assert not found.converged


def test_a_ladder_without_exchange_has_not_converged(monkeypatch):
    monkeypatch.setattr(sampling, "ladder", lambda *_: np.array([1e-6, 2.0]))
    instance = sample_instance(Problem(alpha=0.5, beta=2.0), 10, seed=0)
    found = hmc(instance, trajectories=400, warm_up=90)  # too short to lay another
    assert max(found.agreement.values()) < 1.1
    assert found.exchange == 0
    assert not found.converged


def test_a_mended_ladder_samples_the_same(monkeypatch):
    """Two weights by exact integration, from a ladder that had to be laid anew."""
    instance = two_weights(40.0)
    monkeypatch.setattr(sampling, "ladder", lambda *_: np.array([0.01, 40.0]))
    found = hmc(instance, trajectories=3000, warm_up=500, chains=4, seed=1)
    M, q, _ = exact(instance)
    assert found.betas.size > 2
    assert abs(found.M - M) < 5 * found.errors["M"]
    assert abs(found.q - q) < 5 * found.errors["q"]


def test_the_energy_of_a_pair_is_that_of_the_pairs_there_are():
    """Four times the pairs that α says: the mean over them, not over αN."""
    instance = two_weights(3.0)
    four = Pairs(np.tile(instance.train.x, (1, 4, 1)), np.tile(instance.train.y, (1, 4)))
    instance = Instance(instance.problem, four, four, 0)
    found = hmc(instance, hottest=None, trajectories=1500, warm_up=300, seed=1)
    assert found.training_loss == pytest.approx(exact(instance)[2], rel=0.1)


@pytest.mark.parametrize("flips", [True, False])
def test_the_overlap_of_chains(flips):
    """Two of four chains near a state, two near its mirror image; the mean weight is zero."""
    rng = np.random.default_rng(0)
    state = rng.standard_normal(200)
    state -= state.mean()
    w = np.array([1, -1, -1, 1]) * state[:, None] + 0.1 * rng.standard_normal((200, 4))
    pairs = [(a, b) for a in range(4) for b in range(a)]
    plain = [sum(w[i, a] * w[i, b] for i in range(200)) / 200 for a, b in pairs]
    expected = np.mean(np.abs(plain) if flips else plain)
    assert overlap(w, flips=flips) == pytest.approx(expected, rel=1e-12)
    assert math.isnan(overlap(w[:, :1], flips=flips))


def test_without_clusters_the_overlap_has_no_sign():
    """m = 0: M vanishes, and its sign says nothing about which of ±w a chain is near."""
    instance = sample_instance(Problem(m=0.0, beta=10.0), 100, seed=2)
    walk = hmc(instance, hottest=2.0, trajectories=150, warm_up=100).history
    assert walk.Q.min() > 0
    shifted = Problem(m=0.0, beta=10.0, activation=lambda z: np.tanh(z + 1.0))
    walk = hmc(sample_instance(shifted, 20, seed=2), trajectories=60, warm_up=20).history
    assert walk.Q.min() < 0  # −w is another state there: nothing may be flipped


def test_weights_that_vanish_have_predictions_too():
    """Of bosons alone w = 0 is the ground state; ε_g is that of weights that nearly vanish."""
    problem = Problem(rho=1.0, beta=math.inf)
    found = ground_state(sample_instance(problem, 5), start=np.zeros(5), restarts=1)
    assert (found.q, found.accuracy, found.generalization_loss) == (0.0, 0.5, 0.0)
    mixed = replace(found, instance=sample_instance(Problem(rho=0.3, beta=math.inf), 5))
    nearly = replace(mixed, weights=np.full(5, 1e-9) * [1, -1, 1, -1, 0])
    assert mixed.generalization_loss == pytest.approx(nearly.generalization_loss, rel=1e-9)
    assert mixed.fermion_distance == mixed.boson_distance == 0


def test_the_verdict_of_one_chain_speaks_of_one():
    """Whatever the walks did: told that their parts disagree."""
    instance = sample_instance(Problem(beta=5.0), 20, seed=0)
    for chains, told in ((1, "the halves of the only chain disagree"), (2, "the chains disagree")):
        found = hmc(instance, chains=chains, trajectories=20)
        apart = replace(found, agreement=dict.fromkeys(found.agreement, 2.0), converged=False)
        assert told in apart.verdict


def test_the_same_seed_walks_the_same_way():
    instance = sample_instance(Problem(alpha=1.0, beta=8.0), 20, seed=0)
    one, again = (hmc(instance, trajectories=30, warm_up=10) for _ in range(2))
    np.testing.assert_array_equal(one.history.M, again.history.M)
    other = hmc(instance, trajectories=30, warm_up=10, seed=7)
    assert (other.history.M != one.history.M).all()


def test_the_ladder_reaches_both_ends_and_grows_with_size():
    betas = ladder(50.0, 5.0, 200)
    assert betas[0] == pytest.approx(5.0)
    assert betas[-1] == pytest.approx(50.0)
    assert ladder(50.0, 5.0, 800).size == pytest.approx(2 * betas.size, abs=2)
    assert list(ladder(4.0, 5.0, 200)) == [4.0]


def test_the_ground_state_of_two_weights_is_that_of_a_grid():
    instance = two_weights(50.0)
    found = ground_state(instance, restarts=12)
    axis = np.linspace(-4, 4, 801)
    w = np.stack([a.ravel() for a in np.meshgrid(axis, axis)])
    lowest = Landscape(instance).energy_and_gradient(w)[0].min() / 2
    assert found.converged
    assert lowest - 1e-4 < found.energy <= lowest
    assert found.energy == min(found.history.energy)
    assert len(found.history.energy) == 12
    assert found.history.M[found.history.energy.argmin()] == found.M


def test_a_descent_whose_gradient_is_left_has_not_converged():
    """Rounding stops every descent far above a tol of 1e-16."""
    instance = two_weights(50.0)
    found = ground_state(instance, restarts=3, tol=1e-16)
    gradient = Landscape(instance).energy_and_gradient(found.weights[:, None])[1]
    assert np.abs(gradient).max() > 1e-14
    assert not found.converged
    assert found.verdict.startswith("did not converge: the gradient is not zero; energy per weight")
    assert ground_state(instance, restarts=3).history.converged.all()


def test_ground_states_approach_zero_temperature_theory():
    problem = Problem(alpha=0.5, beta=math.inf)
    theory = solve(problem)
    found = [ground_state(sample_instance(problem, 200, seed=s), restarts=2) for s in range(8)]
    f = np.array([g.energy for g in found])
    # Replica symmetry is broken here: its free energy is a lower bound, and close.
    assert abs(f.mean() - theory.free_energy) < 4 * f.std(ddof=1) / math.sqrt(8)
    assert f.std(ddof=1) < 0.2 * f.mean()


def test_arguments_are_checked():
    instance = sample_instance(Problem(), 10, seed=0)
    with pytest.raises(InputError, match="finite beta"):
        hmc(instance.at(math.inf))
    with pytest.raises(InputError, match="trajectories must be a whole number of at least 20"):
        hmc(instance, trajectories=3)
    with pytest.raises(InputError, match="10 finite weights"):
        hmc(instance, start=np.ones(3))
    with pytest.raises(InputError, match=r"hottest .* must be a finite number > 0"):
        hmc(instance, hottest=-1.0)
    with pytest.raises(InputError, match="10 finite weights"):
        ground_state(instance, start=np.full(10, np.nan))
    with pytest.raises(InputError, match="restarts"):
        ground_state(instance, restarts=0)
    with pytest.raises(InputError, match="hinge of your own"):
        ground_state(sample_instance(Problem(hinge=np.abs), 10, seed=0))
