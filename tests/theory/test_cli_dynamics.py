"""``fbm dynamics``. Oracle: the library calls it stands for, read from its table and its files."""

import csv
import re

import pytest
from typer.testing import CliRunner

from fermibose.cavity import sgd
from fermibose.cli import app
from fermibose.errors import InputError
from fermibose.theory import Problem
from fermibose.theory.dynamics import draw_trajectories, evolve


def run(*args):
    result = CliRunner().invoke(app, ["dynamics", *args], catch_exceptions=False,
                                env={"COLUMNS": "160"})  # fmt: skip
    assert result.exit_code == 0
    return re.sub(r"\s+", " ", result.output)


def rows(folder):
    with (folder / "dynamics.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_theory_alone(tmp_path):
    output = run("--learning-rate", "2", "--batch", "5", "--t", "3", "--start-m", "0.2",
                 "--start-q", "0.8", "--delta", "0.6", "--output", str(tmp_path))  # fmt: skip
    wanted = evolve(Problem(delta=0.6), learning_rate=2, batch=5, t=3.0, start=(0.2, 0.8))
    assert "η = 2, 5 samples a step" in output
    assert f"│ 3.00 │ {wanted.M[-1]:.5f} │ {wanted.q[-1]:.5f} │ {wanted.accuracy[-1]:.3%}" in output
    assert "SGD" not in output
    found = rows(tmp_path)
    assert [float(row["M"]) for row in found] == wanted.M.tolist()
    assert [float(row["generalization_loss"]) for row in found] == (
        wanted.generalization_loss.tolist()
    )
    assert (tmp_path / "dynamics.png").read_bytes()[:4] == b"\x89PNG"


def test_sgd_beside_it(tmp_path):
    output = run("--t", "1", "--n", "60", "--runs", "4", "--seed", "3", "--output", str(tmp_path))
    theory = evolve(Problem(), learning_rate=1.0, t=1.0)
    runs = sgd(Problem(), 60, learning_rate=1.0, t=theory.t, runs=4, seed=3)
    error = runs.q[:, -1].std(ddof=1) / 2
    assert "SGD: N = 60, 4 runs" in output
    assert f"{runs.q[:, -1].mean():.5f}" in output  # a narrow terminal breaks the line at ±
    assert f"{error:.5f}" in output
    last = rows(tmp_path)[-1]
    assert float(last["M_sgd"]) == pytest.approx(runs.M[:, -1].mean(), rel=1e-12)
    assert float(last["q_error"]) == pytest.approx(error, rel=1e-12)


def test_one_run_has_no_error(tmp_path):
    output = run("--t", "1", "--n", "60", "--runs", "1", "--output", str(tmp_path))
    assert "SGD: N = 60, 1 runs" not in output
    assert "SGD: N = 60, 1 run" in output
    assert "±" not in output


def test_samples_of_unequal_classes_with_wrong_labels(tmp_path):
    run("--pairing", "all", "--balance", "0.3", "--mislabelled", "0.1", "--batch", "4",
        "--t", "1", "--output", str(tmp_path))  # fmt: skip
    problem = Problem(pairing="all", balance=0.3, mislabelled=0.1)
    wanted = evolve(problem, learning_rate=1.0, batch=4, t=1.0)
    assert float(rows(tmp_path)[-1]["q"]) == wanted.q[-1]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--runs", "3"], "give --n"),
        (["--learning-rate", "0"], "learning_rate must be"),
        (["--batch", "1"], "batch must be"),
        (["--t", "-1"], "t must be"),
        (["--start-m", "2"], "q of start must be"),
        (["--rho", "0.2", "--batch", "3"], "balance=π"),
        (["--softness", "0"], "smooth hinge"),
        (["--n", "2"], "n must be"),
        (["--output", __file__], "name a folder with --output"),
    ],
)
def test_errors_for_people(args, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=says):
        CliRunner().invoke(app, ["dynamics", *args], catch_exceptions=False)
    assert not list(tmp_path.iterdir())


def test_runs_of_sgd_are_named_in_the_legend():
    common = {"learning_rate": 2.0, "t": [0.5, 1.0], "start": (0.1, 1.0)}
    path, runs = evolve(Problem(), **common), sgd(Problem(), 30, runs=2, **common)
    for measured, names in ((runs, ["η = 2", "SGD"]), (None, ["η = 2"])):
        legend = path.draw(measured=measured).axes[-1].get_legend()
        assert [text.get_text() for text in legend.get_texts()] == names
    two = draw_trajectories(None, {"a": (path, runs), "b": (path, runs)}).axes[-1].get_legend()
    assert [text.get_text() for text in two.get_texts()] == ["a", "b", "SGD"]
