"""Many problems at once, as tables, as files, and how a solution answers to its parameters."""

import csv
import json
import math
from dataclasses import fields, replace

import numpy as np
import pandas
import pytest

import fermibose.theory.points as points_module
from fermibose.compute import Interrupted
from fermibose.errors import InputError
from fermibose.files import SEAL, UNSEALED, seal
from fermibose.theory import (
    QUANTITIES,
    ConvergenceError,
    Failure,
    Problem,
    load,
    phase_diagram,
    save,
    solve,
    solve_broken,
    solve_many,
    specific_heat,
    susceptibility,
    trace,
)

SHARP = Problem(delta=5e-4)  # no table resolves it: refused


def phi(z):
    return np.tanh(2 * z)


@pytest.fixture(scope="module")
def three():
    return solve_many([Problem(), SHARP, Problem(alpha=1.0)], workers=1, show=False)


def test_many_problems_keep_their_places(three):
    assert len(three) == 3
    assert three[0] == solve(Problem())
    assert three[2] == solve(Problem(alpha=1.0))
    assert isinstance(three[1], Failure)
    assert three[1].problem == SHARP
    assert "delta = 0.0005 is too small" in three[1].reason
    assert three.failures == (three[1].reason,)
    column = three.column("M")
    assert column[0] == three[0].M
    assert math.isnan(column[1])


def test_two_workers_find_the_same(three):
    problems = [point.problem for point in three]
    assert solve_many(problems, workers=2, show=False) == three


def test_many_problems_and_ctrl_c(monkeypatch):
    def interrupted(problem, start=None, *, tol=None):
        if problem.alpha == 3.0:
            raise KeyboardInterrupt
        return solve(problem, start, tol=tol)

    monkeypatch.setattr(points_module, "solve", interrupted)
    with pytest.raises(Interrupted) as caught:
        solve_many([Problem(), Problem(alpha=3.0), Problem(alpha=2.0)], workers=1, show=False)
    assert [s.problem for s in caught.value.done] == [Problem()]


@pytest.mark.parametrize(
    ("problems", "options", "message"),
    [
        ([Problem(), 3], {}, "needs a fermibose.theory.Problem, got 3"),
        ([Problem()], {"tol": 2.0}, "tol"),
        ([Problem()], {"workers": 0}, "workers must be at least 1"),
    ],
)
def test_many_problems_refuse(problems, options, message):
    with pytest.raises(InputError, match=message):
        solve_many(problems, **options)


def test_no_problems_have_no_solutions():
    assert len(solve_many([], show=False)) == 0


def test_a_solution_as_a_row():
    problem = Problem(alpha=1.0, activation=phi)
    row = solve(problem).to_dict()
    for field in fields(Problem):
        if field.name != "activation":
            assert row[field.name] == getattr(problem, field.name)
    assert row["activation"] == "phi"
    assert all(row[name] == getattr(solve(problem), name) for name in QUANTITIES)


def test_tables_have_fixed_parameters_all_quantities_and_failures(three, tmp_path):
    """Of many problems, of a curve and of a diagram; the CSV read back by two readers."""
    curve = trace(Problem(rho=0.4), "delta", [0.5, 5e-4, 0.6])
    diagram = phase_diagram(
        Problem(rho=0.4), "delta", [0.5, 5e-4], "alpha", [1.0, 2.0], workers=1, show=False
    )
    cases = ((three, three[0], 3, [1]), (curve, curve[0], 3, [1]))
    for found, first, count, unsolved in (*cases, (diagram, diagram.solutions[0][0], 4, [1, 3])):
        frame = found.to_frame()
        assert len(frame) == count
        assert frame["rho"].tolist() == [first.problem.rho] * count
        assert frame["activation"].tolist() == ["tanh"] * count
        for name in QUANTITIES:
            assert frame[name][0] == float(getattr(first, name)), name
            assert [i for i, v in enumerate(frame[name]) if pandas.isna(v)] == unsolved, name
        assert [i for i, text in enumerate(frame["failure"]) if text] == unsolved
        assert [text for text in frame["failure"] if text] == list(found.failures)
        found.save_csv(tmp_path / "table.csv")
        again = pandas.read_csv(tmp_path / "table.csv", keep_default_na=False, na_values=["nan"])
        numbers = list(frame.select_dtypes("number").columns)
        np.testing.assert_array_equal(again[numbers].to_numpy(), frame[numbers].to_numpy())
        with (tmp_path / "table.csv").open(newline="", encoding="utf-8") as file:
            assert [row["failure"] for row in csv.DictReader(file)] == frame["failure"].tolist()
    assert curve.to_frame()["delta"].tolist() == [0.5, 5e-4, 0.6]
    assert diagram.to_frame()["alpha"].tolist() == [1.0, 1.0, 2.0, 2.0]


def test_files_bring_back_every_bit(three, tmp_path):
    curve = trace(Problem(delta=0.4), "beta", [50.0, math.inf])
    for result in (three, three[0], curve, solve_broken(Problem())):
        save(result, tmp_path / "new" / "result.json")
        again = load(tmp_path / "new" / "result.json")
        assert again == result
        kept = {name: value for name, value in vars(result).items() if name in vars(again)}
        assert vars(again) == kept  # what was computed from them meanwhile is computed anew
    diagram = phase_diagram(Problem(), "delta", [0.4, 0.5], "alpha", [1.0], workers=1, show=False)
    save(diagram, tmp_path / "d.json")
    again = load(tmp_path / "d.json")
    np.testing.assert_array_equal(again.x_values, diagram.x_values)
    assert (again.x, again.y, again.points) == (diagram.x, diagram.y, diagram.points)
    again.draw(tmp_path / "d.png")
    # What was loaded is the start of what comes next.
    assert solve(Problem(alpha=2.6), load_of(tmp_path, three[0])) == solve(
        Problem(alpha=2.6), three[0]
    )


