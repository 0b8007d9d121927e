"""What a worker does, whichever engine it belongs to: a request in, an answer out, both text."""

import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata

from threadpoolctl import threadpool_limits

from fermibose.errors import InputError
from fermibose.sweep.jobs import Code, code_of, function_named
from fermibose.sweep.values import decode, encode

# One thread per job: a GEMM rounds differently with another number of threads, and jobs run in
# parallel anyway. Read by the libraries when they are loaded; the last is read by joblib.
ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "LOKY_MAX_CPU_COUNT",
    ),
    "1",
)


def perform(request: str) -> str:
    """Compute one request; an exception of the function becomes part of the answer.

    The error text starts at the function's own frame, so that it is the same from every engine.
    """
    call = json.loads(request)
    result, error, started = None, None, time.perf_counter()
    try:
        function = function_named(call["function"])
        if code_of(function) != Code(*call["code"]):
            raise InputError(
                f"the worker has another version of {call['function']} than the one that was "
                "asked for: give all workers the same code, and start the sweep again"
            )
        returned = function(**decode(call["arguments"]))
        if not isinstance(returned, dict):
            raise InputError(f"{call['function']} returned {returned!r}, not a dict")
        result = encode(returned, "the result")
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # SystemExit, too, would end the worker
        trace = problem.__traceback__
        error = "".join(traceback.format_exception(problem.with_traceback(trace and trace.tb_next)))
    return _answer(call["key"], result, error, time.perf_counter() - started)


def failed(request: str, reason: str) -> str:
    """The answer of an engine that could not get one from the worker."""
    return _answer(json.loads(request)["key"], None, reason, 0.0)


def _answer(key: str, result: str | None, error: str | None, seconds: float) -> str:
    answer = {"key": key, "result": result, "error": error, "seconds": seconds}
    return json.dumps(answer | {"versions": versions()})


@cache
def versions() -> dict[str, str]:
    """What computes here."""
    packages = {name: metadata.version(name) for name in ("fermibose", "numpy", "torch")}
    return packages | {"python": platform.python_version(), "platform": platform.platform()}


def use_one_thread() -> None:
    """Make this process compute with one thread from now on."""
    os.environ.update(ONE_THREAD)
    threadpool_limits(1)
    if "torch" in sys.modules:  # it may link its libraries statically, out of the limits' reach
        sys.modules["torch"].set_num_threads(1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread inside; what was before comes back on leaving."""
    environment = {name: os.environ.get(name) for name in ONE_THREAD}
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch is not None else 1
    with threadpool_limits(None):  # limits nothing, and restores what use_one_thread changes
        use_one_thread()
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(threads)
            for name, value in environment.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
