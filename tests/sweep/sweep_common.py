"""What several of these tests need: jobs of all kinds, values as bits, patience."""

import math
import struct
import time

import sweep_measures as measures

from fermibose_paper import Job


def jobs_of_all_kinds():
    """Eight jobs that work and three of which one fails."""
    tallies = [
        Job(measures.tally, {"scale": scale}, seed=seed) for scale in (0.1, 3) for seed in range(4)
    ]
    return [*tallies, *(Job(measures.fails_on, {"bad": 1}, seed=seed) for seed in range(3))]


def bits(value):
    """A value with types and every bit made visible to ==: NaN equals NaN, 0.0 is not -0.0."""
    if isinstance(value, float):
        return struct.pack("d", value) if not math.isnan(value) else "nan"
    if isinstance(value, list):
        return [bits(item) for item in value]
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    return (type(value), value)


def wait_for(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
