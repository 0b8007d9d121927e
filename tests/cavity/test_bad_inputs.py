"""What cannot be used is refused with a sentence, before anything is computed."""

import builtins
import math
import os

import numpy as np
import pytest

from fermibose import checks
from fermibose.cavity import (
    Instance,
    amp,
    belief_propagation,
    ground_state,
    hmc,
    sample_instance,
    state_evolution,
)
from fermibose.cavity.channel import LatticeError, check_size
from fermibose.errors import InputError
from fermibose.theory import Problem
from fermibose_paper.instances import measure_messages

MESSAGES = (amp, belief_propagation)
ALL = (*MESSAGES, hmc, ground_state)
REFUSED = [
    *(
        (f, "seed", bad, "seed must be a whole number of at least 0")
        for f in ALL
        for bad in (-1, "a", 1.5)
    ),
    *(
        (f, "start", bad, "start must be 10 finite")
        for f in ALL
        for bad in (1.0, "ones", [1.0, [2.0, 3.0]], [math.inf] * 10)
    ),
    *(
        (f, "max_iterations", bad, "a whole number of at least 1")
        for f in MESSAGES
        for bad in (2.5, "2", True)
    ),
    *((f, "damping", bad, "damping") for f in MESSAGES for bad in ("x", math.nan, -0.1)),
    *((f, "tol", bad, "tol must be") for f in MESSAGES for bad in (math.inf, math.nan, -1, "x", 1)),
    *((ground_state, "tol", bad, "tol must be") for bad in (1e9, math.nan, -1.0, "x")),
    *((ground_state, "restarts", bad, "a whole number of at least 1") for bad in (2.5, "2")),
    *((belief_propagation, "max_memory", bad, "max_memory") for bad in (math.nan, "1GB", -1)),
    *((hmc, "hottest", bad, "hottest") for bad in ("5", math.nan, 0.0)),
    (hmc, "chains", 1.5, "chains must be a whole number of at least 1"),
    (hmc, "trajectories", 20.5, "trajectories must be a whole number of at least 20"),
    (hmc, "warm_up", "9", "warm_up must be a whole number of at least 1"),
]


@pytest.mark.parametrize(("algorithm", "name", "bad", "says"), REFUSED)
def test_bad_arguments_are_named(algorithm, name, bad, says):
    instance = sample_instance(Problem(alpha=0.5), 10, seed=0)
    with pytest.raises(InputError, match=says):
        algorithm(instance, **{name: bad})


@pytest.mark.parametrize("algorithm", ALL)
def test_an_instance_is_needed(algorithm):
    with pytest.raises(InputError, match=r"sample_instance\(\), got None"):
        algorithm(None)


def test_an_instance_has_a_seed():
    pairs = sample_instance(Problem(), 4, seed=0).train
    with pytest.raises(InputError, match="seed must be"):
        Instance(Problem(), pairs, pairs, -1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"V": 0.0}, "V must be a finite number > 0"),
        ({"V": -1.0}, "V must be a finite number > 0"),
        ({"V": math.nan}, "V must be a finite number"),
        ({"Q": math.inf}, "Q must be a finite number"),
        ({"Q": 0.0}, "Q must be a finite number > 0"),
        ({"M": math.nan}, "M must be a finite number"),
        ({"sweeps": -3}, "sweeps must be a whole number of at least 0"),
        ({"sweeps": 2.5}, "sweeps must be a whole number of at least 0"),
        ({"problem": None}, "needs a fermibose.theory.Problem"),
    ],
)
def test_state_evolution_needs_numbers(arguments, says):
    arguments = {"problem": Problem(), "M": 0.1, "Q": 0.5, "sweeps": 2} | arguments
    with pytest.raises(InputError, match=says):
        state_evolution(**arguments)


@pytest.mark.parametrize(("algorithm", "least"), [(amp, 2), (belief_propagation, 3)])
def test_too_few_weights_are_the_reason_given(algorithm, least):
    problem = Problem(alpha=1.0, beta=5.0)
    for n in range(1, least):
        with pytest.raises(InputError, match=f"n = {n} weights .* needs n >= {least}"):
            algorithm(sample_instance(problem, n, seed=0))
    algorithm(sample_instance(problem, least, seed=0), max_iterations=1)


WIDE = r"too wide or too far out: use a smaller delta or m, a larger weight_decay, .* order 1;"
SHARP = (
    r"too sharp: use a larger delta, a smaller beta .*, a less steep activation, or a larger n .*;"
)


