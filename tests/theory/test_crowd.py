"""Samples that feel each other through all pairs, against minimisation field by field."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from fermibose.errors import InputError
from fermibose.theory import Problem
from fermibose.theory.crowd import Group, gather
from fermibose.theory.hull import find_gaps
from fermibose.theory.panels import lay

PROBLEM = Problem(pairing="all", beta=math.inf)
SMOOTH = [
    Group(0.4, 1, 0.3, 0.8, 2.0),
    Group(0.5, 0, -0.3, 0.96, 1.6),
    Group(0.1, 0, 0.3, 0.8, 2.0),
]
# Of mean 0 and stiff: the polarised state has a jump where the field has weight.
TORN = [Group(0.5, 1, 0.0, 0.5, 3.0), Group(0.5, 0, 0.0, 0.5, 3.0)]


def names(average):
    return np.array([average.F, average.force, average.force2, average.slope, average.energy])


def by_hand(problem, groups, *, fields=301, steps=60, shift=0.5):
    """The same by a line of fields, a search of all z for each of them, and sums over all pairs."""
    v = np.linspace(-7, 7, fields)
    p = np.exp(-(v**2) / 2)
    p /= p.sum()
    grid = np.linspace(-7, 7, 801)
    omega = [g.mean + g.width * v for g in groups]
    z = [o + shift * (2 * g.label - 1) * g.width for o, g in zip(omega, groups, strict=True)]
    for _ in range(steps):
        new, at = [], []
        for g, o in zip(groups, omega, strict=True):
            others = zip(groups, z, strict=True)
            h = CubicSpline(grid, sum(
                k.share * problem.energies(grid[:, None], zk)[int(k.label != g.label)] @ p
                for k, zk in others
            ))  # fmt: skip
            best = grid[((grid - o[:, None]) ** 2 / (2 * g.c) + h(grid)).argmin(1)]
            for _ in range(3):
                best = best - ((best - o) / g.c + h(best, 1)) / (1 / g.c + h(best, 2))
            new.append(best)
            at.append(h(best))
        moved = max(float(np.abs(a - b) @ p) for a, b in zip(new, z, strict=True))
        z = new
        if moved < 1e-8:
            break
    force = [(o - x) / g.c for g, o, x in zip(groups, omega, z, strict=True)]
    every = zip(groups, force, at, strict=True)
    return [
        np.array([p @ (g.c * f**2 / 2 + u), p @ f, p @ f**2, p @ (v * f), p @ u])
        for g, f, u in every
    ]


def test_averages_are_those_of_a_search_for_every_field():
    found = gather(PROBLEM, SMOOTH)
    expected = by_hand(PROBLEM, SMOOTH)
    for average, truth in zip(found.averages, expected, strict=True):
        assert names(average) == pytest.approx(truth, abs=3e-7)
        assert not average.jumps
    assert found.pair_energy == pytest.approx(
        sum(g.share * truth[4] for g, truth in zip(SMOOTH, expected, strict=True)), abs=1e-7
    )


def test_jumps_stand_where_two_minima_tie():
    found = gather(PROBLEM, TORN)
    (jump,) = found.averages[0].jumps
    group = TORN[0]
    z = np.linspace(-4, 4, 8001)
    h = found.potential(z)[0, 1]

    def side(field, where):
        return float(((z - field) ** 2 / (2 * group.c) + h)[where].min())

    left, right = z < (jump.left + jump.right) / 2, z >= (jump.left + jump.right) / 2
    assert side(jump.field, left) == pytest.approx(side(jump.field, right), abs=2e-7)
    assert side(jump.field - 0.01, left) < side(jump.field - 0.01, right)
    cost = (z - jump.field) ** 2 / (2 * group.c) + h
    assert z[left][cost[left].argmin()] == pytest.approx(jump.left, abs=2e-3)
    assert z[right][cost[right].argmin()] == pytest.approx(jump.right, abs=2e-3)
    density = math.exp(-((jump.field / 0.5) ** 2) / 2) / (0.5 * math.sqrt(2 * math.pi))
    assert jump.density == pytest.approx(density, rel=1e-12)
    # A trapezoidal rule across the jump errs by density × step × height.
    assert names(found.averages[0]) == pytest.approx(by_hand(PROBLEM, TORN)[0], abs=4e-5)


def test_curvature_and_its_growth_are_the_cold_limit_of_a_warm_channel():
    found = gather(PROBLEM, TORN)
    group, average = TORN[0], found.averages[0]
    (jump,) = average.jumps
    z = np.linspace(-3, 3, 6001)
    h = found.potential(z)[0, 1]
    omega = np.concatenate(
        [np.linspace(-4, 4, 601) * 0.5, jump.field + np.linspace(-0.01, 0.01, 401)]
    )
    omega = np.unique(omega)

    def bend2(beta):
        exponent = -beta * ((z - omega[:, None]) ** 2 / (2 * group.c) + h)
        weight = np.exp(exponent - exponent.max(1, keepdims=True))
        weight /= weight.sum(1, keepdims=True)
        mean = weight @ z
        spread = weight @ z**2 - mean**2
        bend = 1 / group.c - beta * spread / group.c**2  # F″ of F = −ln Z/β
        p = np.exp(-(omega**2) / 0.5) / (0.5 * math.sqrt(2 * math.pi))
        near = np.abs(omega - jump.field) <= 0.01
        away = sum(
            np.trapezoid((p * bend**2)[part], omega[part])
            for part in (~near & (omega < jump.field), ~near & (omega > jump.field))
        )
        return np.trapezoid(p * bend**2, omega), away

    (cold, _), (colder, away) = bend2(5000.0), bend2(10_000.0)
    assert (colder - cold) / 5000 == pytest.approx(average.growth, rel=0.02)
    assert away == pytest.approx(average.curvature2, rel=0.003)


@pytest.mark.parametrize("groups", [SMOOTH, TORN])
@pytest.mark.parametrize("name", ["mean", "width", "c"])
def test_averages_are_derivatives_of_the_functional(groups, name):
    found = gather(PROBLEM, groups)
    average = found.averages[1]
    step, ends = 2e-3, []
    for sign in (2, 1, -1, -2):
        moved = replace(groups[1], **{name: getattr(groups[1], name) + sign * step})
        ends.append(gather(PROBLEM, [groups[0], moved, *groups[2:]], start=found).functional)
    far, near = ends[0] - ends[3], ends[1] - ends[2]
    slope = (8 * near - far) / (12 * step)
    expected = {"mean": average.force, "width": average.slope, "c": -average.force2 / 2}[name]
    assert slope / groups[1].share == pytest.approx(expected, abs=2e-8)


def test_fields_of_mean_zero_have_a_symmetric_state_too():
    polarised = gather(PROBLEM, TORN)
    symmetric = gather(PROBLEM, TORN, symmetric=True)
    z = np.linspace(-3, 3, 41)
    h = symmetric.potential(z)[0]
    np.testing.assert_allclose(h[0], h[1], rtol=0, atol=1e-14)
    np.testing.assert_allclose(h[0], h[0, ::-1], rtol=0, atol=1e-14)
    expected = by_hand(PROBLEM, TORN, shift=0.0)[0]
    assert symmetric.averages[0].energy == pytest.approx(expected[4], abs=1e-4)
    again = gather(PROBLEM, TORN, start=polarised, symmetric=True)
    assert again.functional == pytest.approx(symmetric.functional, abs=1e-9)
    assert polarised.functional < symmetric.functional - 0.01
    apart = polarised.potential(z)[0]
    np.testing.assert_allclose(apart[0], apart[1, ::-1], rtol=0, atol=1e-13)
    assert np.abs(apart[0] - apart[1]).max() > 0.1
    assert polarised.averages[0].force < 0 < polarised.averages[1].force  # −h′ pulls label 1 up


def test_labels_of_unequal_shares_are_symmetric_each_for_itself():
    groups = [replace(TORN[0], share=0.3), replace(TORN[1], share=0.7)]
    polarised = gather(PROBLEM, groups)
    symmetric = gather(PROBLEM, groups, start=polarised, symmetric=True)
    h = symmetric.potential(np.linspace(-3, 3, 41))[0]
    np.testing.assert_allclose(h, h[:, ::-1], rtol=0, atol=1e-13)
    assert np.abs(h[0] - h[1]).max() > 0.01
    assert polarised.functional < symmetric.functional - 0.01


def test_a_start_nearby_leads_to_the_same_state():
    moved = [replace(g, mean=1.2 * g.mean, c=1.3 * g.c) for g in SMOOTH]
    near, cold = gather(PROBLEM, moved, start=gather(PROBLEM, SMOOTH)), gather(PROBLEM, moved)
    for a, b in zip(near.averages, cold.averages, strict=True):
        assert names(a) == pytest.approx(names(b), abs=1e-9)
    other = replace(PROBLEM, d_f=0.5)
    far = gather(other, SMOOTH, start=gather(PROBLEM, SMOOTH))
    assert names(far.averages[0]) == pytest.approx(
        names(gather(other, SMOOTH).averages[0]), abs=1e-9
    )


def test_half_tanh_is_tanh_in_other_units():
    halved = replace(PROBLEM, activation="half_tanh", d_f=0.25, softness=0.01 / 16)
    groups = [replace(g, c=4 * g.c) for g in SMOOTH]
    for a, b in zip(gather(PROBLEM, SMOOTH).averages, gather(halved, groups).averages, strict=True):
        assert names(b) == pytest.approx(names(a) / [4, 4, 16, 4, 4], abs=1e-9)


def test_an_activation_without_a_name_needs_no_derivatives():
    own = replace(PROBLEM, activation=np.tanh)
    for a, b in zip(gather(PROBLEM, SMOOTH).averages, gather(own, SMOOTH).averages, strict=True):
        assert names(b) == pytest.approx(names(a), abs=1e-8)


def test_three_labels():
    groups = [Group(1 / 3, k, 0.7 * (k - 1), 0.6, 1.0) for k in range(3)]
    found = gather(PROBLEM, groups)
    for average, truth in zip(found.averages, by_hand(PROBLEM, groups, shift=0.2), strict=True):
        assert names(average) == pytest.approx(truth, abs=3e-7)


@pytest.mark.parametrize(
    ("mean", "width", "c"), [(0.5, 3.0, 100.0), (0.1, 0.01, 5.0), (3, 0.5, 30)]
)
def test_no_sample_is_lost_at_extremes(mean, width, c):
    groups = [Group(0.5, 1, mean, width, c), Group(0.5, 0, -mean, width, c)]
    found = gather(PROBLEM, groups)
    assert found.lost < 1e-9
    again = gather(PROBLEM, [replace(g, c=1.0001 * c) for g in groups], start=found)
    slope = (again.functional - found.functional) / (1e-4 * c)
    assert slope == pytest.approx(-found.mean("force2") / 2, rel=2e-4)


def test_two_gaps_that_overlap_are_one():
    panels = lay(PROBLEM, 4.0)
    z = panels.nodes
    # ψ = (z² − 1)² with a dent at 0 that never reaches the hull of the two wells
    dent = (1 - 1e-6) * np.exp(-40 * z**2)
    psi = (z**2 - 1) ** 2 - dent
    first = 4 * z * (z**2 - 1) + 80 * z * dent
    second = 12 * z**2 - 4 + 80 * (1 - 80 * z**2) * dent
    (gap,) = find_gaps(panels, np.stack([psi - z**2 / 2, first - z, second - 1]), 1.0)
    assert (gap.left, gap.right, gap.field) == pytest.approx((-1, 1, 0), abs=1e-9)


def test_refusals():
    with pytest.raises(InputError, match="shares of all groups must add up to 1"):
        gather(PROBLEM, SMOOTH[:2])
    with pytest.raises(InputError, match="symmetric=True is for fields of mean 0"):
        gather(PROBLEM, SMOOTH, symmetric=True)
    with pytest.raises(InputError, match="must be smooth"):
        gather(Problem(softness=0.0), SMOOTH)
    found = gather(PROBLEM, SMOOTH)
    three = [Group(1 / 3, k, 0.0, 1.0, 1.0) for k in range(3)]
    with pytest.raises(InputError, match="another number of labels"):
        gather(PROBLEM, three, start=found)
    with pytest.raises(InputError, match="width of a group must be a finite number > 0"):
        Group(0.5, 0, 0.0, 0.0, 1.0)
