"""Many runs, none lost: jobs with a content hash, a crash-safe store, engines that compute them.

A job is a function, its parameters and a seed. Whatever is finished is in one SQLite file; starting
again computes only what is missing, and gives the same rows whichever engine computes them.
"""

from fermibose.sweep.engines import Engine, engine_named
from fermibose.sweep.jobs import Job, measurement
from fermibose.sweep.rows import Row
from fermibose.sweep.runner import Outcome, run
from fermibose.sweep.store import Store, StoreError

__all__ = [
    "Engine",
    "Job",
    "Outcome",
    "Row",
    "Store",
    "StoreError",
    "engine_named",
    "measurement",
    "run",
]
