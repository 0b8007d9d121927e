"""``fbm cavity``: one instance by message passing, sampling or descent, beside the theory."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fermibose.cli.options import SeedOption, check_folder, console, say
from fermibose.errors import InputError

if TYPE_CHECKING:
    from fermibose.theory import Problem, Solution

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
    max_iterations: Annotated[int, typer.Option(min=1, help="Sweeps at most (amp, bp).")] = 500,
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
    _check(problem, n, method, damping)
    if method in ("amp", "bp"):
        check_folder(output)
    instance = sample_instance(problem, n, seed=seed, counts="exact" if exact else "random")
    if method == "ground":
        instance = instance.at(math.inf)
    try:
        theory = solve(instance.problem)
    except ConvergenceError as error:
        console.print(f"[yellow]no theory here:[/] {escape(str(error))}", soft_wrap=True)
        theory = None
    found: Any
    if method == "hmc":
        found = hmc(instance, show=None)
    elif method == "ground":
        found = ground_state(instance)
    else:
        run = amp if method == "amp" else belief_propagation
        found = run(instance, damping=damping, max_iterations=max_iterations, show=None)
    _print(found, theory, title=f"{method}, N = {n}, P = {len(instance.train)}")
    say(_verdict(method, found))
    if method in ("amp", "bp"):
        from fermibose.cavity.figures import draw_trajectory

        path = output / f"{method}_n{n}_seed{seed}.png"
        draw_trajectory(path, found, theory, damped=damping > 0 or method == "bp")
        say(f"wrote {path}")


def _check(problem: "Problem", n: int, method: str, damping: float) -> None:
    """Refuse what the method cannot do, in the words of the command line, before any work."""
    from fermibose.cavity.bp import bp_memory
    from fermibose.memory import check_memory

    if method != "ground" and problem.zero_temperature:
        raise InputError(
            f"--beta inf is zero temperature: {method} needs a finite one (say 50), or use "
            "--method ground"
        )
    if not 0 <= damping < 1:
        raise InputError(
            f"--damping is the part of the old messages kept, at least 0 and below 1, got {damping}"
        )
    if method == "bp" and n > 0:
        pairs = round(problem.alpha * n)
        check_memory(
            f"--method bp with N = {n} and P = {pairs} needs",
            bp_memory(n, pairs),
            "use --method amp, or a smaller --n or --alpha",
        )


def _print(found: Any, theory: "Solution | None", *, title: str) -> None:
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
        descent = "converged" if found.converged else "did not converge: the gradient is not zero"
        return (
            f"{descent}; energy per weight {found.energy:.6f}, the lowest of {len(reached)} starts "
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
