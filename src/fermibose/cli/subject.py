"""The saved model that a command is asked about, and the data it is judged on."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from fermibose import checks
from fermibose.cli.options import say
from fermibose.errors import FermiboseError, FileFormatError, InputError

if TYPE_CHECKING:
    from fermibose import FermiBoseNet
    from fermibose.data import Dataset

_WITHOUT_RECORD = "mnist5k"
_COUNTS = ("train_per_class", "test_per_class")


def origin(dataset: "Dataset", name: str, folder: Path | None = None, **counts: Any) -> Any:
    """What a saved model says of its data: name, checksum, and how to load them again."""
    from fermibose.data import NAMES

    return {
        "name": dataset.name,
        "checksum": dataset.checksum,
        "load": {
            "name": name if name in NAMES else _absolute(Path(name)),
            "folder": None if folder is None else _absolute(folder),
            "target": dataset.target,
            **counts,
        },
    }


def load_subject(
    model: Path, data: str | None, folder: Path | None, test_per_class: int | None = None
) -> "tuple[FermiBoseNet, Dataset]":
    """The net, and the data set named, or else the one it was trained on.

    Says so where these are not known to be the same, and if test images may have been trained on.
    Of its own data the net is judged on the test images it was scored on when it was trained,
    unless ``test_per_class`` asks for others; of data that are named, on all.
    """
    from fermibose import FermiBoseNet
    from fermibose.data import load_dataset

    net = FermiBoseNet.load(model)
    trained = _record(model, net.info.get("data"))
    if data is not None:
        column = trained.get("load", {}).get("target") if data.lower().endswith(".csv") else None
        dataset = load_dataset(data, folder=folder, target=column)
    elif trained:
        dataset = _own_data(model, trained, folder)
    else:
        dataset = load_dataset(_WITHOUT_RECORD, folder=folder)
        say(
            f"note: {model} does not say what it was trained on; it is judged on "
            f"{_WITHOUT_RECORD}. Name other data with --data."
        )
    _check_classes(model, net.config["classes"], dataset)
    features, inputs = dataset.x_test.shape[1], net.config["inputs"]
    if features != inputs:
        raise InputError(
            f"{dataset.name} has {features} features, but the net takes {inputs}: name the kind of "
            "data it was trained on with --data"
        )
    difference = _difference(trained, dataset) if trained else ""
    if difference:
        seen = _may_be_seen(trained["name"], dataset.name)
        warning = "; images scored here may be among those it was trained on" if seen else ""
        say(f"note: {model} was trained on {difference}{warning}.")
    elif data is None and test_per_class is None:
        test_per_class = trained.get("load", {}).get("test_per_class")
    return net, dataset.first(test_per_class=test_per_class)


def load_attacked(
    model: Path, data: str | None, folder: Path | None, per_class: int
) -> "tuple[FermiBoseNet, Dataset]":
    """As :func:`load_subject`, with the first test images of each class only."""
    import numpy as np

    net, dataset = load_subject(model, data, folder)
    available = int(np.unique(dataset.y_test, return_counts=True)[1].min())
    return net, dataset.first(test_per_class=min(per_class, available))


def title(model: Path, dataset: "Dataset") -> str:
    """What a table is about, safe from markup."""
    return escape(f"{model.name}: {dataset.name}, {len(dataset.x_test)} test images")


def identity(model: Path, dataset: "Dataset") -> dict[str, Any]:
    """What a file of numbers is about: the model, and the data it was judged on."""
    return {
        "model": str(model),
        "data": {"name": dataset.name, "checksum": dataset.checksum},
    }


def _record(model: Path, trained: Any) -> dict[str, Any]:
    """What a model says of its data, as :func:`origin` writes it; empty if it says nothing."""
    if not isinstance(trained, dict) or "name" not in trained:  # info is free to hold anything
        return {}
    sound = isinstance(trained["name"], str) and trained["name"].isprintable()
    if "load" in trained:
        load = trained["load"] if isinstance(trained["load"], dict) else {}
        sound = (
            sound
            and isinstance(trained.get("checksum"), str)
            and isinstance(load.get("name"), str)
            and isinstance(load.get("folder"), str | None)
            and (str(load["name"]) + (load.get("folder") or "")).isprintable()
            and isinstance(load.get("target"), str | None)
            and all(isinstance(load.get(key), int | None) for key in _COUNTS)
        )
    if not sound:
        raise FileFormatError(
            f"{model} is damaged: what its model.json says of the training data cannot be read; "
            "copy or train the model again"
        )
    return trained


def _check_classes(model: Path, classes: list[Any], dataset: "Dataset") -> None:
    """Refuse a net whose output k does not stand for the label k of the data set."""
    if dataset.classes is not None:
        if classes != list(dataset.classes):
            raise InputError(
                f"the outputs of {model} stand for {checks.shown(classes)}, the classes of "
                f"{dataset.name} are {checks.shown(list(dataset.classes))}: judge it on the kind "
                "of table it was trained on"
            )
        return
    labels = list(range(len(classes)))
    if classes != labels and classes != [str(label) for label in labels]:
        first = ", ".join(repr(name) for name in classes[:4])
        raise InputError(
            f"the outputs of {model} stand for {first} …, the labels of the data for 0, 1, 2, …: "
            f"fit it on the labels 0 … {len(classes) - 1}, or judge it in Python, with labels of "
            "its own kind"
        )


def _own_data(model: Path, trained: Any, folder: Path | None) -> "Dataset":
    """The data that the model was trained on, from ``folder`` or where they are by default.

    A model may come from elsewhere: it does not choose which folder is read here.
    """
    from fermibose.data import NAMES, load_dataset

    load = trained.get("load", {})
    name, then = load.get("name", trained["name"]), load.get("folder")
    if name not in NAMES:  # a folder of IDX files, or a table
        if folder is None:
            table = load.get("target") is not None
            files = name if table else f"the IDX files in {name}"
            raise InputError(
                f"{model} says that it was trained on {files}, and does not choose what is read "
                f"here: name that {'file' if table else 'folder'}, or another, with --data"
            )
        return load_dataset(folder)
    if folder is None and then is not None and not os.environ.get("FERMIBOSE_DATA"):
        raise InputError(
            f"{model} says that it was trained on {name} from {then}, and does not choose what is "
            f"read here: name that folder, or another, with --folder, or set FERMIBOSE_DATA to it; "
            f"--data {name} alone takes the default"
        )
    try:
        return load_dataset(name, folder=folder)
    except FermiboseError as error:
        if folder is not None:
            raise
        raise InputError(
            f"{model} was trained on {name}, which cannot be loaded: {error} Name the folder of "
            "its IDX files with --folder, or other data with --data."
        ) from error


def _difference(trained: Any, dataset: "Dataset") -> str:
    """What tells the model's data from ``dataset``; empty if they are the same, or may be."""
    load = trained.get("load")
    if load is not None:
        counts = {key: load.get(key) for key in _COUNTS}
        with suppress(InputError):  # fewer images than were taken: not the same
            if dataset.first(**counts).checksum == trained["checksum"]:
                return ""
    if trained["name"] != dataset.name:
        return f"{trained['name']} and is judged on {dataset.name}"
    return "" if load is None else f"other files called {dataset.name} (their checksums differ)"


def _may_be_seen(trained: str, judged: str) -> bool:
    """Whether test images of one data set may be training images of another.

    Those of mnist5k come from MNIST's training set; the test images of the other data sets with a
    name of their own are in no other training set. What is in a folder is not known.
    """
    from fermibose.data import NAMES

    known = trained in NAMES and judged in NAMES
    return not known or trained == judged or (trained, judged) == ("mnist", "mnist5k")


def _absolute(folder: Path) -> str:
    return str(folder.expanduser().resolve())
