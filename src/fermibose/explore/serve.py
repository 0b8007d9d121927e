"""Starting marimo on the notebook: on the loopback interface only, for whoever has the token."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from socket import AF_INET, SOCK_STREAM, socket

from fermibose.errors import InputError

HOST = "127.0.0.1"
FIRST_PORT, PORTS = 2718, 100  # where a free port is looked for
FAREWELL = 10.0  # seconds that marimo has to end, of which it takes one
ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
NOTEBOOK = Path(__file__).with_name("notebook.py")
HEAD = "notebook_head.html"  # beside it: what the notebook adds to the head of its page
# Through the environment the notebook learns the folders: it is the same file for `marimo edit`.
VARIABLE = "FERMIBOSE_EXPLORE"


@dataclass(frozen=True)
class Settings:
    """Folders that the app reads, absolute or from where it was started."""

    machine: str = "fbm-demo/machine"  # a saved net
    rival: str = "fbm-demo/mlp"  # the net beside it
    data: str = "mnist5k"  # a data set, whose test images are shown
    folder: str | None = None  # where it is kept, if it has to be said
    audit: str = "fbm-audit"  # with an audit.json

    def to_environment(self) -> dict[str, str]:
        """What a process needs to read them."""
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def from_environment(cls) -> "Settings":
        """Those of this process."""
        return cls(**json.loads(os.environ.get(VARIABLE, "{}")))


def serve(
    settings: Settings,
    *,
    port: int | None,
    browser: bool,
    edit: Path | None,
    say: Callable[[str], None],
) -> None:
    """Run the app until it is ended; ``edit``: a copy of the notebook, in marimo's editor."""
    notebook = NOTEBOOK if edit is None else copied(edit)
    chosen = free_port() if port is None else checked(port)
    token = secrets.token_urlsafe(16)
    command = [
        *(sys.executable, "-m", "marimo", "--quiet", "run" if edit is None else "edit"),
        *(str(notebook), "--host", HOST, "--port", str(chosen), "--token"),
        *("--token-password-file", "-", "--no-sandbox"),
        *([] if edit is None else ["--skip-update-check"]),
        *([] if browser else ["--headless"]),
    ]
    say(f"http://{HOST}:{chosen}?access_token={token}")
    say("Ctrl-C ends it")
    environment = os.environ | settings.to_environment()
    for ending in ENDINGS:  # so that the app ends, too
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    # In a session of its own: Ctrl-C of a terminal goes to all processes of one, and at that
    # marimo's server prints a traceback. Asked to terminate it ends in silence.
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        process.communicate(token)  # not on the command line, which all users of the machine see
    except KeyboardInterrupt:
        return
    finally:
        process.terminate()
        try:
            process.wait(timeout=FAREWELL)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.returncode > 0:
        raise InputError(f"the app ended with status {process.returncode}: marimo says why above")


def copied(path: Path) -> Path:
    """The notebook at ``path``, copied there with its head if nothing is."""
    if path.suffix != ".py":
        raise InputError(f"a notebook is a Python file: name one that ends in .py, not {path}")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(NOTEBOOK, path)
        shutil.copyfile(NOTEBOOK.with_name(HEAD), path.with_name(HEAD))
    return path


def checked(port: int) -> int:
    """The port, if nobody listens there."""
    if not _free(port):
        raise InputError(f"port {port} is in use: leave --port out, or name another")
    return port


def free_port() -> int:
    """The first port from 2718 on at which nobody listens."""
    for port in range(FIRST_PORT, FIRST_PORT + PORTS):
        if _free(port):
            return port
    last = FIRST_PORT + PORTS - 1
    raise InputError(f"no port from {FIRST_PORT} to {last} is free: name one with --port")


def _free(port: int) -> bool:
    with socket(AF_INET, SOCK_STREAM) as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
