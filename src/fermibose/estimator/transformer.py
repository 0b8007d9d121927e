"""``FermiBoseTransformer``: the hidden layers as a feature map, for scikit-learn."""

from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from fermibose.energy import Coupling
from fermibose.errors import InputError
from fermibose.estimator.base import FermiBoseEstimator, Scaling
from fermibose.machine.network import FermiBoseNet
from fermibose.machine.pairing import ByLabel, Noise, Pairing, SelfSupervised, Shift, Transform


class FermiBoseTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, FermiBoseEstimator):
    """The hidden layers alone, as a feature map for another estimator.

    With labels, pairs are made by class. Without labels (``fit(X)``) they are made self-supervised:
    an input and its noisy (and, for images, shifted) copy are a boson pair, two different inputs a
    fermion pair.

    Parameters
    ----------
    pairing : {"auto", "labels", "self"}, default="auto"
        "auto" pairs by labels if ``fit`` gets them, else self-supervised.
    noise : float, default=0.2
        Standard deviation of the noise in self-supervised pairs, on inputs scaled to [0, 1].
    shift : int, default=2
        Largest shift, in pixels, in self-supervised pairs; used only with ``image_shape``.
    image_shape : (rows, columns) or None, default=None
        Shape of the images that the features flatten, if they are images.
    hidden, d_f, coupling, epochs, batch_size, learning_rate, weight_decay, random_state, \
activation, scaling, bias, softness, boson_weight, fermion_weight, activity, n_jobs, verbose
        As in :class:`FermiBoseClassifier`.

    Attributes
    ----------
    net_ : FermiBoseNet
        The trained stack (its readout is not trained).
    history_ : dict
        As in :class:`FermiBoseClassifier`, without a readout.
    scaling_ : str
        As in :class:`FermiBoseClassifier`.
    """

    def __init__(
        self,
        hidden: tuple[int, ...] = (1000,),
        d_f: float = 0.4,
        coupling: Coupling = "labelled",
        epochs: int = 100,
        batch_size: int = 50,
        learning_rate: float = 0.01,
        weight_decay: float = 0.01,
        random_state: int | np.random.RandomState | None = None,
        *,
        pairing: str = "auto",
        noise: float = 0.2,
        shift: int = 2,
        image_shape: tuple[int, int] | None = None,
        activation: str = "half_tanh",
        scaling: Scaling = "auto",
        bias: bool | Literal["auto"] = "auto",
        softness: float = 0.0,
        boson_weight: float = 1.0,
        fermion_weight: float = 1.0,
        activity: float = 0.0,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.hidden = hidden
        self.d_f = d_f
        self.coupling = coupling
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.random_state = random_state
        self.pairing = pairing
        self.noise = noise
        self.shift = shift
        self.image_shape = image_shape
        self.activation = activation
        self.scaling = scaling
        self.bias = bias
        self.softness = softness
        self.boson_weight = boson_weight
        self.fermion_weight = fermion_weight
        self.activity = activity
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike | None = None) -> Self:
        """Train the layers on X (samples, features), by labels y if given; returns self."""
        if self.pairing not in ("auto", "labels", "self"):
            raise InputError(f"pairing must be 'auto', 'labels' or 'self', got {self.pairing!r}")
        by_labels = self.pairing == "labels" or (self.pairing == "auto" and y is not None)
        if by_labels and y is None:
            raise InputError("pairing='labels' needs y; give labels, or use pairing='self'")
        if by_labels:
            inputs, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
            check_classification_targets(y)
            codes = np.unique(y, return_inverse=True)[1].astype(np.int64)
        else:
            inputs = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
            codes = np.zeros(len(inputs), dtype=np.int64)
        training = self._train(
            inputs,
            codes,
            pairing=ByLabel() if by_labels else self._self_supervised(),
            readout_epochs=0,
        )
        self.net_: FermiBoseNet = training.net
        self.history_ = training.history
        return self

    def transform(self, X: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Representation after the last hidden layer, (samples, units)."""
        return self._evaluate(X, hidden=True).astype(np.float32)

    @property
    def _n_features_out(self) -> int:
        return int(self.net_.config["hidden"][-1])

    def _self_supervised(self) -> Pairing:
        transforms: list[Transform] = [Noise(self.noise)]
        if self.image_shape is not None:
            transforms.insert(0, Shift(self.image_shape, self.shift))
        return SelfSupervised(tuple(transforms))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
