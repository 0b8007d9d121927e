"""Message passing on single instances: how fast it is, and how it approaches the theory with N.

    python benchmarks/cavity.py                  prints the ratios
    python benchmarks/cavity.py check            also fails (exit 1) where one misses its bound
    python benchmarks/cavity.py sizes FILE       AMP over N = 250 … 4000, 20 instances each, to FILE
    python benchmarks/cavity.py walks FILE       sampling at β = 50, tempered and plain, to FILE
    python benchmarks/cavity.py draw FILE PNG    the finite-size table and figure of FILE

``sizes`` and ``walks`` keep every instance in FILE (JSON) as it finishes; started again they go on.
"""

import json
import resource
import sys
import time
from pathlib import Path

from fermibose.cavity import amp, belief_propagation, sample_instance
from fermibose.cavity.bp import bp_memory
from fermibose.cavity.figures import draw_sizes, size_table
from fermibose.cavity.measure import measure_messages, measure_sampling
from fermibose.files import write_json
from fermibose.theory import Problem

SIZES = (250, 500, 1000, 2000, 4000)
POINTS = ({"alpha": 0.5, "beta": 50.0}, {"alpha": 0.8, "beta": 50.0}, {"alpha": 1.0, "beta": 20.0})
INSTANCES = 20


def resume(path, tasks):
    """Run (function, arguments) for every task whose arguments are not in the file yet."""
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    for function, arguments in tasks:
        if any(arguments.items() <= row.items() for row in rows):
            continue
        rows.append({**arguments, **function(**arguments)})
        write_json(path, rows)


def size_tasks():
    for point in POINTS:
        for n in SIZES:
            for seed in range(INSTANCES):
                yield measure_messages, {"method": "amp", "n": n, "seed": seed, **point}


def walk_tasks():
    for n in (200, 400, 800):
        for seed in range(10):
            for hottest, aligned in ((5.0, False), (5.0, True), (None, True)):
                arguments = {"n": n, "seed": seed, "hottest": hottest, "aligned": aligned}
                yield measure_sampling, {"alpha": 0.5, "beta": 50.0, **arguments}


def sweep_time(algorithm, instance, *, repeats, sweeps):
    """Processor seconds of one sweep, the least of several runs: other work does not count."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        algorithm(instance, max_iterations=sweeps, tol=1e-300)
        times.append((time.process_time() - start) / sweeps)
    return min(times)


def measure():
    """(name, value, bound) of every ratio; a value must not exceed its bound."""
    printed = sample_instance(Problem(), 200, seed=0)
    one = sweep_time(amp, printed, repeats=3, sweeps=4)
    full = sweep_time(belief_propagation, printed, repeats=1, sweeps=4)
    half, whole = (sample_instance(Problem(alpha=1.0), n, seed=0) for n in (2000, 4000))
    times = [sweep_time(amp, i, repeats=2, sweeps=4) for i in (half, whole)]
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    return [
        ("AMP sweep / BP sweep, N = 200, alpha = 2.5", one / full, 1 / 40),
        ("AMP sweep at N = 4000 / at N = 2000 (N·P is 4 times larger)", times[1] / times[0], 5.0),
        ("memory with AMP at N = 4000, alpha = 1, in GB", gigabytes, 2.0),
        ("memory BP states for N = 200, alpha = 2.5, in GB", bp_memory(200, 500) / 1e9, 0.1),
    ]


def main(arguments):
    match arguments:
        case ["sizes", path]:
            resume(Path(path), size_tasks())
        case ["walks", path]:
            resume(Path(path), walk_tasks())
        case ["draw", path, picture]:
            rows = json.loads(Path(path).read_text(encoding="utf-8"))
            print(size_table(rows))
            draw_sizes(rows, picture)
        case [] | ["check"]:
            missed = 0
            for name, value, bound in measure():
                missed += value > bound
                verdict = "ok" if value <= bound else "MISSED"
                print(f"{name:62s} {value:10.4g}   bound {bound:8.4g}   {verdict}")
            return 1 if missed and arguments else 0
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