@pytest.mark.parametrize(
    ("parameters", "start", "says", "remedy"),
    [
        ({"delta": 50.0}, None, WIDE, {"delta": 5.0}),
        ({"m": 3000.0}, None, WIDE, {"m": 30.0}),
        ({"alpha": 5.0, "weight_decay": 1e-6}, None, WIDE, {"weight_decay": 0.01}),
        ({"delta": 0.5}, 300.0, WIDE, None),
        ({"delta": 1e-4}, None, SHARP, {"delta": 0.01}),
        ({"beta": 1e6}, None, SHARP, {"beta": 1e3}),
        ({"weight_decay": 1e6}, None, SHARP, {"weight_decay": 1.0}),
    ],
)
def test_lattices_that_cannot_be_handled_are_refused_with_what_helps(
    parameters, start, says, remedy
):
    """What the message advises is tried: it must work."""

    def sweep(start, **parameters):
        instance = sample_instance(Problem(**{"alpha": 0.5, **parameters}), 30, seed=0)
        return amp(instance, start=start, max_iterations=1)

    means = None if start is None else np.full(30, start)
    with pytest.raises(InputError, match=rf"lattice of .* nodes.* {says} .*hmc.*ground") as refusal:
        sweep(means, **parameters)
    assert "()" not in str(refusal.value)  # as right on the command line as in Python
    helped = sweep(None, **parameters | (remedy or {}))
    assert helped.iterations == 1
    assert not helped.diverged


@pytest.mark.parametrize(("reach", "step", "says"), [(6.0, 1e-3, SHARP), (400.0, 0.02, WIDE)])
def test_the_remedy_is_for_the_larger_of_two_excesses(reach, step, says):
    """Reach and steps both beyond the usual, one of them far more."""
    with pytest.raises(LatticeError, match=says):
        check_size(np.full(2, reach), np.full(2, step))


def test_nearly_parallel_patterns_are_refused_as_too_sharp():
    """Without the weight left out, three weights can leave a pair's patterns nearly parallel."""
    problem = Problem(alpha=5.0)
    with pytest.raises(InputError, match=SHARP):
        belief_propagation(sample_instance(problem, 3, seed=5), max_iterations=1)
    more = belief_propagation(sample_instance(problem, 30, seed=5), max_iterations=1)
    assert not more.diverged


def test_an_instance_that_does_not_fit_is_refused_before_it_is_made():
    with pytest.raises(InputError, match=r"1500000 training .* take 72024\.000 GB, more than the"):
        sample_instance(Problem(alpha=0.5), 3_000_000)


def test_free_memory_where_the_system_tells_less(monkeypatch):
    """MemAvailable; else all the memory there is; else no limit."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < checks.free_memory() <= total

    def missing(*_args, **_kwargs):
        raise OSError

    with monkeypatch.context() as m:
        m.setattr(builtins, "open", missing)
        assert checks.free_memory() == total
        m.delattr(os, "sysconf")
        assert checks.free_memory() == math.inf
        instance = sample_instance(Problem(alpha=0.5, beta=5.0), 10, seed=0)
        assert np.isfinite(belief_propagation(instance, max_iterations=1).q)


def test_an_iteration_that_runs_away_is_a_result_that_says_so():
    """Its fields outgrow the lattice; a job that measures it still gives its row."""
    found = amp(sample_instance(Problem(), 24, seed=1), damping=0.0)
    assert found.diverged
    assert not found.converged
    instance, sweeps = found.instance, found.iterations
    before = amp(instance, damping=0.0, max_iterations=sweeps)
    assert not before.diverged
    stability = f"AT = {before.at_eigenvalue:.2f} in the last sweep"
    assert found.verdict == f"did not converge: diverged after {sweeps} sweeps; {stability}"
    assert before.verdict.endswith(f"; {stability}")
    row = measure_messages(method="amp", n=24, seed=1, damping=0.0)
    assert (row["converged"], row["test_loss"], row["M"]) == (False, None, abs(found.M))


def test_amp_that_does_not_fit_is_refused_before_it_is_made(monkeypatch):
    instance = sample_instance(Problem(), 100, seed=0)
    monkeypatch.setattr("fermibose.checks.free_memory", lambda: 24.0 * 100 * 250 - 1)
    with pytest.raises(InputError, match=r"products of 250 pairs of N = 100 inputs in 0\.001 GB"):
        amp(instance)
