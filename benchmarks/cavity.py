"""Message passing on single instances: how fast it is.

    python benchmarks/cavity.py                  prints the ratios
    python benchmarks/cavity.py check            also fails (exit 1) where one misses its bound
    python benchmarks/cavity.py choices          the constants that were chosen, against others

How instances approach the theory with N is measured by ``fbm reproduce instances``.
"""

import resource
import sys
import time
from unittest.mock import patch

import numpy as np

from fermibose.cavity import (
    amp,
    belief_propagation,
    bp,
    bp_memory,
    forces,
    hmc,
    messages,
    sample_instance,
    sampling,
)
from fermibose.cavity.ground import Landscape
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


def leaps():
    """Independent draws of q for a thousand leapfrog steps of a plain walk at β = 50."""
    instance = sample_instance(Problem(alpha=0.5), 100, seed=0)
    for count in (4, 8, 12, 24, 48):
        with patch.object(sampling, "_LEAPS", count):
            trajectories = 24_000 // count
            walk = hmc(instance, hottest=None, start=np.ones(100), trajectories=trajectories)
        print(f"_LEAPS {count:3d}   {1000 * walk.ess['q'] / (2 * trajectories * count):8.3f}")


def heat():
    """β²·variance(E)/N of a plain walk: the 0.6 of ``ladder``."""
    for alpha, beta in ((0.5, 5.0), (0.5, 50.0), (1.0, 5.0), (1.0, 50.0)):
        instance = sample_instance(Problem(alpha=alpha, beta=beta), 100, seed=0)
        walk = hmc(instance, hottest=None, start=np.ones(100), trajectories=3000)
        E = walk.history.energy * alpha * 100 + instance.problem.weight_decay * 50 * walk.history.q
        print(f"α {alpha}, β {beta:4.0f}   {beta**2 * E.var(0).mean() / 100:6.2f}")


def turns():
    """On how many of 24 instances AMP converges, and all sweeps, also of the others."""
    made = [sample_instance(Problem(alpha=0.8), 100, seed=s) for s in range(24)]
    for changed in (
        {"TURN": 25},
        {"TURN": 100},
        {"TURN": 200},
        {"CLOSE": 1e-3},
        {"CLOSE": 1e-1},
        {"TURN": 50, "CLOSE": 1e-2},
    ):
        with patch.multiple(messages, **changed):
            found = [amp(instance) for instance in made]
        converged, sweeps = sum(f.converged for f in found), sum(f.iterations for f in found)
        print(f"{changed}   {converged} in {sweeps} sweeps")


def memories():
    """Sweeps of BP until it converges, of 3 instances."""
    made = [sample_instance(Problem(alpha=0.8), 40, seed=s) for s in range(3)]
    for memory in (2, 4, 6, 10):
        with patch.object(bp._Bp, "memory", memory):
            found = [belief_propagation(instance, max_iterations=150) for instance in made]
        print(f"_MEMORY {memory:2d}   {[f.iterations if f.converged else None for f in found]}")


def worth():
    """Time of a gradient with the series of the fermion force over that pair by pair."""
    problem = Problem(samples=1.0, pairing="all")
    modes = forces.fitted_series(problem.pair_energy, 2.0).coefficients.size
    for ratio in (0.25, 0.5, 1.0):  # n₊n₋ over n·modes, of classes of n/2
        n = round(4 * modes * ratio)
        instance, times = sample_instance(problem, n, seed=0), []
        for bound in (0.0, 1e9):
            with patch.object(forces, "_WORTH", bound):
                landscape = Landscape(instance)
            times.append(min(timed(landscape, np.ones((n, 1))) for _ in range(20)))
        print(f"n₊n₋ = {ratio:g} n·modes, n = {n}   {times[0] / times[1]:.2f}")


def timed(landscape, w):
    start = time.process_time()
    landscape.energy_and_gradient(w)
    return time.process_time() - start


def main(arguments):
    if arguments == ["choices"]:
        for choice in (leaps, heat, turns, memories, worth):
            print(choice.__doc__)
            choice()
        return 0
    missed = 0
    for name, value, bound in measure():
        missed += value > bound
        verdict = "ok" if value <= bound else "MISSED"
        print(f"{name:70s} {value:10.4g}   bound {bound:8.4g}   {verdict}")
    return 1 if missed and arguments == ["check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
