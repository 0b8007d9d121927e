"""Are models functions, and their gradients those of the functions? Oracles: closed forms."""

import pytest
import torch
from torch import nn

from fermibose.attacks import ThreatModel
from fermibose.attacks.faithful import (
    SEGMENTS,
    UNEXPLAINED,
    Witness,
    _error,
    _Path,
    same_answers,
    true_gradient,
)
from fermibose.attacks.masking import Probe
from fermibose.attacks.victim import victim_of

THREAT = ThreatModel("linf", 0.1)


class Function(nn.Module):
    """Logits (f(x), −f(x)) of a scalar function of the inputs."""

    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        f = self.f(x)
        return torch.stack([f, -f], 1)


def error_of(f, segments, dtype=torch.float64):
    """Of the straight way from 0 to (1, 2) along which f is looked at."""
    start = torch.zeros(1, 2, dtype=dtype)
    end = torch.tensor([[1.0, 2.0]], dtype=dtype)
    path = _Path("", start, end, torch.tensor([[1.0, 0.0]], dtype=dtype))
    model = Function(f)
    with victim_of(
        model, start, torch.zeros(1).long(), ThreatModel("linf", 0.1, (-9, 9))
    ) as victim:
        return float(_error(path, model, victim, segments))


def test_quadratic_functions_leave_nothing_unexplained():
    """The mean of the gradients at both ends is exact for them, however long the piece."""
    for segments in (1, 16):
        assert error_of(lambda x: (x[:, 0] * x[:, 1]) + 3 * x[:, 0].square(), segments) < 1e-12


def test_kinks_and_steep_places_only_cost_pieces():
    """|t − ⅓|: in the piece with the kink the gradient says 0, the function changes a little."""
    kink = [error_of(lambda x: (x[:, 0] - 1 / 3).abs(), n) for n in SEGMENTS]
    assert kink == sorted(kink, reverse=True)
    for n, error in zip(SEGMENTS, kink, strict=True):
        t = torch.linspace(0, 1, n + 1, dtype=torch.float64)
        change = (t - 1 / 3).abs().diff()
        said = torch.sign(t - 1 / 3)
        said = (said[1:] + said[:-1]) / 2 / n
        # Relative to the larger of the two, which is the gradient's unless it says 0 in that piece
        expected = (change - said).norm() / max(change.norm(), said.norm())
        assert error == pytest.approx(float(expected), rel=1e-9)
    assert error_of(lambda x: torch.tanh(100 * (x[:, 0] - 0.4)), SEGMENTS[-1]) < UNEXPLAINED


@pytest.mark.parametrize("factor", [-1.0, 0.0, 0.5, 1.5, 3.0])
def test_a_gradient_off_by_a_factor_is_off_by_that(factor):
    """Δf = 1, ∇f·Δx = c: |1 − c| over the larger of 1 and |c|."""

    def false(x):
        f = x.sum(1)
        return f.detach() + factor * (f - f.detach())

    expected = abs(1 - factor) / max(1, abs(factor))
    for segments in SEGMENTS:
        assert error_of(false, segments) == pytest.approx(expected, abs=1e-9)


def test_jumps_are_explained_by_no_refinement():
    """A slope of 1 and a jump of 1: the finer, the more of Σ Δf² the jump is."""
    errors = [error_of(lambda x: x[:, 0] + (x[:, 0] > 0.31).to(x), n) for n in SEGMENTS]
    for n, error in zip(SEGMENTS, errors, strict=True):
        step = 1 / n
        assert error == pytest.approx(1 / ((1 + step) ** 2 + (n - 1) * step**2) ** 0.5, rel=1e-9)
    assert errors == sorted(errors)


def test_where_all_is_flat_there_is_nothing_to_say():
    assert torch.tensor(error_of(lambda x: 0 * x.sum(1) + 7, 16)).isnan()
    assert error_of(lambda x: torch.sign(x[:, 0] - 0.31) + 0 * x.sum(1), 16) == pytest.approx(1)


class Net(nn.Module):
    """Three logits of twenty inputs; ``how`` turns inputs and the net into logits."""

    def __init__(self, how=lambda net, x: net(x)):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 3))
        self.how = how
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.how(self.net, x)


def probe_of(model, threat=THREAT, *, dtype=torch.float32):
    x = torch.rand(40, 20, generator=torch.Generator().manual_seed(1)).to(dtype)
    with torch.no_grad():
        y = model.net(x).argmax(1)
    with victim_of(model, x, y, threat) as victim:
        return Probe(victim, torch.ones(len(y)).bool(), threat, 0.02, 0)


def by_precision(net, x):
    return net(x) if x.dtype == torch.float64 else net(2 * x - x.detach())


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_honest_gradients_pass_in_either_precision(norm):
    threat = ThreatModel(norm, 0.1)
    for model, dtype in ((Net(), torch.float32), (Net().double(), torch.float64)):
        found = true_gradient(probe_of(model, threat, dtype=dtype))
        assert found.passed, found.evidence
        assert max(found.numbers["median"].values()) < 0.02
    single = Net()
    single.how = lambda net, x: net(x.float()).to(x.dtype)
    assert true_gradient(probe_of(single, threat)).passed


@pytest.mark.parametrize(
    "how",
    [
        lambda net, x: net(x.detach()) + 0 * x[:, :3],
        lambda net, x: net(2 * x - x.detach()),
        lambda net, x: net(torch.cat([x[:, :15], x[:, 15:].detach()], 1)),
        lambda net, x: net(x + 0.05 * ((1e4 * x.detach()).sin())),
        lambda net, x: net((8 * x).round() / 8) + 1e-3 * x[:, :3],
        by_precision,
    ],
)
def test_false_gradients_and_jumps_are_told(how):
    found = true_gradient(probe_of(Net(how)))
    assert found.passed is False, found.evidence


def witnessed(model):
    probe = probe_of(model)
    return same_answers(probe, Witness.of(probe.victim, THREAT, 0))


def test_a_function_answers_the_same():
    found = witnessed(Net())
    assert found.passed
    assert len(found.numbers["differ"]) == 5


def later(net, x, model):
    return net(x if model.calls <= 2 else x.flip(1))


@pytest.mark.parametrize(
    ("how", "way"),
    [
        (lambda net, x: net(x + 0.01 * torch.randn_like(x)), "again, after the attacks"),
        (lambda net, x: net(x - 0.1 * x[:1]), "in another order"),
        (lambda net, x: net(x) * (1 + 0.1 * (len(x) < 20)), "in small groups"),
        (lambda net, x: net(x) * (1 + 0.1 * (len(x) == 1)), "one at a time"),
        (lambda net, x: net(x) * (1 + 0.1 * x.requires_grad), "for a gradient"),
    ],
)
def test_who_is_no_function_is_told(how, way):
    found = witnessed(Net(how))
    assert found.passed is False
    assert found.numbers["differ"][way] > 0.5


def test_who_counts_is_told():
    model = Net()
    model.how = lambda net, x: later(net, x, model)
    found = witnessed(model)
    assert found.passed is False
    assert "asked again, after the attacks" in found.evidence
