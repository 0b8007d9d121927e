"""SGD on fresh samples beside the equations of motion: how far apart they are.

    python benchmarks/dynamics.py [FIGURE]       prints a table; a figure of the last column

N = 4000, 20 runs, three learning rates, B = 2, 10 and 50 samples a step. Ten minutes on one core.
"""

import sys

from fermibose.cavity import sgd
from fermibose.statistics import summary
from fermibose.theory import Problem
from fermibose.theory.dynamics import draw_trajectories, evolve

PROBLEM = Problem(weight_decay=0.02)
N, RUNS, END = 4000, 20, 6.0


def compare(batch, learning_rate, *, n=N, runs=RUNS, seed=0):
    """The trajectory and the runs, at 13 times up to the end."""
    times = [END * k / 12 for k in range(13)]
    common = {"learning_rate": learning_rate, "batch": batch, "start": (0.1, 1.0)}
    line = evolve(PROBLEM, t=times, **common)
    return line, sgd(PROBLEM, n, t=times, runs=runs, seed=seed, **common)


def main():
    drawn = {}
    print("| B | η | M, theory | M, SGD | q, theory | q, SGD | standard errors apart |")
    print("|---|---|---|---|---|---|---|")
    for batch in (2, 10, 50):
        for rate in (0.5, 1.0, 2.0):
            line, runs = compare(batch, rate)
            cells, apart = [], []
            for name in ("M", "q"):
                found, expected = summary(getattr(runs, name)[:, -1]), getattr(line, name)[-1]
                cells.append(f"{expected:.4f} | {found.mean:.4f} ± {found.error:.4f}")
                apart.append(f"{(found.mean - expected) / found.error:+.1f}")
            print(f"| {batch} | {rate} | {' | '.join(cells)} | {', '.join(apart)} |", flush=True)
            if rate == 2.0 or batch == 2:
                fine = evolve(PROBLEM, learning_rate=rate, batch=batch, t=END, start=(0.1, 1.0))
                drawn[f"B = {batch}, η = {rate:g}"] = fine, runs
    if len(sys.argv) > 1:
        draw_trajectories(sys.argv[1], drawn)


if __name__ == "__main__":
    main()
