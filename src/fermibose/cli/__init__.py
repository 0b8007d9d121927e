"""The command ``fbm``: parses, calls, prints. The work is done in the other rooms."""

import os
import sys
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from fermibose.cli.attack import attack
from fermibose.cli.audit import audit
from fermibose.cli.cavity import cavity
from fermibose.cli.demo import demo
from fermibose.cli.evaluate import evaluate
from fermibose.cli.report import report
from fermibose.cli.reproduce import reproduce
from fermibose.cli.theory import theory
from fermibose.cli.train import train
from fermibose.errors import FermiboseError


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

app.command()(demo)
app.command()(train)
app.command()(evaluate)
app.command()(attack)
app.command()(audit)
app.command()(theory)
app.command()(report)
app.command()(reproduce)
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
