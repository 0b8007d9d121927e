"""A table from a CSV file: a header, a row per sample, numbers, and the class in one column."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fermibose.data.idx import Labels
from fermibose.errors import FileFormatError, InputError


def read_table(
    path: str | os.PathLike[str], target: str | None
) -> tuple[NDArray[np.float64], Labels, tuple[str, ...], str]:
    """Features, classes by number, the names of the classes, and the column they stand in.

    target: that column, by default the last. Every other one must be a number in every row. Classes
    are numbered in the order of their names.
    """
    import pandas

    path = Path(path).expanduser()
    if not path.exists():
        raise InputError(f"there is no file {path}: name the CSV file with its folder")
    try:
        frame = pandas.read_csv(path, skipinitialspace=True)
    except (ValueError, OSError) as error:  # pandas' own errors of parsing are ValueErrors
        raise FileFormatError(
            f"{path} cannot be read as a CSV file with a header: {error}"
        ) from None
    names = [str(name) for name in frame.columns]
    if len(names) < 2 or not len(frame):
        raise FileFormatError(f"{path} must have a header, two columns and a row at least")
    if any(name.startswith("Unnamed: ") for name in names):  # what pandas calls an empty header
        raise InputError(
            f"{path} has a column without a name, such as the row numbers that pandas writes: name "
            "it, or leave it out (to_csv(index=False))"
        )
    if not isinstance(frame.index, pandas.RangeIndex):  # to pandas the cells too many are an index
        raise FileFormatError(f"the rows of {path} have more cells than its header has names")
    target = names[-1] if target is None else target
    if target not in names:
        raise InputError(f"{path} has no column {target!r}: choose one of {', '.join(names)}")
    features = frame.drop(columns=target)
    words = [name for name in features if features[name].dtype.kind not in "iufb"]
    if words:
        raise InputError(
            f"the column {words[0]!r} of {path} holds other things than numbers: leave it out, or "
            "encode it (pandas.get_dummies), and name the column of the classes with --target"
        )
    x = features.to_numpy(dtype=np.float64)
    if frame[target].isna().any() or not np.isfinite(x).all():
        raise InputError(f"{path} has empty cells, NaN or infinity: fill them, or drop those rows")
    labels, y = np.unique(frame[target].astype(str).to_numpy(dtype=str), return_inverse=True)
    if len(labels) < 2:
        raise InputError(f"the column {target!r} of {path} names one class only: {labels[0]}")
    return x, y.astype(np.int64), tuple(labels.tolist()), target
