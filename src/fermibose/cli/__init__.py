"""The command ``fbm``: parses, calls, prints. The work is done in the other rooms."""

import codecs
import io
import os
import sys
import unicodedata
from contextlib import nullcontext

import typer
from rich.console import Console
from rich.markup import escape

from fermibose.cli.attack import attack, audit
from fermibose.cli.demo import demo
from fermibose.cli.dynamics import dynamics
from fermibose.cli.explore import explore
from fermibose.cli.options import (
    COMMANDS,
    LOOK,
    Command,
    Commands,
    FolderOption,
    check_file,
    check_folder,
    console,
    say,
    shared_options,
    under_torchrun,
    version,
)
from fermibose.cli.theory import cavity, theory
from fermibose.cli.train import evaluate, train
from fermibose.compute import spoken
from fermibose.errors import FermiboseError

__all__ = [
    "FolderOption",
    "add_command",
    "app",
    "check_file",
    "check_folder",
    "console",
    "main",
    "say",
]


app = typer.Typer(
    cls=Commands,
    help="The Fermi-Bose machine: local contrastive learning without backpropagation.",
    no_args_is_help=True,
    **LOOK | {"add_completion": True},
)
app.callback()(shared_options)


def add_command(command: Command) -> Command:
    """Make a function a command of ``fbm``; a package beside the library may add its own."""
    name = command.__name__
    COMMANDS[name] = command
    app.command(name, help=command.__doc__)(lambda: None)  # for the list in the help
    return command


for _each in (demo, train, evaluate, attack, audit, theory, cavity, dynamics, explore, version):
    add_command(_each)


# Unicode calls λ LAMDA.
_SIGNS = {
    "λ": "lambda",
    "±": "+-",
    "→": "->",
    "≤": "<=",
    "≥": ">=",
    "∞": "inf",
    "−": "-",
    "–": "-",
    "—": "-",
}


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """What a terminal cannot show, in letters it can: α as alpha, D² as D2."""
    assert isinstance(error, UnicodeEncodeError)
    text = ""
    for sign in error.object[error.start : error.end]:
        word = _SIGNS.get(sign) or unicodedata.normalize("NFKD", sign)
        if not word.isascii():
            name = unicodedata.name(sign, "?").split()
            word = name[-1].lower() if name[0] == "GREEK" else "?"
        text += word
    return text, error.end


def _tells() -> bool:
    """Whether this process tells of an error: of several ranks only one does."""
    if not under_torchrun():
        return True
    from fermibose.machine import tells

    return tells()


def main() -> None:
    """Run ``fbm``; errors meant for people end as one line, not as a traceback."""
    codecs.register_error("spelled", _spelled)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="spelled")
    try:
        with nullcontext() if under_torchrun() else spoken():
            app()
    except (FermiboseError, OSError) as error:
        if os.environ.get("FERMIBOSE_DEBUG"):
            raise
        if not _tells():
            sys.exit(1)
        message = f"[bold red]error:[/] {escape(str(error))}"
        Console(stderr=True).print(message, highlight=False, soft_wrap=True)
        sys.exit(1)
