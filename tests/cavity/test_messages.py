"""Belief propagation and AMP. Oracles: the cavity equations as printed in plain loops with scipy's
integration, exact integration of a single pair, each other, replica theory, state evolution."""

import math
import re
import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest
from scipy.special import roots_legendre

from fermibose.cavity import (
    Instance,
    Pairs,
    amp,
    belief_propagation,
    bp_memory,
    sample_instance,
    state_evolution,
)
from fermibose.cavity.amp import _Amp
from fermibose.cavity.bp import _Bp
from fermibose.cavity.messages import Mixer
from fermibose.errors import InputError
from fermibose.theory import Problem, solve

NODES, WEIGHTS = roots_legendre(500)


def integrate(problem, omega, V, same):
    """f and ∂f by Gauss-Legendre over ±9 widths, with the energy as printed."""
    root = np.linalg.cholesky(V)
    u = 9 * NODES
    z1 = omega[0] + root[0, 0] * u[:, None] + 0 * u
    z2 = omega[1] + root[1, 0] * u[:, None] + root[1, 1] * u
    d2 = (problem.phi(z1) - problem.phi(z2)) ** 2
    gap = problem.d_f - d2
    H = d2 / 2 if same else (gap + np.sqrt(gap**2 + problem.softness)) / 4
    g = np.outer(WEIGHTS * np.exp(-(u**2) / 2), WEIGHTS * np.exp(-(u**2) / 2))
    g *= np.exp(-problem.beta * H)
    g /= g.sum()
    d = np.stack([z1 - omega[0], z2 - omega[1]])
    inverse = np.linalg.inv(V)
    f = inverse @ np.array([(g * c).sum() for c in d])
    second = np.array([[(g * a * b).sum() for a in d] for b in d])
    return f, inverse @ second @ inverse - inverse - np.outer(f, f)


def test_messages_are_those_of_the_printed_equations():
    """N = 4, P = 3: two sweeps of loops that leave the receiver out of every sum."""
    problem = Problem(alpha=0.75, beta=8.0, delta=1.1, weight_decay=0.4, softness=0.05)
    instance = sample_instance(problem, 4, seed=2)
    x, same = instance.train.x, instance.train.same
    assert set(same) == {True, False}
    start = np.random.default_rng(0).standard_normal(4)
    m = np.tile(start, (3, 1))
    v = np.full((3, 4), 1 / (problem.beta * problem.weight_decay))
    bp = _Bp(instance, start)
    messages = bp.start
    for _ in range(2):
        A, B = np.zeros((3, 4)), np.zeros((3, 4))
        for mu in range(3):
            for i in range(4):
                others = [j for j in range(4) if j != i]
                omega = sum(m[mu, j] * x[:, mu, j] for j in others)
                V = sum(v[mu, j] * np.outer(x[:, mu, j], x[:, mu, j]) for j in others)
                f, df = integrate(problem, omega, V, same[mu])
                A[mu, i], B[mu, i] = -x[:, mu, i] @ df @ x[:, mu, i], x[:, mu, i] @ f
        prior = problem.beta * problem.weight_decay
        for mu in range(3):
            for i in range(4):
                others = [nu for nu in range(3) if nu != mu]
                v[mu, i] = 1 / max(prior + sum(A[nu, i] for nu in others), prior / 2)
                m[mu, i] = v[mu, i] * sum(B[nu, i] for nu in others)
        messages, marginals = bp.sweep(messages)
        np.testing.assert_allclose(messages.reshape(2, 3, 4), [m, v], atol=1e-6)
        whole = 1 / np.maximum(prior + A.sum(0), prior / 2)
        np.testing.assert_allclose(marginals.variance, whole, atol=1e-6)
        np.testing.assert_allclose(marginals.mean, whole * B.sum(0), atol=1e-6)


def test_a_sweep_of_amp_is_the_printed_sum():
    problem = Problem(alpha=0.75, beta=8.0, delta=1.1, weight_decay=0.4, softness=0.05)
    instance = sample_instance(problem, 4, seed=2)
    x, same = instance.train.x, instance.train.same
    m = np.random.default_rng(0).standard_normal(4)
    algorithm = _Amp(instance, m)
    state = algorithm.start
    v, f = np.full(4, 1 / 3.2), np.zeros((3, 2))
    for _ in range(2):
        A, B = np.zeros(4), np.zeros(4)
        new = np.zeros((3, 2))
        for mu in range(3):
            V = sum(v[i] * np.outer(x[:, mu, i], x[:, mu, i]) for i in range(4))
            omega = sum(m[i] * x[:, mu, i] for i in range(4)) - V @ f[mu]
            new[mu], df = integrate(problem, omega, V, same[mu])
            for i in range(4):
                A[i] -= x[:, mu, i] @ df @ x[:, mu, i]
                B[i] += x[:, mu, i] @ new[mu]
        f = new
        v_new = 1 / np.maximum(3.2 + A, 1.6)
        m, v = v_new * (B + A * m), v_new
        state, _ = algorithm.sweep(state)
        np.testing.assert_allclose(state, [*m, *v, *f.ravel()], atol=1e-6)


