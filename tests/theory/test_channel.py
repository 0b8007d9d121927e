"""Channel. Oracles: mpmath, brute-force quadrature in the unturned plane, finite differences,
brute-force search for the minimum."""

import math
from itertools import product

import mpmath
import numpy as np
import pytest
from scipy.special import erf, roots_legendre

from fermibose.theory.channel import Axis, GaussianChannel, gaussian_kernels, pair_table
from fermibose.theory.deposit import deposit_step, deposited_table
from fermibose.theory.disjoint import make_lattice
from fermibose.theory.moreau import MoreauChannel, _beside
from fermibose.theory.problem import DERIVATIVES, Problem
from fermibose.theory.solution import Overlaps

POINTS = [(0.0, 0.3), (0.45, 0.7), (1.4, 0.1), (2.1, 1.3)]  # (r, t)


def nodes(values, folded=True):
    values = np.array(sorted(set(values)))
    return Axis(values, np.ones(values.size), folded)


def channel_at(problem, points, *, step=0.012, reach=8.0):
    """The finite-temperature channel on the product of the points' coordinates, on a fine table."""
    r, t = nodes([p[0] for p in points]), nodes([p[1] for p in points])
    z_r, z_t = Axis.uniform(step, reach), Axis.uniform(step, reach, folded=problem.odd)
    table = pair_table(problem, z_r, z_t)
    return GaussianChannel(table, problem.beta, at=(r, t), on=(z_r, z_t)), r, t


def plain_energy(problem, z1, z2, same):
    """H as printed in the paper, with nothing of the package."""
    phi = problem.phi
    d2 = (phi(z1) - phi(z2)) ** 2
    x = problem.d_f - d2
    return d2 / 2 if same else (x + np.sqrt(x**2 + problem.softness)) / 4


def brute_log_z(problem, c, r, t, same):
    """ln ∫ N(z; ω, c/β) e^{−βH} by Gauss-Legendre panels in (z₁, z₂)."""
    s = math.sqrt(c / problem.beta)
    x, w = roots_legendre(12)
    edges = np.linspace(-16, 16, 129)  # a pair may be pulled far out into the Gaussian's tail
    half = (edges[1:] - edges[:-1])[:, None] / 2
    u = ((edges[1:] + edges[:-1])[:, None] / 2 + half * x).ravel()
    weight = (half * w).ravel() * np.exp(-(u**2) / 2) / math.sqrt(2 * math.pi)
    z1, z2 = (t + r) / math.sqrt(2) + s * u, (t - r) / math.sqrt(2) + s * u
    H = plain_energy(problem, z1[:, None], z2[None, :], same)
    return math.log(weight @ np.exp(-problem.beta * H) @ weight)


@pytest.mark.parametrize(
    "problem",
    [
        Problem(),
        Problem(beta=200.0, d_f=2.0),
        Problem(beta=3.0, softness=0.05),
        Problem(activation=erf),
        Problem(activation="half_tanh", d_f=0.3),
        Problem(activation=lambda z: np.tanh(z) + 0.2 * np.tanh(z / 2) ** 2),
    ],
    ids=["default", "cold", "warm", "erf", "half_tanh", "not odd"],
)
def test_log_z_is_the_integral(problem):
    c = 1.5
    channel, r, t = channel_at(problem, POINTS)
    F = channel.effective(c).F
    for a, b in POINTS:
        i, k = r.nodes.searchsorted(a), t.nodes.searchsorted(b)
        for kind, same in enumerate((True, False)):
            expected = brute_log_z(problem, c, a, b, same)
            assert -problem.beta * F[kind, i, k] == pytest.approx(expected, abs=1e-8, rel=1e-10)


