"""Fixed points. Oracles: linear and scalar maps whose fixed points are known."""

import math

import numpy as np

from fermibose.theory.fixed_point import Steps, iterate


def linear(A, b):
    def step(x):
        new = A @ x + b
        return new, float(np.abs(new - x).max())

    return step


def test_a_linear_map_of_three_unknowns_takes_five_steps():
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(3, 3)) * 0.4, rng.normal(size=3)
    exact = np.linalg.solve(np.eye(3) - A, b)
    point = iterate(linear(A, b), np.zeros(3), tol=1e-12, max_iterations=20)
    assert point.converged
    assert point.iterations <= 6
    np.testing.assert_allclose(point.x, exact, atol=1e-10)


def test_an_expanding_map_is_solved_too():
    A, b = np.diag([-3.0, 0.5]), np.array([1.0, 1.0])
    point = iterate(linear(A, b), np.zeros(2), tol=1e-12, max_iterations=40)
    assert point.converged
    np.testing.assert_allclose(point.x, [0.25, 2.0], atol=1e-10)


def test_a_map_without_fixed_point_is_never_called_converged():
    """Strong damping makes steps small; the undamped residual does not care."""

    def step(x):
        return x + 1.0, 1.0

    for damping in (1.0, 1e-6):
        point = iterate(
            step, np.zeros(1), tol=1e-3, max_iterations=60, accelerate_below=1e-9, damping=damping
        )
        assert not point.converged
        assert point.residual == 1.0


def test_damping_leads_where_plain_steps_oscillate():
    def step(x):
        new = np.array([-2.5 * math.atan(float(x[0]))])
        return new, float(abs(new[0] - x[0]))

    point = iterate(
        step, np.array([3.0]), tol=1e-10, max_iterations=80, accelerate_below=0.1, damping=0.3
    )
    assert point.converged
    assert abs(point.x[0]) < 1e-10


def test_long_moves_are_shortened():
    seen = []

    def step(x):
        seen.append(float(x[0]))
        return x + 100.0, 100.0

    iterate(step, np.zeros(1), tol=1e-3, max_iterations=5, largest_move=0.5)
    assert np.abs(np.diff(seen)).max() <= 0.5 + 1e-12


def test_known_derivatives_make_the_first_step_exact():
    A, b = np.diag([0.9, -0.7]), np.array([1.0, 2.0])
    history = Steps()
    for move in np.eye(2) * 1e-3:
        history.moves.append(move)
        history.effects.append(A @ move - move)
    point = iterate(
        linear(A, b), np.zeros(2), tol=1e-10, max_iterations=9, history=history, largest_move=99.0
    )
    assert point.converged
    assert point.iterations == 2


def test_a_long_step_along_a_slow_curve_is_not_taken_back():
    """a dies out slowly, c follows a² at once, and the residual knows of a² alone.

    A step to a = 0 along the tangent leaves c off by as much as a² was: far more than the residual.
    """
    slow, fast = 0.99, -0.4
    count = []

    def step(x):
        a, c = (float(v) for v in x)
        new = np.array([slow * a, a**2 + fast * c])
        count.append(a)
        return new, max(abs(new[0] ** 2 - a**2), abs(new[1] - c))

    start = np.array([0.04, 0.04**2 / (1 - fast)])
    point = iterate(step, start, tol=1e-10, max_iterations=100)
    assert point.converged
    assert len(count) == point.iterations < 20  # plain steps would take 700
    np.testing.assert_allclose(point.x, 0, atol=1e-5)


def test_an_acceleration_that_leads_astray_goes_back():
    """Far out the slope says that x = −10 is it; below 0 there is nothing. It is x = 0.2."""

    def step(x):
        change = -3.0 if x[0] < 0 else max(-0.35 * (x[0] - 0.2), -0.1 - 0.01 * x[0])
        return x + change, abs(change)

    point = iterate(step, np.array([1.0]), tol=1e-10, max_iterations=60)
    assert point.converged
    assert abs(point.x[0] - 0.2) < 1e-9
