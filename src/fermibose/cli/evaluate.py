"""``fbm evaluate``."""

from pathlib import Path
from typing import Annotated

from rich.markup import escape
from typer import Option

from fermibose.cli.options import (
    FolderOption,
    ModelArgument,
    ModelDataOption,
    TestPerClassOption,
    check_file,
    console,
)
from fermibose.cli.subject import load_subject
from fermibose.files import write_json


def evaluate(
    model: ModelArgument,
    data: ModelDataOption = None,
    folder: FolderOption = None,
    test_per_class: TestPerClassOption = None,
    output: Annotated[Path | None, Option(help="Write the numbers to this JSON file.")] = None,
) -> None:
    """Evaluate a saved model on the test images of a data set, class by class."""
    from rich.table import Table

    from fermibose.machine import evaluate as evaluate_net

    if output is not None:
        check_file(output)
    net, dataset = load_subject(model, data, folder, test_per_class)
    found = evaluate_net(net, dataset.x_test, dataset.y_test)
    title = f"{model} on {dataset.name}, {len(dataset.x_test)} test images"
    table = Table(title=escape(title))
    table.add_column("class")
    table.add_column("accuracy (%)", justify="right")
    table.add_column("most often taken for", justify="right")
    classes = net.config["classes"]
    for k, name in enumerate(classes):
        if name in found.class_accuracy:
            row = found.confusion[k].copy()
            row[k] = 0
            wrong = f"{classes[row.argmax()]} ({row.max()}×)" if row.any() else "—"
            table.add_row(
                escape(str(name)), f"{100 * found.class_accuracy[name]:.1f}", escape(wrong)
            )
    table.add_section()
    table.add_row("all", f"[bold]{100 * found.accuracy:.2f}[/]", "")
    console.print(table)
    if output is not None:
        content = {
            "model": str(model),
            "data": {"name": dataset.name, "checksum": dataset.checksum},
            "accuracy": found.accuracy,
            "cross_entropy": found.cross_entropy,
            "class_accuracy": {str(k): v for k, v in found.class_accuracy.items()},
            "confusion": found.confusion.tolist(),
        }
        write_json(output, content)
