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
