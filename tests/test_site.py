"""What strangers meet first: pages and their links, worked examples, the package as installed.

The Python blocks of the pages are tests of their own (conftest.py of the project).
"""

import importlib
import inspect
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fermibose_paper.cli import app

ROOT = Path(__file__).parents[1]
same_output = runpy.run_path(str(ROOT / "conftest.py"))["same_output"]  # folders have one, too
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md"), *DOCS.glob("recipes/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|^    .*?$", re.MULTILINE | re.DOTALL)
ROOMS = ("", ".machine", ".attacks", ".theory", ".cavity", ".data")


def run(*command, **variables):
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    return subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True, text=True, env=environment, timeout=1200, check=False,
        cwd=variables.get("FOLDER"),
    )  # fmt: skip


def anchors(page):
    """The anchors of a page's headings, as GitHub and MyST name them."""
    text = CODE.sub("", page.read_text("utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = CODE.sub("", page.read_text("utf-8"))
    for link in LINK.findall(text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        drawn = path.startswith("gallery/")  # when the site is built
        assert drawn or target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_every_block_of_the_gallery_draws_what_the_page_shows():
    text = (DOCS / "gallery.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```\n\n(.*?)(?=^```python|\Z)", text, re.M | re.S)
    for code, after in blocks:
        drawn = re.findall(r'"(gallery/[\w.]+)"', code)
        assert drawn == re.findall(r"!\[.+\]\((gallery/[\w.]+)\)", after)
    assert len(blocks) > 10


def test_every_exported_function_and_class_is_in_the_api():
    pages = "\n".join(page.read_text("utf-8") for page in (DOCS / "api").glob("*.md"))
    listed = set(re.findall(r"^   ([\w.]+)$", pages, re.MULTILINE))
    for room in ROOMS:
        module = importlib.import_module(f"fermibose{room}")
        for name in module.__all__:
            thing = getattr(module, name)
            documented = isinstance(thing, type) or inspect.isfunction(thing)
            assert not documented or name in listed, f"{module.__name__}.{name}"


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("M 1.018  stable True", "M 1.019 stable True\n", True),  # the last digit
        ("M 1.018", "M 1.2", False),
        ("61 sweeps", "62 sweeps", True),
        ("61 sweeps", "67 sweeps", False),
        ("stable True", "stable False", False),
        ("2.5e-05", "2.6e-05", True),
        ("2.5e-05", "2.5e-04", False),
        ("a 1 b", "a 1 b 2", False),
    ],
)
def test_outputs_shown_are_those_printed(shown, printed, same):
    assert same_output(shown, printed) is same


@pytest.mark.parametrize("name", ["all_pairs", "own_network", "few_labels"])
def test_examples_run(name, tmp_path):
    done = run(ROOT / "examples" / f"{name}.py", FOLDER=str(tmp_path))
    assert done.returncode == 0, done.stderr
    if name == "all_pairs":
        assert "one partner each: number of different minima from 10 starts: 10" in done.stdout
        assert "all pairs: number of different minima from 10 starts: 1\n" in done.stdout
    else:
        for accuracy in re.findall(r"(?:accuracy|clean) (0\.\d+)", done.stdout):
            assert 0.75 < float(accuracy) < 1  # chance is 0.1
    if name == "few_labels":
        for proved, attacked in re.findall(
            r"between (\S+) \(proved\) and (\S+) \(att", done.stdout
        ):
            assert float(proved) <= float(attacked)


def test_examples_are_cells_and_all_are_shown():
    shown = (DOCS / "examples.md").read_text("utf-8")
    for path in (ROOT / "examples").glob("*.py"):
        assert path.read_text("utf-8").count("\n# %%\n") >= 4
        assert f"../examples/{path.name}" in shown


WITHOUT_TORCH = """
import sys
for name in ("torch", "safetensors"):
    sys.modules[name] = None  # importing it fails
from fermibose.theory import Problem, dynamics, solve, trace
print(round(solve(Problem(beta=5.0)).M, 6), "torch" in filter(sys.modules.get, sys.modules))
"""


def test_the_theory_needs_no_torch():
    from fermibose.theory import Problem, solve

    done = run("-c", WITHOUT_TORCH)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(round(solve(Problem(beta=5.0)).M, 6)), "False"]


def test_what_is_packed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    sdist = project["tool"]["hatch"]["build"]["targets"]["sdist"]
    for pattern in sdist["include"]:
        assert pattern.startswith("/")
        assert (ROOT / pattern[1:]).exists(), pattern
    torch = next(d for d in project["project"]["dependencies"] if d.startswith("torch"))
    assert torch.endswith("; sys_platform != 'emscripten'")
    for package in ("fermibose", "fermibose_paper"):
        assert (ROOT / "src" / package / "py.typed").exists()
    version = project["project"]["version"]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"version: {version}" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_the_shell_completes_commands_and_options():
    def completed(words):
        variables = {"_FBM_COMPLETE": "complete_bash", "COMP_WORDS": words,
                     "COMP_CWORD": str(words.count(" "))}  # fmt: skip
        return CliRunner().invoke(app, [], env=variables, prog_name="fbm").stdout.split()

    assert completed("fbm th") == ["theory"]
    assert {"--delta", "--d-f"} <= set(completed("fbm theory --d"))


def commands():
    """Every line of a page's code that begins with ``fbm``."""
    for page in PAGES:
        for block in re.findall(CODE, page.read_text("utf-8")):
            for line in re.findall(r"^ *(?:here\$ )?(fbm .*)$", block, re.MULTILINE):
                # A comment, or in columns what the command does, is no part of it.
                words = re.split(r" # |  ", line)[0].split()[1:]
                yield pytest.param(words, id=f"{page.name}: {' '.join(words)}")


@pytest.mark.parametrize("words", list(commands()))
def test_commands_of_the_pages_are_ones_that_fbm_takes(words):
    """Read, not run: names, options and values; files that they name need not be here."""
    outer = typer.main.get_command(app)
    with outer.make_context("fbm", words) as context:
        rest = [*context._protected_args, *context.args]
        if rest:
            name, command, rest = outer.resolve_command(context, rest)
            assert command.make_context(name, rest).info_name == name
