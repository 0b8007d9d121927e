"""Online learning of one unit. Oracles: sums over all pairs of classes on a plain grid and adaptive
quadrature of the energy's finite differences, gradient flow of ε_g, SGD with N weights."""

import csv
import itertools
import math
import time

import numpy as np
import pytest
from scipy.integrate import quad_vec

from fermibose.cavity import sgd
from fermibose.errors import InputError
from fermibose.theory import ConvergenceError, Problem, dynamics, generalization_loss, solve
from fermibose.theory.dynamics import critical_rate, escape_time, evolve, steady_states
from fermibose.theory.flow import Flow, Population
from fermibose.theory.solution import accuracy, distances
from fermibose.theory.steady import growth


def bump(z):
    """An activation that is neither odd nor bounded below by a constant slope."""
    return np.logaddexp(0, 1.5 * z) / 2


SKEWED = Problem(pairing="all", balance=0.3, mislabelled=0.1, delta=0.8, d_f=0.6, m=1.3)
SLOW = Problem(weight_decay=0.02)
PROBLEMS = {
    "default": Problem(),
    "rho": Problem(rho=0.8, delta=0.9, d_f=2.0, weight_decay=0.2),
    "skewed": SKEWED,
    "sharp": Problem(softness=1e-3, d_f=0.5),
    "half": Problem(activation="half_tanh", d_f=0.3, m=2.0),
    "own": Problem(activation=bump, d_f=0.4),
}


def sectors(problem):
    """(probability, y₁, y₂, boson?) of a fresh pair, written out."""
    if problem.pairing == "disjoint":
        for y1, y2 in itertools.product((1, -1), repeat=2):
            yield (problem.rho if y1 == y2 else 1 - problem.rho) / 2, y1, y2, y1 == y2
        return
    of_class = {1: problem.balance, -1: 1 - problem.balance}
    for y1, y2, wrong1, wrong2 in itertools.product((1, -1), (1, -1), (0, 1), (0, 1)):
        wrongs = math.prod(problem.mislabelled if w else 1 - problem.mislabelled
                           for w in (wrong1, wrong2))  # fmt: skip
        same = y1 * (-1) ** wrong1 == y2 * (-1) ** wrong2
        yield of_class[y1] * of_class[y2] * wrongs, y1, y2, same


def slopes(problem, z1, z2, same, h=1e-4):
    """∂₁H and ∂₂H by differences of the energy (five points)."""

    def energy(a, b):
        d2 = (problem.phi(a) - problem.phi(b)) ** 2
        return d2 / 2 if same else problem.fermion_energy(d2)

    def derivative(f):
        return (f(-2 * h) - f(2 * h) + 8 * (f(h) - f(-h))) / (12 * h)

    return derivative(lambda s: energy(z1 + s, z2)), derivative(lambda s: energy(z1, z2 + s))


