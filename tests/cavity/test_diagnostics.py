"""R̂, effective sizes, round trips and the ladder. Oracles: autoregressive chains, whose correlation
times are known, R̂ and ρ_t by plain loops, walkers followed by name."""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from fermibose.cavity import Instance, Pairs, hmc, sample_instance, sampling
from fermibose.cavity.diagnostics import effective_size, r_hat
from fermibose.cavity.ground import Landscape
from fermibose.cavity.sampling import _Copies
from fermibose.theory import Problem


def autoregressive(phi, draws, chains, seed=0):
    """x_t = φ x_{t−1} + noise, stationary: τ = (1 + φ)/(1 − φ), variance 1."""
    rng = np.random.default_rng(seed)
    x = np.empty((draws, chains))
    x[0] = rng.standard_normal(chains)
    noise = math.sqrt(1 - phi**2) * rng.standard_normal((draws, chains))
    for t in range(1, draws):
        x[t] = phi * x[t - 1] + noise[t]
    return x


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9, 0.97, -0.4])
@pytest.mark.parametrize("chains", [1, 4])
def test_effective_sizes_of_autoregressive_chains(phi, chains):
    x = autoregressive(phi, 20_000, chains)
    exact = x.size * (1 - phi) / (1 + phi)
    assert effective_size(x) == pytest.approx(exact, rel=0.2)


def test_the_effective_size_is_that_of_the_error_of_the_mean():
    """Means of 400 repeated walks scatter by √(variance/size)."""
    walks = [autoregressive(0.8, 500, 2, seed=s) for s in range(400)]
    scatter = np.var([w.mean() for w in walks])
    assert 1 / np.mean([effective_size(w) for w in walks]) == pytest.approx(scatter, rel=0.25)


