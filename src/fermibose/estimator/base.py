"""What classifier and transformer share: checking, rescaling, training, representing."""

import copy
import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from fermibose.energy import PairEnergy
from fermibose.errors import InputError
from fermibose.machine.examples import RangeWarning, within
from fermibose.machine.recipe import Recipe
from fermibose.machine.settings import is_whole
from fermibose.machine.training import Training, train

Scaling = Literal["auto", "none", "per_feature"]
Floats = npt.NDArray[np.float64]
BATCH = 4096  # samples evaluated at once, to bound memory


class FermiBoseEstimator(BaseEstimator):
    """An estimator with the machine's hidden layers."""

    def _train(self, x: Floats, y: npt.NDArray[np.int64], **settings: Any) -> Training:
        """Train on checked inputs; the net that results takes raw inputs."""
        scaling = _offset_and_gain(x, self.scaling)
        self.scaling_ = "none" if scaling is None else "per_feature"
        recipe = Recipe(
            hidden=tuple(self.hidden) if isinstance(self.hidden, Sequence) else self.hidden,
            energy=PairEnergy(
                self.d_f, self.softness, self.boson_weight, self.fermion_weight, self.coupling
            ),
            activation=self.activation,
            bias=(scaling is not None) if self.bias == "auto" else self.bias,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            activity=self.activity,
            seed=int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
            threads=_threads(self.n_jobs),
            **settings,
        )
        if scaling is not None:
            x = (x - scaling[0]) * scaling[1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RangeWarning)  # scaling="none" means it
            training = train(x, y, recipe, show=None if self.verbose else False)
        if training.interrupted:
            warnings.warn(
                "training was interrupted; the layers trained so far are kept",
                ConvergenceWarning,
                stacklevel=3,
            )
        if scaling is not None:
            training.net.take_raw_inputs(*(torch.from_numpy(values) for values in scaling))
        return training

    def _evaluate(self, x: npt.ArrayLike, *, hidden: bool) -> Floats:
        """In float64, so that a sample's result does not depend on the others in its batch."""
        check_is_fitted(self)
        inputs = validate_data(self, x, dtype=np.float64, reset=False)
        net = copy.deepcopy(self.net_).double()
        with torch.no_grad():
            batches = torch.tensor(inputs).split(BATCH)
            out = [net.represent(batch) if hidden else net(batch) for batch in batches]
        return torch.cat(out).numpy()


def _threads(n_jobs: Any) -> int:
    """Threads that scikit-learn's n_jobs asks for: −1 means all, −2 all but one."""
    if n_jobs is None:
        return 1
    if not is_whole(n_jobs, -(2**63)) or n_jobs == 0:
        raise InputError(f"n_jobs must be None or a whole number other than 0, got {n_jobs!r}")
    return int(n_jobs) if n_jobs > 0 else max(torch.get_num_threads() + 1 + int(n_jobs), 1)


def _offset_and_gain(x: Floats, scaling: Any) -> tuple[Floats, Floats] | None:
    """Offset and gain that map each feature to [0, 1]; None if inputs are used as they are."""
    if scaling not in get_args(Scaling):
        choices = ", ".join(repr(choice) for choice in get_args(Scaling))
        raise InputError(f"scaling must be one of {choices}, got {scaling!r}")
    low, high = x.min(0), x.max(0)
    if scaling == "none" or (scaling == "auto" and within(low.min(), high.max())):
        return None
    span = high - low
    span[span < 1e-300] = 1  # a constant feature carries no information: it becomes 0
    return low, 1 / span
