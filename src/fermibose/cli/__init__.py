"""The command ``fbm``: parses, calls, prints. The work is done in the other rooms."""

import os
import sys

import typer
from rich.console import Console
from rich.markup import escape

from fermibose.cli.attack import attack, audit
from fermibose.cli.demo import demo
from fermibose.cli.dynamics import dynamics
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
)
from fermibose.cli.theory import cavity, theory
from fermibose.cli.train import evaluate, train
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


def version() -> None:
    """Print the version."""
    from fermibose import __version__

    typer.echo(__version__)


app = typer.Typer(
    cls=Commands,
    help="The Fermi-Bose machine: local contrastive learning without backpropagation.",
    no_args_is_help=True,
    **LOOK,
)


def add_command(command: Command) -> Command:
    """Make a function a command of ``fbm``; a package beside the library may add its own."""
    name = command.__name__
    COMMANDS[name] = command
    app.command(name, help=command.__doc__)(lambda: None)  # for the list in the help
    return command


for _each in (demo, train, evaluate, attack, audit, theory, cavity, dynamics, version):
    add_command(_each)


def main() -> None:
    """Run ``fbm``; errors meant for people end as one line, not as a traceback."""
    try:
        app()
    except (FermiboseError, OSError) as error:
        if os.environ.get("FERMIBOSE_DEBUG"):
            raise
        message = f"[bold red]error:[/] {escape(str(error))}"
        Console(stderr=True).print(message, highlight=False, soft_wrap=True)
        sys.exit(1)
