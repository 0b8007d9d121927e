"""``fbm cavity``, its figures and measurements. Oracle: the library calls they stand for."""

import math
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fermibose.cavity import amp, sample_instance
from fermibose.cavity.figures import draw_figure_2, draw_sizes, mean_and_error, size_table
from fermibose.cavity.measure import measure_messages, measure_representation, measure_sampling
from fermibose.cli import app
from fermibose.errors import InputError
from fermibose.theory import Problem, solve, trace

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cavity.py"
WARM = ("--alpha", "0.7", "--beta", "10", "--n", "60")


def run(*args):
    result = CliRunner().invoke(app, ["cavity", *args], catch_exceptions=False)
    assert result.exit_code == 0
    return re.sub(r"\s+", " ", result.output)


@pytest.mark.parametrize("damping", ["0.5", "0"])
def test_amp_beside_the_theory(tmp_path, damping):
    output = run(*WARM, "--seed", "3", "--damping", damping, "--output", str(tmp_path))
    problem = Problem(alpha=0.7, beta=10.0)
    found = amp(sample_instance(problem, 60, seed=3), damping=float(damping))
    theory = solve(problem)
    assert f"mean weight |M| │ {abs(found.M):.5f} │ {theory.M:.5f}" in output
    losses = f"{found.generalization_loss:.5f} │ {theory.generalization_loss:.5f}"
    assert f"test loss ε_g │ {losses}" in output
    assert found.verdict in output
    assert (tmp_path / "amp_n60_seed3.png").stat().st_size > 10_000


def test_what_does_not_converge_is_printed_as_such(tmp_path):
    output = run("--alpha", "2.5", "--n", "40", "--max-iterations", "5", "--output", str(tmp_path))
    assert "did not converge in 5 sweeps" in output


def test_ground_states_stand_beside_zero_temperature():
    output = run("--method", "ground", "--n", "60")
    assert f"│ {solve(Problem(alpha=0.5, beta=math.inf)).M:.5f}" in output
    assert "the lowest of 20 starts" in output


@pytest.mark.parametrize(
    ("args", "says"),
    [(["--method", "mcmc"], "use amp, bp, hmc, ground"), (["--n", "0"], "n must be")],
)
def test_errors_for_people(args, says):
    with pytest.raises(InputError, match=says):
        run(*args)


def test_measurements_are_plain_numbers_of_one_instance():
    point = {"alpha": 0.7, "beta": 10.0}
    row = measure_messages(method="amp", n=40, seed=2, **point)
    found = amp(sample_instance(Problem(**point), 40, seed=2))
    assert (row["M"], row["q"], row["converged"]) == (abs(found.M), found.q, True)
    walk = measure_sampling(n=10, seed=2, trajectories=20, warm_up=5, hottest=None, **point)
    assert walk["method"] == "hmc"
    assert walk["M_error"] > 0
    inset = measure_representation(n=40, seed=2, patterns=50, **point)
    outputs, labels = np.array(inset["outputs"]), np.array(inset["labels"])
    assert outputs.size == labels.size == 50
    assert (np.sign(outputs) == labels).mean() > 0.6  # the classes are on their own sides
    with pytest.raises(InputError, match='"amp" or "bp"'):
        measure_messages(method="hmc", n=40, seed=2)


def rows():
    return [
        {"method": "amp", "n": n, "seed": s, "alpha": 0.7, "beta": 10.0, "converged": s < 3,
         "M": 1 + s / 10, "q": 2.0, "Q": 1.0, "generalization_loss": 0.1}
        for n in (100, 200) for s in range(4)
    ]  # fmt: skip


def test_the_size_table_averages_what_converged():
    table = size_table(rows())
    error = math.sqrt(0.01 / 3)
    assert f"| 0.7 | 10 | 100 | 3 of 4 | 1.1000 ± {error:.4f} | 2.0000 ± 0.0000 |" in table
    theory = solve(Problem(alpha=0.7, beta=10.0))
    assert f"| ∞ | AT = {theory.at_eigenvalue:.2f} | {theory.M:.4f} |" in table
    assert mean_and_error([5.0]) == (5.0, 0.0)


def test_figures_are_drawn(tmp_path):
    draw_sizes(rows(), tmp_path / "sizes.png")
    problem = Problem(beta=10.0)
    curves = {
        "alpha": trace(problem, "alpha", [0.5, 1.0]),
        "delta": trace(problem, "delta", [0.4, 0.5]),
    }
    insets = [{"delta": 0.2, "outputs": [0.9, -0.9], "labels": [1, -1]}]
    draw_figure_2(tmp_path / "fig2.png", curves, rows(), insets)
    for name in ("sizes.png", "fig2.png"):
        assert (tmp_path / name).stat().st_size > 10_000


def test_the_benchmark_resumes_and_reports_a_miss(tmp_path, monkeypatch, capsys):
    script = runpy.run_path(str(SCRIPT))
    calls = []

    def work(**arguments):
        calls.append(arguments["seed"])
        return {"value": 2 * arguments["seed"]}

    tasks = [(work, {"seed": s, "n": 5}) for s in range(3)]
    script["resume"](tmp_path / "rows.json", tasks[:2])
    script["resume"](tmp_path / "rows.json", tasks)
    assert calls == [0, 1, 2]
    ratios = [("fine", 0.5, 1.0), ("slow", 2.0, 1.0)]
    monkeypatch.setitem(script["main"].__globals__, "measure", lambda: ratios)
    assert script["main"](["check"]) == 1
    verdicts = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert verdicts == ["ok", "MISSED"]
    assert script["main"](["nonsense"]) == 2
