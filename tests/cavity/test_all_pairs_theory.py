"""All pairs: the solver of the theory, message passing, state evolution and descent meet."""

import math

import numpy as np
import pytest
from all_pairs_reference import finite_temperature, zero_temperature

from fermibose.cavity import amp, ground_state, sample_instance, state_evolution
from fermibose.statistics import summary
from fermibose.theory import Problem, solve


def everyone(**change):
    return Problem(pairing="all", **({"samples": 1.0} | change))


@pytest.mark.parametrize("change", [{}, {"samples": 0.3, "d_f": 0.5, "mislabelled": 0.08}])
def test_solutions_are_those_of_plain_iteration(change):
    """Another solver of the same equations: damped steps on uniform grids, both temperatures."""
    s, expected = solve(everyone(**change)), finite_temperature(everyone(**change))
    zero = solve(everyone(beta=math.inf, **change))
    frozen = zero_temperature(everyone(beta=math.inf, **change))
    for name in ("M", "q", "Q"):
        assert getattr(s, name) == pytest.approx(expected[name], abs=2e-4), name
    for name in ("M", "q"):
        assert getattr(zero, name) == pytest.approx(frozen[name], abs=5e-4), name


def test_state_evolution_ends_at_the_solution():
    problem = everyone()
    path, s = state_evolution(problem, M=0.3, Q=0.5, sweeps=60), solve(problem)
    assert path.M[-1] == pytest.approx(s.M, abs=1e-6)
    assert path.q[-1] == pytest.approx(s.q, abs=1e-6)


def test_instances_meet_the_solution():
    """Ten instances of 400 weights: means within three standard errors, AMP and descent alike."""
    problem, frozen = everyone(), everyone(beta=math.inf)
    for found, theory in (
        ([amp(sample_instance(problem, 400, seed=s, counts="exact")) for s in range(10)],
         solve(problem)),
        ([ground_state(sample_instance(frozen, 400, seed=s, counts="exact"), restarts=1)
          for s in range(10)], solve(frozen)),
    ):  # fmt: skip
        assert all(run.converged for run in found)
        for name in ("M", "q", "generalization_loss"):
            mean, error, _ = summary(np.abs([getattr(run, name) for run in found]))
            assert abs(mean - getattr(theory, name)) < 3 * error, name
