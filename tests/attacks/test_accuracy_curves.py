"""Curves, areas and noise. Oracles: the attack run at each ε alone, closed forms, loops."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import norm, t

from fermibose.attacks import (
    PAPER_STRENGTHS,
    Band,
    Curve,
    ThreatModel,
    accuracy_curve,
    fgsm,
    gaussian_noise,
    mean_curve,
    one_step_l2,
    pgd,
    robustness_area,
)
from fermibose.attacks.masking import Scaled
from fermibose.errors import InputError

STRENGTHS = (0.0, 0.02, 0.05, 0.1, 0.3)


@pytest.mark.parametrize(("norm_name", "attack"), [("linf", fgsm), ("l2", one_step_l2)])
@pytest.mark.parametrize("loss", ["cross_entropy", "mean_squared"])
def test_the_curve_is_the_attack_at_each_strength(net, images, norm_name, attack, loss):
    x, y = images
    strengths = STRENGTHS if norm_name == "linf" else tuple(8 * e for e in STRENGTHS)
    threat = ThreatModel(norm_name)
    curve = accuracy_curve(net, x, y, threat, epsilons=strengths, loss=loss, batch_size=50)
    for row, epsilon in zip(curve.robust, strengths, strict=True):
        alone = attack(net, x, y, ThreatModel(norm_name, epsilon), loss=loss)
        np.testing.assert_array_equal(row, alone.robust.numpy())
    assert curve.accuracy[0] > 0.8 > 0.5 > curve.accuracy[-1]


@pytest.mark.parametrize("losses", [None, "cross_entropy", ("margin", "cross_entropy")])
@pytest.mark.parametrize("options", [{}, {"steps": 2, "restarts": 3}])
def test_the_pgd_curve_is_pgd_at_each_strength(net, images, losses, options):
    """With the same options, and with none given: one name, one attack."""
    x, y = images
    strengths = (0.0, 0.4, 0.8)
    curve = accuracy_curve(
        net, x, y, ThreatModel("l2"),
        epsilons=strengths, attack="pgd", loss=losses, seed=3, **options,
    )  # fmt: skip
    if losses is not None:
        options = options | {"losses": losses}
    for row, epsilon in zip(curve.robust, strengths, strict=True):
        alone = pgd(net, x, y, ThreatModel("l2", epsilon), seed=3, **options)
        np.testing.assert_array_equal(row, alone.robust.numpy())
        assert curve.parameters == alone.parameters


def test_the_pgd_curve_climbs_the_margin_where_the_cross_entropy_is_flat(net, images):
    """Logits × 1000 change no answer, but leave the cross-entropy no gradient."""
    x, y = images
    loud = Scaled(net, 1000.0)
    options = {"epsilons": (0.0, 0.1), "attack": "pgd", "steps": 5}
    usual = accuracy_curve(loud, x, y, ThreatModel(), **options)
    one = accuracy_curve(loud, x, y, ThreatModel(), loss="cross_entropy", **options)
    assert one.accuracy[1] > one.accuracy[0] - 0.1
    assert usual.accuracy[1] < usual.accuracy[0] - 0.2
    assert "exactly zero" in one.flags[0]


def test_the_demo_draws_pgd_itself(net, digits):
    """The curve of ``fbm demo`` at ε = 0.1 is what ``fbm attack`` prints for that net and seed."""
    from types import SimpleNamespace

    from fermibose.cli.demo import _attack
    from fermibose.data import per_class

    x, y = (
        np.concatenate(parts)
        for parts in ((digits.x_test, digits.x_train), (digits.y_test, digits.y_train))
    )
    dataset = SimpleNamespace(x_test=x, y_test=y)
    found = _attack({"machine": SimpleNamespace(net=net)}, dataset, seed=4)["machine"]["PGD"]
    images = per_class(x, y, 100)
    expected = pgd(net, *images, ThreatModel("linf", 0.1), seed=4)
    at = found.epsilons.tolist().index(0.1)
    np.testing.assert_array_equal(found.robust[at], expected.robust.numpy())
    assert found.parameters == expected.parameters


def test_all_strengths_share_one_backward_pass(net, images):
    x, y = images
    passes = []
    hook = net.readout.register_full_backward_hook(lambda *_: passes.append(1))
    try:
        accuracy_curve(net, x, y, ThreatModel("linf"))
    finally:
        hook.remove()
    assert len(passes) == 1


def test_the_area_is_that_under_straight_lines():
    accuracy = np.linspace(1, 0, 80)
    withstand = np.arange(1000) < np.round(1000 * accuracy)[:, None]
    curve = Curve("fgsm", ThreatModel(), np.array(PAPER_STRENGTHS), withstand, {})
    points = withstand.mean(1)
    expected = sum(100 * 0.01 * (a + b) / 2 for a, b in itertools.pairwise(points))
    assert robustness_area(curve) == pytest.approx(expected, rel=1e-12)
    assert PAPER_STRENGTHS[0] == 0
    assert PAPER_STRENGTHS[-1] == 0.79
    everything = Curve("fgsm", ThreatModel(), curve.epsilons, np.ones((80, 5), bool), {})
    assert robustness_area(everything) == pytest.approx(79)


def test_the_worst_case_never_recovers():
    robust = np.array([[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 1, 1], [1, 1, 0, 1]], bool)
    curve = Curve("fgsm", ThreatModel(), np.arange(4.0), robust, {})
    assert curve.accuracy.tolist() == [1, 0.75, 0.75, 0.75]
    assert curve.worst_case.tolist() == [1, 0.75, 0.5, 0.25]


def test_the_band_is_students_interval():
    rng = np.random.default_rng(0)
    curves = [
        Curve("fgsm", ThreatModel(), np.array([0.0, 0.1]), rng.random((2, 30)) < 0.5, {})
        for _ in range(5)
    ]
    band = mean_curve(curves, confidence=0.9)
    values = np.array([curve.accuracy for curve in curves])
    for column in range(2):
        low, high = t.interval(
            0.9,
            4,
            loc=values[:, column].mean(),
            scale=values[:, column].std(ddof=1) / np.sqrt(5),
        )
        assert band.low[column] == pytest.approx(low)
        assert band.high[column] == pytest.approx(high)
    assert robustness_area(band) == pytest.approx(np.mean([robustness_area(c) for c in curves]))


def test_noise_on_a_linear_model_has_the_accuracy_of_the_closed_form(linear):
    """Without bounds, P(correct) = Φ(margin/(σ‖w₁ − w₀‖₂)) for each image."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(4000, 9)), rng.normal(size=(2, 9))
    y = (x @ w.T).argmax(1)
    margin = np.abs(x @ (w[1] - w[0]))
    threat = ThreatModel("noise", 1.5, (-np.inf, np.inf))
    expected = norm.cdf(margin / (1.5 * np.linalg.norm(w[1] - w[0])))
    found = gaussian_noise(linear(w), x, y, threat, seed=5)
    error = 4 * np.sqrt((expected * (1 - expected)).sum()) / len(x)
    assert found.robust_accuracy == pytest.approx(expected.mean(), abs=error)
    change = (found.examples - torch.tensor(x)).numpy()
    assert change.std() == pytest.approx(1.5, rel=0.01)
    # The worst of three draws: an image must withstand all of them.
    worst = gaussian_noise(linear(w), x, y, threat, draws=3, seed=5)
    cube = expected**3
    error = 4 * np.sqrt((cube * (1 - cube)).sum()) / len(x)
    assert worst.robust_accuracy == pytest.approx(cube.mean(), abs=error)
    curve = accuracy_curve(linear(w), x, y, threat, epsilons=(0.0, 1.5), seed=8)
    assert curve.accuracy[0] == 1
    assert curve.accuracy[1] == pytest.approx(expected.mean(), abs=error)


