"""``fbm train`` and ``fbm evaluate``."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Option

from fermibose.cli.options import (
    DataOption,
    FolderOption,
    PerClassOption,
    SeedOption,
    TestPerClassOption,
    console,
)
from fermibose.energy import Coupling
from fermibose.errors import InputError
from fermibose.files import write_json

if TYPE_CHECKING:
    from fermibose.data import Dataset
    from fermibose.machine.pairing import Pairing


MACHINE, TRAINING = "Machine", "Training"


def train(
    data: DataOption = "mnist5k",
    folder: FolderOption = None,
    train_per_class: PerClassOption = None,
    test_per_class: TestPerClassOption = None,
    hidden: Annotated[
        str, Option(help="Units of each hidden layer: 1000 or 1000,500.", rich_help_panel=MACHINE)
    ] = "1000",
    d_f: Annotated[
        float, Option(help="Target squared distance of fermion pairs.", rich_help_panel=MACHINE)
    ] = 0.4,
    coupling: Annotated[
        Coupling,
        Option(help="Loss as printed, or as in the published figures.", rich_help_panel=MACHINE),
    ] = "labelled",
    pairing: Annotated[
        Literal["labels", "self"],
        Option(help="Pairs by class, or self-supervised.", rich_help_panel=MACHINE),
    ] = "labels",
    boson_weight: Annotated[
        float, Option(help="Weight of boson pairs.", rich_help_panel=MACHINE)
    ] = 1.0,
    activity: Annotated[
        float, Option(help="Penalty on the mean activity.", rich_help_panel=MACHINE)
    ] = 0.0,
    activation: Annotated[
        Literal["half_tanh", "tanh"],
        Option(help="(1 + tanh z)/2, or tanh z.", rich_help_panel=MACHINE),
    ] = "half_tanh",
    readout: Annotated[
        Literal["cross_entropy", "ridge"],
        Option(help="As in the paper, or in closed form.", rich_help_panel=MACHINE),
    ] = "cross_entropy",
    epochs: Annotated[
        int, Option(help="Epochs for each hidden layer.", rich_help_panel=TRAINING)
    ] = 100,
    readout_epochs: Annotated[
        int, Option(help="Epochs for the readout.", rich_help_panel=TRAINING)
    ] = 100,
    batch_size: Annotated[
        int, Option(help="Images in a mini-batch.", rich_help_panel=TRAINING)
    ] = 50,
    learning_rate: Annotated[
        float, Option(help="Of Adam, for hidden layers.", rich_help_panel=TRAINING)
    ] = 0.01,
    weight_decay: Annotated[
        float, Option(help="λ of (λ/2N)|W|², for hidden layers.", rich_help_panel=TRAINING)
    ] = 0.01,
    seed: SeedOption = 0,
    threads: Annotated[
        int, Option(help="Threads; bits depend on their number.", rich_help_panel=TRAINING)
    ] = 1,
    output: Annotated[Path, Option(help="Folder for model, metrics and curves.")] = Path("fbm-run"),
    force: Annotated[bool, Option("--force", help="Replace the model that OUTPUT holds.")] = False,
) -> None:
    """Train a machine, layer by layer on pairs, then its readout.

    Writes model.safetensors, model.json, metrics.json and curves.png into OUTPUT. Ctrl-C stops
    after the current epoch; the same command goes on from there, to the same bits.
    """
    from fermibose import PairEnergy
    from fermibose.data import load_dataset
    from fermibose.machine.evaluation import summarise
    from fermibose.machine.figures import draw_curves
    from fermibose.machine.recipe import Recipe
    from fermibose.machine.training import train as train_machine

    checkpoint = output / "checkpoint.safetensors"
    if (output / "model.json").exists() and not force:
        raise InputError(
            f"{output} already holds a model; choose another --output, or --force to replace it"
        )
    dataset = load_dataset(
        data, folder=folder, train_per_class=train_per_class, test_per_class=test_per_class
    )
    recipe = Recipe(
        hidden=_widths(hidden),
        energy=PairEnergy(d_f, boson_weight=boson_weight, coupling=coupling),
        pairing=_pairing(pairing, dataset),
        activation=activation,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        activity=activity,
        readout=readout,
        readout_epochs=readout_epochs,
        seed=seed,
        threads=threads,
    )
    started = time.perf_counter()
    training = train_machine(
        dataset.x_train,
        dataset.y_train,
        recipe,
        test=(dataset.x_test, dataset.y_test),
        checkpoint=checkpoint,
    )
    seconds = time.perf_counter() - started
    if training.interrupted:
        console.print(
            f"interrupted; {checkpoint} keeps what is trained. "
            "The same command goes on from there.",
            soft_wrap=True,
        )
        raise typer.Exit(130)
    summary = {
        "data": {"name": dataset.name, "checksum": dataset.checksum},
        "samples": {"train": len(dataset.x_train), "test": len(dataset.x_test)},
        "seconds": round(seconds, 3),
        **summarise(training),
    }
    training.net.info |= {key: summary[key] for key in ("data", "samples", "final")}
    training.net.save(output)
    write_json(output / "metrics.json", summary)
    draw_curves({"machine": training}, output / "curves.png")
    checkpoint.unlink(missing_ok=True)  # not before everything is on disk
    _print_summary(dataset, summary["final"], seconds, output)


def evaluate(
    model: Annotated[Path, typer.Argument(help="Folder written by `fbm train`.")],
    data: DataOption = "mnist5k",
    folder: FolderOption = None,
    test_per_class: TestPerClassOption = None,
    output: Annotated[Path | None, Option(help="Write the numbers to this JSON file.")] = None,
) -> None:
    """Evaluate a saved model on the test images of a data set, class by class."""
    from rich.table import Table

    from fermibose import FermiBoseNet
    from fermibose.data import load_dataset
    from fermibose.machine.evaluation import evaluate as evaluate_net

    net = FermiBoseNet.load(model)
    dataset = load_dataset(data, folder=folder, test_per_class=test_per_class)
    found = evaluate_net(net, dataset.x_test, dataset.y_test)
    table = Table(title=f"{model} on {dataset.name}, {len(dataset.x_test)} test images")
    table.add_column("class")
    table.add_column("accuracy (%)", justify="right")
    table.add_column("most often taken for", justify="right")
    classes = net.config["classes"]
    for k, name in enumerate(classes):
        if name in found.class_accuracy:
            row = found.confusion[k].copy()
            row[k] = 0
            wrong = f"{classes[row.argmax()]} ({row.max()}×)" if row.any() else "—"
            table.add_row(str(name), f"{100 * found.class_accuracy[name]:.1f}", wrong)
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


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--hidden takes widths like 1000 or 1000,500, got {text!r}") from None


def _pairing(choice: str, dataset: "Dataset") -> "Pairing":
    from fermibose.machine.pairing import ByLabel, Noise, SelfSupervised, Shift

    if choice == "labels":
        return ByLabel()
    if dataset.image_shape is None:
        return SelfSupervised((Noise(),))
    return SelfSupervised((Shift(dataset.image_shape), Noise()))


def _print_summary(
    dataset: "Dataset", final: dict[str, float], seconds: float, output: Path
) -> None:
    from rich.table import Table

    table = Table(title=f"{dataset.name}: trained in {seconds:.1f} s")
    table.add_column("quantity")
    table.add_column("value", justify="right")
    for name, value in final.items():
        if name.endswith("accuracy"):
            label = name.replace("_", " ").replace("train ", "training ")
            table.add_row(f"{label} (last epochs)", f"{100 * value:.2f} %")
    for name in sorted(final):
        if name.startswith("layer"):
            table.add_row(name.replace("_", " "), f"{final[name]:.4f}")
    console.print(table)
    console.print(f"written to {output}: model, metrics.json, curves.png", soft_wrap=True)
