"""``fbm train`` and ``fbm evaluate``: from options to a saved model, and how good it is."""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape
from typer import Option

from fermibose.cli.options import (
    DataOption,
    Fields,
    FolderOption,
    ModelArgument,
    ModelDataOption,
    PerClassOption,
    SeedOption,
    TestPerClassOption,
    ThreadsOption,
    check_file,
    check_folder,
    console,
    say,
)
from fermibose.cli.subject import identity, load_subject, origin
from fermibose.errors import InputError
from fermibose.files import write_json

if TYPE_CHECKING:
    from fermibose import PairEnergy
    from fermibose.data import Dataset
    from fermibose.machine import ByLabel, Recipe, SelfSupervised, Training

MACHINE, TRAINING = "Machine", "Training"  # headings in the help
ENERGY = Fields(
    "fermibose.energy:PairEnergy",
    {
        MACHINE: {
            "d_f": "Target squared distance of fermion pairs.",
            "coupling": "Loss as printed, or as in the published figures.",
            "boson_weight": "Weight of boson pairs.",
        }
    },
)
RECIPE = Fields(
    "fermibose.machine:Recipe",
    {
        MACHINE: {
            "activity": "Penalty on the mean activity.",
            "activation": "(1 + tanh z)/2, tanh z, or max(z, 0).",
            "readout": "As in the paper, or in closed form.",
        },
        TRAINING: {
            "epochs": "Epochs for each hidden layer.",
            "readout_epochs": "Epochs for the readout.",
            "batch_size": "Images in a mini-batch.",
            "learning_rate": "Of Adam, for hidden layers.",
            "schedule": "Whether the rate falls to 0, along half a cosine.",
            "averaging": "Decay of a running mean of hidden weights; 0: the last ones.",
            "weight_decay": "λ of (λ/2N)|W|², for hidden layers.",
        },
    },
    types={
        "activation": Literal["half_tanh", "tanh", "relu"],
        "readout": Literal["cross_entropy", "ridge", "prototype"],
        "epochs": int,
        "learning_rate": float,
    },
)
# What the command line says otherwise than the fields of a recipe.
HiddenOption = Annotated[
    str, Option(help="Units of each hidden layer: 1000 or 1000,500.", rich_help_panel=MACHINE)
]
PairingOption = Annotated[
    Literal["labels", "self"],
    Option(help="Pairs by class, or self-supervised.", rich_help_panel=MACHINE),
]
NoiseOption = Annotated[
    float | None,
    Option(
        help="Deviation of the noise of self-supervised pairs (default 0.2).",
        rich_help_panel=MACHINE,
    ),
]
ShiftOption = Annotated[
    int | None,
    Option(
        help="Largest shift of self-supervised pairs, in pixels (default 2).",
        rich_help_panel=MACHINE,
    ),
]
RidgeOption = Annotated[
    float | None,
    Option(help="Penalty of the ridge readout (default 0.01).", rich_help_panel=MACHINE),
]


def train(
    *,
    data: DataOption = "mnist5k",
    folder: FolderOption = None,
    train_per_class: PerClassOption = None,
    test_per_class: TestPerClassOption = None,
    hidden: HiddenOption = "1000",
    energy: Annotated["PairEnergy", ENERGY],
    pairing: PairingOption = "labels",
    noise: NoiseOption = None,
    shift: ShiftOption = None,
    recipe: Annotated["Recipe", RECIPE],
    ridge: RidgeOption = None,
    seed: SeedOption = 0,
    threads: ThreadsOption = 1,
    output: Annotated[Path, Option(help="Folder for model, metrics and curves.")] = Path("fbm-run"),
    force: Annotated[bool, Option("--force", help="Replace the model that OUTPUT holds.")] = False,
) -> None:
    """Train a machine, layer by layer on pairs, then its readout.

    Writes model.safetensors, model.json, metrics.json and curves.png into OUTPUT. Ctrl-C stops
    after the current epoch; the same command goes on from there, to the same bits.
    """
    from fermibose.data import load_dataset
    from fermibose.machine import train as train_machine

    _check_idle(str(recipe.readout), pairing, ridge=ridge, noise=noise, shift=shift)
    check_folder(output)
    if (output / "model.json").exists() and not force:
        raise InputError(
            f"{output} already holds a model; choose another --output, or --force to replace it"
        )
    counts = {"train_per_class": train_per_class, "test_per_class": test_per_class}
    dataset = load_dataset(data, folder=folder, **counts)
    recipe = replace(
        recipe,
        hidden=_widths(hidden),
        energy=energy,
        pairing=_pairing(pairing, dataset, noise, shift),
        ridge=recipe.ridge if ridge is None else ridge,
        seed=seed,
        threads=threads,
    )
    _check_memory(recipe, dataset)
    checkpoint = output / "checkpoint.safetensors"
    word = f"interrupted; {checkpoint} keeps what is trained. The same command goes on from there."
    training, seconds = learn(train_machine, dataset, recipe, word, checkpoint=checkpoint)
    final = _save(training, dataset, origin(dataset, data, folder, **counts), seconds, output)
    checkpoint.unlink(missing_ok=True)  # not before everything is on disk
    _print_summary(dataset, final, seconds, output)


def learn(
    fit: "Callable[..., Training]",
    dataset: "Dataset",
    recipe: "Recipe",
    word: str,
    **how: Any,
) -> "tuple[Training, float]":
    """Train on a data set, and take the seconds; after Ctrl-C, leave with ``word``.

    Warnings are printed as lines of their own, without the place in the source they come from.
    """
    from fermibose.compute import Interrupted

    test = (dataset.x_test, dataset.y_test)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *place, **more: say(f"warning: {message}")
        try:
            training = fit(dataset.x_train, dataset.y_train, recipe, test=test, **how)
        except Interrupted as stop:  # perhaps in the last epoch, with nothing left to do
            training = stop.done
    if training.interrupted:
        say(word)
        raise typer.Exit(130)
    return training, time.perf_counter() - started


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


def _check_idle(readout: str, pairing: str, **given: float | None) -> None:
    """Refuse an option that the readout or pairing chosen would ignore."""
    for name, value in given.items():
        needed = "--readout ridge" if name == "ridge" else "--pairing self"
        if value is not None and needed not in (f"--readout {readout}", f"--pairing {pairing}"):
            raise InputError(f"--{name} is for {needed} only: leave it out, or add {needed}")


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


def _pairing(
    choice: str, dataset: "Dataset", noise: float | None, shift: int | None
) -> "ByLabel | SelfSupervised":
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
        content = identity(model, dataset) | {
            "accuracy": found.accuracy,
            "cross_entropy": found.cross_entropy,
            "class_accuracy": {str(k): v for k, v in found.class_accuracy.items()},
            "confusion": found.confusion.tolist(),
        }
        write_json(output, content)
