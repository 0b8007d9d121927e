"""``fbm train``."""

import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from typer import Option

from fermibose.cli import machine_options as opt
from fermibose.cli.options import (
    DataOption,
    FolderOption,
    PerClassOption,
    SeedOption,
    TestPerClassOption,
    ThreadsOption,
    check_folder,
    console,
    say,
)
from fermibose.cli.subject import origin
from fermibose.errors import InputError
from fermibose.files import write_json

if TYPE_CHECKING:
    from fermibose.data import Dataset
    from fermibose.machine import Pairing, Recipe, Training


def train(
    data: DataOption = "mnist5k",
    folder: FolderOption = None,
    train_per_class: PerClassOption = None,
    test_per_class: TestPerClassOption = None,
    hidden: opt.HiddenOption = "1000",
    d_f: opt.DistanceOption = 0.4,
    coupling: opt.CouplingOption = "labelled",
    pairing: opt.PairingOption = "labels",
    noise: opt.NoiseOption = None,
    shift: opt.ShiftOption = None,
    boson_weight: opt.BosonWeightOption = 1.0,
    activity: opt.ActivityOption = 0.0,
    activation: opt.ActivationOption = "half_tanh",
    readout: opt.ReadoutOption = "cross_entropy",
    ridge: opt.RidgeOption = None,
    epochs: opt.EpochsOption = 100,
    readout_epochs: opt.ReadoutEpochsOption = 100,
    batch_size: opt.BatchSizeOption = 50,
    learning_rate: opt.LearningRateOption = 0.01,
    weight_decay: opt.WeightDecayOption = 0.01,
    seed: SeedOption = 0,
    threads: ThreadsOption = 1,
    output: Annotated[Path, Option(help="Folder for model, metrics and curves.")] = Path("fbm-run"),
    force: Annotated[bool, Option("--force", help="Replace the model that OUTPUT holds.")] = False,
) -> None:
    """Train a machine, layer by layer on pairs, then its readout.

    Writes model.safetensors, model.json, metrics.json and curves.png into OUTPUT. Ctrl-C stops
    after the current epoch; the same command goes on from there, to the same bits.
    """
    from fermibose import PairEnergy
    from fermibose.data import load_dataset
    from fermibose.machine import Recipe

    opt.check_idle(readout, pairing, ridge=ridge, noise=noise, shift=shift)
    check_folder(output)
    if (output / "model.json").exists() and not force:
        raise InputError(
            f"{output} already holds a model; choose another --output, or --force to replace it"
        )
    counts = {"train_per_class": train_per_class, "test_per_class": test_per_class}
    dataset = load_dataset(data, folder=folder, **counts)
    recipe = Recipe(
        hidden=_widths(hidden),
        energy=PairEnergy(d_f, boson_weight=boson_weight, coupling=coupling),
        pairing=_pairing(pairing, dataset, noise, shift),
        activation=activation,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        activity=activity,
        readout=readout,
        readout_epochs=readout_epochs,
        ridge=Recipe.ridge if ridge is None else ridge,
        seed=seed,
        threads=threads,
    )
    _check_memory(recipe, dataset)
    checkpoint = output / "checkpoint.safetensors"
    training, seconds = _learn(recipe, dataset, checkpoint)
    final = _save(training, dataset, origin(dataset, data, folder, **counts), seconds, output)
    checkpoint.unlink(missing_ok=True)  # not before everything is on disk
    _print_summary(dataset, final, seconds, output)


def _learn(recipe: "Recipe", dataset: "Dataset", checkpoint: Path) -> "tuple[Training, float]":
    """Train, from the checkpoint if there is one; returns the seconds it took, too."""
    from fermibose.compute import Interrupted
    from fermibose.machine import train as train_machine

    started = time.perf_counter()
    try:
        training = train_machine(
            dataset.x_train,
            dataset.y_train,
            recipe,
            test=(dataset.x_test, dataset.y_test),
            checkpoint=checkpoint,
        )
    except Interrupted as stop:  # perhaps in the last epoch, with nothing left to do
        training = stop.done
    seconds = time.perf_counter() - started
    if training.interrupted:
        say(
            f"interrupted; {checkpoint} keeps what is trained. The same command goes on from there."
        )
        raise typer.Exit(130)
    return training, seconds


def _save(
    training: "Training", dataset: "Dataset", source: Any, seconds: float, output: Path
) -> dict[str, float]:
    """Write model, metrics and curves; returns the final numbers."""
    from fermibose.machine import draw_curves, summarise

    summary = {
        "data": source,
        "samples": {"train": len(dataset.x_train), "test": len(dataset.x_test)},
        "seconds": round(seconds, 3),
        **summarise(training),
    }
    training.net.info |= {key: summary[key] for key in ("data", "samples", "final")}
    training.net.save(output)
    write_json(output / "metrics.json", summary)
    draw_curves({"machine": training}, output / "curves.png")
    final: dict[str, float] = summary["final"]
    return final


def _widths(text: str) -> tuple[int, ...]:
    try:
        widths = tuple(int(part) for part in text.split(","))
    except ValueError:
        widths = ()
    if not widths or min(widths) < 1:
        raise InputError(
            f"--hidden takes widths of at least 1, like 1000 or 1000,500, got {text!r}"
        )
    return widths


def _check_memory(recipe: "Recipe", dataset: "Dataset") -> None:
    """Refuse a net that cannot fit before the system kills the process for want of memory."""
    from fermibose import checks

    widths = [dataset.x_train.shape[1], *recipe.hidden]
    weights = [inputs * units for inputs, units in pairwise(widths)]
    learning = 3 * max(weights)  # the gradient of a layer and Adam's two moments
    reading = (len(dataset.x_train) + len(dataset.x_test)) * widths[-1]  # what the readout sees
    checks.memory(
        f"--hidden {','.join(map(str, recipe.hidden))} takes at least",
        4.0 * (sum(weights) + max(learning, reading)),  # in float32
        "use fewer units",
    )


def _pairing(choice: str, dataset: "Dataset", noise: float | None, shift: int | None) -> "Pairing":
    from fermibose.machine import ByLabel, Noise, SelfSupervised, Shift

    if choice == "labels":
        return ByLabel()
    noisy = Noise() if noise is None else Noise(noise)
    if dataset.image_shape is not None:
        moved = Shift(dataset.image_shape, Shift.pixels if shift is None else shift)
        return SelfSupervised((moved, noisy))
    if shift is not None:
        raise InputError(f"--shift is for images, which {dataset.name} does not hold: leave it out")
    return SelfSupervised((noisy,))


def _print_summary(
    dataset: "Dataset", final: dict[str, float], seconds: float, output: Path
) -> None:
    from rich.table import Table

    table = Table(title=escape(f"{dataset.name}: trained in {seconds:.1f} s"))
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
    say(f"written to {output}: model, metrics.json, curves.png")