def plain_r_hat(series):
    """Rank-normalised split-R̂ by loops, as published."""
    half = len(series) // 2
    chains = [list(c[:half]) for c in series.T] + [list(c[half : 2 * half]) for c in series.T]
    flat = sorted(v for c in chains for v in c)
    median = (flat[(len(flat) - 1) // 2] + flat[len(flat) // 2]) / 2

    def of(chains):
        everything = sorted(v for c in chains for v in c)
        count, normal = len(everything), NormalDist()
        score = {
            v: normal.inv_cdf((k + 1 - 3 / 8) / (count + 1 / 4)) for k, v in enumerate(everything)
        }
        z = [[score[v] for v in c] for c in chains]
        means = [sum(c) / half for c in z]
        W = sum(sum((v - m) ** 2 for v in c) / (half - 1) for c, m in zip(z, means, strict=True))
        W /= len(z)
        grand = sum(means) / len(z)
        B = half * sum((m - grand) ** 2 for m in means) / (len(z) - 1)
        return math.sqrt(((half - 1) / half * W + B / half) / W)

    return max(of(chains), of([[abs(v - median) for v in c] for c in chains]))


@pytest.mark.parametrize("seed", range(3))
def test_r_hat_is_that_of_plain_loops(seed):
    x = autoregressive(0.7, 61, 3, seed=seed) * [1, 1, 1.5] + [0, 0.4, 0]
    assert r_hat(x) == pytest.approx(plain_r_hat(x), rel=1e-10)


def test_r_hat_sees_what_differs():
    x = autoregressive(0.5, 4000, 4)
    assert r_hat(x) < 1.01
    assert r_hat(x + np.array([0, 0, 0, 1])) > 1.1  # somewhere else
    assert r_hat(x * [1, 1, 1, 4]) > 1.1  # more widely, around the same mean
    assert r_hat(x[:, 0] + np.linspace(0, 3, 4000)) > 1.1  # a drift of one chain
    assert r_hat(np.exp(5 * x)) == pytest.approx(r_hat(x), abs=0.01)  # tails do not matter
    assert math.isnan(r_hat(np.ones((40, 2))))
    assert math.isnan(effective_size(np.ones((40, 2))))


def small_copies(chains=2, ladder=(1.0, 2.0, 3.0, 4.0)):
    instance = sample_instance(Problem(alpha=1.0, beta=ladder[-1]), 6, seed=0)
    rng = np.random.default_rng(0)
    w = rng.standard_normal((6, chains * len(ladder)))
    return _Copies(Landscape(instance), w, np.array(ladder), chains, rng)


def test_round_trips_are_those_of_walkers_followed_by_name():
    """Nothing moves but by exchange, so that weights are names; every β has the same energy."""
    copies, size = small_copies(), 4
    names = [tuple(column) for column in copies.w.T]
    copies.E[:] = 0.0  # every exchange is accepted …
    rng = np.random.default_rng(1)
    been, trips = dict.fromkeys(names, ""), 0
    for _ in range(300):
        copies.E[:] = rng.uniform(0, 1.5, copies.E.size)  # … or at random
        copies.exchange()
        for chain in range(2):
            column = copies.w.T[chain * size : (chain + 1) * size]
            hottest, coldest = tuple(column[0]), tuple(column[-1])
            trips += been[coldest].endswith("ch")
            been[coldest] += "c" * (not been[coldest].endswith("c"))
            been[hottest] += "h" * been[hottest].endswith("c")
    assert copies.round_trips == trips > 5


def test_the_chance_of_an_exchange_is_that_of_plain_loops():
    """Of all neighbours at every step, whether it is their turn or not."""
    copies, rng, told = small_copies(), np.random.default_rng(2), np.zeros((2, 3))
    for _ in range(50):
        copies.E[:] = rng.normal(0, 2, copies.E.size)
        for chain in range(2):
            for k in range(3):
                hot, cold = 4 * chain + k, 4 * chain + k + 1
                gain = (copies.betas[cold] - copies.betas[hot]) * (copies.E[cold] - copies.E[hot])
                told[chain, k] += min(1, math.exp(gain))
        copies.exchange()
        copies.moves += 1
    np.testing.assert_allclose(copies.chance, told.mean(0) / 50)


@pytest.mark.parametrize(
    ("ladder", "apart", "laid"),
    [
        ((1.0, 4.0, 16.0), (2.8, 2.8), (1.0, 2.0, 4.0, 8.0, 16.0)),
        ((1.0, 2.0, 16.0), (1.4, 4.2), (1.0, 2.0, 4.0, 8.0, 16.0)),
        ((1.0, 2.0, 4.0, 32.0), (0.7, 0.7, 2.8), (1.0, 4.0, 4 * 8**0.5, 32.0)),
        ((1.0, 4.0, 16.0), (1.8, 1.8), (1.0, 4.0, 16.0)),  # erfc(0.9) = 0.203: good enough
    ],
)
def test_a_ladder_is_laid_in_equal_steps_of_the_distance_that_exchanges_tell(ladder, apart, laid):
    """Where neighbours at distance ℓ are exchanged with probability erfc(ℓ/2), by quadrature."""
    copies = small_copies(ladder=ladder)
    copies.moves = 100
    x = np.linspace(0, 12, 200_001)
    for k, distance in enumerate(apart):
        tail = np.trapezoid(np.exp(-((x + distance / 2) ** 2)), x) * 2 / math.sqrt(math.pi)
        copies._chance[[k, k + len(ladder)]] = [90 * tail, 110 * tail]  # the mean of both chains
    copies.lay_ladder()
    np.testing.assert_allclose(copies.ladder, laid, rtol=1e-6)


def test_a_ladder_that_is_too_wide_is_mended():
    """Three β from 2 to 60 for 60 weights are hardly ever exchanged.

    Exchanges of 0.32 are aimed at; walks of 24 other seeds ended with 0.19 to 0.30 of the rarest.
    """
    instance = sample_instance(Problem(alpha=1.0, beta=60.0), 60, seed=0)
    wide = np.array([2.0, 11.0, 60.0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "ladder", lambda *_: wide)
        walks = [hmc(instance, trajectories=200, warm_up=300, seed=s) for s in range(3)]
        again = hmc(instance, trajectories=200, warm_up=300, seed=0)
        patch.setattr(sampling._Copies, "lay_ladder", lambda self: None)
        left = hmc(instance, trajectories=200, warm_up=300, seed=0)
    assert left.exchange < 0.02
    for mended in walks:
        assert mended.exchange > 0.12
        assert 12 < mended.betas.size < 24
        assert mended.betas[[0, -1]].tolist() == [2.0, 60.0]
        assert (np.diff(mended.betas) > 0).all()
    np.testing.assert_array_equal(walks[0].history.M, again.history.M)


def test_a_ladder_that_is_good_is_left_alone(monkeypatch):
    """Twice the copies that are needed: no look of any walk finds an exchange rare."""
    instance = sample_instance(Problem(alpha=0.5, beta=20.0), 60, seed=0)
    close = np.geomspace(5.0, 20.0, 13)
    monkeypatch.setattr(sampling, "ladder", lambda *_: close)
    found = hmc(instance, trajectories=60, warm_up=200)
    np.testing.assert_array_equal(found.betas, close)
    monkeypatch.setattr(sampling._Copies, "lay_ladder", lambda self: None)
    same = hmc(instance, trajectories=60, warm_up=200)
    np.testing.assert_array_equal(found.history.M, same.history.M)


def test_a_short_walk_says_what_it_lacks():
    instance = sample_instance(Problem(alpha=1.0, beta=20.0), 40, seed=0)
    found = hmc(instance, trajectories=20, warm_up=5)
    assert not found.converged
    assert found.verdict.startswith("did not converge: ")
    assert "too few independent draws of M" in found.verdict
    assert "use more trajectories" in found.verdict
    assert set(found.ess) == set(found.agreement) == {"M", "q", "energy", "Q"}
    seldom = "less than once in the whole walk"
    assert seldom in " ".join(replace(found, exchange=0.9 / 20).doubts)
    assert seldom not in " ".join(replace(found, exchange=1.1 / 20).doubts)
    alone = hmc(instance, trajectories=20, warm_up=5, chains=1)
    assert set(alone.ess) == {"M", "q", "energy"}


def test_sizes_and_agreement_are_those_of_the_walk():
    x = np.random.default_rng(12).standard_normal((2, 3, 2))
    pairs = Pairs(x, np.array([[1, 1, -1], [-1, -1, 1]]))
    instance = Instance(Problem(alpha=1.5, beta=20.0), pairs, pairs, 0)
    found = hmc(instance, hottest=2.0, trajectories=1500, warm_up=300, seed=3)
    for name in ("M", "q", "energy", "Q"):
        series = getattr(found.history, name)
        assert found.ess[name] == effective_size(series)
        assert found.agreement[name] == r_hat(series)
        error = series.std() / math.sqrt(found.ess[name])
        if name in found.errors:  # from blocks
            assert found.errors[name] == pytest.approx(error, rel=0.6)
    assert found.round_trips > 10
    assert f"{found.round_trips} round trips" in found.verdict
    assert f"effective size from {min(found.ess.values()):.0f}" in found.verdict
