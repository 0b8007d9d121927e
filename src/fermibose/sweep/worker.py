"""The other end of :mod:`fermibose.sweep.local`: a process that answers requests from a pipe."""

import os
from queue import SimpleQueue
from threading import Thread
from typing import TextIO

from fermibose.sweep.work import perform, use_one_thread


def serve() -> None:
    """Answer requests from standard input on standard output until the parent is gone.

    Both are set aside first, so that a function that reads or prints disturbs nothing: it finds no
    input, and its output goes to standard error.
    """
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    waiting: SimpleQueue[str] = SimpleQueue()
    Thread(target=_listen, args=(requests, waiting), daemon=True).start()
    while True:
        request = waiting.get()
        use_one_thread()
        answers.write(perform(request) + "\n")
        answers.flush()


def _listen(requests: TextIO, waiting: "SimpleQueue[str]") -> None:
    """Queue the requests; without a parent end at once, in the middle of a job if need be."""
    for request in requests:
        waiting.put(request)
    os._exit(0)
