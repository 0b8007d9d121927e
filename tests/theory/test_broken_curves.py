"""Curves and critical points with one step of breaking. Oracles: single solutions, f by its slope,
where M vanishes."""

import csv
import math

import numpy as np
import pytest

from fermibose.compute import Interrupted
from fermibose.errors import InputError
from fermibose.theory import (
    Problem,
    StableError,
    critical_point,
    critical_point_broken,
    solve_broken,
    trace_broken,
)
from fermibose_paper.theory_curves import figure_broken


def test_a_curve_is_single_solutions_and_names_what_it_leaves_out(tmp_path):
    curve = trace_broken(Problem(), "delta", [0.3, 0.55, 0.6])
    assert len(curve) == 2
    assert len(curve.failures) == 1
    assert "replica symmetry is stable here" in curve.failures[0]
    np.testing.assert_array_equal(curve.values, [0.55, 0.6])
    single = solve_broken(Problem(delta=0.6))
    assert pytest.approx(single.M, abs=1e-6) == curve[-1].M
    assert curve.column("inside")[-1] == pytest.approx(single.eigenvalues.inside, rel=1e-5)
    assert curve.column("stable").tolist() == [0, 0]
    curve.save_csv(tmp_path / "curve.csv")
    with open(tmp_path / "curve.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["delta"]) for row in rows] == [0.3, 0.55, 0.6]
    assert [row["failure"] for row in rows] == [*curve.failures, "", ""]
    assert float(rows[2]["complexity"]) == curve[1].complexity
    curve.draw(tmp_path / "curve.svg", quantities=("M", "complexity"))
    svg = (tmp_path / "curve.svg").read_text(encoding="utf-8")
    assert svg.count("<!-- replica symmetry -->") == 1  # it has an M and no complexity
    assert "(1 point not solved, left out)" in svg


def test_the_complexity_along_x(tmp_path):
    """Σ falls through 0 at the solution; between two x, f rises by ∫ Σ/βx² dx (Simpson)."""
    best = solve_broken(Problem(delta=0.7))
    xs = best.x * np.array([0.5, 0.75, 1.0, 1.5])
    curve = trace_broken(Problem(delta=0.7), "x", xs)
    sigma, f = curve.column("complexity"), curve.column("free_energy")
    assert sigma[0] > 0 > sigma[-1]
    assert abs(sigma[2]) < 1e-6
    assert f[2] == f.max() == pytest.approx(best.free_energy, abs=1e-9)
    slope = sigma / (50 * xs**2)
    area = (xs[2] - xs[0]) / 6 * (slope[0] + 4 * slope[1] + slope[2])
    assert f[2] - f[0] == pytest.approx(area, rel=0.02)
    np.testing.assert_allclose(curve.values, xs)
    curve.draw(tmp_path / "sigma.png", quantities=("complexity",))


def test_order_ends_where_m_vanishes():
    """The stiffness of M = 0, against where M² of broken solutions extrapolates to 0.

    Replica symmetry ends order at 0.915.
    """
    critical = critical_point_broken(Problem(), "delta", between=(1.1, 1.25), tol=1e-3)
    near = critical - np.array([0.03, 0.02, 0.01])
    m2 = trace_broken(Problem(), "delta", near).column("M") ** 2
    assert (m2 > 0).all()
    root = np.polynomial.Polynomial.fit(m2, near, 2)(0.0)
    assert critical == pytest.approx(root, abs=2e-3)
    assert critical > critical_point(Problem(), "delta", between=(0.85, 1.0)) + 0.2


def test_the_figure_with_and_without_symmetry(tmp_path):
    """Broken where AT > 1 and nowhere else; order lasts longer, and the loss is lower for it."""
    curve, broken = figure_broken(tmp_path / "broken.svg", points=6, show=False)
    unstable = curve.values[curve.column("at_eigenvalue") >= 1]
    np.testing.assert_array_equal(broken.values, unstable)
    at = {s.problem.delta: s for s in curve}
    between = [s for s in broken if 0.93 < s.problem.delta < 1.05]
    assert between
    for s in between:
        assert at[s.problem.delta].M == 0 < s.M
        assert s.generalization_loss < at[s.problem.delta].generalization_loss
    assert "<!-- broken once -->" in (tmp_path / "broken.svg").read_text(encoding="utf-8")


def test_what_is_refused():
    with pytest.raises(InputError, match="not a parameter"):
        trace_broken(Problem(), "gamma", [1.0])
    with pytest.raises(InputError, match="non-empty list"):
        trace_broken(Problem(), "x", [])
    with pytest.raises(StableError, match="replica symmetry is stable"):
        trace_broken(Problem(), "alpha", [0.4, 0.5])
    with pytest.raises(InputError, match="the quantity must be"):
        trace_broken(Problem(), "delta", [0.6]).column("chi")
    with pytest.raises(InputError, match=r"order does not end between delta = 1 and 1\.05"):
        critical_point_broken(Problem(), "delta", between=(1.0, 1.05))
    for between in ((0.5,), (0.5, 0.5), (0.5, math.inf)):
        with pytest.raises(InputError, match="two different values of delta, such as"):
            critical_point_broken(Problem(), "delta", between=between)


def test_ctrl_c_keeps_the_points_so_far(monkeypatch):
    real, calls = solve_broken, []

    def stopped(problem, start=None, **options):
        calls.append(problem)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(problem, start, **options)

    monkeypatch.setattr("fermibose.theory.broken_curves.solve_broken", stopped)
    with pytest.raises(Interrupted) as caught:
        trace_broken(Problem(), "delta", [0.6, 0.65])
    assert caught.value.done.values.tolist() == [0.6]
