"""``fbm dynamics``: how one unit learns online, and SGD with N weights beside it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from fermibose.cli.options import (
    PROBLEM,
    Fields,
    ForceOption,
    SeedOption,
    check_output,
    console,
    say,
)
from fermibose.errors import InputError

if TYPE_CHECKING:
    from fermibose.cavity import Runs
    from fermibose.theory import Problem
    from fermibose.theory.dynamics import Trajectory

# Every step takes fresh samples: how many there are, and the temperature, do not count.
_IGNORED = ("alpha", "beta", "samples", "pairing", "balance", "mislabelled")
_PROBLEM = {name: text for name, text in PROBLEM.items() if name not in _IGNORED} | {
    "pairing": "disjoint: pairs with a fraction ρ of bosons; all: samples by balance.",
    "balance": "Fraction of samples of class y = 1 (--pairing all).",
    "mislabelled": "Fraction of samples with the wrong label (--pairing all).",
}
_ROWS = 10  # of the printed table
_FORMS = {"t": ".2f", "M": ".5f", "q": ".5f", "accuracy": ".3%", "generalization_loss": ".5f"}


def dynamics(
    problem: Annotated["Problem", Fields("fermibose.theory:Problem", {None: _PROBLEM})],
    learning_rate: Annotated[float, typer.Option(help="Learning rate η.")] = 1.0,
    batch: Annotated[
        int | None, typer.Option(help="Samples a step, all pairs; default: single pairs.")
    ] = None,
    t: Annotated[float, typer.Option(help="End, in units of N steps.")] = 10.0,
    start_m: Annotated[float, typer.Option(help="M at the start.")] = 0.1,
    start_q: Annotated[float, typer.Option(help="q at the start.")] = 1.0,
    n: Annotated[int | None, typer.Option(help="Also run SGD with so many weights.")] = None,
    runs: Annotated[int | None, typer.Option(help="With --n: so many times (default 10).")] = None,
    seed: SeedOption = 0,
    output: Annotated[Path, typer.Option(help="Folder for CSV and figure.")] = Path("fbm-dynamics"),
    force: ForceOption = False,
) -> Any:
    """Follow one-pass SGD of one unit by its equations of motion.

    Prints M, q and the accuracy along time, and writes a CSV file and a figure. `--n 1000` runs SGD
    itself beside it.
    """
    from fermibose.cavity import sgd
    from fermibose.theory.dynamics import UNHEEDED, evolve

    if n is None and runs is not None:
        raise InputError("--runs is for SGD beside the theory: give --n, the number of weights")
    check_output(output, "dynamics.csv", force=force)
    start = (start_m, start_q)
    found = evolve(problem, learning_rate=learning_rate, t=t, batch=batch, start=start)
    measured = None
    if n is not None:
        measured = sgd(
            problem,
            n,
            learning_rate=learning_rate,
            t=found.t,
            batch=batch,
            start=start,
            runs=10 if runs is None else runs,
            seed=seed,
            show=None,
        )
    say(problem.told(*UNHEEDED))
    _print(found, measured)
    found.save_csv(output / "dynamics.csv", measured)
    found.draw(output / "dynamics.png", measured)
    say(f"wrote {output / 'dynamics.csv'} and {output / 'dynamics.png'}")
    return found.to_dict(measured)


def _print(found: "Trajectory", measured: "Runs | None") -> None:
    """Some of the times; mean and standard error of runs beside the theory."""
    from fermibose.statistics import summary

    heads = ["t", "M", "q", "accuracy", "test loss ε_g"]
    title = f"η = {found.learning_rate:g}, {found.batch} samples a step"
    if measured is not None:
        heads += ["M, SGD", "q, SGD"]
        count = len(measured.M)
        title += f"; SGD: N = {measured.n}, {count} run" + "s" * (count > 1)
    table = Table(*heads, title=title, title_justify="left")
    columns = found.to_dict()
    for i in sorted({round(k * (len(found.t) - 1) / _ROWS) for k in range(_ROWS + 1)}):
        row = [format(columns[name][i], form) for name, form in _FORMS.items()]
        for name in ("M", "q") if measured is not None else ():
            mean, error, _ = summary(getattr(measured, name)[:, i])
            row.append(f"{mean:.5f}" + (f" ± {error:.5f}" if error == error else ""))
        table.add_row(*row)
    console.print(table)
