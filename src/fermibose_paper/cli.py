"""``fbm`` with the commands of the reproduction: ``reproduce`` measures the paper's figures again,
``report`` tells what was measured in one HTML file.
"""

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fermibose.cli import (
    FolderOption,
    add_command,
    app,
    check_file,
    check_folder,
    console,
    main,
    say,
)
from fermibose.errors import InputError
from fermibose_paper.texts import ABOUT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fermibose_paper.page import Table
    from fermibose_paper.run import Engine, Outcome
    from fermibose_paper.scale import Scale
    from fermibose_paper.store import Row, Store
    from fermibose_paper.verdict import Verdict


__all__ = ["app", "main"]


@add_command
def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"{', '.join(ABOUT)} or all. Or an experiment that makes tables: robustness, "
            "tuning, accuracies, tables."
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The published grid, or a few points.")
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(
            help="in-process, local, local:4 (processes) or tcp://host:port (Dask). By default "
            "local, if Dask is installed."
        ),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds after which a run counts as failed.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="Results so far (default: results.sqlite in the output).")
    ] = None,
    folder: FolderOption = None,
    output: Annotated[Path, typer.Option(help="Folder for figures, tables, verdicts.")] = Path(
        "fbm-reproduce"
    ),
) -> Any:
    """Make the paper's figures anew and say what is reproduced and by how much.

    Every finished run is kept in the store: stopped and started again, it goes on where it was.
    """
    from fermibose_paper.cluster import dask_is_installed
    from fermibose_paper.run import engine_named
    from fermibose_paper.store import Store

    names = _chosen(figures)
    if folder is not None and not folder.is_dir():
        raise InputError(f"there is no folder {folder}: name the one that has MNIST's IDX files")
    scale = _chosen_scale(full, folder)
    made: list[str] = []
    verdicts: list[Verdict] = []
    failures = 0
    if engine is None and not dask_is_installed():
        say("Dask is not installed, so one core computes: pip install 'fermibose[paper]' for all")
    with engine_named(engine or ("local" if dask_is_installed() else "in-process")) as workers:
        check_folder(output)
        shelf = Store(store or output / "results.sqlite")
        for number, name in enumerate(names, 1):
            text = f"{name} ({number} of {len(names)})" if len(names) > 1 else name
            outcome, judged = _make(name, scale, shelf, workers, time_limit, output, text)
            failures += len(outcome.failures)
            if judged is not None:
                made.append(name)
                verdicts += judged
            if outcome.interrupted:
                so_far = "what is written is of what was measured so far"
                say(f"interrupted: {so_far if judged is not None else f'nothing of {name} yet'}")
                break
    if verdicts:
        _print_verdicts(verdicts)
    if made:
        _say_what_is_written(made, output)
    if outcome.interrupted:
        raise typer.Exit(130)
    if failures:
        say(
            f"failed runs: {failures}. Figures and verdicts are of the others; started again, the "
            "command tries them once more"
        )
        raise typer.Exit(1)
    return [verdict.as_dict() for verdict in verdicts]


@add_command
def report(
    store: Annotated[Path, typer.Option(help="Results of `fbm reproduce`.")] = Path(
        "fbm-reproduce/results.sqlite"
    ),
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The scale that was reproduced.")
    ] = False,
    folder: FolderOption = None,
    output: Annotated[Path, typer.Option(help="The HTML file.")] = Path("fbm-report.html"),
) -> None:
    """Write the report: one self-contained page from what `fbm reproduce` has measured.

    Nothing is computed anew, and no images are read; figures of which less than half is measured
    are left out. Give the same --quick, --full and --folder as to `fbm reproduce`: they tell which
    runs to look for.
    """
    if not store.exists():  # said before anything slow is loaded
        raise InputError(f"there is no {store}; run `fbm reproduce` first, or name its --store")

    from fermibose.files import replacing
    from fermibose_paper.store import Store
    from fermibose_paper.story import gather, tell

    scale = _chosen_scale(full, folder)
    check_file(output)
    contents = gather(Store(store, create=False), scale)
    if contents.scarce:
        few = "; ".join(f"{name}: {runs} runs" for name, runs in contents.scarce.items())
        say(f"left out, less than half is measured: {few}")
    _print_runs("damaged, left out", contents.damaged.values())
    if not contents.chapters:
        raise InputError(
            f"{store} holds less than half of the runs of any figure of the {scale.name} scale; "
            "give the same --quick, --full and --folder as to `fbm reproduce`, or run it first"
        )
    with tempfile.TemporaryDirectory() as drafts:
        page = tell(contents, scale, Path(drafts))
    with replacing(output) as draft:
        draft.write_text(page, encoding="utf-8")
    say(f"written to {output}: {len(page) / 1e6:.1f} MB")


