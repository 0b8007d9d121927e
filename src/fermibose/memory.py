"""Refuse what does not fit into memory before it is allocated."""

import math
import os

from fermibose.errors import InputError


def check_memory(what: str, need: float, remedy: str, free: float | None = None) -> None:
    """Refuse what takes more bytes than are free (or than ``free``). ``what`` ends with a verb."""
    free = free_memory() if free is None else free
    if need > free:
        raise InputError(
            f"{what} {need / 1e9:.3f} GB, more than the {free / 1e9:.3f} GB that may be used: "
            f"{remedy}"
        )


def free_memory() -> float:
    """Bytes that can be had without swapping; infinite where the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            table = dict(line.split(":", 1) for line in lines)
        return 1024.0 * int(table["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        pass
    try:  # all there is, where what is free is not known
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf
