"""Quick looks. Oracle: ``solve``, whose search and grids they do without."""

import math
import time

import pytest

from fermibose.errors import FermiboseError, InputError
from fermibose.theory import Overlaps, Problem, sketch, solve

START = solve(Problem()).overlaps


@pytest.mark.parametrize(
    "moved", [{"delta": 0.6}, {"alpha": 1.0}, {"d_f": 1.5, "rho": 0.4}, {"beta": 10.0}]
)
def test_a_look_finds_the_state_near_by(moved):
    problem = Problem(**moved)
    found, right = sketch(problem, START, seconds=60), solve(problem)
    assert found.converged
    assert pytest.approx(right.M, abs=1e-3) == found.M
    assert found.q == pytest.approx(right.q, rel=1e-3)
    assert (found.Q, found.chi) == pytest.approx((right.Q, right.chi), rel=2e-3)
    assert found.accuracy == pytest.approx(right.accuracy, abs=1e-3)


@pytest.mark.parametrize("pairing", ["disjoint", "all"])
def test_it_goes_from_one_temperature_and_pairing_to_another(pairing):
    problem = Problem(pairing=pairing, beta=math.inf, delta=0.3)
    assert pytest.approx(solve(problem).M, abs=1e-3) == sketch(problem, START, seconds=60).M


def test_it_ends_in_its_time_and_says_how_far_it_came():
    problem = Problem(pairing="all", beta=math.inf, delta=1.2)
    begun = time.process_time()
    found = sketch(problem, START, seconds=1e-9)  # one evaluation
    assert time.process_time() - begun < 2  # all it takes is ten times that
    assert found is None or not found.converged


def test_mirror_images_are_turned():
    mirrored = Overlaps(-START.M, START.Q, START.chi)
    assert pytest.approx(START.M, abs=1e-3) == sketch(Problem(), mirrored, seconds=60).M


def test_bad_input():
    with pytest.raises(InputError, match="seconds"):
        sketch(Problem(), START, seconds=0)
    with pytest.raises(FermiboseError, match="too small"):
        sketch(Problem(delta=1e-4, beta=1e3), START)
