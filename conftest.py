"""Set-up of the tests; and the Python of README and docs as tests, one program a page.

What a page shows as its output, indented below a block, is held against what the block prints:
words exactly, numbers to within 2 % or two units of the last digit shown (another processor
rounds otherwise). A block that opens with ``# name.py`` is that file, and run as a program if it
asks for ``__main__``.
"""

import os

# One thread per test process, so that parallel tests do not fight for cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch or numpy start their pools

import io
import re
import signal
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from sybil import Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.myst import CodeBlockParser

# A shell that starts the tests in the background makes them, and all they start, deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("fermibose", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("fermibose")

OUTPUT = re.compile(r"\n*((?:    .*\n|\n)*    .*(?:\n|$))")
FILE = re.compile(r"# (\w+\.py)\n")
NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)")


def agree(shown: str, printed: str) -> bool:
    """Whether two numbers, as text, are the same but for rounding."""
    decimals = len(shown.partition("e")[0].partition(".")[2])
    power = float("1e" + (shown.partition("e")[2] or "0"))
    margin = max(0.02 * float(shown), 2.1 * power * 10**-decimals)
    return abs(float(shown) - float(printed)) <= margin


def same_output(shown: str, printed: str) -> bool:
    """Whether a block prints what the page shows; spaces do not count."""
    (*a,), (*b,) = NUMBER.split(" ".join(shown.split())), NUMBER.split(" ".join(printed.split()))
    words = [part.replace(" ", "") for part in a[::2]] == [part.replace(" ", "") for part in b[::2]]
    return words and all(map(agree, a[1::2], b[1::2]))


class Evaluator(PythonEvaluator):
    """Runs a block and compares what it prints."""

    def __call__(self, example: Example) -> None:
        file = FILE.match(example.parsed)
        if file:
            printed = saved(Path(file[1]), example.parsed)
        else:
            with redirect_stdout(io.StringIO()) as out:
                super().__call__(example)
            printed = out.getvalue()
        shown = OUTPUT.match(example.document.text, example.region.end)
        if shown and not same_output(shown[1], printed):
            raise AssertionError(f"the page shows\n{shown[1]}\nand the block prints\n{printed}")


def saved(path: Path, text: str) -> str:
    """Write a block to its file; what that prints, if it is a program."""
    path.write_text(text, encoding="utf-8")
    if "__main__" not in text:
        return ""
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def enter_folder(names: dict) -> None:
    """A page writes its files to a folder of its own."""
    names["_folder"], names["_before"] = TemporaryDirectory(), os.getcwd()
    os.chdir(names["_folder"].name)


def leave_folder(names: dict) -> None:
    os.chdir(names["_before"])
    names["_folder"].cleanup()


pytest_collect_file = Sybil(
    parsers=[CodeBlockParser("python", Evaluator())],
    patterns=["README.md", "docs/*.md", "docs/recipes/*.md"],
    excludes=["docs/gallery.md"],  # whose code `make docs` runs
    setup=enter_folder,
    teardown=leave_folder,
).pytest()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The blocks of a page stay together where tests are distributed (`--dist loadgroup`)."""
    for item in items:
        if item.path.suffix == ".md":
            item.add_marker(pytest.mark.xdist_group(item.path.name))