def assert_derivatives(pair, response, h, *, rtol, atol):
    """∇F and ∇²F in the middle of a 5 × 5 grid of step h, by differences of F."""
    first = np.array([1, -8, 0, 8, -1]) / (12 * h)
    second = np.array([-1, 16, -30, 16, -1]) / (12 * h**2)
    mid = np.eye(5)[2]
    for got, left, right in [
        (pair.r, first, mid),
        (pair.t, mid, first),
        (response.rr, second, mid),
        (response.rt, first, first),
        (response.tt, mid, second),
    ]:
        expected = np.einsum("krt,r,t->k", pair.F, left, right)
        np.testing.assert_allclose(got[:, 2, 2], expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("same", [True, False])
def test_log_z_against_mpmath(same):
    problem, c, (a, b) = Problem(beta=20.0), 2.0, (0.9, 0.4)
    s = mpmath.sqrt(c / problem.beta)
    w1, w2 = (b + a) / mpmath.sqrt(2), (b - a) / mpmath.sqrt(2)

    def integrand(u, v):
        d2 = (mpmath.tanh(w1 + s * u) - mpmath.tanh(w2 + s * v)) ** 2
        x = problem.d_f - d2
        H = d2 / 2 if same else (x + mpmath.sqrt(x**2 + problem.softness)) / 4
        return mpmath.exp(-(u**2 + v**2) / 2 - problem.beta * H) / (2 * mpmath.pi)

    grid = [-8, -5, -3, -2, -1, 0, 1, 2, 3, 5, 8]
    exact = mpmath.log(mpmath.quad(integrand, grid, grid, method="gauss-legendre", maxdegree=3))
    channel, _, _ = channel_at(problem, [(a, b)])
    F = channel.effective(c).F[0 if same else 1, 0, 0]
    assert -problem.beta * F == pytest.approx(float(exact), abs=1e-8)


def test_gradient_curvature_and_energy_are_derivatives_of_f():
    """∇F and ∇²F by differences of F in ω, ⟨H⟩ = ∂(βF)/∂β at a fixed Gaussian."""
    problem, c, h = Problem(), 1.4, 1e-3
    shifts = [-2 * h, -h, 0.0, h, 2 * h]
    base = (0.9, 0.6)
    r, t = nodes([base[0] + s for s in shifts]), nodes([base[1] + s for s in shifts])
    z = Axis.uniform(0.012, 8.0)
    table = pair_table(problem, z, z)
    channel = GaussianChannel(table, problem.beta, at=(r, t), on=(z, z))
    pair, response = channel.effective(c), channel.response(c)
    assert_derivatives(pair, response, h, rtol=2e-6, atol=2e-7)
    up, down = (
        beta * GaussianChannel(table, beta, at=(r, t), on=(z, z)).effective(c * beta / 50).F
        for beta in (50 + 1e-3, 50 - 1e-3)
    )
    np.testing.assert_allclose(channel.energy(c), (up - down) / 2e-3, rtol=1e-6, atol=1e-9)


def test_kernels_fold_an_even_function():
    """A folded axis gives what the whole line gives, and exact moments of a Gaussian."""
    x = nodes([0.0, 0.4, 1.7])
    half, line = Axis.uniform(0.02, 9.0), Axis.uniform(0.02, 9.0, folded=False)
    folded = [k @ np.cos(half.nodes) for k in gaussian_kernels(x, half, 0.5, order=2)]
    whole = [k @ np.cos(line.nodes) for k in gaussian_kernels(x, line, 0.5, order=2)]
    damped = math.exp(-0.125)
    exact = [damped * np.cos(x.nodes), -damped * np.sin(x.nodes), -damped * np.cos(x.nodes)]
    for a, b, e in zip(folded, whole, exact, strict=True):
        np.testing.assert_allclose(a, e, atol=1e-13)
        np.testing.assert_allclose(b, e, atol=1e-13)


def moreau_at(problem, points):
    r, t = nodes([p[0] for p in points]), nodes([p[1] for p in points])
    z = Axis.uniform(0.05, 8.0)
    return MoreauChannel(problem, at=(r, t), on=(z, z)), r, t


@pytest.mark.parametrize(
    ("problem", "c"),
    [
        (Problem(beta=math.inf), 1.4),
        (Problem(beta=math.inf, softness=1e-4), 4.0),
        (Problem(beta=math.inf, d_f=3.4, activation=erf), 8.0),
    ],
)
def test_zero_temperature_finds_the_global_minimum(problem, c):
    """Against the best of every point of a fine square around it, refined once more."""
    channel, r, t = moreau_at(problem, [(0.05, 0.0), (0.6, 0.9), (1.7, 2.2), (3.0, 0.4)])
    F = channel.effective(c).F
    for i, a in enumerate(r.nodes):
        for k, b in enumerate(t.nodes):
            w1, w2 = (b + a) / math.sqrt(2), (b - a) / math.sqrt(2)
            for kind, same in enumerate((True, False)):
                z1, z2, width = w1, w2, 5.0
                for _ in range(9):
                    x, y = (
                        z1 + np.linspace(-width, width, 161),
                        z2 + np.linspace(-width, width, 161),
                    )
                    H = plain_energy(problem, x[:, None], y[None, :], same)
                    cost = H + ((x[:, None] - w1) ** 2 + (y[None, :] - w2) ** 2) / (2 * c)
                    j = np.unravel_index(cost.argmin(), cost.shape)
                    z1, z2, width = x[j[0]], y[j[1]], width / 8
                assert F[kind, i, k] == pytest.approx(cost.min(), abs=1e-10)


def test_zero_temperature_derivatives():
    """∇F and ∇²F by differences of F, away from jumps."""
    problem, c, h = Problem(beta=math.inf), 1.4, 1e-3
    shifts = [-2 * h, -h, 0.0, h, 2 * h]
    r, t = nodes([0.9 + s for s in shifts]), nodes([0.6 + s for s in shifts])
    z = Axis.uniform(0.05, 8.0)
    channel = MoreauChannel(problem, at=(r, t), on=(z, z))
    pair, response = channel.effective(c), channel.response(c)
    assert_derivatives(pair, response, h, rtol=1e-5, atol=1e-6)
    assert np.all(np.asarray(pair.share) == 1)


@pytest.mark.parametrize("place", [0.73, 0.7499, 0.7501])  # in a cell, and beside a node
def test_sums_across_a_jump(place):
    """Two parabolas of F cross: sums of F and of its slope against the exact integrals."""
    axis = Axis.one_sided(0.05, 6.0)
    x = axis.nodes

    def curves(x):
        left = x <= place
        slope = np.where(left, 0.3 + 0.1 * x, -0.5 + 0.2 * x)
        F = np.where(left, 0.3 * x + 0.05 * x**2, -0.5 * x + 0.1 * x**2)
        return F + np.where(left, 0, 0.8 * place - 0.05 * place**2), slope

    F, slope = curves(x)
    bend, z = np.where(x <= place, 0.1, 0.2), np.where(x <= place, 0.0, 1.0)
    arrays = [a.reshape(1, x.size, 1) for a in (F, slope, bend, z, np.zeros_like(z))]
    share, kink = (a.ravel() for a in _beside(axis, *arrays))
    weight = np.exp(-(x**2) / 2) * axis.weights / 2
    grid, w = roots_legendre(40)
    exact = np.zeros(2)
    for low, high in ((0, place), (place, 3), (3, 8)):
        y = (low + high) / 2 + (high - low) / 2 * grid
        exact += np.array(curves(y)) @ (w * np.exp(-(y**2) / 2)) * (high - low) / 2
    found, plain = [weight @ (F + kink), weight @ (slope * share)], [weight @ F, weight @ slope]
    assert np.all(np.abs(plain - exact) > [4e-5, 2e-3])
    assert np.all(np.abs(found - exact) < [5e-6, 4e-4])


@pytest.mark.parametrize("name", sorted(DERIVATIVES))
def test_derivatives_of_named_activations(name):
    """φ of the problem, and its differences."""
    z, h = np.linspace(-4, 4, 41), 1e-4
    phi, slope, bend = DERIVATIVES[name](z)
    f = Problem(activation=name).phi
    np.testing.assert_allclose(phi, f(z), atol=1e-15)
    np.testing.assert_allclose(slope, (f(z + h) - f(z - h)) / (2 * h), atol=1e-8)
    np.testing.assert_allclose(bend, (f(z + h) - 2 * f(z) + f(z - h)) / h**2, atol=1e-6)


def test_a_table_deposited_for_a_wide_gaussian():
    """ln Z of a steep φ under a Gaussian 60 times as wide as it, by quadrature in (z₁, z₂)."""
    for phi in (lambda z: np.tanh(3 * z), lambda z: np.tanh(3 * z + 1)):
        problem = Problem(activation=phi, beta=0.7, d_f=1.6, softness=1e-3)
        s = 20.0
        step, reach = deposit_step(problem, 140.0, s), 140.0
        z_r = Axis.uniform(step, reach + 4 * step)
        z_t = z_r if problem.odd else Axis.uniform(step, reach + 4 * step, folded=False)
        table = deposited_table(problem, z_r, z_t, reach=reach, s=s, coarseness=1.0)
        r, t = nodes([0.0, 7.0]), nodes([-5.0, 0.0, 11.0], folded=False)
        channel = GaussianChannel(table, problem.beta, at=(r, t), on=(z_r, z_t))
        pair, H = channel.effective(problem.beta * s**2), channel.energy(problem.beta * s**2)
        x, w = roots_legendre(8)
        edges = np.concatenate([-np.geomspace(150, 2.5, 12), np.linspace(-2.4, 2.4, 81),
                                np.geomspace(2.5, 150, 12)])  # fmt: skip
        half = np.diff(edges)[:, None] / 2
        z, w = (edges[:-1, None] + half * (1 + x)).ravel(), (half * w).ravel()
        for (i, a), (k, b), (kind, same) in product(
            enumerate(r.nodes), enumerate(t.nodes), enumerate((True, False))
        ):
            E = plain_energy(problem, z[:, None], z, same)
            p, q = (w * np.exp(-(((z - (b + sign * a) / math.sqrt(2)) / s) ** 2) / 2)
                    / (s * math.sqrt(2 * math.pi)) for sign in (1, -1))  # fmt: skip
            Z = p @ np.exp(-problem.beta * E) @ q
            assert pair.F[kind, i, k] == pytest.approx(-math.log(Z) / problem.beta, abs=1e-6)
            mean = p @ (E * np.exp(-problem.beta * E)) @ q / Z
            assert H[kind, i, k] == pytest.approx(mean, abs=1e-6)
            slope = p * (z - (b + a) / math.sqrt(2)) / s**2 @ np.exp(-problem.beta * E) @ q / Z
            found = (pair.r[kind, i, k] + pair.t[kind, i, k]) / math.sqrt(2)
            assert found == pytest.approx(-slope / problem.beta, abs=1e-8)


@pytest.mark.parametrize("phi", [np.tanh, lambda z: np.tanh(z + 0.3)])
def test_fields_that_end_where_they_have_no_mean(phi):
    """The whole channel inside, for boson pairs along r and for fermion pairs along t; 0 beyond."""
    problem = Problem(activation=phi)
    r, z = Axis.uniform(0.4, 3.0), Axis.uniform(0.03, 6.0)
    t = r if problem.odd else Axis.uniform(0.3, 2.0, folded=False)
    on = (z, z if problem.odd else Axis.uniform(0.03, 6.0, folded=False))
    whole, ending = (
        GaussianChannel(pair_table(problem, *on), problem.beta, at=(r, t), on=on, end=end)
        for end in (math.inf, 1.0)
    )
    inside = np.array(np.broadcast_arrays(abs(r.nodes[:, None]) < 1, abs(t.nodes) < 1))
    assert 0 < inside.mean() < 1
    for name in ("effective", "response", "energy", "lost"):
        one, other = (getattr(channel, name)(2.0) for channel in (whole, ending))
        if name in ("effective", "response"):
            fields = ["F", "r", "t", "force2"] if name == "effective" else ["rr", "rt", "tt"]
            one, other = (np.array([getattr(x, f) for f in fields]) for x in (one, other))
        np.testing.assert_allclose(other, np.where(inside, one, 0.0), rtol=1e-9, atol=1e-12)


def test_a_lattice_is_not_good_for_a_field_that_goes_beyond_its_end():
    problem, narrow, wider = Problem(), Overlaps(2.0, 4.2, 3.0), Overlaps(1.3, 6.3, 3.0)
    assert make_lattice(problem, narrow, everywhere=True).covers(problem, wider)
    assert make_lattice(problem, narrow).covers(problem, narrow)
    assert not make_lattice(problem, narrow).covers(problem, wider)
