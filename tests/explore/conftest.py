"""Two nets trained on the bundled 8 × 8 digits, and the app that shows them."""

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from browser import PATIENCE
from fermibose.data import load_dataset
from fermibose.explore.serve import Settings
from fermibose.machine import Recipe, train, train_mlp


@pytest.fixture(scope="session")
def settings(tmp_path_factory):
    folder, data = tmp_path_factory.mktemp("nets"), load_dataset("digits")
    recipe = Recipe((200,), epochs=10, readout_epochs=30, seed=0)
    for name, fit in (("machine", train), ("mlp", train_mlp)):
        fit(data.x_train, data.y_train, recipe, show=False).net.save(folder / name)
    return Settings(
        machine=str(folder / "machine"),
        rival=str(folder / "mlp"),
        data="digits",
        audit=str(folder / "audit"),
    )


@pytest.fixture(scope="session")
def address(settings, tmp_path_factory):
    """The address, with its token, of a running ``fbm explore``."""
    from fermibose.explore.serve import free_port

    words = ["--machine", settings.machine, "--rival", settings.rival, "--data", "digits"]
    words += ["--no-browser", "--port", str(free_port())]
    log = tmp_path_factory.mktemp("app") / "log"
    with log.open("w") as file:
        command = [sys.executable, "-m", "fermibose", "explore", *words]
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=log.parent)
    try:
        yield _answering(process, log)
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)


def _answering(process, log):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+\?access_token=\S+", log.read_text()):
            try:
                urllib.request.urlopen(found[0], timeout=5).close()
                return found[0]
            except (urllib.error.URLError, OSError):
                pass
        time.sleep(0.2)
    raise AssertionError(f"the app does not answer: {log.read_text()}")


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")
