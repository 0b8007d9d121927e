"""``fbm theory``. Oracle: the numbers of the library call it stands for, read from its output."""

import csv
import re
import signal

import pytest
from typer.testing import CliRunner

from fermibose import compute
from fermibose.cli import app
from fermibose.errors import InputError
from fermibose.theory import Problem, curves, solve, trace
from fermibose.theory import points as points_module


def run(*args):
    result = CliRunner().invoke(app, ["theory", *args], catch_exceptions=False)
    assert result.exit_code == 0
    return re.sub(r"\s+", " ", result.output)


def test_one_point_is_a_table_with_a_warning():
    output = run()
    assert "mean weight M │ 1.018320" in output
    assert "test accuracy │ 94.16%" in output
    assert "AT eigenvalue │ 1.67" in output
    assert "warning: replica symmetry is unstable here" in output


def test_a_stable_point_has_no_warning_and_options_arrive():
    options = {"alpha": 0.7, "delta": 0.3, "beta": 20.0, "d_f": 1.5, "weight_decay": 0.1, "m": 1.2,
               "rho": 0.4, "softness": 0.05}  # fmt: skip
    args = [a for k, v in options.items() for a in (f"--{k.replace('_', '-')}", str(v))]
    output = run(*args)
    assert f"mean weight M │ {solve(Problem(**options)).M:.6f}" in output
    assert "warning" not in output


def test_zero_temperature():
    output = run("--beta", "inf", "--alpha", "0.5")
    assert "mean weight M │ 0.40419" in output
    assert "AT eigenvalue │ ∞" in output


def test_a_sweep_writes_a_curve(tmp_path):
    output = run("--sweep", "alpha", "1", "2", "3", "--output", str(tmp_path))
    assert "3 of 3 points solved, replica symmetry unstable at 3" in output
    with (tmp_path / "curve_alpha.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(r["alpha"]) for r in rows] == [1.0, 1.5, 2.0]
    assert float(rows[2]["M"]) == pytest.approx(0.914411, abs=1e-5)
    assert (tmp_path / "curve_alpha.png").exists()


def test_a_phase_diagram(tmp_path):
    output = run("--sweep", "delta", "0.3", "1.1", "2", "--against", "alpha", "0.5", "1", "2",
                 "--workers", "1", "--quantity", "M", "--output", str(tmp_path))  # fmt: skip
    assert "4 of 4 points solved" in output
    assert (tmp_path / "phase_delta_alpha.csv").exists()
    assert (tmp_path / "phase_delta_alpha.png").exists()


def test_ctrl_c_keeps_the_rows_that_were_finished(tmp_path, monkeypatch):
    """In the third of four rows; the rows before it are those of the library."""

    def interrupted(problem, start=None, *, tol=None):
        if problem.alpha == 2.0:
            raise KeyboardInterrupt
        return solve(problem, start, tol=tol)

    monkeypatch.setattr(points_module, "solve", interrupted)
    args = ["--sweep", "delta", "0.4", "0.5", "2", "--against", "alpha", "1", "2.5", "4",
            "--workers", "1", "--output", str(tmp_path)]  # fmt: skip
    result = CliRunner().invoke(app, ["theory", *args])
    assert result.exit_code == 130
    assert "wrote the 2 of 4 values of alpha finished" in re.sub(r"\s+", " ", result.output)
    with (tmp_path / "phase_delta_alpha.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    points = [(0.4, 1.0), (0.5, 1.0), (0.4, 1.5), (0.5, 1.5)]
    assert [(float(r["delta"]), float(r["alpha"])) for r in rows] == points
    expected = [solve(Problem(delta=delta, alpha=alpha)).M for delta, alpha in points]
    assert [float(r["M"]) for r in rows] == expected
    assert not (tmp_path / "phase_delta_alpha.png").exists()


@pytest.mark.parametrize(("at", "left"), [(2.5, 3), (1.0, 0)])
def test_ctrl_c_keeps_the_points_of_a_sweep_that_were_finished(tmp_path, monkeypatch, at, left):
    """A real signal at one point; the points before it are those of the library."""

    def interrupted(problem, start=None, *, tol=None):
        if problem.alpha == at:
            signal.raise_signal(signal.SIGINT)
        return solve(problem, start, tol=tol)

    expected = trace(Problem(), "alpha", [1.0, 1.5, 2.0]).column("M").tolist()
    monkeypatch.setattr(points_module, "solve", interrupted)
    args = ["--sweep", "alpha", "1", "3", "5", "--output", str(tmp_path)]
    result = CliRunner().invoke(app, ["theory", *args])
    assert result.exit_code == 130
    told = "wrote the 3 of 5 points finished" in re.sub(r"\s+", " ", result.output)
    path = tmp_path / "curve_alpha.csv"
    assert told == path.exists() == bool(left)
    if left:
        with path.open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert [float(r["alpha"]) for r in rows] == [1.0, 1.5, 2.0]
        assert [float(r["M"]) for r in rows] == expected
    assert not (tmp_path / "curve_alpha.png").exists()


@pytest.mark.parametrize("more", [(), ("--against", "rho", "0.4", "0.5", "2")])
def test_every_core_is_the_default_of_curves_and_diagrams(tmp_path, monkeypatch, more):
    asked = []

    def spy(work, tasks, workers):
        asked.append(workers)
        return [work(task) for task in tasks]

    monkeypatch.setattr(curves, "_PIECE", 1)
    monkeypatch.setattr(compute, "_results", spy)
    monkeypatch.setattr(compute.joblib, "cpu_count", lambda: 2)
    run("--sweep", "alpha", "1", "2", "2", *more, "--output", str(tmp_path))
    assert asked == [2]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--rho", "2"], "rho must be a finite number >= 0 and <= 1"),
        (["--weight-decay", "0"], "q diverges"),
        (["--against", "alpha", "1", "2", "3"], "needs --sweep"),
        (["--sweep", "gamma", "1", "2", "3"], "not a parameter"),
        (["--sweep", "alpha", "1", "2", "0"], "number of points"),
        (["--sweep", "delta", "0.1", "inf", "3"], "delta: a curve goes from one number to another"),
        (["--sweep", "delta", "nan", "1", "3"], "delta: a curve goes from one number to another"),
        (["--quantity", "M"], "give it --sweep and --against"),
        (["--sweep", "alpha", "1", "2", "3", "--quantity", "M"], "give it --sweep and --against"),
        (["--sweep", "alpha", "1", "2", "3", "--output", __file__], "name a folder with --output"),
        (["--sweep", "alpha", "1", "2", "2", "--workers", "0"], "workers must be at least 1"),
        (["--sweep", "alpha", "1", "2", "2", "--against", "rho", "0", "1", "2", "--workers", "0"],
         "workers must be at least 1"),
        (["--sweep", "alpha", "1", "2", "2", "--against", "rho", "0", "1", "2", "--quantity", "T"],
         "use one of M"),
    ],
)  # fmt: skip
def test_errors_for_people(args, says):
    with pytest.raises(InputError, match=says):
        CliRunner().invoke(app, ["theory", *args], catch_exceptions=False)
