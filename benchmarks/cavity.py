"""Message passing on single instances: how fast it is.

    python benchmarks/cavity.py                  prints the ratios
    python benchmarks/cavity.py check            also fails (exit 1) where one misses its bound

How instances approach the theory with N is measured by ``fbm reproduce instances``.
"""

import resource
import sys
import time

from fermibose.cavity import amp, belief_propagation, bp_memory, sample_instance
from fermibose.theory import Problem


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
    all_pairs = (
        sample_instance(Problem(samples=2.0, pairing="all"), n, seed=0) for n in (1000, 2000)
    )
    shared = [sweep_time(amp, i, repeats=2, sweeps=4) for i in all_pairs]
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    return [
        ("AMP sweep / BP sweep, N = 200, alpha = 2.5", one / full, 1 / 40),
        ("AMP sweep at N = 4000 / at N = 2000 (N·P is 4 times larger)", times[1] / times[0], 5.0),
        (
            "all pairs: AMP sweep at N = 2000 / at N = 1000 (n·N is 4 times larger)",
            shared[1] / shared[0],
            5.0,
        ),
        ("memory with AMP at N = 4000, alpha = 1, in GB", gigabytes, 2.0),
        ("memory BP states for N = 200, alpha = 2.5, in GB", bp_memory(200, 500) / 1e9, 0.1),
    ]


def main(arguments):
    missed = 0
    for name, value, bound in measure():
        missed += value > bound
        verdict = "ok" if value <= bound else "MISSED"
        print(f"{name:70s} {value:10.4g}   bound {bound:8.4g}   {verdict}")
    return 1 if missed and arguments == ["check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
