"""How torch computes while we train: a fixed number of threads, no denormal numbers."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fermibose.errors import InputError


@contextmanager
def compute_settings(threads: int) -> Iterator[None]:
    """Use ``threads`` threads and flush denormals to zero inside; restore both on leaving.

    A GEMM rounds differently with another number of threads, so the number is part of what makes a
    result reproducible. Denormals (in the moments of weights on inputs that are always zero) slow
    the optimiser.
    """
    if threads < 1:
        raise InputError(f"threads must be at least 1, got {threads}")
    threads_before, flushed_before = torch.get_num_threads(), _flushes_denormals()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed_before)
        torch.set_num_threads(threads_before)


def _flushes_denormals() -> bool:
    return float(torch.tensor(1e-308, dtype=torch.float64) * 0.01) == 0.0
