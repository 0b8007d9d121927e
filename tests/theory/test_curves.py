"""Curves, diagrams and figures. Oracles: the same points solved from nothing, one process against
two, the files read back."""

import csv
import math
import pickle
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from fermibose.compute import Interrupted
from fermibose.errors import InputError
from fermibose.plotting import figure
from fermibose.theory import ConvergenceError, Failure, Problem, phase_diagram, solve, trace
from fermibose.theory import curves as curves_module
from fermibose.theory import phases as phases_module
from fermibose.theory import points as points_module
from fermibose.theory.replica import distance
from fermibose_paper import theory_curves as figures_module
from fermibose_paper.theory_curves import figure_2, figure_attack, figure_rho

BITS = """
import numpy as np
from fermibose.theory import Problem, phase_diagram, trace
{n}
axes = "delta", np.linspace(0.3, 1.1, 6), "alpha", np.linspace(0.5, 2, 5)
d = phase_diagram(Problem(), *axes, workers=n, show=False)
c = trace(Problem(), "alpha", np.linspace(1, 1.4, 32), workers=n)
print([v.hex() for name in ("M", "q", "at_eigenvalue") for v in d.map(name).ravel()])
print([v.hex() for v in c.column("M")])
"""


def read(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_continuation_gives_the_points_solved_alone():
    values = np.linspace(0.3, 1.1, 9)
    curve = trace(Problem(), "delta", values)
    assert len(curve) == 9
    np.testing.assert_array_equal(curve.values, values)
    for solution in curve:
        alone = solve(solution.problem)
        assert solution.converged
        assert pytest.approx(alone.M, abs=2e-6) == solution.M
        assert solution.q == pytest.approx(alone.q, abs=4e-6)
    assert curve[-1].M == 0.0
    assert curve[0].M > 0.5


@pytest.mark.parametrize(
    ("parameter", "start", "stop", "points"),
    [
        ("alpha", 0.1, 5.0, 10),
        ("delta", 0.1, 1.5, 12),
        ("d_f", 0.1, 2.0, 8),
        ("rho", 0.0, 0.9, 8),
        ("beta", 10.0, 150.0, 8),
    ],
)
def test_continuation_is_within_its_stated_error_of_every_point_alone(
    parameter, start, stop, points
):
    """M, q, Q, χ and what follows from them; the residual is added to the error of the grid."""
    for solution in trace(Problem(), parameter, np.linspace(start, stop, points)):
        alone = solve(solution.problem)
        error = solution.error + 1e-8
        assert distance(solution.problem, solution.overlaps, alone.overlaps) < error
        assert solution.free_energy == pytest.approx(alone.free_energy, abs=error)
        assert solution.training_energy == pytest.approx(alone.training_energy, abs=error)
        assert solution.accuracy == pytest.approx(alone.accuracy, abs=3 * error)
        assert solution.at_eigenvalue == pytest.approx(alone.at_eigenvalue, rel=3 * error)


def test_continuation_enters_the_ordered_phase_from_disorder():
    backwards = trace(Problem(), "delta", np.linspace(1.1, 0.3, 9))
    forwards = trace(Problem(), "delta", np.linspace(0.3, 1.1, 9))
    np.testing.assert_allclose(backwards.column("M")[::-1], forwards.column("M"), atol=2e-6)


def test_continuation_saves_iterations():
    curve = trace(Problem(), "alpha", np.linspace(1, 3, 12))
    assert curve.column("iterations")[2:].mean() < solve(Problem()).iterations / 2


def test_a_curve_through_zero_temperature_and_any_parameter():
    curve = trace(Problem(alpha=0.5), "beta", [50, 100, math.inf])
    assert curve[2].q == curve[2].Q
    for name in ("rho", "m", "weight_decay", "softness", "d_f"):
        base = getattr(Problem(), name)
        curve = trace(Problem(), name, [base, base * 1.02])
        assert pytest.approx(1.018320, abs=3e-6) == curve[0].M
        assert curve[1].M != curve[0].M


def test_results_do_not_depend_on_the_number_of_workers():
    """In fresh interpreters with two BLAS threads allowed, where it could matter."""
    outputs = [
        subprocess.run(
            [sys.executable, "-c", BITS.format(n=f"n = {n}")],
            capture_output=True, text=True, check=True, env={"OPENBLAS_NUM_THREADS": "2"},
        ).stdout
        for n in (1, 2)
    ]  # fmt: skip
    assert outputs[0] == outputs[1]
    assert outputs[0].count("0x") > 40


def interrupting(value):
    """A solve at which Ctrl-C comes once the parameter α has that value."""

    def interrupted(problem, start=None, *, tol=None):
        if problem.alpha == value:
            signal.raise_signal(signal.SIGINT)
        return solve(problem, start, tol=tol)

    return interrupted


@pytest.mark.parametrize("piece", [30, 2, 1])
def test_ctrl_c_carries_the_points_that_were_finished(monkeypatch, piece):
    """A real signal at the fourth point: in the first piece, inside a later one, between two."""
    values = [1.0, 1.5, 2.0, 2.5, 3.0]
    monkeypatch.setattr(curves_module, "_PIECE", piece)
    whole = trace(Problem(), "alpha", values)
    monkeypatch.setattr(points_module, "solve", interrupting(2.5))
    with pytest.raises(Interrupted) as caught:
        trace(Problem(), "alpha", values)
    curve = caught.value.done
    assert curve.parameter == "alpha"
    assert curve.solutions == whole.solutions[:3]
    assert curve.failures == ()


def test_ctrl_c_before_the_first_point_carries_an_empty_curve(monkeypatch):
    monkeypatch.setattr(points_module, "solve", interrupting(1.0))
    with pytest.raises(Interrupted) as caught:
        trace(Problem(), "alpha", [1.0, 2.0])
    assert len(caught.value.done) == 0


def test_ctrl_c_keeps_failures_and_crosses_processes(monkeypatch):
    """A point not solved before the signal; and the interrupt as another process would send it."""

    def stubborn(problem, start=None, *, tol=None):
        if problem.alpha == 1.5:
            raise ConvergenceError("not this one", None)
        return interrupting(2.0)(problem, start, tol=tol)

    monkeypatch.setattr(points_module, "solve", stubborn)
    with pytest.raises(Interrupted) as caught:
        trace(Problem(), "alpha", [1.0, 1.5, 2.0])
    assert caught.value.done.values.tolist() == [1.0]
    assert caught.value.done.failures == ("not this one",)
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, Interrupted)
    assert again.done == caught.value.done