def single_pair(n, same, problem, rng):
    """One pair whose fields have the same law at every N, and a prior as wide as the fields."""
    x = rng.standard_normal((2, 1, n)) / math.sqrt(n)
    y = np.array([[1], [1 if same else -1]])
    return Instance(problem, Pairs(x, y), Pairs(x, y), 0)


def exact_marginals(instance):
    """Means and variances of the weights of one pair.

    The weights are Gaussian given the two fields, so moments of the fields (by quadrature) suffice.
    """
    problem, x = instance.problem, instance.train.x[:, 0]
    prior = 1 / (problem.beta * problem.weight_decay)
    V = prior * x @ x.T
    f, df = integrate(problem, np.zeros(2), V, instance.train.same[0])
    return prior * x.T @ f, prior + prior**2 * np.einsum("ki,kl,li->i", x, df, x)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("algorithm", [belief_propagation, amp])
def test_a_single_pair_approaches_exact_integration_as_one_over_n(algorithm, same):
    """A tilt of the fields breaks the symmetry w → −w, under which all means would vanish."""
    problem = Problem(beta=3.0, weight_decay=0.5, activation=lambda z: np.tanh(z - 0.4))
    errors = []
    for n in (32, 128):
        worst = []
        for seed in range(6):
            instance = single_pair(n, same, problem, np.random.default_rng(seed))
            found = algorithm(instance, start=np.zeros(n), tol=1e-10, damping=0.0)
            assert found.converged
            mean, variance = exact_marginals(instance)
            scale = problem.beta * problem.weight_decay
            worst.append([np.abs(found.mean - mean).max(), np.abs(found.variance - variance).max()])
            assert np.abs(found.variance * scale - 1).max() > 1e-3  # the pair matters
        errors.append(np.mean(worst, 0))
    fall = errors[0] / errors[1]
    assert (errors[0] > 1e-7).all()
    assert (fall > 3.0).all()  # four times as many weights


def test_amp_and_belief_propagation_agree_as_one_over_n():
    problem = Problem(alpha=0.5, beta=6.0, weight_decay=0.3)
    apart = []
    for n in (10, 40):
        each = []
        for seed in range(4):
            instance = sample_instance(problem, n, seed=seed, counts="exact")
            start = np.ones(n)
            one = amp(instance, start=start, tol=1e-4)
            other = belief_propagation(instance, start=start, tol=1e-3)
            assert one.converged
            assert other.converged
            each.append(np.sqrt(((one.mean - other.mean) ** 2).mean()))
        apart.append(np.mean(each))
    assert apart[0] / apart[1] > 2.5


def test_amp_meets_replica_theory_from_a_start_that_knows_nothing():
    problem = Problem(alpha=0.7, beta=20.0)
    theory = solve(problem)
    found = [amp(sample_instance(problem, 400, seed=s), tol=1e-3) for s in range(5)]
    assert all(e.converged for e in found)
    for name in ("q", "Q", "M", "generalization_loss"):
        values = np.abs([getattr(e, name) for e in found])
        error = values.std(ddof=1) / math.sqrt(len(values))
        assert abs(values.mean() - getattr(theory, name)) < 3.5 * error
    assert np.mean([e.training_loss for e in found]) == pytest.approx(
        theory.training_energy, rel=0.1
    )
    assert all(e.test_loss == pytest.approx(e.generalization_loss, abs=0.04) for e in found)


@pytest.mark.parametrize("damping", [0.3, 0.7])
def test_damping_does_not_move_the_fixed_point(damping):
    instance = sample_instance(Problem(alpha=0.5, beta=20.0), 150, seed=0)
    start = np.ones(150)
    plain = amp(instance, start=start, tol=1e-8, damping=0.0)
    damped = amp(instance, start=start, tol=1e-8, damping=damping)
    assert plain.converged
    assert damped.converged
    np.testing.assert_allclose(damped.mean, plain.mean, atol=1e-5)


