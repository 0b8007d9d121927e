"""``fbm cavity``: one instance by message passing, sampling or descent, beside the theory."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fermibose.cli.options import SeedOption
from fermibose.errors import InputError

if TYPE_CHECKING:
    from fermibose.theory import Solution

_METHODS = ("amp", "bp", "hmc", "ground")
_ROWS = (
    ("mean weight |M|", "M", "M"),
    ("self-overlap q", "q", "q"),
    ("replica overlap Q", "Q", "Q"),
    ("test loss ε_g", "generalization_loss", "generalization_loss"),
    ("test accuracy", "accuracy", "accuracy"),
    ("training energy of a pair", "training_loss", "training_energy"),
    ("AT eigenvalue", "at_eigenvalue", "at_eigenvalue"),
)


def cavity(
    n: Annotated[int, typer.Option("--n", help="Number of weights, N.")] = 1000,
    method: Annotated[str, typer.Option(help="amp, bp, hmc (tempered) or ground.")] = "amp",
    alpha: Annotated[float, typer.Option(help="Training pairs per weight, α.")] = 0.5,
    delta: Annotated[float, typer.Option(help="Spread of a cluster, Δ.")] = 0.5,
    beta: Annotated[float, typer.Option(help="Inverse temperature β.")] = 50.0,
    d_f: Annotated[float, typer.Option(help="Target squared distance of fermions.")] = 1.0,
    weight_decay: Annotated[float, typer.Option(help="Weight decay λ_w.")] = 0.05,
    m: Annotated[float, typer.Option(help="Strength of the cluster mean.")] = 1.0,
    rho: Annotated[float, typer.Option(help="Fraction of boson pairs, ρ.")] = 0.5,
    softness: Annotated[float, typer.Option(help="Softness a of the hinge.")] = 0.01,
    damping: Annotated[float, typer.Option(help="Part of the old messages kept.")] = 0.5,
    max_iterations: Annotated[int, typer.Option(help="Sweeps at most (amp, bp).")] = 500,
    exact: Annotated[bool, typer.Option("--exact", help="Exactly ρP boson pairs.")] = False,
    seed: SeedOption = 0,
    output: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("cavity"),
) -> None:
    """Run one instance and print it beside the replica theory.

    Message passing draws its trajectory, with state evolution for AMP without damping. `ground`
    compares with zero temperature.
    """
    from fermibose.cavity import amp, belief_propagation, ground_state, hmc, sample_instance
    from fermibose.theory import ConvergenceError, Problem, solve

    if method not in _METHODS:
        raise InputError(f"method {method!r} is not known: use {', '.join(_METHODS)}")
    problem = Problem(alpha, delta, beta, d_f, weight_decay, m, rho, softness)
    instance = sample_instance(problem, n, seed=seed, counts="exact" if exact else "random")
    if method == "ground":
        instance = instance.at(math.inf)
    if method in ("amp", "bp"):
        _make(output)
    console = Console(highlight=False)
    try:
        theory = solve(instance.problem)
    except ConvergenceError as error:
        console.print(f"[yellow]no theory here:[/] {error}", soft_wrap=True)
        theory = None
    found: Any
    if method == "hmc":
        found = hmc(instance, show=None)
    elif method == "ground":
        found = ground_state(instance)
    else:
        run = amp if method == "amp" else belief_propagation
        found = run(instance, damping=damping, max_iterations=max_iterations, show=None)
    _print(console, found, theory, title=f"{method}, N = {n}, P = {len(instance.train)}")
    console.print(_verdict(method, found), soft_wrap=True)
    if method in ("amp", "bp"):
        from fermibose.cavity.figures import draw_trajectory

        path = output / f"{method}_n{n}_seed{seed}.png"
        draw_trajectory(path, found, theory, damped=damping > 0 or method == "bp")
        console.print(f"wrote {path}", soft_wrap=True)


def _make(folder: Path) -> None:
    """Make the folder before anything is computed for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"the figure cannot go to {folder} ({error.strerror}): name a folder with --output"
        ) from None


def _print(console: Console, found: Any, theory: "Solution | None", *, title: str) -> None:
    """The instance beside the theory, quantity by quantity."""
    table = Table("", "instance", "theory (N → ∞)", title=title, title_justify="left")
    for label, name, of_theory in _ROWS:
        if hasattr(found, name):
            value = abs(getattr(found, name)) if name == "M" else getattr(found, name)
            expected = "—" if theory is None else f"{getattr(theory, of_theory):.5f}"
            table.add_row(label, f"{value:.5f}", expected)
    console.print(table)


def _verdict(method: str, found: Any) -> str:
    """Whether the instance's numbers can be used."""
    if method in ("amp", "bp"):
        return str(found.verdict)
    if method == "ground":
        reached = sorted(found.history)
        return (
            f"energy per weight {found.energy:.6f}, the lowest of {len(reached)} starts "
            f"(median {reached[len(reached) // 2]:.6f})"
        )
    errors = ", ".join(f"{name} ± {error:.4f}" for name, error in found.errors.items())
    agree = (
        "the chains agree"
        if found.converged
        else "did not converge: the chains disagree, or nothing was accepted or exchanged"
    )
    return (
        f"{agree}; standard errors {errors}; acceptance {found.acceptance:.2f}, "
        f"least exchange {found.exchange:.2f}"
    )
