"""Problem. Oracles: the printed energy in plain Python; the messages a person would want."""

import math

import numpy as np
import pytest
import torch
from scipy.special import erf

from fermibose.errors import InputError
from fermibose.theory import (
    Overlaps,
    Problem,
    branches,
    critical_point,
    disordered,
    phase_diagram,
    solve,
    solve_broken,
    trace,
)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"beta": -1.0}, "beta must be a finite number > 0, .* inverse temperature"),
        ({"beta": 0.0}, "inf is zero temperature"),
        ({"rho": 1.2}, "rho must be a finite number >= 0 and <= 1"),
        ({"rho": -0.1}, "rho must be a finite number >= 0"),
        ({"weight_decay": 0.0}, "q diverges; use a small positive value"),
        ({"d_f": -0.5}, "d_f must be a finite number >= 0"),
        ({"alpha": math.nan}, "alpha must be a finite number > 0, got nan"),
        ({"alpha": 0.0}, "alpha must be a finite number > 0"),
        ({"delta": 0.0}, "delta must be a finite number > 0"),
        ({"delta": math.inf}, "delta must be a finite number > 0, got inf"),
        ({"m": -1.0}, "m must be a finite number >= 0"),
        ({"softness": math.nan}, "softness must be a finite number >= 0, got nan"),
        ({"alpha": "2"}, "alpha must be a finite number"),
        ({"activation": "relu6"}, "'tanh', 'half_tanh' or give a function"),
        ({"beta": math.inf, "softness": 0.0}, "softness > 0"),
        ({"beta": math.inf, "hinge": np.abs}, "no hinge of your own"),
    ],
)
def test_impossible_parameters_are_named_with_the_remedy(bad, says):
    with pytest.raises(InputError, match=says):
        Problem(**bad)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (5, "must be a function of a NumPy array, got 5"),
        (math.tanh, r"fails on a NumPy array \(TypeError"),
        (torch.tanh, r"fails on a NumPy array \(TypeError"),
        (lambda z: 1.0, "an array of the shape of its argument"),
        (lambda z: z.ravel(), "an array of the shape of its argument"),
        (lambda z: z > 0, "must return float64 numbers, not bool"),
        (lambda z: z.astype(np.float32), "must return float64 numbers, not float32"),
        (np.log, "must be finite everywhere, and is not at -3"),
        (np.polynomial.Polynomial([0, 1, 0, -0.1]), "must be hashable, which Polynomial is not"),
    ],
)
@pytest.mark.parametrize("name", ["activation", "hinge"])
def test_functions_that_would_fail_deep_inside(name, function, says):
    with pytest.raises(InputError, match=f"{name} .*{says}"):
        Problem(**{name: function})
    with pytest.raises(InputError, match="hinge must be a function of a NumPy array, got 'relu'"):
        Problem(hinge="relu")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="activation must be a function of a NumPy array, got N"):
        Problem(activation=None)  # type: ignore[arg-type]


def test_a_function_is_tried_once():
    calls = []

    def phi(z):
        calls.append(z.shape)
        return np.tanh(z)

    for delta in (0.2, 0.3, 0.4):
        Problem(activation=phi, delta=delta)
    assert len(calls) == 1


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int64, int])
def test_every_number_becomes_a_float(kind):
    problem = Problem(kind(2), kind(1), kind(50), kind(1), kind(1), kind(1), kind(1), kind(1))
    assert {type(v) for v in vars(problem).values() if not isinstance(v, str | None)} == {float}
    assert problem == Problem(2.0, 1.0, 50.0, 1.0, 1.0, 1.0, 1.0, 1.0)


def test_single_precision_parameters_are_solved_in_double():
    single = Problem(delta=np.float32(0.5), beta=np.float32(50))
    assert solve(single).M == solve(Problem()).M