@pytest.mark.parametrize(("seed", "stays"), [(0, False), (2, False), (3, True)])
def test_acceleration_finds_fixed_points_that_plain_sweeps_leave(seed, stays, monkeypatch):
    """Replica symmetry is stable at this point; plain sweeps are so on one of three instances."""
    instance = sample_instance(Problem(alpha=0.8), 150, seed=seed)
    found = amp(instance, tol=1e-8)
    assert found.converged
    monkeypatch.setattr("fermibose.cavity.messages.TURN", 10**6)
    plain = amp(instance, max_iterations=150, tol=1e-8)
    assert plain.converged is stays
    if stays:
        np.testing.assert_allclose(found.mean, plain.mean, atol=1e-6)


def test_belief_propagation_accelerates_to_the_same_fixed_point(monkeypatch):
    instance = sample_instance(Problem(alpha=0.5, beta=10.0), 30, seed=1)
    plain = belief_propagation(instance, start=np.ones(30), damping=0.3)
    monkeypatch.setattr("fermibose.cavity.messages.TURN", 4)
    quick = belief_propagation(instance, start=np.ones(30), damping=0.3)
    assert quick.converged
    assert plain.converged
    assert quick.iterations < plain.iterations
    np.testing.assert_allclose(quick.mean, plain.mean, atol=1e-4)


def test_a_step_to_negative_variances_is_not_taken(monkeypatch):
    """Acceleration extrapolates; where it leaves what can be swept the damped step is taken."""
    monkeypatch.setattr("fermibose.cavity.messages.TURN", 0)
    messages = _Amp(sample_instance(Problem(), 5, seed=0), np.ones(5))
    mixer, x = Mixer(messages, 0.5), messages.start
    mixer.after(x, x - 0.2, 1e-3)
    # The change shrinks slowly: extrapolation goes ten steps on.
    np.testing.assert_allclose(mixer.after(x - 0.01, x - 0.208, 1e-3), x - 0.109, atol=1e-12)
    assert not mixer.steps.moves


def test_sweeps_take_turns_until_they_are_close(monkeypatch):
    monkeypatch.setattr("fermibose.cavity.messages.TURN", 3)
    messages = _Amp(sample_instance(Problem(), 5, seed=0), np.ones(5))
    fixed = messages.start + 0.01

    def damped(changes):
        """Which steps are damped, on a way that acceleration would end at once."""
        mixer, x, found = Mixer(messages, 0.5), messages.start, []
        for change in changes:
            new = x + 0.1 * (fixed - x)
            following = mixer.after(x, new, change)
            found.append(np.allclose(following, x + 0.5 * (new - x), rtol=0, atol=1e-12))
            x = following + 1e-3 * np.arange(x.size) ** 0.5
        return "".join("-" if d else "a" for d in found)

    # A turn of acceleration begins with a plain step: it knows nothing yet.
    assert damped([1.0] * 12) == "----aa----aa"
    assert damped([1.0] * 5 + [1e-3] * 7) == "----aaaaaaaa"
    plain, x = Mixer(messages, 0.0), messages.start
    for k in range(12):  # without damping every sweep is taken as it is
        new = fixed + 0.1 * (x - fixed) + 1e-3 * k
        np.testing.assert_allclose(plain.after(x, new, 1.0), new, rtol=0, atol=1e-12)
        x = new


def test_state_evolution_is_the_trajectory_of_amp():
    """From an informed start, sweep by sweep: six instances against the theory of N → ∞."""
    problem, n = Problem(alpha=0.7, beta=20.0), 500
    theory = state_evolution(problem, M=0.4, Q=0.4**2 + 0.5, sweeps=6)
    paths = []
    for seed in range(6):
        instance = sample_instance(problem, n, seed=seed)
        noise = np.random.default_rng(seed).standard_normal(n)
        start = 0.4 + math.sqrt(0.5) * (noise - noise.mean()) / noise.std()
        h = amp(instance, start=start, damping=0.0, max_iterations=6, tol=1e-12).history
        paths.append([h.M, h.Q, h.q])
    paths = np.array(paths)
    expected = np.array([theory.M, theory.Q, theory.q])
    error = paths.std(0, ddof=1) / math.sqrt(6)
    # 18 comparisons; finite-size shifts of order 1/N are of the size of the errors.
    assert (np.abs(paths.mean(0) - expected) < 4.5 * error + 2 / n).all()
    assert np.abs(np.diff(expected, axis=1)).max() > 0.1  # it moves
    fixed = state_evolution(problem, M=0.4, Q=0.66, sweeps=200)
    assert fixed.M[-1] == pytest.approx(solve(problem).M, abs=1e-4)
    assert fixed.q[-1] == pytest.approx(solve(problem).q, abs=1e-4)


