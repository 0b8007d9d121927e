"""Measuring functions for the tests: quick, and each misbehaves in its own way."""

import os
import signal
import sys
import threading
import time
from contextlib import nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from fermibose_paper import measurement


@measurement("tally", version=1)
def tally(*, scale: float, kind: str = "plain", seed: int, pause: float = 0.0) -> dict:
    """Numbers that show every bit of what they were computed from."""
    time.sleep(pause)
    draws = np.random.default_rng(seed).standard_normal(50)
    return {
        "sum": float(np.sum(scale * draws)),
        "draws": (scale * draws[:3]).tolist(),
        "special": [float("nan"), float("inf"), -float("inf"), -0.0, 5e-324, 0.1 + 0.2],
        "kind": kind,
    }


@measurement("gemm", version=1)
def gemm(*, size: int, torch: bool, seed: int) -> dict:
    """A product whose last bits depend on the number of threads; and that number."""
    from threadpoolctl import threadpool_info

    a, b = np.random.default_rng(seed).standard_normal((2, size, size))
    if torch:
        from torch import from_numpy, get_num_threads

        trace = float((from_numpy(a).float() @ from_numpy(b).float()).trace())
    else:
        trace = float((a @ b).trace())
    threads = [library["num_threads"] for library in threadpool_info()]
    return {"trace": trace, "threads": max([*threads, get_num_threads() if torch else 1])}


@measurement("fails on", version=1)
def fails_on(*, bad: int, seed: int) -> dict:
    if seed == bad:
        raise RuntimeError(f"seed {seed} is bad")
    return {"seed": seed}


@measurement("misbehaves", version=1)
def misbehaves(*, how: str, seed: int) -> dict:
    if how == "exit":
        sys.exit("leaving")
    if how == "generator":
        raise GeneratorExit("gone")
    if how == "vanish":
        os.closerange(3, 64)  # its pipe, as when the interpreter ends
        time.sleep(0.2)
        os._exit(3)
    if how == "array":
        return {"curve": np.zeros(2)}
    if how == "list":
        return [1]
    print("noise on standard output", flush=True)
    return {"input": sys.stdin.read(), "path": os.environ.get("OMP_NUM_THREADS")}


@measurement("dies", version=1)
def dies(*, times: int, folder: str, seed: int) -> dict:
    """Kills its own process the first ``times`` times."""
    marks = Path(folder)
    deaths = len(list(marks.glob(f"{seed}-*")))
    if deaths < times:
        (marks / f"{seed}-{deaths}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"seed": seed}


@measurement("kills idle", version=1)
def kills_idle(*, folder: str, seed: int) -> dict:
    """Seed 0 leaves its process id; seed 1 kills that process when it has nothing more to do."""
    mark = Path(folder) / "idle"
    if seed == 0:
        mark.with_suffix(".new").write_text(str(os.getpid()))
        mark.with_suffix(".new").rename(mark)
    else:
        while not mark.exists():
            time.sleep(0.02)
        time.sleep(0.5)  # the other's answer arrives
        os.kill(int(mark.read_text()), signal.SIGKILL)
        time.sleep(0.5)  # its death is noticed
    return {"seed": seed}


@measurement("counts", version=1)
def counts(*, folder: str, seed: int, pause: float = 0.0) -> dict:
    """Leaves one more byte in a file each time it is computed."""
    with open(Path(folder) / str(seed), "a") as file:
        file.write("x")
    time.sleep(pause)
    return {"seed": seed}


@measurement("interrupted", version=1)
def interrupted(*, after: int, swallow: bool, seed: int) -> dict:
    """Presses Ctrl-C itself, and may then return as if nothing had happened."""
    if seed < after:
        return {"whole": True}
    with suppress(KeyboardInterrupt) if swallow else nullcontext():
        signal.raise_signal(signal.SIGINT)
    return {"whole": False, "thread": threading.current_thread().name}


@measurement("die together", version=1)
def die_together(*, victim: int, seed: int) -> dict:
    """Kills another process while it computes."""
    os.kill(victim, signal.SIGKILL)
    time.sleep(1.0)
    return {}


class TextFile:
    """Data whose file may change between the driver's look at it and the worker's."""

    def __init__(self, path):
        self.path = path

    def load(self):
        content = Path(self.path).read_text()
        return SimpleNamespace(content=content, checksum=sha256(content.encode()).hexdigest())


@measurement("looks", version=1)
def looks(*, data: object, seed: int) -> dict:
    """What it was given to look at."""
    return {"seen": getattr(data, "content", None)}


@measurement("unspeakable", version=1)
def unspeakable(*, seed: int) -> dict:
    """An error that quotes half of a character."""
    raise ValueError("half \ud800 of it")


@measurement("tally", version=1)
def other_tally(*, scale: float, seed: int) -> dict:
    """Another function under a name that is taken."""
    return {"other": scale}


@measurement("spoils", version=1)
def spoils(*, values: list, seed: int) -> dict:
    """Sorts what it was given, in place."""
    first = values[0]
    values.sort()
    return {"first": first}
