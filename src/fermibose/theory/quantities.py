"""The numbers of a solution by their names, and a file of them."""

import csv
from pathlib import Path
from typing import Any

from fermibose.errors import InputError
from fermibose.files import replacing
from fermibose.theory.activation import Array

COLUMNS = (
    "M", "q", "Q", "chi", "free_energy", "generalization_loss", "accuracy", "fermion_distance",
    "boson_distance", "adversarial_area", "training_energy", "at_eigenvalue", "rs_stable",
    "residual", "iterations", "error", "at_error",
)  # fmt: skip
QUANTITIES = (
    *COLUMNS,
    "label_stiffness",
    "mean_field_energy",
    "energy",
    "entropy",
)  # what maps and curves can show


def check_quantity(name: Any) -> None:
    """Refuse a name that is not a number of a solution."""
    if not isinstance(name, str) or name not in QUANTITIES:
        raise InputError(f"{name!r} is not a quantity: use one of {', '.join(QUANTITIES)}")


def write_csv(path: str | Path, columns: dict[str, Array]) -> None:
    """Columns of equal length as a CSV file with a header, whole or not at all."""
    with replacing(path) as draft, draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(c.tolist() for c in columns.values()), strict=True))
