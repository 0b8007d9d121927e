"""The published numbers: means of five runs from the authors' recorded results, arXiv 2404.13631.

The tables lie beside this file, where README.md says what each holds; the rest is printed in
the paper's captions or stands in the same records.
"""

import csv
from functools import cache
from importlib import resources

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Table = dict[str, Floats]

MLP_ACCURACY = 83.6  # %, the dashed line of Fig. 4
MLP_FGSM_AREA = 4.288
MLP_NOISE_AREA = 41.19
TRAJECTORY_D_F = 0.455  # of Fig. 3 (a), (b)
PCA_D_F = 1.2  # of Fig. 3 (c)
EXPLAINED = {"machine": 74.6, "mlp": 54.5}  # %, by three components, Fig. 3 (c), (d)
COMPARED_D_F = (
    0.05,
    1.2,
)  # d_F between which curves against it are held against the published ones
CURVES_D_F = (0.09, 0.2, 0.375, 0.465, 0.8, 1.0, 1.2)  # of the noise curves in Fig. 5 (b)
FGSM_CURVES_D_F = (0.9, 1.1)


def trajectories() -> Table:
    """Fig. 3 (a), (b), columns over the epochs of readout and hidden layer."""
    return _columns("fig3_trajectories.csv")


def against_d_f() -> Table:
    """Fig. 4, columns over d_F."""
    return _columns("fig4_sweep.csv")


def areas() -> Table:
    """Fig. 5 (c), (d), columns over d_F."""
    return _columns("fig5_areas.csv")


def curve(kind: str, d_f: float | None) -> Table:
    """Fig. 5 (a), (b): ``epsilon``, ``accuracy_percent`` and ``std`` at one d_F (None: the MLP).

    kind: "fgsm" or "noise". Empty columns where nothing is published.
    """
    rows = [
        row
        for row in _read(f"fig5_{kind}_curves.csv")
        if (None if row["d_F"] == "MLP" else float(row["d_F"])) == d_f
    ]
    names = ("epsilon", "accuracy_percent", "std")
    return {name: np.array([float(row[name]) for row in rows]) for name in names}


def at(x: Floats | float, column: str, table: Table) -> Floats:
    """A column over d_F, interpolated linearly at x."""
    return np.asarray(np.interp(x, table["d_F"], table[column]), dtype=np.float64)


def _columns(name: str) -> Table:
    rows = _read(name)
    return {key: np.array([float(row[key]) for row in rows]) for key in rows[0]}


@cache
def _read(name: str) -> list[dict[str, str]]:
    path = resources.files(__name__).joinpath(name)
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