def test_noise_is_clipped_seeded_and_leaves_the_misclassified_alone(net, images):
    x, y = images
    threat = ThreatModel("noise", 0.4)
    one, same, other = (gaussian_noise(net, x, y, threat, seed=s) for s in (0, 0, 1))
    assert torch.equal(one.examples, same.examples)
    assert not torch.equal(one.examples, other.examples)
    assert one.examples.min() == 0
    assert one.examples.max() == 1
    wrong = net(x).argmax(1) != y
    assert wrong.any()
    assert torch.equal(one.examples[wrong], x[wrong])
    assert not one.robust[wrong].any()
    assert torch.equal(one.robust[~wrong], (net(one.examples).argmax(1) == y)[~wrong])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilons": ()}, "finite numbers"),
        ({"epsilons": (0.2, 0.1)}, "increase"),
        ({"epsilons": (-0.1, 0.1)}, ">= 0"),
        ({"epsilons": (0.1, float("nan"))}, "finite"),
        ({"attack": "square"}, "'one_step' or 'pgd' or 'noise'"),
        ({"attack": "noise"}, "noise needs the norm noise, got linf"),
        ({"loss": "hinge"}, "loss must be"),
        ({"loss": ("cross_entropy", "margin")}, "one step climbs one loss, got cross_entropy, mar"),
        ({"attack": "pgd", "loss": ()}, "at least one loss"),
        ({"attack": "pgd", "steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"attack": "pgd", "restarts": 0}, "restarts must be"),
    ],
)
def test_impossible_curves_are_refused(net, images, options, message):
    with pytest.raises(InputError, match=message):
        accuracy_curve(net, *images, ThreatModel(), **options)


