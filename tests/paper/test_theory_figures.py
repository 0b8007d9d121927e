"""Fig. 2 and the figure against ρ. Oracles: the solver at each point alone, means by hand."""

import statistics

import numpy as np
import pytest
from paper_rows import row

from fermibose.cavity import amp, sample_instance
from fermibose.errors import InputError
from fermibose.plotting import canvas
from fermibose.theory import Problem, solve
from fermibose_paper import fig2, instances, rho
from fermibose_paper.fig2 import draw_methods
from fermibose_paper.instances import chance, measure_instance, measure_walk, two_sigma
from fermibose_paper.scale import full, quick
from fermibose_paper.theory_curves import curve_of, measure_curve


def curve_row(parameter, values, **columns):
    count = len(values)
    filled = {name: [0.0] * count for name in ("accuracy", "generalization_loss")}
    result = {"values": values, "failures": [], "rs_stable": [1.0] * count} | filled | columns
    return row(result, parameter=parameter, values=values)


def test_a_measured_curve_is_the_theory_at_every_point():
    found = measure_curve(parameter="rho", values=[0.2, 0.5])
    for k, value in enumerate(found["values"]):
        alone = solve(Problem(rho=value))
        assert found["accuracy"][k] == pytest.approx(alone.accuracy, abs=1e-5)
        assert found["rs_stable"][k] == alone.rs_stable
    assert found["failures"] == []


@pytest.mark.parametrize(("figure", "panels"), [(fig2, 4), (rho, 1)])
def test_every_panel_without_runs_says_so(figure, panels):
    words = [[text.get_text() for text in ax.texts] for ax in figure.draw([], quick()).axes]
    assert words == [["not measured"]] * panels


def test_the_loss_of_accuracy_with_bosons_is_read_off_the_curve():
    values = [0.0, 0.5, 0.9, 0.95, 1.0]
    rows = [curve_row("rho", values, accuracy=[0.95, 0.94, 0.92, 0.8, 0.5])]
    small, large = rho.verdicts(rows, quick())
    assert small.measured == pytest.approx(3.0)
    assert large.measured == pytest.approx(42.0)
    assert large.note == "chance from ρ = 1.000 on"
    assert small.reproduced
    assert large.reproduced


def test_instances_are_held_against_the_curve_where_they_converged():
    rows = [curve_row("alpha", [0.5, 1.0], generalization_loss=[0.2, 0.1])]
    losses = [0.21, 0.19, 0.23]
    for seed, loss in enumerate(losses):
        result = {"generalization_loss": loss, "converged": True}
        rows.append(row(result, seed, method="amp", n=9, alpha=0.5, delta=0.5))
    lost = {"generalization_loss": 9.0, "converged": False}
    rows.append(row(lost, 3, method="amp", n=9, alpha=0.5, delta=0.5))
    other = {"generalization_loss": 9.0, "converged": True}
    rows.append(row(other, 0, method="amp", n=9, alpha=2.5, delta=0.1))  # of the other panel
    rows.append(row(other, 0, method="amp", n=9, alpha=5.0, delta=0.5))  # theory not solved there
    (verdict,) = fig2.verdicts(rows, quick())
    assert verdict.measured == pytest.approx(100 * (statistics.mean(losses) / 0.2 - 1))
    assert verdict.error == pytest.approx(100 * statistics.stdev(losses) / 0.2 / 3**0.5)
    assert verdict.claim.endswith(" along α, means of instances, farthest at 1 of 2 points")
    assert verdict.note == "4 of 5 instances converged; farthest at N = 9, α = 0.5"


@pytest.mark.parametrize(
    ("instances", "told"),
    [
        ((3,), ("at 1 of 1 point", "reproduced")),
        ((3, 2), ("at 1 of 2 points", "reproduced")),
        ((3, 2, 2), ("at 1 of 3 points", "not measured")),
        ((2, 3, 3), ("at 2 of 3 points", "reproduced")),
    ],
)
def test_a_curve_is_judged_if_enough_instances_converged_at_half_of_its_points(instances, told):
    rows = [curve_row("alpha", [0.5, 1.0], generalization_loss=[0.2, 0.2])]
    points = ((0.5, 9), (0.5, 99), (1.0, 9))
    for (alpha, n), converged in zip(points, instances, strict=False):
        for seed in range(4):
            result = {"generalization_loss": 0.2, "converged": seed < converged}
            rows.append(row(result, seed, method="bp", n=n, alpha=alpha, delta=0.5))
    (verdict,) = fig2.verdicts(rows, quick())
    assert (verdict.claim.partition("farthest ")[2], verdict.word) == told
    assert ("too few to judge" in verdict.note) is (told[1] != "reproduced")


