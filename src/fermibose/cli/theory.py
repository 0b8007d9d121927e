"""``fbm theory`` and ``fbm cavity``: the theory for N → ∞, and one instance beside it."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
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
    from fermibose.cavity import Instance
    from fermibose.theory import Curve, PhaseDiagram, Problem, Solution

Axis = tuple[str, float, float, int]
_AXIS = "NAME FROM TO POINTS"
_SWEPT = ", ".join(name for name in PROBLEM if name not in ("pairing", "activation"))
_EPS = 0.5  # strength of the attack in the table


def theory(
    problem: Annotated["Problem", Fields("fermibose.theory:Problem", {None: PROBLEM})],
    sweep: Annotated[
        Axis | None, typer.Option(metavar=_AXIS, help=f"Curve; NAME is one of {_SWEPT}.")
    ] = None,
    against: Annotated[
        Axis | None, typer.Option(metavar=_AXIS, help="With --sweep: phase diagram.")
    ] = None,
    quantity: Annotated[
        str | None, typer.Option(help="What a phase diagram shows (default: accuracy).")
    ] = None,
    norm: Annotated[
        str, typer.Option(help="Of the attack in the table: 2, inf, or any p > 1.")
    ] = "2",
    workers: Annotated[int | None, typer.Option(help="Processes; default: every core.")] = None,
    output: Annotated[Path, typer.Option(help="Folder for CSV and figure.")] = Path("fbm-theory"),
    force: ForceOption = False,
) -> Any:
    """Solve the replica theory of one unit on a Gaussian mixture.

    One point is printed as a table. `--sweep delta 0.1 1.5 30` follows a curve, and
    `--against alpha 0.1 5 20` with it makes a phase diagram; both write a CSV file and a figure.
    """
    from fermibose.compute import Interrupted, progress_bar
    from fermibose.theory import check_quantity, phase_diagram, solve, trace

    if against is None and quantity is not None:
        raise InputError("--quantity is what a phase diagram shows: give it --sweep and --against")
    if sweep is None:
        if against is not None:
            raise InputError("--against needs --sweep: give both axes of the phase diagram")
        power = _norm(norm)
        with progress_bar("solving", 1):  # with many pairs it takes minutes
            solution = solve(problem)
        return _print_point(solution, power)
    if norm != "2":
        raise InputError("--norm is for the table of one point: leave it out with --sweep")
    sweep = _spelled(sweep)
    if against is None:
        stem = output / f"curve_{sweep[0]}"
        check_output(output, f"{stem.name}.csv", f"{stem.name}.png", force=force)
        try:
            curve = trace(problem, sweep[0], _values(sweep), workers=workers)
        except Interrupted as stop:
            _keep(stop.done, len(stop.done), f"{sweep[3]} points", stem.with_suffix(".csv"))
            raise
        found = curve.to_dict()
        curve.save_csv(stem.with_suffix(".csv"))
        curve.draw(stem.with_suffix(".png"))
        unstable = len(curve) - int(curve.column("rs_stable").sum())
        total, failures = len(curve) + len(curve.failures), curve.failures
    else:
        quantity = quantity or "accuracy"
        check_quantity(quantity)  # before the work, not after it
        against = _spelled(against)
        stem = output / f"phase_{sweep[0]}_{against[0]}"
        check_output(output, f"{stem.name}.csv", f"{stem.name}.png", force=force)
        axes = (sweep[0], _values(sweep), against[0], _values(against))
        try:
            diagram = phase_diagram(problem, *axes, workers=workers)
        except Interrupted as stop:
            part = stop.done
            lines = part.y_values if part.x_values.size == sweep[3] else part.x_values
            name, _, _, count = against if lines is part.y_values else sweep
            _keep(part, lines.size, f"{count} values of {name}", stem.with_suffix(".csv"))
            raise
        found = diagram.to_dict()
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
    return found


def _keep(part: "Curve | PhaseDiagram", done: int, told: str, path: Path) -> None:
    """Write what was finished before Ctrl-C, if anything."""
    if done:
        part.save_csv(path)
        say(f"interrupted: wrote the {done} of {told} finished to {path}")


def _spelled(axis: Axis) -> Axis:
    """An axis whose name may be written as options are, d-f, or as fields, d_f."""
    return axis[0].replace("-", "_"), *axis[1:]


def _values(axis: Axis) -> list[float]:
    """The points of an axis given on the command line."""
    name, start, stop, points = axis
    if points < 1:
        raise InputError(f"{name}: the number of points must be at least 1, got {points}")
    if not (math.isfinite(start) and math.isfinite(stop)):
        raise InputError(f"{name}: a curve goes from one number to another, got {start} to {stop}")
    step = (stop - start) / max(points - 1, 1)
    return [start + i * step for i in range(points)]


def _norm(text: str) -> float | str:
    """The norm of an attack as written on the command line."""
    try:
        return "inf" if text == "inf" else float(text)
    except ValueError:
        raise InputError(f"--norm must be 2, inf or a number above 1, got {text!r}") from None


def _print_point(solution: "Solution", norm: float | str) -> dict[str, Any]:
    """The solution as a table, with a warning where replica symmetry is unstable; its numbers."""
    from fermibose.theory import LABELS

    say(solution.problem.told())
    table = Table(title="Replica-symmetric solution", title_justify="left", show_header=False)
    under_attack = {
        "attacked": solution.adversarial_accuracy(_EPS, norm),
        "area": solution.robustness_area(norm),
    }
    called = "ℓ" + {"inf": "∞", 2.0: "₂"}.get(norm, f"_{norm}")
    for label, name, form in LABELS:
        value = under_attack[name] if name in under_attack else getattr(solution, name)
        infinite = "∞" if value > 0 else "−∞"
        shown = infinite if math.isinf(value) else format(value, form)
        table.add_row(label.format(norm=called, eps=_EPS), shown)
    console.print(table)
    if not solution.rs_stable:
        console.print(
            "[yellow]warning:[/] replica symmetry is unstable here (AT eigenvalue above 1): "
            "these numbers are an approximation, the worse the farther it is above 1 (at 6, M is "
            "off by a quarter); solve_broken() in Python goes one step further",
            soft_wrap=True,
        )
    for other in solution.rivals:
        if other.stable:
            console.print(
                f"beside it there is a metastable state: M {other.overlaps.M:.4f}, "
                f"q {other.q:.4f}, free energy {other.free_energy:.5f}",
                soft_wrap=True,
            )
    return solution.to_dict() | {"norm": norm} | under_attack


_METHODS = ("amp", "bp", "hmc", "ground")
_PROBLEM = {name: text for name, text in PROBLEM.items() if name not in ("beta", "activation")}
_PROBLEM["alpha"] = "Disjoint training pairs per weight, α (default: 0.5)."
_HEEDED_BY = {"damping": ("amp", "bp"), "max_iterations": ("amp", "bp"), "trajectories": ("hmc",)}
_COMPARED = (
    ("mean weight |M|", "M", "M"),
    ("self-overlap q", "q", "q"),
    ("replica overlap Q", "Q", "Q"),
    ("test loss ε_g", "generalization_loss", "generalization_loss"),
    ("test accuracy", "accuracy", "accuracy"),
    ("training energy of a pair", "training_loss", "training_energy"),
    ("free energy of a weight", "free_energy", "free_energy"),
    ("AT eigenvalue", "at_eigenvalue", "at_eigenvalue"),
)


def _easy(given: dict[str, Any]) -> dict[str, Any]:
    """The options with α = 0.5 by default, where message passing converges."""
    few = given["pairing"] == "disjoint" and given["alpha"] is None
    return given | {"alpha": 0.5} if few else given


def cavity(
    *,
    n: Annotated[int, typer.Option("--n", help="Number of weights, N.")] = 1000,
    method: Annotated[str, typer.Option(help="amp, bp, hmc (tempered) or ground.")] = "amp",
    beta: Annotated[
        float | None,
        typer.Option(help="Inverse temperature β (default 50; ground is at zero temperature)."),
    ] = None,
    problem: Annotated[
        "Problem", Fields("fermibose.theory:Problem", {None: _PROBLEM}, completed=_easy)
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
    exact: Annotated[
        bool, typer.Option("--exact", help="Exactly ρP boson pairs, or classes of exact size.")
    ] = False,
    seed: SeedOption = 0,
    output: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("fbm-cavity"),
    force: ForceOption = False,
) -> Any:
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
    if method == "bp" and problem.pairing == "all":
        raise InputError("--method bp is for disjoint pairs: with all pairs use --method amp")
    if method == "bp" and n > 0:
        _check_memory(problem, n)
    path = output / f"{method}_n{n}_seed{seed}.png"
    check_output(output, path.name, force=force)
    instance = sample_instance(problem, n, seed=seed, counts="exact" if exact else "random")
    try:
        theory = solve(problem)
    except ConvergenceError as error:
        console.print(f"[yellow]no theory here:[/] {escape(str(error))}", soft_wrap=True)
        theory = None
    found = _run(method, instance, given)
    size = len(instance.train)
    data = f"P = {size}" if problem.pairing == "disjoint" else f"all pairs of {size} samples"
    say(problem.told())
    numbers = _print(found, theory, title=f"{method}, N = {n}, {data}")
    say(found.verdict)
    _draw(path, method, found, theory, damped=damping != 0 or method == "bp")
    say(f"wrote {path}")
    return {"problem": problem.to_dict(), "verdict": found.verdict, **numbers}


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

    pairs = round(problem.load * n)
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


def _print(found: Any, theory: "Solution | None", *, title: str) -> dict[str, Any]:
    """The instance beside the theory, quantity by quantity; returns the numbers of both."""
    numbers: dict[str, Any] = {"instance": {}, "theory": {}}
    table = Table("", "instance", "theory (N → ∞)", title=title, title_justify="left")
    for label, name, of_theory in _COMPARED:
        form = ".3%" if name == "accuracy" else ".5f"
        if hasattr(found, name):
            value = abs(getattr(found, name)) if name == "M" else getattr(found, name)
            numbers["instance"][name] = value
            expected = "—"
            if theory is not None:
                numbers["theory"][name] = getattr(theory, of_theory)
                expected = format(numbers["theory"][name], form)
            table.add_row(label, format(value, form), expected)
    console.print(table)
    return numbers