def load_of(folder, result):
    save(result, folder / "one.json")
    return load(folder / "one.json")


def test_a_damaged_file_is_noticed(tmp_path, three):
    """Every bit of it counts: one is flipped at a time."""
    path = tmp_path / "s.json"
    save(three[0], path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for i in rng.choice(len(content), 60, replace=False):
        flipped = bytearray(content)
        flipped[i] ^= 1 << rng.integers(8)
        path.write_bytes(flipped)
        with pytest.raises(InputError, match=r"not what fermibose\.theory\.save wrote"):
            load(path)
    for other in (b"", b"[]", b"{", b'{"format": "fermibose theory 1"}', b"[" * 200_000):
        path.write_bytes(other)
        with pytest.raises(InputError, match=r"not what fermibose\.theory\.save wrote"):
            load(path)


def test_a_file_of_another_version_says_so(tmp_path, three):
    path = tmp_path / "s.json"
    save(three[0], path)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["result"]["colour"] = 3
    path.write_text(json.dumps(content | {SEAL: UNSEALED}), encoding="utf-8")
    seal(path)
    with pytest.raises(InputError, match=r"was written by fermibose .*colour"):
        load(path)


def test_what_cannot_be_saved_says_so(tmp_path):
    with pytest.raises(InputError, match="cannot be written to a file: save_csv writes"):
        save(solve(Problem(activation=phi)), tmp_path / "s.json")
    with pytest.raises(InputError, match="save takes what the theory solved"):
        save(Problem(), tmp_path / "s.json")
    assert list(tmp_path.iterdir()) == []


POINTS = [
    Problem(),
    Problem(delta=1.2, alpha=1.0),  # no order
    Problem(beta=5.0, alpha=0.5, rho=0.0),
    Problem(beta=2.0, rho=1.0, alpha=4.0),
]


@pytest.mark.parametrize("problem", POINTS)
def test_slopes_of_the_free_energy_are_what_stationarity_says(problem):
    """∂f/∂α = E F, ∂f/∂λ = q/2, ∂(βf)/∂β = e, ∂f/∂m = M M̂/m, from one solution each."""
    s = solve(problem)
    expected = {
        "alpha": s.mean_field_energy,
        "weight_decay": s.q / 2,
        "beta": (s.energy - s.free_energy) / problem.beta,
        "m": s.M * s.conjugates.M / problem.m,
    }
    for parameter, slope in expected.items():
        found = susceptibility(s, parameter)["free_energy"]
        assert found.value == pytest.approx(slope, rel=1e-4, abs=1e-5), parameter
        assert abs(found.value - slope) <= 3 * found.error + 1e-6, parameter


@pytest.mark.parametrize("problem", POINTS)
def test_mixed_second_derivatives_of_the_free_energy_agree(problem):
    """Maxwell: d(q/2)/dα = d(E F)/dλ and d(−M²/χm)/dα = d(E F)/dm, two unlike computations."""
    s = solve(problem)
    along = susceptibility(s, "alpha")
    across = susceptibility(s, "weight_decay")["mean_field_energy"]
    assert along["q"].value / 2 == pytest.approx(across.value, rel=2e-3, abs=1e-5)
    M, chi = along["M"].value, along["chi"].value
    left = (-2 * s.M * M / s.chi + (s.M / s.chi) ** 2 * chi) / problem.m
    right = susceptibility(s, "m")["mean_field_energy"]
    assert left == pytest.approx(right.value, rel=2e-3, abs=1e-5)


def test_specific_heat():
    """½ of a free weight; of a solution, the slope of its entropy: C = −β ds/dβ."""
    free = specific_heat(solve(Problem(alpha=1e-6, beta=3.0)))
    assert free.value == pytest.approx(0.5, abs=1e-5)
    s = solve(Problem(beta=5.0, alpha=1.0))
    entropy = susceptibility(s, "beta")["entropy"]
    assert specific_heat(s).value == pytest.approx(-5.0 * entropy.value, rel=1e-4)
    assert specific_heat(s).value > 0.5


def test_slopes_beside_a_transition_are_refused():
    from fermibose.theory import critical_point

    edge = critical_point(Problem(), "delta", between=(0.85, 1))
    with pytest.raises(ConvergenceError, match="a transition is between them"):
        susceptibility(solve(Problem(delta=1.01 * edge)), "delta")
    with pytest.raises(InputError, match="beta is infinite"):
        susceptibility(replace(solve(Problem()), problem=Problem(beta=math.inf)), "beta")
    with pytest.raises(InputError, match="is not a parameter"):
        susceptibility(solve(Problem()), "colour")
    with pytest.raises(InputError, match="takes a Solution"):
        susceptibility(Problem(), "alpha")


@pytest.mark.parametrize("rho", [0.0, 1.0, 0.003])
def test_slopes_at_the_end_of_a_parameter(rho):
    """Of ρ, against a polynomial through solutions found afresh, on the side there is."""
    problem = Problem(beta=5.0, alpha=0.5, rho=rho)
    shifts = np.linspace(0, 0.06, 6) * (-1 if rho == 1.0 else 1)
    found = susceptibility(solve(problem), "rho")
    for name in ("free_energy", "q", "chi"):
        values = [getattr(solve(replace(problem, rho=rho + shift)), name) for shift in shifts]
        slope = np.polynomial.Polynomial.fit(shifts, values, 5).deriv()(0.0)
        assert found[name].value == pytest.approx(slope, rel=1e-3), name
        assert abs(found[name].value - slope) <= found[name].error + 1e-6, name