def test_state_evolution_needs_a_possible_state():
    with pytest.raises(InputError, match="M² <= Q"):
        state_evolution(Problem(), M=1.0, Q=0.5, sweeps=3)
    with pytest.raises(InputError, match="finite beta"):
        state_evolution(Problem(beta=math.inf), M=0.1, Q=0.5, sweeps=3)


def test_what_does_not_converge_says_so():
    instance = sample_instance(Problem(alpha=2.5), 60, seed=0)
    found = amp(instance, max_iterations=40)
    assert not found.converged
    assert found.iterations == len(found.history.M) == 40
    assert found.residual > 1e-3
    assert "did not converge in 40 sweeps" in found.verdict
    assert f"AT = {found.at_eigenvalue:.2f}" in found.verdict


def test_one_sweep_is_no_verdict_on_replica_symmetry():
    """AT of a state on its way can be above 1 where theory has 0.64: no reason is read off it."""
    instance = sample_instance(Problem(alpha=0.5), 50, seed=0)
    found = amp(instance, damping=0.0, max_iterations=1)
    assert found.at_eigenvalue > 1
    assert re.fullmatch(
        rf"did not converge in 1 sweep \(residual .*\); AT = {found.at_eigenvalue:.2f} in the last "
        "sweep",
        found.verdict,
    )


@pytest.mark.parametrize("algorithm", [amp, belief_propagation])
def test_a_progress_bar_follows_the_sweeps(algorithm, monkeypatch):
    told = []

    @contextmanager
    def bar(_description, total, *, show):
        told.append((total, show))

        def advance(*, status):
            told.append(status)

        yield advance

    monkeypatch.setattr("fermibose.cavity.messages.progress_bar", bar)
    instance = sample_instance(Problem(alpha=0.5, beta=5.0), 20, seed=0)
    found = algorithm(instance, max_iterations=2, show=None)
    assert told == [(2, None), *(f"residual {r:.1e}" for r in found.history.residual)]


def test_convergence_is_judged_by_the_undamped_change():
    """With damping 0.999 nothing moves, and nothing has converged."""
    instance = sample_instance(Problem(alpha=0.5, beta=5.0), 60, seed=0)
    found = amp(instance, damping=0.999, max_iterations=5, tol=1e-2)
    assert not found.converged
    assert found.residual > 0.1


def test_the_history_ends_at_the_result_and_losses_follow_from_it():
    instance = sample_instance(Problem(alpha=0.5, beta=5.0), 60, seed=0)
    found = amp(instance)
    h = found.history
    assert (h.M[-1], h.q[-1], h.Q[-1]) == (found.M, found.q, found.Q)
    assert h.training_loss[-1] == found.training_loss
    assert h.generalization_loss(found.problem)[-1] == found.generalization_loss
    assert found.q - found.Q == pytest.approx(found.variance.mean())
    again = amp(instance)
    np.testing.assert_array_equal(found.mean, again.mean)
    assert np.abs(amp(instance, seed=9).history.M[0] - h.M[0]) > 1e-6


def test_belief_propagation_states_its_memory_and_refuses_what_does_not_fit(monkeypatch):
    instance = sample_instance(Problem(alpha=2.5), 40, seed=0)
    need = bp_memory(40, 100)
    with pytest.raises(InputError, match=r"4000 messages in 0\.013 GB"):
        belief_propagation(instance, max_memory=0.99 * need)
    monkeypatch.setattr("fermibose.cavity.messages.TURN", 1)
    tracemalloc.start()
    belief_propagation(instance, max_memory=1.01 * need, max_iterations=12)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.3 * need < used < need
    assert bp_memory(4000, 10000) > 2e9


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"damping": 1.0}, "damping .* must be a finite number >= 0 and < 1"),
        ({"tol": 0.0}, "tol must be a finite number > 0"),
        ({"max_iterations": 0}, "max_iterations must be a whole number of at least 1"),
        ({"start": np.zeros(3)}, "20 finite means"),
        ({"start": np.full(20, np.nan)}, "20 finite means"),
        ({"start": np.full(20, 1e9)}, "too far out"),
    ],
)
def test_arguments_are_checked(arguments, says):
    instance = sample_instance(Problem(), 20, seed=0)
    for algorithm in (amp, belief_propagation):
        with pytest.raises(InputError, match=says):
            algorithm(instance, **arguments)
    with pytest.raises(InputError, match="ground_state"):
        amp(instance.at(math.inf))