def test_deviations_of_opposite_sign_do_not_cancel():
    rows = [curve_row("alpha", [0.5, 5.0], generalization_loss=[0.2, 0.2])]
    for alpha, loss in ((0.5, 0.28), (5.0, 0.12)):
        result = {"generalization_loss": loss, "converged": True}
        rows += [row(result, seed, method="amp", n=9, alpha=alpha, delta=0.5) for seed in range(3)]
    (verdict,) = fig2.verdicts(rows, quick())
    assert abs(verdict.measured) == pytest.approx(40.0)
    assert not verdict.reproduced


@pytest.mark.parametrize("scale", [quick(), full("nowhere")], ids=["quick", "full"])
@pytest.mark.parametrize("figure", [fig2, instances, rho])
def test_no_run_is_planned_twice_and_theory_is_solved_where_instances_are(figure, scale):
    jobs = figure.plan(scale)
    assert len({job.key for job in jobs}) == len({job.spec for job in jobs}) == len(jobs)
    curves = {j.params["parameter"]: j.params["values"] for j in jobs if "values" in j.params}
    for job in jobs:
        if figure is fig2 and "method" in job.params:
            assert job.params["alpha"] in curves["alpha"]
            assert job.params["delta"] in curves["delta"]


@pytest.mark.parametrize("scale", [quick(), full("nowhere")], ids=["quick", "full"])
def test_every_method_of_the_figure_is_planned_at_the_papers_parameters(scale):
    jobs = [job for job in fig2.plan(scale) if "method" in job.params]
    assert {job.params["method"] for job in jobs} == {"amp", "bp", "tempered"}
    for job in jobs:
        changed = [name for name in fig2.DEFAULT if job.params[name] != fig2.DEFAULT[name]]
        assert len(changed) <= 1
    if scale.name == "full":
        assert {job.seed for job in jobs} == set(range(5))
        assert ("bp", 200) in {(job.params["method"], job.params["n"]) for job in jobs}


def test_marks_stand_beside_their_value_only_where_several_share_it():
    measured = [("amp", 9, 0.5), ("amp", 99, 0.5), ("bp", 9, 0.5), ("amp", 9, 1.0), ("bp", 9, 2.0)]
    rows = [
        {"method": method, "n": n, "alpha": alpha, "generalization_loss": 0.1, "converged": True}
        for method, n, alpha in measured
    ]
    with canvas() as (_, ax):
        draw_methods(ax, rows, "alpha")
        found = {}
        for container in ax.containers:
            mark = container[0]
            (value,) = mark.get_xdata()
            shown, exact = (
                transform.transform((value, 0.1))[0]
                for transform in (mark.get_transform(), ax.transData)
            )
            found.setdefault(value, []).append(shown - exact)
    assert found[1.0] == found[2.0] == [0.0]
    left, middle, right = sorted(found[0.5])
    assert (middle, right) == pytest.approx((0.0, -left))
    assert right > 2  # pixels


def test_points_that_were_not_solved_are_counted_in_the_figure():
    rows = [curve_row("rho", [0.0, 1.0])]
    rows[0].result["failures"] = ["rho = 0.5: did not converge"]
    assert curve_of(rows, "rho")["failures"] == rows[0].result["failures"]
    (axes,) = rho.draw(rows, quick()).axes
    assert "(1 point not solved, left out)" in axes.get_xlabel()


def test_an_empty_figure_is_still_a_figure():
    assert not rho.verdicts([], quick())
    assert not fig2.verdicts([], quick())
    assert np.size(fig2.draw([], quick()).axes) == 4


def instance_row(seed, M, *, method="amp", n=100, converged=True, alpha=0.5, beta=50.0):
    others = {"q": 2 + M, "Q": 1 + M, "generalization_loss": 0.1 + M / 100}
    result = {"M": M, "converged": converged} | others
    return row(result, seed, method=method, n=n, alpha=alpha, beta=beta)


