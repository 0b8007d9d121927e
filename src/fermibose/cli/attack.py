"""``fbm attack`` and ``fbm audit``: a saved model under attack, and whether that can be trusted."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape
from typer import Option

from fermibose.cli.options import (
    AttackedOption,
    EpsilonOption,
    FolderOption,
    ForceOption,
    ModelArgument,
    ModelDataOption,
    SeedOption,
    ThreadsOption,
    check_output,
    console,
    say,
)
from fermibose.cli.subject import identity, load_attacked, title
from fermibose.errors import InputError
from fermibose.files import write_json

if TYPE_CHECKING:
    from fermibose import FermiBoseNet
    from fermibose.attacks import AttackResult, Curve, ThreatModel
    from fermibose.data import Dataset


RECORD, AUDIT = "attack.json", "audit.json"  # what the commands write first
# Names on the command line and the functions of fermibose.attacks that they stand for
_FUNCTIONS = {
    "fgsm": "fgsm",
    "one_step_l2": "one_step_l2",
    "pgd": "pgd",
    "noise": "gaussian_noise",
    "auto": "auto_attack",
}
if TYPE_CHECKING:
    AttackName = str
else:  # typer's lists take no Literal
    AttackName = StrEnum("AttackName", list(_FUNCTIONS))


def attack(
    model: ModelArgument,
    norm: Annotated[
        Literal["linf", "l2", "noise"], Option(help="What bounds the change of an image.")
    ] = "linf",
    eps: EpsilonOption = 0.1,
    attacks: Annotated[
        list[AttackName] | None,
        Option(
            "--attack",
            metavar="NAME",
            help=f"{', '.join(_FUNCTIONS)}; may be given several times. By default one step and "
            "PGD, or noise. `auto` is AutoAttack.",
        ),
    ] = None,
    steps: Annotated[int | None, Option(min=1, help="Steps of PGD (default 40).")] = None,
    restarts: Annotated[
        int, Option(min=1, help="Random starts of PGD, for each loss it climbs.")
    ] = 1,
    certify: Annotated[
        bool,
        Option(
            "--certify",
            help="Also prove how many withstand any attack; with several hidden layers it takes "
            "minutes.",
        ),
    ] = False,
    data: ModelDataOption = None,
    folder: FolderOption = None,
    per_class: AttackedOption = 100,
    seed: SeedOption = 0,
    threads: ThreadsOption = 1,
    output: Annotated[Path, Option(help="Folder for numbers and figures.")] = Path("fbm-attack"),
    force: ForceOption = False,
) -> Any:
    """Attack a saved model on the test images of a data set.

    Writes attack.json as each attack finishes, curve.png (accuracy against strength) and
    examples.png into OUTPUT. Ctrl-C stops; finished attacks are kept.
    """
    from fermibose.attacks import (
        ThreatModel,
        certified_radius,
        check_attack,
        check_certifiable,
        robustness_area,
    )
    from fermibose.machine import compute_settings
    from fermibose.threat import require

    threat = ThreatModel(norm, eps)
    chosen = attacks or {"linf": ["fgsm", "pgd"], "l2": ["one_step_l2", "pgd"]}.get(norm, ["noise"])
    for name in chosen:  # one that cannot run is refused before any does
        check_attack(_FUNCTIONS[name], threat)
    if certify:
        require(threat, "a certificate", "linf", "l2")
    check_output(output, RECORD, force=force)
    net, dataset = load_attacked(model, data, folder, per_class)
    if certify:
        check_certifiable(net)
    results: list[AttackResult] = []
    record = identity(model, dataset) | {"results": []}
    try:
        with compute_settings(threads):
            for name in dict.fromkeys(chosen):
                method = _attack_named(name, steps=steps, restarts=restarts, seed=seed)
                results.append(method(net, dataset.x_test, dataset.y_test, threat))
                record["results"].append(results[-1].as_dict())
                write_json(output / RECORD, record)
            curve = _curve(net, dataset, threat, seed)
            if certify:
                images = (dataset.x_test, dataset.y_test)
                norm = "l2" if threat.norm == "l2" else "linf"
                proved = certified_radius(net, *images, norm=norm, bounds=threat.bounds)
    except KeyboardInterrupt:
        _print_results(model, dataset, results)
        kept = f"finished attacks are in {output / RECORD}" if results else "nothing is written"
        say(f"interrupted; {kept}")
        raise typer.Exit(130) from None
    record["curve"] = curve.as_dict()
    curves = {f"{curve.attack}, area {robustness_area(curve):.1f}": curve}
    if certify:
        record["certificate"] = proved.as_dict()
        curves["proved for any attack"] = proved.curve(curve.epsilons)
    # On disk before a word is printed: who reads the words may close the pipe
    write_json(output / RECORD, record)
    figures = _draw(net, dataset, curves, results, output)
    _print_results(model, dataset, results)
    if certify:
        _print_proved(float(proved.accuracy(eps)[0]), threat)
    say(f"written to {output}: {RECORD}, {', '.join(figures)}")
    return record


def _attack_named(name: str, **options: Any) -> "Callable[..., AttackResult]":
    """The attack with those of the options that it takes; one that is None keeps its default."""
    from functools import partial
    from inspect import signature

    from fermibose import attacks

    function = getattr(attacks, _FUNCTIONS[name])
    takes = signature(function).parameters
    given = {key: value for key, value in options.items() if value is not None and key in takes}
    return partial(function, **given)


def _curve(net: "FermiBoseNet", dataset: "Dataset", threat: "ThreatModel", seed: int) -> "Curve":
    """The one-step or noise curve, to the paper's largest strength or twice the one asked for."""
    import numpy as np

    from fermibose.attacks import LARGEST, PAPER_STRENGTHS, accuracy_curve

    strengths: Any = PAPER_STRENGTHS
    if threat.norm == "l2":
        strengths = np.linspace(0, min(2 * threat.epsilon, LARGEST) or 1.0, 41)
    return accuracy_curve(
        net, dataset.x_test, dataset.y_test, threat, epsilons=strengths, seed=seed
    )


