"""``fbm cavity``, its figures and measurements. Oracle: the library calls they stand for."""

import math
import re
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fermibose.cavity import amp, bp_memory, ground_state, hmc, sample_instance
from fermibose.cli import app
from fermibose.errors import InputError
from fermibose.theory import Problem, solve
from fermibose_paper.instances import (
    measure_messages,
    measure_representation,
    measure_sampling,
)

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


@pytest.mark.parametrize("method", ["amp", "ground"])
def test_all_pairs(tmp_path, monkeypatch, method):
    """The theory's own numbers are not the point here: they stand beside those of the instance."""
    asked = []
    monkeypatch.setattr("fermibose.theory.solve", lambda p: asked.append(p) or solve(Problem()))
    options = ("--pairing", "all", "--samples", "1", "--mislabelled", "0.1", "--exact")
    output = run(*options, "--method", method, "--n", "60", "--output", str(tmp_path))
    beta = math.inf if method == "ground" else 50.0
    problem = Problem(samples=1.0, pairing="all", mislabelled=0.1, beta=beta)
    assert asked == [problem]
    instance = sample_instance(problem, 60, counts="exact")
    found = (amp if method == "amp" else ground_state)(instance)
    assert f"{method}, N = 60, all pairs of 60 samples" in output
    assert f"mean weight |M| │ {abs(found.M):.5f}" in output
    assert found.verdict in output
    assert (tmp_path / f"{method}_n60_seed0.png").stat().st_size > 10_000


def test_belief_propagation_of_all_pairs_is_refused():
    with pytest.raises(InputError, match="with all pairs use --method amp"):
        run("--pairing", "all", "--method", "bp", "--n", "20")


def test_what_does_not_converge_is_printed_as_such(tmp_path):
    output = run("--alpha", "2.5", "--n", "40", "--max-iterations", "5", "--output", str(tmp_path))
    assert "did not converge in 5 sweeps" in output


def test_ground_states_stand_beside_zero_temperature(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = run("--method", "ground", "--n", "60")
    theory = solve(Problem(alpha=0.5, beta=math.inf))
    found = ground_state(sample_instance(theory.problem, 60, seed=0))
    assert f"mean weight |M| │ {abs(found.M):.5f} │ {theory.M:.5f}" in output
    assert re.search(r"[^t] converged; energy per weight .* the lowest of 20 starts", output)
    reached = sorted(found.history.energy)
    assert f"(median {(reached[9] + reached[10]) / 2:.6f}) wrote" in output
    assert (tmp_path / "fbm-cavity" / "ground_n60_seed0.png").stat().st_size > 10_000
    assert run("--method", "ground", "--n", "60", "--beta", "inf", "--force") == output


def test_a_descent_that_stopped_early_is_printed_as_such(monkeypatch, tmp_path):
    def unfinished(instance):
        return replace(ground_state(instance, restarts=2), converged=False)

    monkeypatch.setattr("fermibose.cavity.ground_state", unfinished)
    output = run("--method", "ground", "--n", "30", "--output", str(tmp_path))
    assert "did not converge: the gradient is not zero; energy per weight" in output


@pytest.mark.parametrize("converged", [True, False])
def test_a_walk_is_printed_and_drawn(monkeypatch, tmp_path, converged):
    walks = []

    def spied(instance, **options):
        walks.append(replace(hmc(instance, **options), converged=converged))
        return walks[0]

    monkeypatch.setattr("fermibose.cavity.hmc", spied)
    here = (*WARM, "--method", "hmc", "--seed", "4", "--output", str(tmp_path))
    output = run(*here, "--trajectories", "40")
    found = walks[0]
    instance = sample_instance(Problem(alpha=0.7, beta=10.0), 60, seed=4)
    assert found.history.M.tolist() == hmc(instance, trajectories=40, warm_up=20).history.M.tolist()
    assert f"replica overlap Q │ {found.Q:.5f} │" in output
    agree = "the chains agree" if converged else "did not converge: the chains disagree"
    assert agree in output
    assert f"standard errors M ± {found.errors['M']:.4f}, q ± " in output
    assert (tmp_path / "hmc_n60_seed4.png").stat().st_size > 10_000


@pytest.mark.parametrize("method", ["amp", "bp"])
def test_options_of_sweeps_reach_the_algorithm(monkeypatch, tmp_path, method):
    given = []
    name = {"amp": "amp", "bp": "belief_propagation"}[method]

    def spy(instance, **options):
        given.append(options)
        return amp(instance, max_iterations=1)

    monkeypatch.setattr(f"fermibose.cavity.{name}", spy)
    here = (*WARM, "--method", method, "--output", str(tmp_path))
    run(*here)
    run(*here, "--damping", "0.25", "--max-iterations", "7", "--force")
    assert given == [{"show": None}, {"show": None, "damping": 0.25, "max_iterations": 7}]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--method", "mcmc"], "use amp, bp, hmc, ground"),
        (["--n", "0"], "n must be"),
        (["--method", "bp", "--n", "0"], "n must be"),
        (["--damping", "1"], "--damping is the part of the old messages kept.* got 1.0"),
        (["--damping", "nan"], "--damping is the part of the old messages kept"),
        (["--beta", "inf"], "amp needs a finite one .* or use --method ground"),
        (["--beta", "inf", "--method", "hmc"], "hmc needs a finite one"),
        (["--method", "hmc", "--damping", "0.5"], "^--damping is for --method amp and bp only"),
        (["--trajectories", "50"], "^--trajectories is for --method hmc only: .* with amp"),
        (["--method", "ground", "--max-iterations", "5"], "^--max-iterations is for .* ground"),
        (
            ["--method", "ground", "--max-iterations", "5", "--damping", "0"],
            "^--damping is for --method amp and bp only: leave it out with ground",
        ),
        (["--method", "ground", "--softness", "0"], "^--method ground .* use --softness > 0"),
        (["--method", "ground", "--beta", "50"], "--beta 50 is not for --method ground.*leave it"),
    ],
)
def test_errors_for_people(args, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=says):
        run("--n", "30", *args)
    assert not list(tmp_path.iterdir())