def test_sizes_are_judged_in_standard_errors_of_what_converged():
    theory = solve(Problem(alpha=0.5))
    values = [theory.M + off for off in (0.01, 0.02, 0.06)]
    rows = [instance_row(seed, M, n=200) for seed, M in enumerate(values)]
    rows.append(instance_row(3, 9.0, n=200, converged=False))
    rows += [instance_row(seed, 5.0) for seed in range(4)]  # smaller: not the size that is judged
    found = {verdict.claim.split(": ")[1]: verdict for verdict in instances.verdicts(rows, quick())}
    assert found["part that converges"].measured == pytest.approx(0.75)
    z = statistics.mean(values) - theory.M
    z /= statistics.stdev(values) / 3**0.5
    assert found["M in standard errors from theory"].measured == pytest.approx(z)
    assert found["M in standard errors from theory"].tolerance == pytest.approx(two_sigma(3))
    few = {v.claim.split(": ")[1]: v for v in instances.verdicts(rows[:2], quick())}
    assert few["M in standard errors from theory"].word == "not measured"
    line = instances.tables(rows, quick())[0].rows[1]
    assert line[:4] == ("0.5", "50", "200", "3 of 4")
    assert line[4].startswith(f"{statistics.mean(values):.4f} ± ")
    assert instances.tables(rows, quick())[0].rows[-1][4] == f"{theory.M:.4f}"


def test_all_quantities_of_enough_instances_are_judged_together():
    names = list(instances.QUANTITIES)
    theory = solve(Problem(alpha=0.5))
    exact = np.array([getattr(theory, name) for name in names])
    drawn = np.random.default_rng(5).standard_normal((20, 4)) / 100
    drawn -= drawn.mean(0)

    def judged(off):
        rows = [
            row({"converged": True} | dict(zip(names, exact + off + noise, strict=True)), seed,
                method="amp", n=200, alpha=0.5, beta=50.0)
            for seed, noise in enumerate(drawn)
        ]  # fmt: skip
        (verdict,) = [v for v in instances.verdicts(rows, quick()) if "together" in v.claim]
        return verdict

    for off, agrees in ((0.001, True), (0.01, False)):
        assert judged(off).measured == pytest.approx(chance(drawn, [-off] * 4))
        assert judged(off).reproduced is agrees


def test_sampling_is_compared_with_amp_on_the_same_instances():
    rows = [instance_row(seed, 0.5 + seed / 10) for seed in range(3)]
    rows += [instance_row(seed, 0.51 + seed / 10, method="tempered") for seed in range(3)]
    rows.append(instance_row(7, 99.0, method="tempered"))  # no AMP on this one
    rows.append(instance_row(0, 99.0, method="tempered", beta=20.0))  # another point
    rows.append(instance_row(1, 99.0, method="plain", converged=False))
    larger = {"n": 400}  # a single instance judges nothing
    rows += [instance_row(0, 0.5, **larger), instance_row(0, 0.9, method="tempered", **larger)]
    judged = [v for v in instances.verdicts(rows, quick()) if "sampling" in v.claim]
    assert [v.claim for v in judged] == [
        f"tempered sampling, N = 100: {name} minus that of AMP" for name in ("M", "q", "Q")
    ]
    theory = solve(Problem(alpha=0.5))
    for verdict, name in zip(judged, ("M", "q", "Q"), strict=True):
        assert verdict.measured == pytest.approx(0.01)
        assert verdict.error == pytest.approx(0, abs=1e-12)
        assert verdict.tolerance == pytest.approx(0.01 * getattr(theory, name))
    few = [r for r in rows if r.seed != 1]
    judged = [v for v in instances.verdicts(few, quick()) if "sampling" in v.claim]
    assert {v.word for v in judged} == {"not measured"}


def test_one_instance_is_measured_as_the_method_says():
    found = measure_instance(method="amp", n=40, alpha=0.7, beta=10.0, seed=2)
    alone = amp(sample_instance(Problem(alpha=0.7, beta=10.0), 40, seed=2))
    assert (found["M"], found["q"], found["converged"]) == (abs(alone.M), alone.q, True)
    walks = {
        method: measure_walk(method=method, n=6, alpha=0.5, beta=6.0)
        for method in ("tempered", "plain")
    }
    assert {name: (w["method"], w["aligned"], w["hottest"]) for name, w in walks.items()} == {
        "tempered": ("tempered", False, 5.0),
        "plain": ("plain", True, None),
    }
    with pytest.raises(InputError, match="method must be"):
        measure_walk(method="hmc", n=6, alpha=0.5)