def _print_results(model: Path, dataset: "Dataset", results: "list[AttackResult]") -> None:
    from rich.table import Table

    if not results:
        return
    threat = results[0].threat
    clean = 100 * results[0].clean_accuracy
    caption = f"without attack {clean:.1f} % of these {len(dataset.x_test)} images"
    table = Table(title=title(model, dataset), caption=caption)
    table.add_column("attack")
    for column in (f"accuracy (%) at {threat.norm} {threat.epsilon:g}", "± (%)", "time (s)"):
        table.add_column(column, justify="right")
    for result in results:
        table.add_row(
            result.attack,
            f"{100 * result.robust_accuracy:.1f}",
            f"{100 * result.standard_error:.1f}",
            f"{result.seconds:.1f}",
        )
    console.print(table)
    for result in results:
        for flag in result.flags:
            console.print(f"[bold yellow]{result.attack}:[/] {escape(flag)}", soft_wrap=True)


def _print_proved(accuracy: float, threat: "ThreatModel") -> None:
    where = f"{threat.norm} {threat.epsilon:g}"
    console.print(f"proved: {100 * accuracy:.1f} % withstand any attack within {where}")


def _draw(
    net: "FermiBoseNet",
    dataset: "Dataset",
    curves: "dict[str, Curve]",
    results: "list[AttackResult]",
    output: Path,
) -> list[str]:
    from fermibose.attacks import AXIS, draw_accuracy, draw_examples

    name = dataset.name.replace("$", r"\$")  # which begins a formula
    heading = f"{name}, {len(dataset.x_test)} test images"
    draw_accuracy(
        {heading: curves},
        output / "curve.png",
        axes_labels=[AXIS[results[0].threat.norm]],
        points=results,
    )
    if dataset.image_shape is None:
        return ["curve.png"]
    draw_examples(
        net,
        dataset.x_test,
        dataset.y_test,
        results[-1],
        output / "examples.png",
        image_shape=dataset.image_shape,
        classes=net.config["classes"],
    )
    return ["curve.png", "examples.png"]


def audit(
    model: ModelArgument,
    norm: Annotated[Literal["linf", "l2"], Option(help="What bounds the change.")] = "linf",
    eps: EpsilonOption = 0.1,
    probe: Annotated[int, Option(help="Images that the checks look at.")] = 200,
    tolerance: Annotated[
        float, Option(help="Fraction of images by which two attacks may differ.")
    ] = 0.02,
    data: ModelDataOption = None,
    folder: FolderOption = None,
    per_class: AttackedOption = 100,
    seed: SeedOption = 0,
    threads: ThreadsOption = 1,
    output: Annotated[Path, Option(help="Folder for the evidence.")] = Path("fbm-audit"),
    force: ForceOption = False,
) -> Any:
    """Attack a saved model with everything, and say whether the robust accuracy can be trusted.

    Below the verdict, what is proved: the accuracy that no attack whatever can undercut.

    Writes audit.json and audit.png into OUTPUT. Exits with 0 whatever the verdict. Every attack and
    check is kept as it finishes: after Ctrl-C the same command goes on from there.
    """
    from rich.table import Table

    from fermibose.attacks import ThreatModel, certify, check_certifiable, draw_audit
    from fermibose.attacks import audit as run_audit
    from fermibose.machine import compute_settings

    threat = ThreatModel(norm, eps)
    check_output(output, AUDIT, force=force)
    net, dataset = load_attacked(model, data, folder, per_class)
    x, y = dataset.x_test, dataset.y_test
    checkpoint = output / "audit.checkpoint.json"
    settings: dict[str, Any] = {"probe": probe, "tolerance": tolerance, "seed": seed}
    proved, unproved = None, ""
    try:
        check_certifiable(net)
    except InputError as error:
        unproved = f"Nothing is proved: {error}"
    try:
        with compute_settings(threads):
            found = run_audit(net, x, y, threat, checkpoint=checkpoint, **settings)
            proved = None if unproved else certify(net, x, y, threat).accuracy
    except KeyboardInterrupt:
        kept = f"{checkpoint} keeps what is done. The same command goes on from there."
        say(f"interrupted; {kept if checkpoint.exists() else 'nothing is done yet'}")
        raise typer.Exit(130) from None
    record = identity(model, dataset) | found.as_dict() | {"certified_accuracy": proved}
    write_json(output / AUDIT, record)
    draw_audit(found, output / "audit.png")
    checkpoint.unlink(missing_ok=True)  # not before everything is on disk
    table = Table(title=title(model, dataset))
    table.add_column("check")
    table.add_column("", justify="center")
    table.add_column("evidence", overflow="fold")
    for check in found.checks:
        style = {"passed": "green", "inconclusive": "yellow", "FAILED": "bold red"}[check.outcome]
        table.add_row(check.name, f"[{style}]{check.outcome}[/]", escape(check.evidence))
    console.print(table)
    console.print(f"[bold]{escape(found.verdict)}[/]", soft_wrap=True)
    if proved is None:
        console.print(escape(unproved), soft_wrap=True)
    else:
        _print_proved(proved, threat)
    say(f"written to {output}: {AUDIT}, audit.png")
    return record