def _chosen(names: list[str] | None) -> list[str]:
    from fermibose_paper.registry import EXPERIMENTS, FIGURES

    if not names:
        return list(FIGURES)
    if unknown := [name for name in names if name not in (*FIGURES, *EXPERIMENTS, "all")]:
        known = ", ".join((*FIGURES, *EXPERIMENTS))
        raise InputError(f"unknown figure {unknown[0]!r}: choose {known} or all")
    every = [name for given in names for name in (FIGURES if given == "all" else [given])]
    return list(dict.fromkeys(every))


def _chosen_scale(full: bool, folder: Path | None) -> "Scale":
    """The scale that the options ask for."""
    from fermibose_paper import scale as scales

    return (scales.full if full else scales.quick)(folder)


def _make(
    name: str,
    scale: "Scale",
    store: "Store",
    engine: "Engine",
    time_limit: float | None,
    output: Path,
    text: str,
) -> "tuple[Outcome, list[Verdict] | None]":
    """Run what a figure or an experiment still lacks; write what it shows, and its verdicts.

    text: beside the bar. Interrupted before the first result, it writes nothing: no verdicts.
    """
    from fermibose.plotting import save_figure
    from fermibose_paper.registry import EXPERIMENTS, FIGURES, TABLES
    from fermibose_paper.run import run

    made = FIGURES.get(name) or EXPERIMENTS[name]
    scale = scale.without_lost(made.plan(scale))
    jobs = made.plan(scale)
    _print_runs("damaged", (row for row in store.rows_of(jobs) if row.damaged))
    outcome = run(jobs, store, engine=engine, time_limit=time_limit, text=text)
    console.print(f"[bold]{name}[/]: {len(jobs)} runs, {outcome.computed} computed now")
    _print_runs("failed", outcome.failures)
    if outcome.interrupted and not any(row.result is not None for row in outcome.rows):
        return outcome, None
    if name in FIGURES:
        drawn = FIGURES[name].draw(outcome.rows, scale)
        for suffix in (".png", ".svg"):
            save_figure(drawn, output / f"{name}{suffix}")
    if name in TABLES:
        _tell_tables(TABLES[name](outcome.rows, scale), output / f"{name}.json")
    verdicts = made.verdicts(outcome.rows, scale)
    _write_verdicts(output / "verdicts.json", verdicts, name, scale, outcome.rows)
    return outcome, verdicts


def _say_what_is_written(made: list[str], output: Path) -> None:
    from fermibose_paper.registry import FIGURES, TABLES

    drawn = [name for name in made if name in FIGURES]
    tables = [f"{name}.json" for name in made if name in TABLES]
    pictures = [f"{', '.join(drawn)} as png and svg"] if drawn else []
    say(f"written to {output}: {', '.join([*pictures, *tables, 'verdicts.json'])}")


def _print_runs(what: str, rows: "Iterable[Row]") -> None:
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


def _write_verdicts(
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


def _tell_tables(tables: "Sequence[Table]", path: Path) -> None:
    """Print tables, and write them as JSON."""
    from rich.table import Table as Printed

    from fermibose.files import write_json

    def text(cell: Any) -> str:
        return cell if isinstance(cell, str) else str(cell.text)

    for table in tables:
        printed = Printed(*table.head, title=escape(table.caption), title_justify="left")
        for row in table.rows:
            printed.add_row(*(escape(text(cell)) for cell in row))
        console.print(printed)
    content = [
        {"caption": t.caption, "head": list(t.head), "rows": [list(map(text, r)) for r in t.rows]}
        for t in tables
    ]
    write_json(path, content)


def _print_verdicts(verdicts: "list[Verdict]") -> None:
    from rich.table import Table

    from fermibose_paper.verdict import total

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
    say(str(total(verdicts)))
