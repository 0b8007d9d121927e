"""Shared set-up: one thread per test process, so that parallel tests do not fight for cores."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch or numpy start their pools

from hypothesis import settings

settings.register_profile("fermibose", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("fermibose")
