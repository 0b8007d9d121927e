"""Quick looks and solutions. Oracle: ``theory.solve`` and ``branches`` of the same problem."""

import threading
from time import sleep

import pytest
from joblib.externals.loky.process_executor import ShutdownExecutorError

from fermibose.explore.desk import Desk
from fermibose.theory import Problem, Sketch, branches, solve

HOT = Problem(alpha=0.5, beta=5.0)


@pytest.fixture
def desk():
    made = Desk(look=60.0, pause=0.0)
    yield made
    made.close()


def test_a_quick_look_then_the_solution_then_its_branches(desk):
    first = desk.quick(HOT)
    assert isinstance(first.state, Sketch)
    assert not first.final
    fine, final = desk.fine(first)
    right = solve(HOT)
    assert pytest.approx(right.M, abs=2e-3) == first.state.M
    assert pytest.approx(right.M, abs=1e-8) == fine.state.M
    assert fine.branches is None
    assert final.final
    assert [b.M for b in final.branches] == pytest.approx([b.M for b in branches(HOT)], abs=1e-8)
    assert desk.quick(HOT) is final  # asked again, it is known
    assert list(desk.fine(final)) == []


def test_from_a_state_without_order_the_look_finds_the_one_with(desk):
    wide = Problem(alpha=0.5, beta=5.0, delta=2.0)
    list(desk.fine(desk.quick(wide)))
    assert solve(wide).M == 0
    near = desk.quick(HOT)
    assert pytest.approx(solve(HOT).M, abs=2e-3) == near.state.M


def test_whoever_moves_on_gets_nothing_of_the_old_problem(desk):
    list(desk.fine(desk.quick(HOT)))  # the process is there
    slow = Problem(pairing="all", beta=float("inf"), delta=1.5)  # takes seconds
    found = []
    first = desk.quick(slow)
    waiting = threading.Thread(target=lambda: found.extend(desk.fine(first)))
    waiting.start()
    while desk.busy is False:
        pass
    other = Problem(alpha=0.6, beta=5.0)
    answers = list(desk.fine(desk.quick(other)))
    waiting.join(timeout=300)
    assert not waiting.is_alive()
    assert found == []
    assert pytest.approx(solve(other).M, abs=1e-8) == answers[-1].state.M


def test_a_process_may_be_ended_as_soon_as_it_is_asked(desk):
    """An exception in a thread of the pool is an error of this test."""

    def ask():
        with pytest.raises(ShutdownExecutorError):
            desk._ask(desk._turn, sleep, 60)

    for _ in range(5):
        desk._ask(desk._turn, abs, 1)  # the process is there
        waiting = threading.Thread(target=ask)
        waiting.start()
        while desk.busy is False:
            pass
        desk.stop()
        waiting.join(timeout=300)
        assert not waiting.is_alive()


def test_a_look_that_was_overtaken_leads_to_nothing(desk):
    first = desk.quick(HOT)
    desk.quick(Problem(alpha=0.6, beta=5.0))
    assert list(desk.fine(first)) == []


def test_a_solution_that_takes_too_long_is_a_message(desk):
    desk.patience = 0.01
    first = desk.quick(HOT)
    (only,) = desk.fine(first)
    assert only.message.startswith("no solution within 0.01 s")
    assert only.final
    assert only.state is first.state


def test_a_solver_that_does_not_converge_is_a_message(desk):
    sharp = Problem(delta=1e-4, beta=1e3)
    answers = [desk.quick(sharp)]
    answers += list(desk.fine(answers[0]))
    assert "delta = 0.0001 is too small" in answers[-1].message
    assert answers[-1].final
