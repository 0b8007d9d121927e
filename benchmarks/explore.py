"""How long a moved slider of the app takes: ``python benchmarks/explore.py``.

Quick look and page, from the solution of a neighbouring position, over random walks of the sliders;
CPU seconds, which other work on the machine does not change.
"""

import random
import time

import numpy as np

from fermibose.errors import FermiboseError
from fermibose.explore.choices import RANGES
from fermibose.explore.desk import Desk
from fermibose.explore.theory_page import page, problem_of
from fermibose.theory import Problem, solve

STEPS = 25


def main():
    for pairing in ("disjoint", "all"):
        for cold in (False, True):
            times, settled = walk(pairing, cold)
            where = f"{pairing}, {'zero' if cold else 'finite'} temperature"
            print(
                f"{where}: median {np.median(times):.3f} s, largest {max(times):.3f} s, settled "
                f"{settled} of {len(times)}",
                flush=True,
            )


def walk(pairing, cold):
    """CPU seconds of each move, and how many quick looks came to rest."""
    rng, desk, times, settled = random.Random(0), Desk(), [], 0
    names = [n for n in RANGES if n not in ("eps", "beta" if cold else "", *_idle(pairing))]
    page(desk.quick(Problem()))  # loads what draws
    at = {name: span.steps.index(span.value) for name, span in RANGES.items()}
    for _ in range(STEPS):
        name = rng.choice(names)
        last = len(RANGES[name].steps) - 1
        at[name] = min(max(at[name] + rng.choice((-3, -2, -1, 1, 2, 3)), 0), last)
        values = {name: span.steps[at[name]] for name, span in RANGES.items()}
        problem = problem_of(values, pairing=pairing, cold=cold)
        begun = time.process_time()
        answer = desk.quick(problem)
        page(answer)
        times.append(time.process_time() - begun)
        settled += answer.state is not None and answer.state.converged
        try:
            desk._remember(solve(problem, desk._last))
        except FermiboseError as error:
            print(error)
    return times, settled


def _idle(pairing):
    return ("samples",) if pairing == "disjoint" else ("alpha", "rho")


if __name__ == "__main__":
    main()