@pytest.mark.parametrize("bad", [None, "x", 3, {"alpha": 1.0}], ids=str)
@pytest.mark.parametrize(
    "door",
    [
        solve,
        branches,
        disordered,
        solve_broken,
        lambda p: critical_point(p, "delta", between=(0.1, 0.5)),
        lambda p: trace(p, "delta", [0.1]),
        lambda p: phase_diagram(p, "delta", [0.1], "alpha", [1.0]),
    ],
)
def test_what_is_not_a_problem_is_refused(door, bad):
    with pytest.raises(InputError, match=r"needs a fermibose\.theory\.Problem, got"):
        door(bad)


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (5, r"start must be a Solution or Overlaps\(M, Q, chi\), got 5"),
        (Overlaps(math.nan, 1.0, 5.0), "must be finite numbers"),
        (Overlaps(1.0, "2", 5.0), "must be finite numbers"),  # type: ignore[arg-type]
        (Overlaps(1.0, 2.0, -5.0), "chi to start from must be > 0"),
        (Overlaps(1.0, 0.9, 5.0), "Q >= M²"),
        (Overlaps(1.0, -1.0, 5.0), "Q >= M²"),
    ],
)
def test_starts_that_no_weights_have(start, says):
    with pytest.raises(InputError, match=says):
        solve(Problem(), start)


@pytest.mark.parametrize("tol", [10.0, 0.0, -1.0, math.nan, "a", True])
@pytest.mark.parametrize("door", [solve, branches, disordered, solve_broken])
def test_a_tolerance_is_between_0_and_1(door, tol):
    """An iteration that stops at a residual of 10 would pass its guess as a solution."""
    with pytest.raises(InputError, match=f"tol must be a finite number > 0 and < 1, got {tol!r}"):
        door(Problem(), tol=tol)


@pytest.mark.parametrize("activation", ["tanh", "half_tanh", erf])
def test_energies_are_the_printed_ones(activation):
    problem = Problem(d_f=0.8, softness=0.02, activation=activation)
    phi = {"tanh": math.tanh, "half_tanh": lambda z: (1 + math.tanh(z)) / 2}.get(
        activation if isinstance(activation, str) else "", math.erf
    )
    z1, z2 = np.array([-1.2, 0.3, 2.0]), np.array([0.4, 0.3, -0.7])
    boson, fermion = problem.energies(z1, z2)
    for i, (a, b) in enumerate(zip(z1, z2, strict=True)):
        d2 = (phi(a) - phi(b)) ** 2
        x = 0.8 - d2
        assert boson[i] == pytest.approx(d2 / 2, abs=1e-15)
        assert fermion[i] == pytest.approx((x + math.sqrt(x * x + 0.02)) / 4, abs=1e-15)


def test_a_hinge_of_ones_own_replaces_the_fermion_energy():
    problem = Problem(d_f=0.8, hinge=lambda x: np.log1p(np.exp(10 * x)) / 10)
    d2 = (math.tanh(0.5) + math.tanh(0.2)) ** 2
    boson, fermion = problem.energies(np.array(0.5), np.array(-0.2))
    assert boson == pytest.approx(d2 / 2)
    assert fermion == pytest.approx(math.log1p(math.exp(10 * (0.8 - d2))) / 20)


def test_the_steepest_place_is_found_wherever_it_is():
    assert Problem().steepness == Problem(activation="half_tanh").steepness == 1.0
    assert Problem(activation=erf).steepness == pytest.approx(2 / math.sqrt(math.pi), rel=1e-6)
    for k, where in ((3.0, 0.4), (80.0, -1.2345), (900.0, 3.21)):
        problem = Problem(activation=lambda z, k=k, where=where: np.tanh(k * (z - where)))
        assert problem.steepness == pytest.approx(k, rel=1e-3)
    assert Problem(activation=np.sign).steepness == 1000.0


def test_oddness_up_to_a_constant_is_seen():
    assert Problem().odd
    assert Problem(activation="half_tanh").odd
    assert Problem(activation=lambda z: 3 + erf(2 * z)).odd
    assert not Problem(activation=lambda z: np.maximum(z, 0)).odd
