"""``fbm theory``: one point as a table, a curve along a parameter, or a phase diagram."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fermibose.cli.options import PROBLEM, Fields, check_folder, console, say
from fermibose.errors import InputError

if TYPE_CHECKING:
    from fermibose.theory import Curve, PhaseDiagram, Problem, Solution

Axis = tuple[str, float, float, int]
_AXIS = "NAME FROM TO POINTS"
_ROWS = (
    ("mean weight M", "M", ".6f"),
    ("self-overlap q", "q", ".6f"),
    ("replica overlap Q", "Q", ".6f"),
    ("response χ", "chi", ".4f"),
    ("free energy f", "free_energy", ".7f"),
    ("entropy s", "entropy", ".6f"),
    ("training energy of a pair", "training_energy", ".6f"),
    ("test loss ε_g", "generalization_loss", ".6f"),
    ("test accuracy", "accuracy", ".2%"),
    ("accuracy under ℓ₂ attack, ε = 0.5", "attacked", ".2%"),
    ("area under attack, ε from 0 to 1", "adversarial_area", ".4f"),
    ("fermion distance D_F²", "fermion_distance", ".4f"),
    ("boson distance D_B²", "boson_distance", ".4f"),
    ("AT eigenvalue", "at_eigenvalue", ".4f"),
    ("residual", "residual", ".1e"),
    ("numerical error of M, q, Q, χ", "error", ".1e"),
    ("numerical error of AT", "at_error", ".1e"),
    ("iterations", "iterations", "d"),
)


def theory(
    problem: Annotated["Problem", Fields("fermibose.theory:Problem", {None: PROBLEM})],
    sweep: Annotated[Axis | None, typer.Option(metavar=_AXIS, help="Curve along it.")] = None,
    against: Annotated[
        Axis | None, typer.Option(metavar=_AXIS, help="With --sweep: phase diagram.")
    ] = None,
    quantity: Annotated[
        str | None, typer.Option(help="What a phase diagram shows (default: accuracy).")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; default: every core.")] = None,
    output: Annotated[Path, typer.Option(help="Folder for CSV and figure.")] = Path("theory"),
) -> None:
    """Solve the replica theory of one unit on a Gaussian mixture.

    One point is printed as a table. `--sweep delta 0.1 1.5 30` follows a curve, and
    `--against alpha 0.1 5 20` with it makes a phase diagram; both write a CSV file and a figure.
    """
    from fermibose.compute import Interrupted
    from fermibose.theory import check_quantity, phase_diagram, solve, trace

    if against is None and quantity is not None:
        raise InputError("--quantity is what a phase diagram shows: give it --sweep and --against")
    if sweep is None:
        if against is not None:
            raise InputError("--against needs --sweep: give both axes of the phase diagram")
        _print_point(solve(problem))
        return
    check_folder(output)
    if against is None:
        stem = output / f"curve_{sweep[0]}"
        try:
            curve = trace(problem, sweep[0], _values(sweep), workers=workers)
        except Interrupted as stop:
            _keep(stop.done, len(stop.done), f"{sweep[3]} points", stem.with_suffix(".csv"))
            raise
        curve.save_csv(stem.with_suffix(".csv"))
        curve.draw(stem.with_suffix(".png"))
        unstable = len(curve) - int(curve.column("rs_stable").sum())
        total, failures = len(curve) + len(curve.failures), curve.failures
    else:
        quantity = quantity or "accuracy"
        check_quantity(quantity)  # before the work, not after it
        stem = output / f"phase_{sweep[0]}_{against[0]}"
        axes = (sweep[0], _values(sweep), against[0], _values(against))
        try:
            diagram = phase_diagram(problem, *axes, workers=workers)
        except Interrupted as stop:
            told = f"{against[3]} values of {against[0]}"
            _keep(stop.done, len(stop.done.solutions), told, stem.with_suffix(".csv"))
            raise
        diagram.save_csv(stem.with_suffix(".csv"))
        diagram.draw(stem.with_suffix(".png"), quantity=quantity)
        total, failures = diagram.map("M").size, diagram.failures
        unstable = int((diagram.map("rs_stable") == 0).sum())
    for failure in failures:
        console.print(f"[yellow]not solved:[/] {escape(str(failure))}", soft_wrap=True)
    say(
        f"{total - len(failures)} of {total} points solved, "
        f"replica symmetry unstable at {unstable}; wrote {stem}.csv and {stem}.png"
    )


def _keep(part: "Curve | PhaseDiagram", done: int, told: str, path: Path) -> None:
    """Write what was finished before Ctrl-C, if anything."""
    if done:
        part.save_csv(path)
        say(f"interrupted: wrote the {done} of {told} finished to {path}")


def _values(axis: Axis) -> list[float]:
    """The points of an axis given on the command line."""
    name, start, stop, points = axis
    if points < 1:
        raise InputError(f"{name}: the number of points must be at least 1, got {points}")
    if not (math.isfinite(start) and math.isfinite(stop)):
        raise InputError(f"{name}: a curve goes from one number to another, got {start} to {stop}")
    step = (stop - start) / max(points - 1, 1)
    return [start + i * step for i in range(points)]


def _print_point(solution: "Solution") -> None:
    """The solution as a table, with a warning where replica symmetry is unstable."""
    table = Table(title="Replica-symmetric solution", title_justify="left", show_header=False)
    for label, name, form in _ROWS:
        value = (
            solution.adversarial_accuracy(0.5) if name == "attacked" else getattr(solution, name)
        )
        infinite = "∞" if value > 0 else "−∞"
        table.add_row(label, infinite if math.isinf(value) else format(value, form))
    console.print(table)
    if not solution.rs_stable:
        console.print(
            "[yellow]warning:[/] replica symmetry is unstable here (AT eigenvalue above 1): "
            "these numbers are an approximation, usually a good one for M and q",
            soft_wrap=True,
        )
