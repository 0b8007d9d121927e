"""``fbm reproduce``: the paper's figures, measured again and held against the published numbers."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fermibose.cli.options import FolderOption, check_folder, console, say
from fermibose.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fermibose.paper.scale import Scale
    from fermibose.paper.verdict import Verdict
    from fermibose.sweep import Engine, Outcome, Row, Store


def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(help="fig2, instances, fig3, fig4, fig5, rho, beyond or all."),
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
    folder: FolderOption = None,
    output: Annotated[Path, typer.Option(help="Folder for figures and verdicts.")] = Path(
        "reproduction"
    ),
) -> None:
    """Make the paper's figures anew and say what is reproduced and by how much.

    Every finished run is kept in the store: stopped and started again, it goes on where it was.
    """
    from fermibose.paper.figures import FIGURES
    from fermibose.sweep import Store, engine_named

    names = _chosen(figures)
    scale = chosen_scale(full, folder)
    worker = engine_named(engine)
    check_folder(output)
    shelf = Store(store or output / "results.sqlite")
    verdicts: list[Verdict] = []
    made: list[str] = []
    failures = 0
    for name in names:
        outcome = _make(name, scale, shelf, worker, output)
        failures += len(outcome.failures)
        made.append(name)
        found = FIGURES[name].verdicts(outcome.rows, scale)
        verdicts += found
        _write(output / "verdicts.json", found, name, scale, outcome.rows)
        if outcome.interrupted:
            say("interrupted: figures and verdicts are of what was measured so far")
            break
    _print(verdicts)
    say(f"written to {output}: {', '.join(made)} as png and svg, verdicts.json")
    if outcome.interrupted:
        raise typer.Exit(130)
    if failures:
        say(
            f"failed runs: {failures}. Figures and verdicts are of the others; started again, the "
            "command tries them once more"
        )
        raise typer.Exit(1)


def chosen_scale(full: bool, folder: Path | None) -> "Scale":
    """The scale that the options ask for."""
    from fermibose.paper import scale as scales

    if folder is not None and not folder.is_dir():
        raise InputError(f"there is no folder {folder}: name the one that has MNIST's IDX files")
    return (scales.full if full else scales.quick)(folder)


def _chosen(figures: list[str] | None) -> list[str]:
    from fermibose.paper.figures import FIGURES

    names = list(FIGURES) if not figures or "all" in figures else list(dict.fromkeys(figures))
    if unknown := [name for name in names if name not in FIGURES]:
        raise InputError(f"unknown figure {unknown[0]!r}: choose {', '.join(FIGURES)} or all")
    return names


def _make(name: str, scale: "Scale", store: "Store", engine: "Engine", output: Path) -> "Outcome":
    """Run what a figure still lacks, and draw it."""
    from fermibose.paper.figures import FIGURES
    from fermibose.plotting import save_figure
    from fermibose.sweep import run

    figure = FIGURES[name]
    jobs = figure.plan(scale)
    print_runs("damaged", (row for row in store.rows_of(jobs) if row.damaged))
    outcome = run(jobs, store, engine=engine)
    console.print(f"[bold]{name}[/]: {len(jobs)} runs, {outcome.computed} computed now")
    print_runs("failed", outcome.failures)
    drawn = figure.draw(outcome.rows, scale)
    for suffix in (".png", ".svg"):
        save_figure(drawn, output / f"{name}{suffix}")
    return outcome


def print_runs(what: str, rows: "Iterable[Row]") -> None:
    """A line for each run that has no result, with the reason, however many lines that has."""
    for row in rows:
        reason = _message(row.error or "").replace("\n", "\n    ")
        console.print(
            f"[yellow]{what}:[/] {escape(f'{row.params}, seed {row.seed}: {reason}')}",
            soft_wrap=True,
        )


def _message(error: str) -> str:
    """Type and message of an exception, from its traceback: what follows the indented frames."""
    lines = error.strip().rpartition("Traceback (most recent call last):\n")[2].splitlines()
    frames = next((k for k, line in enumerate(lines) if not line.startswith(" ")), 0)
    return "\n".join(lines[frames:])


def _write(
    path: Path, verdicts: "list[Verdict]", name: str, scale: "Scale", rows: "list[Row]"
) -> None:
    """Write the verdicts on a figure; those on others, or of another scale or other data, stay."""
    from fermibose.files import write_json

    dataset = scale.dataset if any(row.data for row in rows) else None  # theory reads none
    here = {"scale": scale.name, "dataset": dataset}
    same = {"figure": name, "scale": scale.name} | ({"dataset": dataset} if dataset else {})
    found = [verdict.as_dict() | here for verdict in verdicts]
    found += [v for v in _read(path) if not same.items() <= v.items()]
    order = ("figure", "scale", "dataset")
    write_json(path, sorted(found, key=lambda verdict: [str(verdict.get(k)) for k in order]))


def _read(path: Path) -> list[dict[str, Any]]:
    """The verdicts that an earlier run has written; none if the file is missing or unreadable."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    found = found if isinstance(found, list) else []
    return [verdict for verdict in found if isinstance(verdict, dict) and "figure" in verdict]


def _print(verdicts: "list[Verdict]") -> None:
    from rich.table import Table

    table = Table(title="Measured against published", title_justify="left")
    table.add_column("verdict", no_wrap=True)
    table.add_column("claim")
    table.add_column("measured, and asked for")
    colours = {True: "green", False: "red", None: "yellow"}
    for v in verdicts:
        claim = escape(f"{v.figure}  {v.claim}")
        claim += f"\n[dim]{escape(v.note)}[/]" if v.note else ""
        verdict = f"[{colours[v.reproduced]}]{v.word.replace(', ', chr(10))}[/]"
        table.add_row(verdict, claim, escape(f"{v.measured_text()}\n{v.expected_text()}"))
    console.print(table)