def brute_rates(problem, M, q, eta, batch, nodes=801):
    """Ṁ, q̇ and V by sums over two Gaussians for every kind of pair; h̄ by the kind of sample."""
    u = np.linspace(-7.5, 7.5, nodes)
    p = np.exp(-(u**2) / 2) * (u[1] - u[0]) / math.sqrt(2 * math.pi)
    width, m = problem.delta * math.sqrt(q), problem.m
    totals = dict.fromkeys(("yH", "sH", "zH", "H2", "k2"), 0.0)
    bars = {}  # of a sample: y, label kept or not → probability, h̄, k̄ summed over partners
    kinds = list(sectors(problem))
    if problem.pairing == "disjoint":
        tags = [(y1, y1) for _, y1, _, _ in kinds]
    else:
        signs = itertools.product((1, -1), (1, -1), (0, 1), (0, 1))
        tags = [(y1, y1 * (-1) ** wrong) for y1, _, wrong, _ in signs]
    for (weight, y1, y2, same), tag in zip(kinds, tags, strict=True):
        z1, z2 = (y1 * m * M + width * u)[:, None], (y2 * m * M + width * u)[None]
        h1, h2 = slopes(problem, z1, z2, same)
        h1, h2 = np.broadcast_arrays(h1, h2)
        s1, s2 = width * u[:, None], width * u[None]

        def mean(f, weight=weight):
            return weight * float(p @ f @ p)

        totals["yH"] += mean(y1 * h1 + y2 * h2)
        totals["sH"] += mean(s1 * h1 + s2 * h2)
        totals["zH"] += mean(z1 * h1 + z2 * h2)
        totals["H2"] += mean(h1**2 + h2**2)
        totals["k2"] += mean((y1 * h1 + y2 * h2) ** 2)
        known = bars.setdefault(tag, [0.0, 0.0, 0.0])
        known[0] += weight
        known[1] = known[1] + weight * (h1 @ p)
        known[2] = known[2] + weight * ((y1 * h1 + y2 * h2) @ p)
    h_bar2 = sum(w * float(p @ (h / w) ** 2) for w, h, _ in bars.values())
    k_bar2 = sum(w * float(p @ (k / w) ** 2) for w, _, k in bars.values())
    share = 2 / (batch * (batch - 1))
    noise = share * (totals["H2"] + (batch - 2) * 2 * h_bar2)
    drift = m * totals["yH"] + M / q * totals["sH"]
    M_dot = -eta * (drift + problem.weight_decay * M)
    q_dot = -2 * eta * (totals["zH"] + problem.weight_decay * q)
    q_dot += eta**2 * problem.delta**2 * noise
    V = m**2 * share * (totals["k2"] + 2 * (batch - 2) * k_bar2) + problem.delta**2 * noise
    return M_dot, q_dot, V


def rates(problem, M, q, eta, batch):
    M_dot, v_dot = Flow(problem, batch).rates(M, q - M**2, eta)
    return M_dot, v_dot + 2 * M * M_dot


@pytest.mark.parametrize(
    ("name", "M", "q", "batch"),
    [
        ("default", 0.3, 1.0, 2), ("default", 1.2, 1.5, 7), ("default", 0.02, 4.0, 3),
        ("rho", 0.4, 0.5, 2), ("skewed", -0.7, 1.2, 10),
        ("sharp", 0.3, 1.0, 5), ("half", 0.6, 0.9, 4), ("own", 0.5, 0.8, 6),
    ],
)  # fmt: skip
def test_equations_of_motion_are_brute_force_averages(name, M, q, batch):
    problem = PROBLEMS[name]
    wanted = brute_rates(problem, M, q, 1.7, batch)[:2]
    assert rates(problem, M, q, 1.7, batch) == pytest.approx(wanted, abs=1e-7)


def test_equations_of_motion_by_adaptive_quadrature():
    """Of the default problem, single pairs; mirror images make two kinds of pairs enough."""
    problem, M, q, eta = Problem(), 0.5, 1.1, 0.8
    width = problem.delta * math.sqrt(q)

    b, weights = np.polynomial.legendre.leggauss(600)
    b, weights = 7 * b, 7 * weights

    def integrand(a, y2):
        g = np.array(slopes(problem, M + width * a, y2 * M + width * b, y2 == 1))
        parts = (g[0] + y2 * g[1], width * (a * g[0] + b * g[1]), (g**2).sum(0))
        return np.array(parts) @ (weights * np.exp(-(a * a + b * b) / 2)) / (2 * math.pi)

    halves = [quad_vec(lambda a, y2=y2: integrand(a, y2), -7, 7, epsabs=1e-8)[0] for y2 in (1, -1)]
    pull, stretch, square = (halves[0] + halves[1]) / 2
    M_dot = -eta * (pull + M / q * stretch + 0.05 * M)
    q_dot = -2 * eta * (M * pull + stretch + 0.05 * q) + (eta * 0.5) ** 2 * square
    assert rates(problem, M, q, eta, 2) == pytest.approx((M_dot, q_dot), abs=1e-6)


@pytest.mark.parametrize(("name", "batch"), [("default", 2), ("skewed", 9),
                                             ("rho", 2), ("half", 5)])  # fmt: skip
def test_what_drives_M_out_of_zero(name, batch):
    wanted = brute_rates(PROBLEMS[name], 0.0, 0.9, 1.0, batch)[2]
    assert Flow(PROBLEMS[name], batch).diffusion(0.9) == pytest.approx(wanted, abs=1e-7)


