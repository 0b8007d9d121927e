"""``fbm train`` and ``fbm evaluate``: from options to a saved model, and how good it is."""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape
from typer import Option

from fermibose.cli.options import (
    DataOption,
    Fields,
    FolderOption,
    ForceOption,
    ModelArgument,
    ModelDataOption,
    PerClassOption,
    SeedOption,
    TargetOption,
    TestPerClassOption,
    ThreadsOption,
    check_file,
    check_output,
    console,
    say,
)
from fermibose.cli.subject import identity, load_subject, origin
from fermibose.errors import InputError
from fermibose.files import write_json

if TYPE_CHECKING:
    import torch

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
            "readout": "cross_entropy as in the paper, or in closed form ridge or prototype.",
        },
        TRAINING: {
            "epochs": "Epochs for each hidden layer; 0: it keeps its random weights.",
            "readout_epochs": "Epochs for a readout by cross-entropy.",
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
    metavars={"readout": "NAME"},
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
DeviceOption = Annotated[
    str, Option(help="Where to learn: cpu, cuda, mps …", rich_help_panel=TRAINING)
]
RidgeOption = Annotated[
    float | None,
    Option(help="Penalty of the ridge readout (default 0.01).", rich_help_panel=MACHINE),
]


def train(
    context: typer.Context,
    *,
    data: DataOption = "mnist5k",
    folder: FolderOption = None,
    target: TargetOption = None,
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
    device: DeviceOption = "cpu",
    output: Annotated[Path, Option(help="Folder for model, metrics and curves.")] = Path(
        "fbm-train"
    ),
    force: ForceOption = False,
) -> Any:
    """Train a machine, layer by layer on pairs, then its readout.

    A table (`--data iris.csv --target species`) gets the settings of tables, where none are given:
    its features are standardised inside the model.

    Writes model.safetensors, model.json, metrics.json and curves.png into OUTPUT. Ctrl-C stops
    after the current epoch; the same command goes on from there, to the same bits.

    `torchrun --nproc-per-node 4 -m fermibose train …` shares every mini-batch among 4 processes.
    """
    from fermibose.data import load_dataset
    from fermibose.machine import device_of, joined
    from fermibose.machine import train as train_machine

    _check_idle(recipe, pairing, ridge=ridge, noise=noise, shift=shift)
    widths = _widths(hidden)
    counts = {"train_per_class": train_per_class, "test_per_class": test_per_class}
    where = device_of(device)
    with joined(where) as ranks:
        console.quiet = not ranks.first
        if ranks.first:
            check_output(output, "model.json", "metrics.json", force=force)
        dataset = load_dataset(data, folder=folder, target=target, **counts)
        if dataset.classes is not None:
            recipe, energy = _for_tables(recipe, energy, context)
        recipe = replace(
            recipe,
            hidden=widths,
            energy=energy,
            pairing=_pairing(pairing, dataset, noise, shift),
            ridge=recipe.ridge if ridge is None else ridge,
            seed=seed,
            threads=threads,
        )
        _check_memory(recipe, dataset)
        checkpoint = output / "checkpoint.safetensors"
        word = (
            f"interrupted; {checkpoint} keeps what is trained. The same command goes on from there."
        )
        training, seconds = learn(
            train_machine, dataset, recipe, word, where, checkpoint=checkpoint, ranks=ranks
        )
        if not ranks.first:
            return None
    if dataset.classes is not None:
        training.net.config["classes"] = list(dataset.classes)
    final = _save(training, dataset, origin(dataset, data, folder, **counts), seconds, output)
    checkpoint.unlink(missing_ok=True)  # not before everything is on disk
    _print_summary(dataset, training, final, seconds, output)
    return {"data": dataset.name, "seconds": seconds, "final": final, "output": str(output)}


def learn(
    fit: "Callable[..., Training]",
    dataset: "Dataset",
    recipe: "Recipe",
    word: str,
    device: "torch.device | None" = None,
    **how: Any,
) -> "tuple[Training, float]":
    """Train on a data set, and take the seconds; after Ctrl-C, leave with ``word``.

    Warnings are printed as lines of their own, without the place in the source they come from.
    """
    from torch import from_numpy

    from fermibose.compute import Interrupted
    from fermibose.machine import RangeWarning, rescaling

    x_train: Any = dataset.x_train
    x_test: Any = dataset.x_test
    table = dataset.classes is not None
    # Features of a table are standardised, and the net does it by itself from then on.
    scaling = rescaling(x_train, "standard" if table else "none")
    inputs: Any = scaling(x_train)
    test = (scaling(x_test), dataset.y_test)
    if device is not None and device.type != "cpu":
        inputs = from_numpy(inputs).float().to(device)  # which the training follows
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *place, **more: say(f"warning: {message}")
        if table:
            warnings.simplefilter("ignore", RangeWarning)
        try:
            training = fit(inputs, dataset.y_train, recipe, test=test, **how)
        except Interrupted as stop:  # perhaps in the last epoch, with nothing left to do
            training = stop.done
    if scaling.offset is not None and scaling.gain is not None:
        training.net.take_raw_inputs(from_numpy(scaling.offset), from_numpy(scaling.gain))
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


_NEEDED = {
    "ridge": "--readout ridge",
    "noise": "--pairing self",
    "shift": "--pairing self",
    "readout_epochs": "--readout cross_entropy",
}


def _check_idle(recipe: "Recipe", pairing: str, **given: float | None) -> None:
    """Refuse an option that the readout or pairing chosen would ignore."""
    if recipe.readout_epochs != type(recipe).readout_epochs:
        given["readout_epochs"] = recipe.readout_epochs
    for name, value in given.items():
        needed, chosen = _NEEDED[name], (f"--readout {recipe.readout}", f"--pairing {pairing}")
        if value is not None and needed not in chosen:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} is for {needed} only: leave it out, or add {needed}")
    if recipe.readout == "cross_entropy" and recipe.readout_epochs == 0:
        raise InputError(
            "--readout-epochs 0 leaves the readout as it was drawn, and the machine guesses: give "
            "at least 1, or --readout ridge, which has none"
        )


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


