"""The command ``fbm``: parses, calls, prints. The work is done in the other rooms."""

import os
import sys
from collections.abc import Callable
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from fermibose.cli.attack import attack, audit
from fermibose.cli.demo import demo
from fermibose.cli.options import (
    FolderOption,
    check_file,
    check_folder,
    console,
    say,
    with_fields,
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


_Command = Callable[..., None]
_commands: dict[str, _Command] = {}
_LOOK: Any = {
    "add_completion": False,
    "rich_markup_mode": "markdown",
    "pretty_exceptions_enable": False,
}


class _Commands(TyperGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command asked for, only now with its options: some are read off a slow room."""
        name, _, rest = super().resolve_command(ctx, args)
        alone = typer.Typer(**_LOOK)
        alone.command(name)(with_fields(_commands[str(name)]))
        return name, typer.main.get_command(alone), rest

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
    **_LOOK,
)


def add_command(command: _Command) -> _Command:
    """Make a function a command of ``fbm``; a package beside the library may add its own."""
    name = command.__name__
    _commands[name] = command
    app.command(name, help=command.__doc__)(lambda: None)  # for the list in the help
    return command


for _each in (demo, train, evaluate, attack, audit, theory, cavity, version):
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
