"""What one reader of the theory page has before them: a quick look first, then the solution.

The solution is computed by a process of its own, which is ended when the reader has moved on or
when it takes too long: a slider never waits for it.
"""

import math
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Any

from joblib.externals.loky import ProcessPoolExecutor

from fermibose.errors import FermiboseError
from fermibose.theory import Overlaps, Problem, Sketch, Solution, branches, sketch, solve

LOOK = 0.2  # seconds of a quick look, of the half that a reader may wait
PATIENCE = 60.0  # seconds for a solution, then as many for its branches
PAUSE = 0.15  # seconds that a slider must rest before the process is asked
FIRST = Overlaps(1.0, 1.03, 3.0)  # near the solution of Problem()
_WATCH = 0.2  # seconds between looks at whether the parent lives
_NUDGE = 0.3  # M/√q given to a state without order, which would stay without it for ever


def end_with(parent: int) -> None:
    """End this process soon after its parent: one that is killed does not end its pool."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


class TooLongError(FermiboseError):
    """The solver did not end in its time."""


@dataclass(frozen=True)
class Answer:
    """What is known of a problem so far."""

    problem: Problem
    state: Sketch | Solution | None = None
    branches: tuple[Solution, ...] | None = None  # None: not yet
    message: str = ""  # why there is no more
    final: bool = False  # nothing more will come
    turn: int = 0  # of the desk: once that has gone on, nobody waits for more


class Desk:
    """The last solution of a reader, and the process that solves for them."""

    def __init__(
        self, *, look: float = LOOK, patience: float = PATIENCE, pause: float = PAUSE
    ) -> None:
        self.look, self.patience, self.pause = look, patience, pause
        self._last: Solution | None = None
        self._answer: Answer | None = None  # the last one with everything
        self._start = FIRST  # of the next quick look
        self._turn, self._lock = 0, Lock()
        self._pool: Any = None
        self._asked: Future[Any] | None = None

    def quick(self, problem: Problem) -> Answer:
        """The state next to the last one, on the coarse grid; ends what is still being computed."""
        self.stop()
        if self._answer is not None and self._answer.problem == problem:
            return self._answer
        try:
            state = sketch(problem, self._start, seconds=self.look)
            return Answer(problem, state, turn=self._turn)
        except FermiboseError as error:
            return Answer(problem, message=str(error), final=True)

    def fine(self, first: Answer) -> Iterator[Answer]:
        """The solution, then with all branches; nothing more once :meth:`quick` is asked again."""
        problem, turn = first.problem, first.turn
        if first.final:
            return
        time.sleep(self.pause)
        try:
            solution = self._ask(turn, solve, problem, self._last)
            self._remember(solution)
            yield Answer(problem, solution)
            found = self._ask(turn, branches, problem)
            if found[0].candidate.rank < solution.candidate.rank and found[0].stable:
                solution = found[0]  # from more starts: `solve` may not have met it
                self._remember(solution)
            self._answer = Answer(problem, solution, found, final=True)
            yield self._answer
        except FermiboseError as error:
            if turn == self._turn:
                yield Answer(problem, first.state, message=str(error), final=True)
        except Exception:  # of a process that was ended from outside, or by stop()
            if turn == self._turn:
                self._end()
                why = "the process that solves has ended by itself: move a slider to start another"
                yield Answer(problem, first.state, message=why, final=True)

    @property
    def busy(self) -> bool:
        """Whether the process is at work."""
        return self._asked is not None and not self._asked.done()

    def stop(self) -> None:
        """End what is being computed; a process that is idle stays for the next problem."""
        with self._lock:
            self._turn += 1
            if self.busy:
                self._end()

    def close(self) -> None:
        """End the process, too."""
        with self._lock:
            self._turn += 1
            self._end()

    def _end(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, kill_workers=True)
        self._pool = self._asked = None

    def _remember(self, solution: Solution) -> None:
        at, q = solution.overlaps, solution.q
        self._last, self._start = solution, at
        if not solution.candidate.ordered:
            self._start = Overlaps(_NUDGE * math.sqrt(q), at.Q + _NUDGE**2 * q, at.chi)

    def _ask(self, turn: int, work: Any, *arguments: Any) -> Any:
        with self._lock:
            if turn != self._turn:
                raise FermiboseError("the reader has moved on")
            if self._pool is None:
                self._pool = ProcessPoolExecutor(
                    max_workers=1, initializer=end_with, initargs=(os.getpid(),)
                )
            self._asked = asked = self._pool.submit(work, *arguments)
            # A pool that is ended before it has taken up its work dies of a KeyError in its thread.
            while not (asked.running() or asked.done()):
                time.sleep(0.001)
        try:
            return asked.result(timeout=self.patience)
        except FutureTimeoutError:
            with self._lock:
                if turn == self._turn:
                    self._end()
            raise TooLongError(
                f"no solution within {self.patience:g} s: what is shown is a quick look; move the "
                "sliders a little, or ask `fbm theory`, which has no such limit"
            ) from None
