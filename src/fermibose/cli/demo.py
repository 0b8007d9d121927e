"""``fbm demo``: the machine beside the MLP on the bundled images."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fermibose.cli.options import SeedOption, check_folder, console, say
from fermibose.cli.subject import origin
from fermibose.cli.train import learn
from fermibose.files import write_json

if TYPE_CHECKING:
    from fermibose.attacks import Curve
    from fermibose.data import Dataset
    from fermibose.machine import Training


def demo(
    output: Annotated[Path, typer.Option(help="Folder for models, numbers and figures.")] = Path(
        "fbm-demo"
    ),
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of every training.")] = 100,
    seed: SeedOption = 0,
) -> Any:
    """Train the machine and the MLP of the same shape on 1000 bundled digits, and attack both.

    Replaces what an earlier demo has written.
    """
    from rich.table import Table

    from fermibose.data import load_dataset
    from fermibose.energy import PairEnergy
    from fermibose.machine import Recipe, draw_curves, summarise, train, train_mlp

    check_folder(output)
    dataset = load_dataset("mnist5k")
    recipe = Recipe(seed=seed, epochs=epochs, readout_epochs=epochs)
    console.print(
        f"{len(dataset.x_train)} training and {len(dataset.x_test)} test digits, 784-1000-10, "
        f"d_F = {PairEnergy().d_f:g}, {epochs} epochs",
        soft_wrap=True,
    )
    trainings, summaries = {}, {}
    for name, fit in (("machine", train), ("MLP", train_mlp)):
        training, seconds = learn(fit, dataset, recipe, f"interrupted while training the {name}")
        trainings[name] = training
        summaries[name] = {"seconds": round(seconds, 2), **summarise(training)}
        training.net.info["data"] = origin(dataset, "mnist5k")
        training.net.save(output / name.lower())

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
    draw_curves(trainings, output / "curves.png")
    write_json(output / "comparison.json", summaries)
    curves = _attack(trainings, dataset, seed)
    _print_attacks(curves)
    _draw_attacks(curves, output / "attacks.png")
    for name, found in curves.items():
        summaries[name]["attacks"] = {key: curve.as_dict() for key, curve in found.items()}
    write_json(output / "comparison.json", summaries)
    say(f"written to {output}: models, comparison.json, curves.png, attacks.png")
    return summaries


def _attack(
    trainings: "dict[str, Training]", dataset: "Dataset", seed: int
) -> "dict[str, dict[str, Curve]]":
    """Both nets under FGSM, PGD and noise of growing strength, on 1000 test digits."""
    from fermibose.attacks import ThreatModel, accuracy_curve
    from fermibose.data import per_class
    from fermibose.machine import compute_settings

    x, y = per_class(dataset.x_test, dataset.y_test, 100)
    coarse = [k / 40 for k in range(9)]  # 0 … 0.2
    curves: dict[str, dict[str, Curve]] = {}
    with compute_settings(1):
        for name, training in trainings.items():
            linf, noise = ThreatModel("linf"), ThreatModel("noise")
            curves[name] = {
                "FGSM": accuracy_curve(training.net, x, y, linf),
                "PGD": accuracy_curve(
                    training.net, x, y, linf, epsilons=coarse, attack="pgd", seed=seed
                ),
                "noise": accuracy_curve(training.net, x, y, noise, seed=seed),
            }
    return curves


def _print_attacks(curves: "dict[str, dict[str, Curve]]") -> None:
    from rich.table import Table

    from fermibose.attacks import robustness_area

    table = Table(title="Under attack: accuracy (%) on 1000 test digits")
    columns = ("", "no attack", "FGSM 0.1", "PGD 0.1", "noise 0.3", "FGSM area", "noise area")
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    for name, found in curves.items():
        at: list[Any] = [found["FGSM"].accuracy[0]]
        for key, epsilon in (("FGSM", 0.1), ("PGD", 0.1), ("noise", 0.3)):
            curve = found[key]
            at.append(curve.accuracy[abs(curve.epsilons - epsilon).argmin()])
        table.add_row(
            name,
            *(f"{100 * value:.1f}" for value in at),
            *(f"{robustness_area(found[key]):.1f}" for key in ("FGSM", "noise")),
        )
    console.print(table)


def _draw_attacks(curves: "dict[str, dict[str, Curve]]", path: Path) -> None:
    from fermibose.attacks import AXIS, draw_accuracy

    panels = {
        key: {name: found[key] for name, found in curves.items()}
        for key in ("FGSM", "PGD", "noise")
    }
    draw_accuracy(panels, path, axes_labels=[AXIS["linf"], AXIS["linf"], AXIS["noise"]])
