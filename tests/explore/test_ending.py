"""How the app ends: silently, and with all its processes. Oracles: a pty, the process table."""

import os
import re
import select
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import pytest

from browser import PATIENCE

pytest.importorskip("marimo", reason="the app needs the extra `explore`")
import psutil  # marimo needs it, too
from websockets.sync.client import connect

pty = pytest.importorskip("pty", reason="a terminal is a pty here")

EXPLORE = [sys.executable, "-m", "fermibose", "explore", "--no-browser"]
# The program takes its side of the pty for its controlling terminal, so that Ctrl-C is a signal.
# A terminal also hangs up on all its processes when the first one ends.
TAKE_IT = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """``fbm explore`` in a terminal, or printing to it from elsewhere."""

    def __init__(self, folder, *, inside):
        self.line, side = pty.openpty()
        self.text = ""
        command = [sys.executable, "-c", TAKE_IT, *EXPLORE] if inside else EXPLORE
        self.process = subprocess.Popen(
            command, stdin=side, stdout=side, stderr=side, cwd=folder, start_new_session=True
        )
        os.close(side)

    def read(self, until=lambda text: False, seconds=PATIENCE):
        """What was printed, until it is as wanted or the program has ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until(self.text):
            if not select.select([self.line], [], [], 0.1)[0]:
                continue
            try:
                self.text += os.read(self.line, 1 << 16).decode()
            except OSError:  # nobody has the other side any more
                break
        return self.text

    def address(self):
        """Where it answers, once it does."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = re.search(r"http://127\.0\.0\.1:\d+\?access_token=\S+", self.read(seconds=0.2))
            try:
                urllib.request.urlopen(found[0], timeout=5).close()
                return found[0]
            except (TypeError, OSError):
                assert self.process.poll() is None, self.text
        raise AssertionError(f"the app does not answer: {self.text}")

    def family(self):
        """All processes of it."""
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]

    def close(self):
        for one in self.family() if self.process.poll() is None else []:
            one.kill()
        self.process.wait()
        os.close(self.line)


@pytest.fixture
def terminal(tmp_path, request):
    made = Terminal(tmp_path, inside=request.param)
    yield made
    made.close()


@pytest.mark.parametrize("terminal", [True], indirect=True)
def test_ctrl_c_ends_it_without_a_word(terminal):
    address = terminal.address()
    family = terminal.family()
    os.write(terminal.line, b"\x03")
    text = terminal.read()
    assert terminal.process.wait(timeout=PATIENCE) == 0
    hint, *lines = text.replace("^C", "").split("\r\n")
    assert "`fbm demo`" in hint
    assert lines == [address, "Ctrl-C ends it", ""]
    assert psutil.wait_procs(family, timeout=PATIENCE)[1] == []


@pytest.mark.parametrize("terminal", [False], indirect=True)
def test_no_process_outlives_it_after_a_page_was_used(terminal):
    with used(terminal.address()):
        family = terminal.family()
        assert len(family) >= 3  # the command, marimo, and what solves
        terminal.process.terminate()
        left = psutil.wait_procs(family, timeout=PATIENCE)[1]
    told = [one.cmdline() for one in left]
    for one in left:
        one.kill()
    assert told == []
    assert "Traceback" not in terminal.read(seconds=1)


@contextmanager
def used(address):
    """The theory page with its solution, open as in a browser."""
    base, token = address.split("?access_token=")
    place = f"{base.replace('http', 'ws')}/ws?session_id=s_reader&access_token={token}"
    with connect(place, max_size=None, open_timeout=PATIENCE, ping_timeout=PATIENCE) as line:
        while 'data-stage=\\"final' not in line.recv(timeout=PATIENCE):
            pass
        yield
