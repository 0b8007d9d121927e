"""The command ``fbm``: parses, calls, prints. The work is done in the other rooms."""

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from fermibose.cli.attack import attack
from fermibose.cli.audit import audit
from fermibose.cli.cavity import cavity
from fermibose.cli.demo import demo
from fermibose.cli.evaluate import evaluate
from fermibose.cli.options import FolderOption, check_file, check_folder, console, say
from fermibose.cli.theory import theory
from fermibose.cli.train import train
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
_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """Say that Ctrl-C was heard; Typer itself would end without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            Console(stderr=True).print("interrupted")
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=_Commands,
    help="The Fermi-Bose machine: local contrastive learning without backpropagation.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def add_command(command: _Command) -> _Command:
    """Add a function to the commands of ``fbm``: for a package that stands beside the library."""
    return app.command()(command)


app.command()(demo)
app.command()(train)
app.command()(evaluate)
app.command()(attack)
app.command()(audit)
app.command()(theory)
app.command()(cavity)


@app.command()
def version() -> None:
    """Print the version."""
    from fermibose import __version__

    typer.echo(__version__)


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