def test_labels_and_classes_of_a_population():
    joint = Population.of(SKEWED).joint
    assert joint == pytest.approx(np.array([[0.27, 0.07], [0.03, 0.63]]))
    assert Population.of(SKEWED).same == pytest.approx([0.34, 0.66])


def test_single_pairs_are_batches_of_two():
    one = evolve(Problem(), learning_rate=0.7, t=[0.5, 2.0])
    two = evolve(Problem(), learning_rate=0.7, t=[0.5, 2.0], batch=2)
    assert np.array_equal(one.M, two.M)
    assert np.array_equal(one.q, two.q)


def test_neither_temperature_nor_load_matters():
    one = evolve(Problem(), learning_rate=0.7, t=[2.0])
    other = evolve(Problem(beta=3.0, alpha=9.0), learning_rate=0.7, t=[2.0])
    assert (one.M, one.q) == (other.M, other.q)


def test_disjoint_pairs_and_balanced_samples_are_one_problem():
    pairs = evolve(Problem(), learning_rate=2.0, t=[3.0], batch=8)
    samples = evolve(Problem(pairing="all"), learning_rate=2.0, t=[3.0], batch=8)
    assert (samples.M[0], samples.q[0]) == pytest.approx((pairs.M[0], pairs.q[0]), abs=1e-8)


@pytest.mark.parametrize("name", ["default", "rho", "half"])
def test_slow_learning_is_gradient_flow_of_the_test_loss(name):
    """w′ = −∇(ε_g + λ|w|²/2): by finite differences of ε_g, a fourth-order Runge-Kutta."""
    problem, slow, step = PROBLEMS[name], 1e-5, 0.1

    def flow(state):
        M, q = state
        h = 1e-3
        by_M = (generalization_loss(problem, M + h, q) - generalization_loss(problem, M - h, q)) / (
            2 * h
        )
        by_q = (generalization_loss(problem, M, q + h) - generalization_loss(problem, M, q - h)) / (
            2 * h
        )
        decay = problem.weight_decay
        return np.array([
            -by_M - 2 * M * by_q - decay * M,
            -2 * (M * by_M + 2 * q * by_q + decay * q),
        ])  # fmt: skip

    state = np.array([0.3, 0.8])
    for _ in range(20):
        a = flow(state)
        b = flow(state + step / 2 * a)
        c = flow(state + step / 2 * b)
        state = state + step / 6 * (a + 2 * b + 2 * c + flow(state + step * c))
    found = evolve(problem, learning_rate=slow, t=[2.0 / slow], start=(0.3, 0.8))
    assert (found.M[0], found.q[0]) == pytest.approx(state, abs=2e-5)


def test_reference_of_single_pairs():
    """SGD at N = 4000, t = 12: M 0.9004(8), q 1.0382(14)."""
    found = evolve(Problem(weight_decay=0.02), learning_rate=0.5, t=[12.0], start=(0.1, 1.0))
    assert found.M[0] == pytest.approx(0.9006, abs=1e-4)
    assert found.q[0] == pytest.approx(1.0388, abs=1e-4)


