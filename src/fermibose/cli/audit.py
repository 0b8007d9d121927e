"""``fbm audit``."""

from pathlib import Path
from typing import Annotated, Literal

from rich.markup import escape
from typer import Option

from fermibose.cli.options import (
    AttackedOption,
    EpsilonOption,
    FolderOption,
    ModelArgument,
    ModelDataOption,
    SeedOption,
    ThreadsOption,
    check_folder,
    console,
    say,
)
from fermibose.cli.subject import load_attacked, title
from fermibose.files import write_json


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
) -> None:
    """Attack a saved model with everything, and say whether the robust accuracy can be trusted.

    Writes audit.json and audit.png into OUTPUT. Exits with 0 whatever the verdict.
    """
    from rich.table import Table

    from fermibose.attacks import ThreatModel, draw_audit
    from fermibose.attacks import audit as run_audit
    from fermibose.machine.compute import compute_settings

    threat = ThreatModel(norm, eps)
    check_folder(output)
    net, dataset = load_attacked(model, data, folder, per_class)
    x, y = dataset.x_test, dataset.y_test
    with compute_settings(threads):
        found = run_audit(net, x, y, threat, probe=probe, tolerance=tolerance, seed=seed)
    table = Table(title=title(model, dataset))
    table.add_column("check")
    table.add_column("", justify="center")
    table.add_column("evidence", overflow="fold")
    for check in found.checks:
        style = {"passed": "green", "inconclusive": "yellow", "FAILED": "bold red"}[check.outcome]
        table.add_row(check.name, f"[{style}]{check.outcome}[/]", escape(check.evidence))
    console.print(table)
    console.print(f"[bold]{escape(found.verdict)}[/]", soft_wrap=True)
    source = {"model": str(model), "data": {"name": dataset.name, "checksum": dataset.checksum}}
    write_json(output / "audit.json", source | found.as_dict())
    draw_audit(found, output / "audit.png")
    say(f"written to {output}: audit.json, audit.png")