def test_areas_and_bands_that_make_no_sense_are_refused():
    robust = np.ones((3, 2), bool)
    uneven = Curve("fgsm", ThreatModel(), np.array([0.0, 0.1, 0.3]), robust, {})
    assert robustness_area(uneven) == pytest.approx(30)
    single = Curve("fgsm", ThreatModel(), np.array([0.1]), robust[:1], {})
    with pytest.raises(InputError, match="two increasing strengths"):
        robustness_area(single)
    for epsilons in ([0.3, 0.0, 0.1], [0.1, 0.1, 0.1], [0.0, float("nan"), 0.1]):
        wrong = Curve("fgsm", ThreatModel(), np.array(epsilons), robust, {})
        with pytest.raises(InputError, match="two increasing strengths"):
            robustness_area(wrong)
    with pytest.raises(InputError, match="at least two seeds"):
        mean_curve([uneven])
    even = Curve("fgsm", ThreatModel(), np.array([0.0, 0.1, 0.2]), robust, {})
    with pytest.raises(InputError, match="different strengths"):
        mean_curve([uneven, even])
    assert isinstance(mean_curve([even, even]), Band)
    with pytest.raises(InputError, match="confidence must be a finite number > 0 and < 1"):
        mean_curve([even, even], confidence=95)
    with pytest.raises(InputError, match="draws"):
        gaussian_noise(torch.nn.Identity(), [[0.5, 0.1]], [0], ThreatModel("noise"), draws=0)


def test_the_figure_shows_mean_and_band(monkeypatch, tmp_path):
    """What is drawn, read back from the axes: lines in percent, bands from low to high."""
    from contextlib import contextmanager

    from matplotlib.figure import Figure

    from fermibose.attacks import figures

    drawn = []

    @contextmanager
    def capture(path, *, columns):
        fig = Figure()
        drawn.append(fig.subplots(1, columns, squeeze=False)[0])
        yield fig, drawn[0]

    monkeypatch.setattr(figures, "figure", capture)
    epsilons = np.array([0.0, 0.1, 0.2])
    band = Band(
        epsilons, np.array([0.9, 0.5, 0.1]), np.array([0.8, 0.4, 0]), np.array([1, 0.6, 0.2])
    )
    curve = Curve("fgsm", ThreatModel(), epsilons, np.eye(3, 4).astype(bool), {})
    panels = {"one": {"mean": band}, "two": {"single": curve}}
    figures.draw_accuracy(panels, tmp_path / "f.png", axes_labels=["ε", "σ"])
    left, right = drawn[0]
    np.testing.assert_allclose(left.lines[0].get_ydata(), [90, 50, 10])
    corners = left.collections[0].get_paths()[0].vertices
    assert {(0.1, 40.0), (0.1, 60.0)} <= {(x, y) for x, y in corners.round(6)}
    np.testing.assert_allclose(right.lines[0].get_ydata(), [25, 25, 25])
    assert not right.collections
    assert (left.get_title(), right.get_title()) == ("one", "two")
