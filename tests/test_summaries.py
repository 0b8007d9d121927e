"""What results print: one line, with the numbers that they hold; tables hold all of them."""

import numpy as np
import pytest

from fermibose.attacks import ThreatModel, accuracy_curve, audit, certify, draw_audit, pgd
from fermibose.cavity import amp, sample_instance
from fermibose.data import load_dataset
from fermibose.machine import Recipe, draw_curves, evaluate, train
from fermibose.theory import Problem, phase_diagram, solve, trace
from fermibose.theory.dynamics import evolve
from fermibose.theory.fixed_point import ConvergenceError
from fermibose.theory.points import Solutions, points_of

WARM = Problem(alpha=0.5, beta=5.0)


@pytest.fixture(scope="module")
def data():
    return load_dataset("digits", train_per_class=10, test_per_class=4)


@pytest.fixture(scope="module")
def training(data):
    recipe = Recipe(hidden=(30,), epochs=20, readout_epochs=50, readout_learning_rate=0.05)
    return train(data.x_train, data.y_train, recipe, test=(data.x_test, data.y_test))


def one_line(result, *parts):
    assert "\n" not in str(result)
    assert len(str(result)) < 250
    assert repr(result) == f"<{type(result).__name__}: {result}>"
    for part in parts:
        assert part in str(result)


def test_solutions_say_what_they_are_of():
    found = solve(WARM)
    one_line(found, f"M {found.M:.4f}", "replica symmetry stable", "α = 0.5, Δ = 0.5, β = 5, d_F")
    frozen = Problem(samples=3, pairing="all", beta=float("inf"))
    assert frozen.told("delta").startswith("all pairs, γ = 3, β = ∞, d_F = 1")
    assert "ρ" not in frozen.told()  # which means nothing to it
    estimate = amp(sample_instance(WARM, 60, seed=0))
    one_line(estimate, estimate.verdict, "N = 60")
    one_line(estimate.instance, "N = 60, 30 training pairs")


def test_curves_and_diagrams_print_short_and_tabulate_all():
    curve = trace(WARM, "delta", [0.4, 0.6])
    one_line(curve, "along delta: 2 points", f"{curve[0].accuracy:.4g}")
    assert "Δ =" not in str(curve)  # it is not fixed
    frame = curve.to_frame()
    assert frame["rs_stable"].tolist() == [True, True]
    assert frame["alpha"].tolist() == [0.5, 0.5]
    lost = Solutions(points_of([WARM, WARM], [curve[0], ConvergenceError("lost")]))
    assert lost.to_dict()["rs_stable"] == [True, None]
    assert lost.to_frame()["rs_stable"].isna().tolist() == [False, True]
    diagram = phase_diagram(WARM, "delta", [0.4, 0.5], "alpha", [0.4, 0.5], workers=1)
    one_line(diagram, "delta × alpha: 4 points")
    path = evolve(WARM, learning_rate=1.0, t=0.1)
    one_line(path, f"M {path.M[-1]:.4f}")
    assert path.to_frame()["q"].tolist() == path.q.tolist()


def test_trainings_and_nets_print_short(training, data):
    history = training.history["readout"]
    one_line(training, "64-30-10", f"test {history['test_accuracy'][-1]:.1%}")
    one_line(training.net, "64-30-10, half_tanh, linear readout, 2,220 numbers")
    frame = training.to_frame()
    readout = frame[frame["stage"] == "readout"]
    assert readout["loss"].tolist() == history["loss"].tolist()
    found = evaluate(training.net, data.x_test, data.y_test)
    one_line(found, f"{found.accuracy:.2%} of 40 samples")
    assert found.to_frame()["accuracy"].mean() == pytest.approx(found.accuracy)  # equal classes
    one_line(data, "digits: 100 training and 40 test samples of 64 features")


def test_attacks_and_audits_print_short(training, data):
    images, threat = (data.x_test, data.y_test), ThreatModel("linf", 0.05)
    found = pgd(training.net, *images, threat)
    one_line(found, "pgd within linf 0.05", f"{100 * found.robust_accuracy:.1f} ±", "of 40 images")
    assert found.to_frame()["robust"].mean() == found.robust_accuracy
    curve = accuracy_curve(training.net, *images, threat)
    one_line(curve, f"{100 * curve.accuracy[0]:.1f} % at ε = 0")
    assert curve.to_frame()["accuracy"].tolist() == curve.accuracy.tolist()
    one_line(certify(training.net, *images, threat), "withstand any attack within linf 0.05")
    judged = audit(training.net, *images, threat, probe=10, square_queries=5)
    one_line(judged, "17 checks")
    assert judged.to_frame()["outcome"].tolist() == [check.outcome for check in judged.checks]


def test_drawings_are_returned_and_saved_only_if_asked(training, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(draw_curves({"machine": training}, None).axes) == 2
    curve = trace(Problem(beta=5.0, alpha=1.0), "delta", np.linspace(0.9, 1.3, 5))
    (critical,) = curve.critical
    ordered = [s.problem.delta for s in curve if s.M > 0.01]
    assert max(ordered) <= critical <= max(ordered) + 0.1
    figure = curve.draw()
    assert f"order ends, Δ ≈ {critical:.2g}" in [
        text.get_text() for text in figure.axes[0].get_legend().get_texts()
    ]
    assert figure.get_suptitle() == curve.fixed
    assert list(tmp_path.iterdir()) == []


def test_the_picture_of_an_audit_counts_all_images(training, data):
    """Curve and cross are accuracies of the same images: both start from the clean accuracy."""
    images, threat = (data.x_test, data.y_test), ThreatModel("linf", 0.05)
    judged = audit(training.net, *images, threat, probe=40, square_queries=5)
    line, cross = draw_audit(judged, None).axes[0].lines[:2]
    assert line.get_ydata()[0] == pytest.approx(100 * judged.clean_accuracy)
    assert cross.get_ydata()[0] == pytest.approx(100 * judged.robust_accuracy)