def test_files_hold_the_curve(tmp_path):
    curve = trace(Problem(), "alpha", [1.0, 2.0])
    curve.save_csv(tmp_path / "new" / "curve.csv")
    rows = read(tmp_path / "new" / "curve.csv")
    assert [float(r["alpha"]) for r in rows] == [1.0, 2.0]
    assert float(rows[1]["M"]) == curve[1].M
    assert rows[1]["rs_stable"] == "False"
    curve.draw(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 5000


@pytest.mark.parametrize("write", ["save_csv", "draw"])
def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch, write):
    """Ctrl-C in the middle of the bytes."""
    curve = trace(Problem(), "alpha", [1.0, 2.0])
    path = tmp_path / {"save_csv": "curve.csv", "draw": "curve.png"}[write]
    path.write_text("old", encoding="utf-8")

    class HalfWriter:
        """A CSV writer that gets as far as a few bytes."""

        def __init__(self, file):
            file.write("half a fi")
            raise KeyboardInterrupt

    def half(self, file, **_):
        Path(file).write_bytes(b"half a fi")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(csv, "writer", HalfWriter)
        patch.setattr(Figure, "savefig", half)
        with pytest.raises(KeyboardInterrupt):
            getattr(curve, write)(path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_text(encoding="utf-8") == "old"
    getattr(curve, write)(path)
    assert path.stat().st_size > 300


def test_a_diagram_and_what_it_could_not_solve(tmp_path, monkeypatch):
    def stubborn(problem, start=None, *, tol=None):
        if problem.alpha == 2.0 and problem.delta == 1.0:
            raise ConvergenceError("not this one", None)
        return solve(problem, start, tol=tol)

    monkeypatch.setattr(points_module, "solve", stubborn)
    diagram = phase_diagram(
        Problem(), "delta", [0.4, 1.0], "alpha", [0.5, 2.0, 4.0], workers=1, show=False
    )
    M = diagram.map("M")
    assert M.shape == (3, 2)
    assert np.isnan(M[1, 1])
    assert diagram.failures == ("not this one",)
    assert M[1, 0] == pytest.approx(solve(Problem(delta=0.4, alpha=2.0)).M, abs=1e-9)
    assert M[2, 1] == 0.0
    diagram.save_csv(tmp_path / "d.csv")
    rows = read(tmp_path / "d.csv")
    assert (float(rows[2]["delta"]), float(rows[2]["alpha"])) == (0.4, 2.0)
    assert float(rows[2]["M"]) == M[1, 0]
    diagram.draw(tmp_path / "d.png", quantity="free_energy")
    assert (tmp_path / "d.png").stat().st_size > 5000
    curve = trace(Problem(alpha=2.0), "delta", [0.9, 1.0, 1.1])
    np.testing.assert_array_equal(curve.values, [0.9, 1.1])
    assert curve.failures == ("not this one",)
    with pytest.raises(ConvergenceError, match="not this one"):
        trace(Problem(alpha=2.0), "delta", [1.0])


@pytest.mark.parametrize("axes", [("delta", "alpha"), ("alpha", "delta")])
def test_a_diagram_of_one_row_or_column_is_a_line(tmp_path, monkeypatch, axes):
    """What is drawn, against the points solved alone."""
    drawn = []

    @contextmanager
    def keeping(path, **options):
        with figure(path, **options) as (fig, ax):
            yield fig, ax
            drawn.append(ax)

    monkeypatch.setattr(phases_module, "figure", keeping)
    values = {"delta": [0.5, 0.8, 1.0], "alpha": [2.5]}
    x, y = axes
    diagram = phase_diagram(Problem(), x, values[x], y, values[y], workers=1, show=False)
    diagram.draw(tmp_path / "line.png")
    (line,) = drawn[0].lines
    np.testing.assert_array_equal(line.get_xdata(), values["delta"])
    expected = [solve(Problem(delta=delta)).accuracy for delta in values["delta"]]
    np.testing.assert_allclose(line.get_ydata(), expected, atol=1e-12)
    assert drawn[0].get_xlabel() == "Δ"
    assert drawn[0].get_title() == f"α = 2.5, {diagram.fixed}"
    assert (tmp_path / "line.png").stat().st_size > 5000


def test_a_diagram_without_a_point_is_an_error():
    """As a curve without one: the first failure is raised."""
    with pytest.raises(ConvergenceError, match=r"delta = 0\.0005 is too small"):
        phase_diagram(Problem(), "delta", [5e-4, 1e-3], "alpha", [1.0, 2.0], workers=1, show=False)


def test_figures_say_how_many_points_are_missing(tmp_path, monkeypatch):
    """The text of a vector figure, with and without failures."""
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")

    def texts(draw):
        draw(tmp_path / "figure.svg")
        return (tmp_path / "figure.svg").read_text(encoding="utf-8")

    curve = trace(Problem(), "delta", [0.4, 0.5])
    diagram = phase_diagram(
        Problem(), "delta", [0.4, 0.5], "alpha", [2.0, 2.5], workers=1, show=False
    )
    for whole in (curve, diagram):
        assert "not solved" not in texts(whole.draw)
        one = (Failure(Problem(), "a"), *whole.points[1:])
        assert "(1 point not solved, left out)" in texts(replace(whole, points=one).draw)
        two = (one[0], Failure(Problem(), "b"), *whole.points[2:])
        assert "(2 points not solved, left out)" in texts(replace(whole, points=two).draw)
    lame = replace(curve, points=(*curve.points, Failure(Problem(), "a")))
    monkeypatch.setattr(figures_module, "trace", lambda *_, **__: lame)
    for draw in (figure_2, figure_rho, figure_attack):
        assert "(1 point not solved, left out)" in texts(draw)


def test_a_temperature_too_low_costs_its_point_and_not_the_others():
    curve = trace(Problem(), "beta", [50.0, 2000.0])
    assert curve.values.tolist() == [50.0]
    diagram = phase_diagram(
        Problem(), "beta", [50.0, 2000.0], "alpha", [2.5], workers=1, show=False
    )
    assert np.isnan(diagram.map("M")).tolist() == [[False, True]]
    for failures in (curve.failures, diagram.failures):
        assert len(failures) == 1
        assert "beta = 2000 is too large here" in failures[0]


def test_unknown_quantities_are_refused_with_the_choices(tmp_path):
    diagram = phase_diagram(
        Problem(), "delta", [0.5], "alpha", [2.5], tol=1e-8, workers=1, show=False
    )
    curve = trace(Problem(), "alpha", [2.5], tol=1e-8)
    for call in (
        lambda: diagram.map("foo"),
        lambda: diagram.draw(tmp_path / "foo.png", quantity="foo"),
        lambda: curve.column("foo"),
        lambda: curve.draw(tmp_path / "foo.png", quantities=["foo"]),
    ):
        with pytest.raises(InputError, match="'foo' is not a quantity: use one of M, q"):
            call()
    assert not (tmp_path / "foo.png").exists()
    assert diagram.map("label_stiffness")[0, 0] == curve.column("label_stiffness")[0]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: trace(Problem(), "activation", [1.0]), "not a parameter: use one of alpha"),
        (lambda: trace(Problem(), "alpha", []), "non-empty"),
        (lambda: trace(Problem(), "alpha", [1.0], workers=0), "workers must be at least 1"),
        (lambda: trace(Problem(), "alpha", [1.0], workers="2"), "workers must be at least 1"),
        (lambda: trace(Problem(), "alpha", [1.0], workers=1.5), "workers must be at least 1"),
        (lambda: trace(Problem(), "alpha", ["a"]), "non-empty list of numbers, got \\['a'\\]"),
        (lambda: trace(Problem(), ["alpha"], [1.0]), "not a parameter"),
        (
            lambda: trace(Problem(), "alpha", [1.0], tol="a"),
            "tol must be a finite number > 0 and < 1",
        ),
        (lambda: phase_diagram(Problem(), "rho", [0.5], "alpha", [1], tol=2), "> 0 and < 1"),
        (lambda: trace(Problem(), "rho", [0.5, 1.5]), "rho must be a finite number >= 0 and <= 1"),
        (lambda: phase_diagram(Problem(), "rho", [0.5], "rho", [0.5]), "two different"),
    ],
)
def test_impossible_requests_say_why(call, says):
    with pytest.raises(InputError, match=says):
        call()


