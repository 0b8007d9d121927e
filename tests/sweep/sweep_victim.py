"""A sweep to be killed: ``python sweep_victim.py STORE ENGINE JOBS PAUSE``."""

import sys

import sweep_measures as measures

from fermibose_paper import Job, Store, engine_named, run


def plan(number, pause=0.0):
    """Quick jobs, one in five of which fails; the others may be slowed down by a pause."""
    return [
        Job(measures.fails_on, {"bad": n}, seed=n)
        if n % 5 == 4
        else Job(measures.tally, {"scale": 0.1 * n}, seed=n, context={"pause": pause})
        for n in range(number)
    ]


if __name__ == "__main__":
    path, engine, number, pause = sys.argv[1:]
    outcome = run(plan(int(number), float(pause)), Store(path), engine=engine_named(engine))
    print(outcome.computed, outcome.interrupted)
