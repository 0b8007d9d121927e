"""The theory page. Oracles: ``fbm theory``'s own table, ``theory.solve``, quadrature."""

import math
import re
import shlex

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm as normal
from typer.testing import CliRunner

from fermibose.cli import app
from fermibose.errors import FermiboseError, InputError
from fermibose.explore import theory_page
from fermibose.explore.choices import RANGES
from fermibose.explore.desk import Answer
from fermibose.explore.theory_page import command, norm_of, page, problem_of, rows
from fermibose.theory import Overlaps, Problem, Sketch, solve

VALUES = {name: span.value for name, span in RANGES.items()}


def cells(html):
    return dict(re.findall(r'data-name="(\w+)">([^<]*)<', html))


@pytest.mark.parametrize(
    ("moved", "pairing", "cold", "norm"),
    [
        ({}, "disjoint", False, 2.0),
        ({"alpha": 1.0, "delta": 0.7, "d_f": 1.5, "rho": 0.3}, "disjoint", False, "inf"),
        ({"samples": 1.0, "beta": 10.0, "weight_decay": 0.1}, "all", False, 3.0),
        ({"alpha": 0.5}, "disjoint", True, 2.0),
    ],
)
def test_numbers_are_those_of_the_command_that_it_names(moved, pairing, cold, norm):
    problem = problem_of(VALUES | moved, pairing=pairing, cold=cold)
    words = shlex.split(command(problem, norm))
    assert words.pop(0) == "fbm"
    done = CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "200"})
    table = dict(re.findall(r"│ (.+?)\s*│\s*(\S+)\s*│", done.output))
    shown = {label: text for label, _, text in rows(solve(problem), norm, 0.5)}
    common = set(shown) & set(table)
    assert len(common) == len(theory_page.ROWS)  # all of them
    errors = "numerical error of M, q, Q, χ, relative"
    assert {k: shown[k] for k in common - {errors}} == {k: table[k] for k in common - {errors}}


def test_the_page_holds_the_rows():
    solution = solve(Problem(alpha=0.5, beta=5.0))
    found = cells(page(Answer(solution.problem, solution), norm="inf", eps=0.25))
    assert found["M"] == f"{solution.M:.6f}"
    assert found["attacked"] == f"{solution.adversarial_accuracy(0.25, 'inf'):.2%}"
    assert found["area"] == f"{solution.robustness_area('inf'):.4f}"
    assert set(found) == {name for _, name, _ in theory_page.ROWS}


def test_a_quick_look_leaves_out_what_it_does_not_know():
    quick = Sketch(Problem(), Overlaps(1.0, 1.5, 6.0), 1e-5)
    answer = Answer(quick.problem, quick)
    found = cells(page(answer))
    assert found["M"] == "1.000000"
    assert found["free_energy"] == "…"
    assert found["at_eigenvalue"] == "…"
    assert 'data-stage="rough"' in page(answer)
    assert "quick look" in theory_page.verdict(answer)


def test_the_verdict_is_that_of_the_at_eigenvalue():
    stable, broken = solve(Problem(alpha=0.5, beta=5.0)), solve(Problem())
    assert stable.rs_stable
    assert "holds" in theory_page.verdict(Answer(stable.problem, stable))
    assert not broken.rs_stable
    assert "unstable" in theory_page.verdict(Answer(broken.problem, broken))


def test_all_branches_are_listed():
    from fermibose.theory import branches

    problem = Problem(alpha=0.5, beta=5.0)
    found = branches(problem)
    html = page(Answer(problem, found[0], found, final=True))
    table = html[html.index('id="fbm-branches"') :]
    assert table.count("<tr>") == 1 + len(found)
    for one in found:
        kind = "stable" if one.stable else "unstable"
        row = f"<tr><td>{one.M:.4f}</td><td>{one.q:.4f}</td>"
        assert re.search(re.escape(row) + rf".*?<td>{kind}</td>", table)


def test_outputs_are_integrals_of_the_field_distribution():
    state = Sketch(Problem(delta=0.4), Overlaps(0.8, 0.9, 4.0), 0.0)
    minus, plus = theory_page.outputs(state)
    width, edges = 0.4 * math.sqrt(state.q), np.linspace(-1, 1, 51)
    for k in (0, 10, 25, 40, 49):
        low, high = (float(np.arctanh(np.clip(e, -1 + 1e-16, 1 - 1e-16))) for e in edges[k : k + 2])
        for found, mean in ((minus, -0.8), (plus, 0.8)):
            share = quad(lambda z, mean=mean: normal.pdf(z, mean, width), low, high)[0]
            assert found[k] == pytest.approx(100 * share, abs=1e-6)
    assert plus.sum() == pytest.approx(100)


