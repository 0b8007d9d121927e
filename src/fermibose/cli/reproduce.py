"""``fbm reproduce``: the paper's figures, measured again and held against the published numbers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from fermibose.cli.options import console
from fermibose.errors import InputError

if TYPE_CHECKING:
    from fermibose.paper.verdict import Verdict


def reproduce(
    figures: Annotated[
        list[str] | None, typer.Argument(help="fig3, fig4, fig5, beyond, … or all.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The published grid, or a few points.")
    ] = False,
    engine: Annotated[
        str, typer.Option(help="in-process, local, local:4 (processes) or tcp://host:port (Dask).")
    ] = "local",
    store: Annotated[
        Path | None, typer.Option(help="Results so far (default: results.sqlite in the output).")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of MNIST's IDX files (full: else FERMIBOSE_DATA or a download)."),
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for figures and verdicts.")] = Path(
        "reproduction"
    ),
) -> None:
    """Make the paper's figures anew and say what is reproduced and by how much.

    Every finished run is kept in the store: stopped and started again, it goes on where it was.
    """
    from fermibose.files import write_json
    from fermibose.paper import scale as scales
    from fermibose.paper.figures import FIGURES
    from fermibose.plotting import save_figure
    from fermibose.sweep import Store, engine_named, run

    names = list(FIGURES) if not figures or "all" in figures else list(dict.fromkeys(figures))
    if unknown := [name for name in names if name not in FIGURES]:
        raise InputError(f"unknown figure {unknown[0]!r}: choose {', '.join(FIGURES)} or all")
    scale = (scales.full if full else scales.quick)(data)
    worker = engine_named(engine)
    shelf = Store(store or output / "results.sqlite")
    verdicts: list[Verdict] = []
    for name in names:
        figure = FIGURES[name]
        jobs = figure.plan(scale)
        outcome = run(jobs, shelf, engine=worker)
        console.print(f"[bold]{name}[/]: {len(jobs)} runs, {outcome.computed} computed now")
        for row in outcome.failures:
            reason = (row.error or "").strip().splitlines()[-1]  # of its traceback
            console.print(
                f"[yellow]failed:[/] {escape(f'{row.params}, seed {row.seed}: {reason}')}",
                soft_wrap=True,
            )
        for suffix in (".png", ".svg"):
            save_figure(figure.draw(outcome.rows, scale), output / f"{name}{suffix}")
        verdicts += figure.verdicts(outcome.rows, scale)
        write_json(output / "verdicts.json", [verdict.as_dict() for verdict in verdicts])
        if outcome.interrupted:
            console.print("interrupted: figures and verdicts are of what was measured so far")
            break
    _print(verdicts)
    console.print(f"written to {output}: {', '.join(names)} as png and svg, verdicts.json")
    if outcome.interrupted:
        raise typer.Exit(130)


def _print(verdicts: "list[Verdict]") -> None:
    from rich.table import Table

    table = Table(title="Measured against published", title_justify="left")
    table.add_column("verdict", no_wrap=True)
    table.add_column("claim")
    table.add_column("measured, and asked for")
    colours = {True: "green", False: "red", None: "yellow"}
    for v in verdicts:
        claim = f"{v.figure}  {v.claim}" + (f"\n[dim]{escape(v.note)}[/]" if v.note else "")
        verdict = f"[{colours[v.reproduced]}]{v.word.replace(', ', chr(10))}[/]"
        table.add_row(verdict, claim, f"{v.measured_text()}\n{v.expected_text()}")
    console.print(table)
