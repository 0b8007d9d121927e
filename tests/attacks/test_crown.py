"""Linear bounds. Oracles: grids, closed forms, fractions, intervals, samples, PGD, AutoAttack."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_certificate import random_net
from test_linear import best_gain

from fermibose import FermiBoseNet
from fermibose.attacks import ThreatModel, auto_attack, certified_radius, certify, pgd
from fermibose.attacks.crown import LINES, Crown, Reach, lines
from fermibose.attacks.gradient import margin
from fermibose.errors import InputError
from fermibose.machine import Recipe, train

CURVES = {"tanh": torch.tanh, "half_tanh": lambda z: 0.5 * z.tanh() + 0.5, "relu": torch.relu}


def check_lines(low, high, activation="tanh"):
    """On a dense grid of each interval; returns the largest gap between the lines."""
    low, high = (torch.as_tensor(end, dtype=torch.float64)[:, None] for end in (low, high))
    found = LINES[activation](low, high)
    grid = torch.cat([torch.linspace(0, 1, 1001), torch.logspace(-9, 0, 200)]).double()
    for z in (low + (high - low) * grid, high - (high - low) * grid):
        z = torch.clamp(z, low, high)  # which rounding may have left
        curve = CURVES[activation](z)
        slack = 1e-14 * (1 + z.abs())
        assert (found.slope * z + found.offset <= curve + slack).all()
        assert (found.upper_slope * z + found.upper_offset >= curve - slack).all()
    upper = found.upper_slope * z + found.upper_offset
    return (upper - found.slope * z - found.offset).amax(1)


@given(st.integers(0, 2**31), st.sampled_from(list(CURVES)))
def test_the_curve_lies_between_its_lines(seed, activation):
    """Intervals of any kind: tiny and huge, on one side and across, very asymmetric."""
    rng = np.random.default_rng(seed)
    ends = rng.choice([-1, 1], (20, 2)) * 10 ** rng.uniform(-12, 3, (20, 2))
    ends[:8] = rng.normal(0, 2, (8, 1)) + [[0, 1]] * 10 ** rng.uniform(-14, 1, (8, 1))
    low, high = ends.min(1), ends.max(1)
    check_lines(low, high, activation)


def test_special_intervals():
    """Points, zeros, mirror images, saturation at both ends."""
    low = [0.0, 0.0, -1.0, -1.0, 3.0, -50.0, -1e6, 20.0, -30.0, -1e-300, 5.0]
    high = [0.0, 1.0, 0.0, 1.0, 3.0, 50.0, 1e6, 30.0, -20.0, 1e-300, 5.0 + 1e-9]
    gap = check_lines(low, high)
    assert gap[[0, 4]].abs().max() < 1e-12  # of a point nothing is lost
    assert gap[7:9].max() < 1e-12
    there, mirrored = (
        lines(*(torch.tensor([e]).double() for e in ends)) for ends in ((-0.3, 2), (-2, 0.3))
    )
    torch.testing.assert_close(there.slope, mirrored.upper_slope)
    torch.testing.assert_close(there.offset, -mirrored.upper_offset)
    gap = check_lines(low, high, "relu")
    assert gap[[0, 1, 2, 4, 7, 8, 10]].max() == 0  # a relu bends nowhere else than at 0
    assert gap[3] == 1  # at the ends of (−1, 1), where the lower line is 0


def test_lines_are_as_near_as_tangents_and_chords():
    """Second order in the width, and across zero the best tangent: no interval is given away."""
    middle = torch.linspace(-3, 3, 61).double()
    gaps = [check_lines(middle - w, middle + w) for w in (0.1, 0.01)]
    assert (gaps[0] / gaps[1]).min() > 50
    low, high = torch.tensor([-2.0]).double(), torch.tensor([3.0]).double()
    found = lines(low, high)
    slopes = torch.linspace(0.001, 1, 1000).double()  # the upper line has the least area, nearly
    z = torch.linspace(-2, 3, 2001).double()
    offsets = (z.tanh() - slopes[:, None] * z).amax(1)
    areas = slopes * 0.5 + offsets
    ours = found.upper_slope * 0.5 + found.upper_offset
    assert float(ours) <= float(areas.min()) + 1e-3


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_minimum_of_linear_functions_in_ball_and_box(norm):
    rng = np.random.default_rng(0)
    x = np.clip(rng.normal(0.4, 0.5, (40, 8)), 0, 1)
    rows = rng.normal(size=(40, 3, 8))
    rows[0, 0] = 0
    for epsilon in (0.0, 0.01, 0.3, 5.0):
        reach = Reach(
            torch.tensor(x), torch.full((40,), epsilon, dtype=torch.float64), norm, (0.0, 1.0)
        )
        least, minimum = (f(torch.tensor(rows)).numpy() for f in (reach.least, reach.minimum))
        for k in range(3):
            expected = (rows[:, k] * x).sum(1)
            some = np.abs(rows[:, k]).max(1) > 0
            expected[some] -= best_gain(-rows[some, k], x[some], epsilon, norm)
            np.testing.assert_allclose(minimum[:, k], expected, atol=1e-12)
            assert (least[:, k] <= expected + 1e-12).all()
        shared = reach.least(torch.tensor(rows[0])).numpy()
        alike = reach.least(torch.tensor(np.repeat(rows[:1], 40, 0))).numpy()
        np.testing.assert_allclose(shared, alike, atol=1e-12)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_without_hidden_layers_the_margin_is_exact(norm):
    """In the box [0, 1] too, where it is a convex problem."""
    net = random_net(9, (), 4)
    rng = np.random.default_rng(1)
    x = np.clip(rng.normal(0.3, 0.6, (60, 9)), 0, 1)
    y = net(torch.tensor(x)).argmax(1).numpy()
    weight, bias = net.readout.weight.T.numpy(), net.readout.bias.numpy()
    for epsilon in (0.01, 0.2, 0.8, 9.0):
        margins = []
        for k in range(4):
            gap = weight[y] - weight[k] + 1e-300
            own = ((gap * x).sum(1) + bias[y] - bias[k]) - best_gain(-gap, x, epsilon, norm)
            margins.append(np.where(y == k, np.inf, own))
        proof = certify(net, x, y, ThreatModel(norm, epsilon))
        np.testing.assert_allclose(proof.margin, np.min(margins, 0), atol=1e-10)
        assert (proof.margin <= np.min(margins, 0)).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_one_layer_by_hand(norm):
    """Σ a h, two units of one input: where a > 0 the lower line at its worst, else the upper."""
    rng = np.random.default_rng(7)
    for _ in range(30):
        net = random_net(1, (2,), 2, activation="tanh", scale=1.5, seed=int(rng.integers(999)))
        x = torch.tensor([[rng.uniform(-1, 1)]], dtype=torch.float64)
        epsilon = float(10 ** rng.uniform(-1, 0.5))
        low, high = float(x) - epsilon, float(x) + epsilon
        weight, bias = net.local_layers[0].weight[0], net.local_layers[0].bias
        ends = torch.stack([low * weight + bias, high * weight + bias])
        found = lines(ends.amin(0), ends.amax(0))
        gap = net.readout.weight[:, 0] - net.readout.weight[:, 1]
        constant = float(net.readout.bias[0] - net.readout.bias[1])
        at = []
        for point in (low, high):  # a sum of lines is linear in the one input: least at an end
            z = point * weight + bias
            below = found.slope * z + found.offset
            above = found.upper_slope * z + found.upper_offset
            at.append(float((gap * torch.where(gap > 0, below, above)).sum()) + constant)
        proof = Crown(net, x, torch.zeros(1, dtype=torch.long), norm, (-torch.inf, torch.inf))
        bound = float(proof.lowest(torch.tensor([epsilon], dtype=torch.float64))[0, 0])
        assert bound == pytest.approx(min(at), abs=1e-10)


NETS = {
    "one": ((7,), "half_tanh"),
    "two": ((6, 5), "tanh"),
    "three": ((6, 5, 4), "half_tanh"),
    "relu": ((7, 5), "relu"),
}


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", NETS)
def test_no_sample_of_the_ball_falls_below_the_bound(name, norm):
    """Nets with biases and rescaled inputs; margins of each rival by themselves."""
    hidden, activation = NETS[name]
    net = random_net(5, hidden, 3, activation=activation, scale=1.3, seed=2)
    gain = torch.tensor([2.0, 0.5, -1.0, 1.5, 1.0]).double()
    net.take_raw_inputs(torch.full((5,), 0.3).double(), gain)
    generator = torch.Generator().manual_seed(3)
    x = (0.5 + 0.5 * torch.randn(20, 5, generator=generator, dtype=torch.float64)).clamp(0, 1)
    y = net(x).argmax(1)
    crown, before = Crown(net, x, y, norm, (0.0, 1.0)), torch.tensor(torch.inf)
    for epsilon in (0.0, 0.001, 0.03, 0.1, 0.4, 3.0):
        bound = crown.lowest(torch.full((20,), epsilon, dtype=torch.float64))
        change = torch.randn(20, 3000, 5, generator=generator, dtype=torch.float64)
        if norm == "linf":
            change = change.sign() * torch.rand(20, 3000, 1, generator=generator).double() ** 0.1
        else:
            change /= change.norm(dim=2, keepdim=True)
        points = (x[:, None] + epsilon * change).clamp(0, 1)
        logits = net(points.reshape(-1, 5)).view(20, 3000, 3)
        for i in range(20):
            rivals = [k for k in range(3) if k != y[i]]
            margins = logits[i, :, y[i], None] - logits[i][:, rivals]
            assert (bound[i] <= margins.amin(0) + 1e-12).all()
        if epsilon <= 0.001:  # and it is tight where the net is all but linear
            exact = (logits.gather(2, y[:, None, None].expand(20, 3000, 1)) - logits).amin(1)
            exact = torch.stack([exact[i, [k for k in range(3) if k != y[i]]] for i in range(20)])
            assert (exact - bound).max() < 2e-2 * epsilon + 1e-10 + 3e3 * epsilon**2
        # What is certain in a ball is certain in a smaller one, and in small ones bounds only fall.
        assert not ((bound > 0) & (before <= 0)).any()
        assert epsilon > 0.1 or (bound <= before).all()
        before = bound


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", NETS)
def test_never_looser_than_interval_arithmetic(name, norm):
    """The reach of the first pre-activations, then each layer's intervals by themselves."""
    hidden, activation = NETS[name]
    net = random_net(5, hidden, 3, activation=activation, scale=0.7, seed=5)
    x = torch.rand(30, 5, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    y = net(x).argmax(1)
    for epsilon in (0.01, 0.1, 0.5):
        low, high = (x - epsilon).clamp(min=0), (x + epsilon).clamp(max=1)
        for layer in (*net.local_layers, net.readout):
            centre, radius = (low + high) / 2, (high - low) / 2
            z, r = layer.bias + centre @ layer.weight, radius @ layer.weight.abs()
            low, high = z - r, z + r
            if layer is not net.readout:
                low, high = layer.activation.apply(low), layer.activation.apply(high)
        rivals = high.scatter(1, y[:, None], -torch.inf).amax(1)
        by_intervals = low.gather(1, y[:, None])[:, 0] - rivals
        proof = certify(net, x, y, ThreatModel(norm, epsilon))
        assert (proof.margin >= by_intervals.numpy() - 1e-9).all()


@pytest.fixture(scope="module")
def deep(digits):
    recipe = Recipe(hidden=(40, 30), epochs=8, readout_epochs=30)
    return train(digits.x_train, digits.y_train, recipe).net


@pytest.mark.parametrize(("norm", "strengths"), [("linf", (0.01, 0.03, 0.08)), ("l2", (0.1, 0.4))])
@pytest.mark.parametrize("which", ["net", "deep"])
def test_whoever_is_certified_withstands_attacks(which, norm, strengths, request, images):
    """Image by image; and what is certified is most of what PGD leaves at a small strength."""
    net, (x, y) = request.getfixturevalue(which), images
    radii = certified_radius(net, x, y, norm=norm, bounds=(0.0, 1.0))
    for epsilon in strengths:
        threat = ThreatModel(norm, epsilon)
        proof, attacked = certify(net, x, y, threat), pgd(net, x, y, threat, restarts=2)
        certain = torch.tensor(proof.certain)
        assert not (certain & ~attacked.robust).any()
        worst = -margin(net(attacked.examples), y)[attacked.correct]  # what PGD came down to
        assert (torch.tensor(proof.margin)[attacked.correct] <= worst + 1e-4).all()
        assert proof.accuracy == pytest.approx(radii.accuracy(epsilon)[0], abs=0.01)
        by_slopes = certify(net, x, y, threat, method="lipschitz")
        assert proof.accuracy >= by_slopes.accuracy
    assert (
        radii.accuracy(strengths[0])[0]
        > 0.9 * pgd(net, x, y, ThreatModel(norm, strengths[0])).robust_accuracy
    )


def test_whoever_is_certified_withstands_autoattack(net, images):
    x, y = images[0][::3], images[1][::3]
    threat = ThreatModel("linf", 0.05)
    certain = torch.tensor(certify(net, x, y, threat).certain)
    attacked = auto_attack(net, x, y, threat, square_queries=200)
    assert certain.sum() > 10
    assert not (certain & ~attacked.robust).any()


def test_radii_of_both_methods_and_their_curve(net, images):
    x, y = images
    lines_, slopes = (certified_radius(net, x, y, method=m) for m in ("crown", "lipschitz"))
    assert lines_.bounds == (0.0, 1.0)
    assert slopes.bounds == (-np.inf, np.inf)
    correct = (net(x).argmax(1) == y).numpy()
    assert (lines_.radius[correct] > 0).all()
    assert lines_.radius.mean() > 1.5 * slopes.radius.mean()
    strengths = (0.0, 0.01, 0.05)
    curve = lines_.curve(strengths)
    np.testing.assert_array_equal(curve.accuracy, lines_.accuracy(strengths))
    assert (np.diff(curve.accuracy) <= 0).all()
    everywhere = certified_radius(net, x, y, bounds=(-np.inf, np.inf))
    assert (everywhere.radius <= lines_.radius * (1 + 1e-3)).all()
    at_the_radius = np.unique(lines_.radius)[len(y) // 2]
    assert certify(net, x, y, ThreatModel("linf", at_the_radius * 0.999)).accuracy == (
        pytest.approx(lines_.accuracy(at_the_radius)[0], abs=0.01)
    )


def test_blocks_and_batches_make_no_difference(deep, images, monkeypatch):
    x, y = images[0][:20], images[1][:20]
    threat = ThreatModel("l2", 0.1)
    whole = certify(deep, x, y, threat).margin
    monkeypatch.setattr("fermibose.attacks.crown._ENTRIES", 5000)
    np.testing.assert_allclose(certify(deep, x, y, threat, batch_size=7).margin, whole)


@given(st.integers(0, 2**31))
def test_rounding_is_paid_for(seed):
    """Huge terms that cancel, against fractions: never above the exact margin."""
    rng = np.random.default_rng(seed)
    net = FermiBoseNet(8, (), 2, readout_bias=True).double()
    large = 10 ** rng.uniform(0, 17, 4)
    gap = rng.permutation(np.concatenate([large + rng.normal(size=4), -large]))
    net.readout.weight[:, 0] = torch.tensor(gap)
    x = torch.ones(1, 8).double()
    exact = sum(map(Fraction, gap.tolist()))
    bound = Crown(net, x, torch.zeros(1, dtype=torch.long), "linf", (0.0, 1.0))
    lowest = float(bound.lowest(torch.zeros(1).double())[0, 0])
    assert Fraction(lowest) <= exact
    assert lowest >= float(exact) - 1e-12 * np.abs(gap).sum()


def test_misclassified_images_and_other_threats(net, images):
    x, y = images
    wrong = (net(x).argmax(1) + 1) % 10
    assert certify(net, x, wrong, ThreatModel("linf", 0.0)).accuracy == 0
    right = certify(net, x, y, ThreatModel("l2", 0.0))
    assert right.accuracy == (net(x).argmax(1) == y).double().mean()
    assert right.as_dict()["certified_accuracy"] == right.accuracy
    with pytest.raises(InputError, match="a certificate needs the norm linf or l2"):
        certify(net, x, y, ThreatModel("noise"))
    with pytest.raises(InputError, match="method must be 'crown' or 'lipschitz', got 'milp'"):
        certify(net, x, y, ThreatModel(), method="milp")
    with pytest.raises(InputError, match="FermiBoseNet, got Linear"):
        certify(torch.nn.Linear(64, 10), x, y, ThreatModel())
    with pytest.raises(InputError, match="outside the bounds"):
        certify(net, 2 * x, y, ThreatModel())