def test_published_figures(tmp_path):
    """Few points; what the paper says of each curve."""
    curves = figure_2(tmp_path / "2.png", points=6, show=False)
    loss = curves["alpha"].column("generalization_loss")
    assert np.all(np.diff(loss) < 0)  # more data, less loss
    assert np.all(np.diff(curves["delta"].column("generalization_loss")) > 0)
    assert np.all(np.diff(curves["d_f"].column("accuracy")) > 0)
    distance = curves["d_f"].column("fermion_distance")
    slopes = np.diff(distance) / np.diff(curves["d_f"].values)
    assert np.all(slopes > 0)
    assert slopes[-1] < slopes[1] / 3  # saturates
    rho = figure_rho(tmp_path / "rho.png", points=8, show=False)
    assert rho.column("accuracy")[0] == pytest.approx(0.951019, abs=1e-5)
    assert rho.column("accuracy")[-1] == 0.5
    attack = figure_attack(tmp_path / "attack.png", points=5, show=False)
    assert np.all(np.diff(attack.column("adversarial_area")) > 0)
    assert attack[2].problem.d_f == 1.0
    assert attack[2].adversarial_area == pytest.approx(0.686846, abs=1e-5)
    for name in ("2.png", "rho.png", "attack.png"):
        assert (tmp_path / name).stat().st_size > 5000