def test_outputs_are_drawn_from_end_to_end():
    state = Sketch(Problem(delta=0.4), Overlaps(0.8, 0.9, 4.0), 0.0)
    html = page(Answer(state.problem, state))
    drawn = html[html.index('aria-label="Outputs predicted') :]
    frame = re.search(r'd="M(\d+) (\d+)V(\d+)H(\d+)" fill="none"', drawn)
    left, top, bottom, right = map(float, frame.groups())
    way = re.search(r'<path d="M([^"]*)" fill="none" stroke="#0072B2"', drawn)[1]
    x, y = np.array([p.split() for p in way.split("L")], dtype=float).T
    assert (x[0], x[-1]) == (left, right)
    _, plus = theory_page.outputs(state)
    heights = (bottom - y) / (bottom - top)
    np.testing.assert_allclose(heights[1::2] / heights.max(), plus / plus.max(), atol=1e-3)
    np.testing.assert_array_equal(heights[::2], heights[1::2])  # steps, each as wide as its bin
    np.testing.assert_allclose(x[1::2] - x[::2], (right - left) / 50, atol=0.11)


def test_no_option_of_the_command_is_torn_from_its_value():
    state = Sketch(Problem(), Overlaps(0.8, 0.9, 4.0), 0.0)
    html = page(Answer(state.problem, state), norm="inf")
    code = re.search("<code>(.*?)</code>", html)[1]
    whole = re.findall("<span>(.*?)</span>", code)
    assert [len(piece.split()) for piece in whole] == [2] * 8
    assert re.sub("</?span>", "", code) == command(state.problem, "inf")


def test_a_complaint_leaves_the_page_as_it_is():
    state = Sketch(Problem(), Overlaps(0.8, 0.9, 4.0), 0.0)
    plain = page(Answer(state.problem, state))
    html = page(Answer(state.problem, state), complaint="<no norm>")
    assert html.replace('<p role="alert" class="fbm-message">&lt;no norm&gt;</p>', "") == plain


def test_the_first_view_is_one_that_replica_symmetry_describes():
    assert solve(problem_of(VALUES, pairing="disjoint", cold=False)).rs_stable


def test_the_landscape_is_the_energy_of_both_kinds():
    boson, fermion = theory_page.landscape(Problem(d_f=1.2, softness=0.01))
    z = np.linspace(-3, 3, 121)
    d2 = (math.tanh(z[70]) - math.tanh(z[30])) ** 2
    assert boson[30, 70] == pytest.approx(d2 / 2)
    assert fermion[30, 70] == pytest.approx((1.2 - d2 + math.sqrt((1.2 - d2) ** 2 + 0.01)) / 4)


@pytest.mark.parametrize(
    "moved",
    [{"delta": 1e9}, {"delta": -1}, {"d_f": math.nan}, {"alpha": "/etc/passwd"}, {"rho": None},
     {"weight_decay": 10**400}, {"beta": True}],
)  # fmt: skip
def test_what_no_slider_says_is_refused(moved):
    with pytest.raises(InputError, match="must be a finite number"):
        problem_of(VALUES | moved, pairing="disjoint", cold=False)


@pytest.mark.parametrize("text", ["/etc/passwd", "1", "0.5", "nan", "", "9" * 10**6, None, 2])
def test_a_norm_that_is_none_is_refused_briefly(text):
    with pytest.raises(InputError, match="2, inf or a number above 1") as caught:
        norm_of(text)
    assert len(str(caught.value)) < 200


def test_norms():
    assert [norm_of(t) for t in ("2", " inf ", "∞", "1.5", "1e3")] == [2, "inf", "inf", 1.5, 1000]


def test_messages_are_text_not_markup():
    html = page(Answer(Problem(), message="<script>alert(1)</script>", final=True))
    assert "<script>" not in html
    assert "<script>" not in theory_page.refusal(FermiboseError("<script>"))


def test_every_slider_can_say_its_first_value_and_its_ends():
    for span in RANGES.values():
        assert span.value in span.steps
        assert (span.steps[0], span.steps[-1]) == (span.low, span.high)
        assert 20 < len(span.steps) < 60