def test_ctrl_c_is_answered(monkeypatch, tmp_path):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fermibose.cavity.amp", interrupt)
    result = CliRunner().invoke(app, ["cavity", *WARM, "--output", str(tmp_path)])
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"


def test_the_memory_of_belief_propagation_is_checked_before_an_instance_is_drawn(monkeypatch):
    monkeypatch.setattr("fermibose.cavity.sample_instance", lambda *_, **__: pytest.fail("drawn"))
    monkeypatch.setattr("fermibose.checks.free_memory", lambda: bp_memory(200, 100) - 1)
    with pytest.raises(InputError, match=r"N = 200 and P = 100 needs .*: use --method amp"):
        run("--method", "bp", "--n", "200")


@pytest.mark.parametrize("method", ["amp", "bp", "hmc", "ground"])
@pytest.mark.parametrize("below", [".", "deeper"])
def test_a_file_in_place_of_the_folder_is_noticed_before_any_work(
    tmp_path, monkeypatch, below, method
):
    monkeypatch.setattr("fermibose.theory.solve", lambda _: pytest.fail("work was done"))
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(InputError, match=r"notes.*: name a folder with --output"):
        run("--method", method, "--n", "60", "--output", str(tmp_path / "notes" / below))


def test_theory_is_asked_before_long_work(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("fermibose.theory.solve", lambda p: asked.append(p) or solve(p))
    monkeypatch.setattr("fermibose.cavity.amp", lambda *a, **k: asked.append("amp") or amp(*a, **k))
    run(*WARM, "--max-iterations", "1", "--output", str(tmp_path))
    assert asked == [Problem(alpha=0.7, beta=10.0), "amp"]


def test_measurements_are_plain_numbers_of_one_instance():
    point = {"alpha": 0.7, "beta": 10.0}
    row = measure_messages(method="amp", n=40, seed=2, **point)
    found = amp(sample_instance(Problem(**point), 40, seed=2))
    assert (row["M"], row["q"], row["converged"]) == (abs(found.M), found.q, True)
    walk = measure_sampling(n=10, seed=2, trajectories=20, warm_up=5, hottest=None, **point)
    assert walk["method"] == "plain"
    assert walk["M_error"] > 0
    inset = measure_representation(n=40, seed=2, patterns=50, **point)
    outputs, labels = np.array(inset["outputs"]), np.array(inset["labels"])
    assert outputs.size == labels.size == 50
    assert (np.sign(outputs) == labels).mean() > 0.6  # the classes are on their own sides
    with pytest.raises(InputError, match='"amp" or "bp"'):
        measure_messages(method="hmc", n=40, seed=2)


def test_the_benchmark_reports_a_miss(monkeypatch, capsys):
    script = runpy.run_path(str(SCRIPT))
    ratios = [("fine", 0.5, 1.0), ("slow", 2.0, 1.0)]
    monkeypatch.setitem(script["main"].__globals__, "measure", lambda: ratios)
    assert script["main"](["check"]) == 1
    verdicts = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert verdicts == ["ok", "MISSED"]