def test_a_trajectory_predicts_what_its_overlaps_predict(tmp_path):
    found = evolve(SKEWED, learning_rate=0.5, t=2.0, batch=4)
    assert found.t.size == 200
    assert found.t[-1] == 2.0
    M, q = float(found.M[120]), float(found.q[120])
    assert found.accuracy[120] == accuracy(SKEWED, M, q)
    assert found.generalization_loss[120] == generalization_loss(SKEWED, M, q)
    boson, fermion = distances(SKEWED, M, q)
    assert (found.boson_distance[120], found.fermion_distance[120]) == (boson, fermion)
    found.save_csv(tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(encoding="utf-8") as file:
        row = list(csv.DictReader(file))[120]
    assert (float(row["M"]), float(row["fermion_distance"])) == (M, fermion)


def test_two_hundred_points_cost_less_than_fifty_solutions():
    def seconds(work):
        times = []
        for _ in range(3):
            began = time.process_time()
            work()
            times.append(time.process_time() - began)
        return min(times)

    unit = seconds(lambda: solve(Problem()))
    assert seconds(lambda: evolve(Problem(), learning_rate=0.5, t=12.0)) < 50 * unit


@pytest.fixture(scope="module")
def states():
    """Steady states of the slowly decaying problem at learning rate 0.5."""
    return steady_states(SLOW, learning_rate=0.5)


def test_the_end_is_a_stable_steady_state(states):
    problem = SLOW
    stable = [s for s in states if s.stable]
    end = evolve(problem, learning_rate=0.5, t=[2000.0])
    assert len(stable) == 1
    assert (stable[0].M, stable[0].q) == pytest.approx((end.M[0], end.q[0]), rel=1e-6)
    assert stable[0].accuracy == accuracy(problem, stable[0].M, stable[0].q)
    assert [(s.M > 0, s.stable) for s in states] == [(False, False), (False, False), (True, True)]


def test_the_eigenvalues_of_a_steady_state_are_what_a_trajectory_does(states):
    """From beside the state without magnetisation, M grows and q comes back at these rates."""
    problem, flat = SLOW, states[1]
    grows, comes_back = sorted((complex(e).real for e in flat.eigenvalues), reverse=True)
    away = evolve(problem, learning_rate=0.5, t=[1.0, 2.0], start=(1e-5, flat.q))
    assert math.log(away.M[1] / away.M[0]) == pytest.approx(grows, rel=1e-4)
    back = evolve(problem, learning_rate=0.5, t=[1.0, 2.0], start=(0.0, 1.001 * flat.q))
    left = (back.q[1] - flat.q) / (back.q[0] - flat.q)
    assert math.log(left) == pytest.approx(comes_back, rel=1e-2)


def test_the_eigenvalues_at_vanishing_weights(states):
    problem, origin = SLOW, states[0]
    found = evolve(problem, learning_rate=0.5, t=[1.0], start=(1e-6, 1e-8))
    assert math.log(found.M[0] / 1e-6) == pytest.approx(origin.eigenvalues[0].real, rel=1e-4)
    found = evolve(problem, learning_rate=0.5, t=[1.0], start=(0.0, 1e-8))
    assert math.log(found.q[0] / 1e-8) == pytest.approx(origin.eigenvalues[1].real, rel=1e-3)


@pytest.mark.parametrize("batch", [2, 10])
def test_above_the_critical_rate_M_dies_out(batch):
    problem = Problem(weight_decay=0.02, delta=1.2)
    critical = critical_rate(problem, batch=batch)
    flow = Flow(problem, batch)
    for rate, sign in ((0.95 * critical, 1), (1.05 * critical, -1)):
        rest = evolve(problem, learning_rate=rate, t=[500.0], batch=batch, start=(0.0, 5.0))
        assert flow.rates(0.0, rest.q[0], rate)[1] == pytest.approx(0, abs=1e-6)
        assert sign * growth(flow, float(rest.q[0])) > 1e-4


def test_the_critical_rate_is_that_of_sgd():
    """Mean M of 2000 runs on both sides of 5.50: it grows and dies out as fast as it should."""
    problem = Problem(weight_decay=0.02, delta=1.2)
    assert critical_rate(problem) == pytest.approx(5.5049, abs=1e-3)
    for rate in (2.0, 9.0):
        rest = float(evolve(problem, learning_rate=rate, t=[500.0], start=(0.0, 5.0)).q[0])
        start = (0.3 * math.sqrt(rest), rest)
        runs = sgd(problem, 300, learning_rate=rate, t=[4.0], start=start, runs=2000, seed=1)
        theory = evolve(problem, learning_rate=rate, t=[4.0], start=start)
        error = runs.M[:, 0].std() / math.sqrt(2000)
        assert abs(runs.M[:, 0].mean() - theory.M[0]) < 3 * error
        assert (theory.M[0] > start[0]) == (rate < 5.5)
        assert abs(theory.M[0] - start[0]) > 4 * error


def test_no_critical_rate():
    assert critical_rate(Problem(m=0.0)) == 0.0


@pytest.mark.parametrize(("batch", "rate", "runs"), [(2, 2.0, 400), (10, 4.0, 150)])
def test_escape_times_are_those_of_sgd(batch, rate, runs):
    """Kolmogorov-Smirnov test (1 %) of runs at N = 1000, seen at fiftieths of the median."""
    found = escape_time(SLOW, learning_rate=rate, n=1000, batch=batch, threshold=0.5)
    times = found.median / 50 * np.arange(1, 101)
    seen = sgd(SLOW, 1000, learning_rate=rate, t=times, batch=batch, start=1.0, runs=runs, seed=2)
    escaped = (np.abs(seen.M) >= 0.5).cumsum(1).astype(bool).mean(0)
    apart = escaped - found.cdf(times)
    assert 0.85 < escaped[-1] < 1
    assert np.abs(apart).max() < 1.63 / math.sqrt(runs)


def test_an_escape_time_is_a_distribution(states):
    found = escape_time(SLOW, learning_rate=0.5, n=1000)
    assert found.threshold == pytest.approx(states[-1].M / 2)
    shares = np.array([1e-3, 0.1, 0.5, 0.9, 1 - 1e-6])
    assert found.cdf(found.quantile(shares)) == pytest.approx(shares, abs=1e-3)
    drawn = found.sample(20000, seed=3)
    assert (drawn < found.median).mean() == pytest.approx(0.5, abs=0.011)
    assert np.array_equal(drawn, found.sample(20000, seed=3))
    assert found.cdf([0.0, 1e6]).tolist() == [0.0, 1.0]
    with pytest.raises(InputError, match="fractions between 0 and 1"):
        found.quantile(1.0)


def test_more_weights_take_longer_by_the_logarithm():
    """Four times as many: |M| is half at first, ln 2/Λ more time, Λ the growth near the end."""
    problem, rate = SLOW, 2.0
    few, many = (escape_time(problem, learning_rate=rate, n=n, threshold=0.3).median
                 for n in (10**7, 4 * 10**7))  # fmt: skip
    rest = evolve(problem, learning_rate=rate, t=[200.0], start=(0.0, 1.0)).q[0]
    Lambda = rate * growth(Flow(problem, 2), float(rest))
    assert many - few == pytest.approx(math.log(2) / Lambda, rel=0.1)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: evolve(Problem(softness=0.0), learning_rate=1, t=1), "need a smooth hinge"),
        (lambda: evolve(Problem(softness=1e-9), learning_rate=1, t=1), "use a larger softness"),
        (lambda: evolve(Problem(hinge=np.tanh), learning_rate=1, t=1), "hinge of your own"),
        (lambda: evolve(Problem(rho=0.3), learning_rate=1, t=1, batch=3), "balance=π"),
        (lambda: evolve(Problem(), learning_rate=0, t=1), "learning_rate must be"),
        (lambda: evolve(Problem(), learning_rate=1, t=[1, 1]), "increasing times"),
        (lambda: evolve(Problem(), learning_rate=1, t="x"), "t must be a number > 0"),
        (lambda: evolve(Problem(), learning_rate=1, t=1, batch=1), "batch must be a whole number"),
        (lambda: evolve(Problem(), learning_rate=1, t=1, start=(1, 0.5)), "q of start must be"),
        (lambda: evolve(Problem(), learning_rate=1, t=1, start=3), r"two numbers \(M, q\)"),
        (lambda: evolve("x", learning_rate=1, t=1), "fermibose.theory.Problem"),
        (lambda: escape_time(Problem(delta=1.2), learning_rate=20, n=100), "M = 0 is stable"),
        (lambda: escape_time(Problem(), learning_rate=1, n=100, threshold=9), "does not reach"),
        (lambda: escape_time(Problem(), learning_rate=1, n=2, threshold=1e-4), "too small"),
    ],
)
def test_what_is_refused(call, says):
    with pytest.raises(InputError, match=says):
        call()


def test_weights_that_grow_without_bound_are_named():
    linear = Problem(activation=np.positive, weight_decay=0.01)
    with pytest.raises(ConvergenceError, match="grow without bound"):
        evolve(linear, learning_rate=20.0, t=1e4)


def test_the_room_exports_the_module():
    assert dynamics.evolve is evolve
