"""``fbm demo``: the machine beside the MLP on the bundled images, with the paper's settings."""

import time
from pathlib import Path
from typing import Annotated

import typer

from fermibose.cli.options import SeedOption, console
from fermibose.files import write_json


def demo(
    output: Annotated[Path, typer.Option(help="Folder for models, numbers and figures.")] = Path(
        "fbm-demo"
    ),
    epochs: Annotated[int, typer.Option(help="Epochs of every training.")] = 100,
    seed: SeedOption = 0,
) -> None:
    """Train the machine and the MLP of the same shape on 1000 bundled digits, and compare them."""
    from rich.table import Table

    from fermibose.data import load_dataset
    from fermibose.machine.baselines import train_mlp
    from fermibose.machine.evaluation import summarise
    from fermibose.machine.figures import draw_curves
    from fermibose.machine.recipe import Recipe
    from fermibose.machine.training import train

    dataset = load_dataset("mnist5k")
    recipe = Recipe(seed=seed, epochs=epochs, readout_epochs=epochs)
    console.print(
        f"{len(dataset.x_train)} training and {len(dataset.x_test)} test digits, 784-1000-10, "
        f"d_F = {recipe.energy.d_f:g}, {epochs} epochs",
        soft_wrap=True,
    )
    trainings, summaries = {}, {}
    for name, fit in (("machine", train), ("MLP", train_mlp)):
        started = time.perf_counter()
        trainings[name] = fit(
            dataset.x_train, dataset.y_train, recipe, test=(dataset.x_test, dataset.y_test)
        )
        if trainings[name].interrupted:
            console.print("interrupted; nothing is written")
            raise typer.Exit(130)
        summaries[name] = {
            "seconds": round(time.perf_counter() - started, 2),
            **summarise(trainings[name]),
        }
        trainings[name].net.save(output / name.lower())

    table = Table(title="Fermi-Bose machine and MLP")
    for column in ("", "test (%)", "training (%)", "fermion D²", "boson D²", "time (s)"):
        table.add_column(column, justify="right" if column else "left")
    for name, summary in summaries.items():
        final = summary["final"]
        distances = [final.get(f"layer 1 {kind}_distance") for kind in ("fermion", "boson")]
        table.add_row(
            name,
            f"{100 * final['test_accuracy']:.2f}",
            f"{100 * final['train_accuracy']:.2f}",
            *("—" if value is None else f"{value:.3f}" for value in distances),
            f"{summary['seconds']:.1f}",
        )
    console.print(table)
    write_json(output / "comparison.json", summaries)
    draw_curves(trainings, output / "curves.png")
    console.print(f"written to {output}: models, comparison.json, curves.png", soft_wrap=True)
