"""``fbm cavity``: one instance by message passing, sampling or descent, beside the theory."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fermibose.cli.options import PROBLEM, Fields, SeedOption, check_folder, console, say
from fermibose.errors import InputError

if TYPE_CHECKING:
    from fermibose.cavity import Instance
    from fermibose.theory import Problem, Solution

_METHODS = ("amp", "bp", "hmc", "ground")
_PROBLEM = {name: text for name, text in PROBLEM.items() if name not in ("beta", "activation")}
_HEEDED_BY = {"damping": ("amp", "bp"), "max_iterations": ("amp", "bp"), "trajectories": ("hmc",)}
_ROWS = (
    ("mean weight |M|", "M", "M"),
    ("self-overlap q", "q", "q"),
    ("replica overlap Q", "Q", "Q"),
    ("test loss ε_g", "generalization_loss", "generalization_loss"),
    ("test accuracy", "accuracy", "accuracy"),
    ("training energy of a pair", "training_loss", "training_energy"),
    ("free energy of a weight", "free_energy", "free_energy"),
    ("AT eigenvalue", "at_eigenvalue", "at_eigenvalue"),
)


def cavity(
    *,
    n: Annotated[int, typer.Option("--n", help="Number of weights, N.")] = 1000,
    method: Annotated[str, typer.Option(help="amp, bp, hmc (tempered) or ground.")] = "amp",
    beta: Annotated[
        float | None,
        typer.Option(help="Inverse temperature β (default 50; ground is at zero temperature)."),
    ] = None,
    problem: Annotated[
        "Problem", Fields("fermibose.theory:Problem", {None: _PROBLEM}, defaults={"alpha": 0.5})
    ],
    damping: Annotated[
        float | None, typer.Option(help="Part of the old messages kept (amp, bp; default 0.5).")
    ] = None,
    max_iterations: Annotated[
        int | None, typer.Option(min=1, help="Sweeps at most (amp, bp; default 500).")
    ] = None,
    trajectories: Annotated[
        int | None,
        typer.Option(
            min=20, help="Length of the walk, after half as many to warm up (hmc; default 2000)."
        ),
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Exactly ρP boson pairs.")] = False,
    seed: SeedOption = 0,
    output: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("cavity"),
) -> None:
    """Run one instance, print it beside the replica theory and draw it.

    amp and bp draw their sweeps (amp without damping also state evolution), hmc the walk of its
    chains, ground the energies its descents end at, beside zero temperature.
    """
    from fermibose.cavity import sample_instance
    from fermibose.theory import ConvergenceError, solve

    if method not in _METHODS:
        raise InputError(f"method {method!r} is not known: use {', '.join(_METHODS)}")
    given = {"damping": damping, "max_iterations": max_iterations, "trajectories": trajectories}
    given = {name: value for name, value in given.items() if value is not None}
    _check_options(method, beta, problem.softness, given)
    if method == "ground":
        beta = math.inf
    if beta is not None:
        problem = replace(problem, beta=beta)
    if method == "bp" and n > 0:
        _check_memory(problem, n)
    check_folder(output)
    instance = sample_instance(problem, n, seed=seed, counts="exact" if exact else "random")
    try:
        theory = solve(problem)
    except ConvergenceError as error:
        console.print(f"[yellow]no theory here:[/] {escape(str(error))}", soft_wrap=True)
        theory = None
    found = _run(method, instance, given)
    _print(found, theory, title=f"{method}, N = {n}, P = {len(instance.train)}")
    say(found.verdict)
    path = output / f"{method}_n{n}_seed{seed}.png"
    _draw(path, method, found, theory, damped=damping != 0 or method == "bp")
    say(f"wrote {path}")


def _check_options(method: str, beta: float | None, softness: float, given: dict[str, Any]) -> None:
    """Refuse what the method cannot do or would not heed, in the words of the command line."""
    if method == "ground" and beta not in (None, math.inf):
        raise InputError(
            f"--beta {beta:g} is not for --method ground, which is at zero temperature: leave it "
            "out, or use --method amp, bp or hmc"
        )
    if method == "ground" and softness == 0:
        raise InputError("--method ground descends a smooth energy: use --softness > 0 (say 1e-4)")
    if method != "ground" and beta == math.inf:
        raise InputError(
            f"--beta inf is zero temperature: {method} needs a finite one (say 50), or use "
            "--method ground"
        )
    for name in given:
        if method not in _HEEDED_BY[name]:
            heeding = " and ".join(_HEEDED_BY[name])
            raise InputError(
                f"--{name.replace('_', '-')} is for --method {heeding} only: leave it out with "
                f"{method}"
            )
    if not 0 <= given.get("damping", 0.5) < 1:
        raise InputError(
            "--damping is the part of the old messages kept, at least 0 and below 1, got "
            f"{given['damping']}"
        )


def _check_memory(problem: "Problem", n: int) -> None:
    """Refuse belief propagation that does not fit, before any work."""
    from fermibose import checks
    from fermibose.cavity import bp_memory

    pairs = round(problem.alpha * n)
    checks.memory(
        f"--method bp with N = {n} and P = {pairs} needs",
        bp_memory(n, pairs),
        "use --method amp, or a smaller --n or --alpha",
    )


def _run(method: str, instance: "Instance", given: dict[str, Any]) -> Any:
    from fermibose.cavity import amp, belief_propagation, ground_state, hmc

    if method == "hmc":
        if length := given.get("trajectories"):
            given = {"trajectories": length, "warm_up": length // 2}
        return hmc(instance, show=None, **given)
    if method == "ground":
        return ground_state(instance)
    algorithm = amp if method == "amp" else belief_propagation
    return algorithm(instance, show=None, **given)


def _draw(path: Path, method: str, found: Any, theory: "Solution | None", *, damped: bool) -> None:
    from fermibose.cavity import draw_descents, draw_trajectory, draw_walk

    if method == "hmc":
        draw_walk(path, found, theory)
    elif method == "ground":
        draw_descents(path, found, theory)
    else:
        draw_trajectory(path, found, theory, damped=damped)


def _print(found: Any, theory: "Solution | None", *, title: str) -> None:
    """The instance beside the theory, quantity by quantity."""
    table = Table("", "instance", "theory (N → ∞)", title=title, title_justify="left")
    for label, name, of_theory in _ROWS:
        if hasattr(found, name):
            value = abs(getattr(found, name)) if name == "M" else getattr(found, name)
            expected = "—" if theory is None else f"{getattr(theory, of_theory):.5f}"
            table.add_row(label, f"{value:.5f}", expected)
    console.print(table)
