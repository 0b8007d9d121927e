"""How repeated measurements are stated: mean ± standard error over seeds, the last epochs."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

LAST_EPOCHS = 10  # over which the paper averages accuracies
LAST_BATCHES = 20  # over which the distances in a layer are averaged: single ones scatter


class Summary(NamedTuple):
    """What repeated values say; numbers, or arrays over what the values have in common."""

    mean: Any  # NaN of no values
    error: Any  # standard error of the mean; NaN of fewer than two values
    spread: Any  # standard deviation over the values (n − 1); NaN of fewer than two

    def __str__(self) -> str:
        """Mean ± error with one decimal; of a single value the value alone."""
        return f"{self.mean:.1f}" if np.isnan(self.error) else f"{self.mean:.1f} ± {self.error:.1f}"


def summary(values: Iterable[Any], *, scale: float = 1.0) -> Summary:
    """Mean, standard error and spread over the first axis of ``scale`` × values."""
    array = scale * np.asarray(list(values), dtype=np.float64)
    nothing = np.full(array.shape[1:], np.nan)[()]
    if len(array) < 2:
        return Summary(array.mean(0) if len(array) else nothing, nothing, nothing)
    spread = array.std(0, ddof=1)
    return Summary(array.mean(0), spread / len(array) ** 0.5, spread)


def last_epochs(values: npt.NDArray[np.float64], count: int = LAST_EPOCHS) -> float:
    """Mean over the last ``count`` epochs, which is how the paper states accuracies."""
    return float(values[-count:].mean())