def _for_tables(
    recipe: "Recipe", energy: "PairEnergy", context: typer.Context
) -> "tuple[Recipe, PairEnergy]":
    """The preset of tables in place of what was left out on the command line."""
    from fermibose.machine import preset

    def left(name: str) -> bool:
        source = context.get_parameter_source(name)
        return source is None or source.name == "DEFAULT"  # None: there is no such option

    chosen = preset("table")
    if left("boson_weight"):
        energy = replace(energy, boson_weight=chosen["energy"].boson_weight)
    del chosen["energy"]
    return replace(recipe, **{k: v for k, v in chosen.items() if left(k)}), energy


def _check_memory(recipe: "Recipe", dataset: "Dataset") -> None:
    """Refuse a net that cannot fit before the system kills the process for want of memory."""
    from fermibose import checks
    from fermibose.machine import memory_of

    samples, inputs = len(dataset.x_train) + len(dataset.x_test), dataset.x_train.shape[1]
    checks.memory(
        f"--hidden {','.join(map(str, recipe.hidden))} with --batch-size {recipe.batch_size} takes "
        "at least",
        memory_of(recipe, samples=samples, inputs=inputs),
        "use fewer units, or smaller mini-batches",
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


_RECORDED = {  # what the records of a layer are called in the table
    "boson_distance": "D² of boson pairs",
    "fermion_distance": "D² of fermion pairs",
    "energy": "energy of a pair",
    "boson_share": "fraction of boson pairs",
}


def _print_summary(
    dataset: "Dataset",
    training: "Training",
    final: dict[str, float],
    seconds: float,
    output: Path,
) -> None:
    from rich.table import Table

    from fermibose.statistics import LAST_BATCHES, LAST_EPOCHS

    table = Table(title=escape(f"{dataset.name}: trained in {seconds:.1f} s"))
    table.add_column("quantity")
    table.add_column("value", justify="right")
    for name, values in training.history["readout"].items():
        if name.endswith("accuracy"):
            label = name.replace("_", " ").replace("train ", "training ")
            table.add_row(f"{label} of the model", f"{100 * values[-1]:.2f} %")
            if len(values) > 1:  # the paper states means
                epochs = min(len(values), LAST_EPOCHS)
                table.add_row(f"{label}, last {epochs} epochs", f"{100 * final[name]:.2f} %")
    layers = [stage for stage in training.history if stage.startswith("layer")]
    for stage in layers:
        for name, label in _RECORDED.items():
            if f"{stage} {name}" in final:
                table.add_row(f"{stage}: {label}", f"{final[f'{stage} {name}']:.4f}")
    if layers:
        table.caption = f"layers: means of the last {LAST_BATCHES} mini-batches"
    console.print(table)
    say(f"written to {output}: model, metrics.json, curves.png")


def evaluate(
    model: ModelArgument,
    data: ModelDataOption = None,
    folder: FolderOption = None,
    test_per_class: TestPerClassOption = None,
    output: Annotated[Path | None, Option(help="Write the numbers to this JSON file.")] = None,
    force: ForceOption = False,
) -> Any:
    """Evaluate a saved model on the test images of a data set, class by class."""
    from rich.table import Table

    from fermibose.machine import evaluate as evaluate_net

    if output is not None:
        check_file(output)
        check_output(output.parent, output.name, force=force)
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
    content = identity(model, dataset) | {
        "accuracy": found.accuracy,
        "cross_entropy": found.cross_entropy,
        "class_accuracy": {str(k): v for k, v in found.class_accuracy.items()},
        "confusion": found.confusion.tolist(),
    }
    if output is not None:
        write_json(output, content)
    return content
