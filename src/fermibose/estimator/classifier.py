"""``FermiBoseClassifier``: local hidden layers and a linear readout, for scikit-learn."""

from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from fermibose.energy import Coupling
from fermibose.estimator.base import FermiBoseEstimator, Floats, Scaling
from fermibose.machine.network import FermiBoseNet
from fermibose.machine.recipe import ReadoutKind


class FermiBoseClassifier(ClassifierMixin, FermiBoseEstimator):
    """Fermi-Bose machine: hidden layers trained locally on pairs, then a linear readout.

    Inputs already in [0, 1] are used as they are. Any other range is mapped feature by feature from
    the training minimum and maximum to [0, 1] inside the model, which then takes raw inputs, unless
    ``scaling`` says otherwise.

    Parameters
    ----------
    hidden : tuple of int, default=(1000,)
        Units of each hidden layer, first to last.
    d_f : float, default=0.4
        Target squared distance of fermion pairs (mean over units, so at most 1 makes sense).
    coupling : {"labelled", "averaged"}, default="labelled"
        The loss as printed, or the one the published figures were made with.
    epochs : int, default=100
        Passes over the data for each hidden layer.
    batch_size : int, default=50
        Samples in a mini-batch; all their pairs are used.
    learning_rate : float, default=0.01
        Of Adam, for the hidden layers.
    weight_decay : float, default=0.01
        λ of the penalty (λ/2N)|W|² on each hidden layer of N units.
    readout : {"cross_entropy", "ridge"}, default="cross_entropy"
        How the readout is trained. Only "cross_entropy" offers ``predict_proba``.
    readout_epochs : int, default=100
        Passes over the data for the cross-entropy readout.
    readout_learning_rate : float, default=0.001
        Of Adam, for the cross-entropy readout.
    ridge : float, default=0.01
        Penalty of the ridge readout: (1/n)Σ|Vh−t|² + ridge·|V|².
    activation : {"half_tanh", "tanh"}, default="half_tanh"
        (1 + tanh z)/2 as in the paper, or tanh z.
    scaling : {"auto", "none", "per_feature"}, default="auto"
        "per_feature" maps each feature from its training minimum and maximum to [0, 1], "none" uses
        the inputs as they are, and "auto" rescales only if an entry is not in [0, 1] (but for
        rounding). A feature of small span is amplified, and so is what an attack adds to it: fix
        the choice where robustness is compared.
    bias : bool or "auto", default="auto"
        Whether hidden units have a bias. "auto": only if the inputs are rescaled, for then
        their zero means nothing; inputs in [0, 1] get the paper's units, which have none.
    softness : float, default=0.0
        a of the smooth hinge (x + √(x²+a))/2; 0 is the hard hinge.
    boson_weight, fermion_weight : float, default=1.0
        Weights of the two kinds of pairs.
    activity : float, default=0.0
        Penalty on the mean activity ⟨|h|⟩.
    random_state : int, RandomState or None, default=None
        Determines the weights bit for bit, at a given ``n_jobs``.
    n_jobs : int or None, default=None
        Threads used in ``fit``; None means 1, −1 all.
    verbose : bool, default=False
        Progress bars, on a terminal.

    Attributes
    ----------
    net_ : FermiBoseNet
        The trained network, a torch module that takes raw inputs.
    history_ : dict
        ``"layer 1"`` … : boson_distance, fermion_distance, energy and boson_share (boson pairs per
        pair) for each mini-batch;
        ``"readout"``: loss and train_accuracy for each epoch.
    scaling_ : str
        What was done with the inputs: "none" or "per_feature".
    classes_ : ndarray
        The labels, in the order of the net's outputs.
    n_features_in_ : int
        Width of the inputs.
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
        readout: ReadoutKind = "cross_entropy",
        random_state: int | np.random.RandomState | None = None,
        *,
        readout_epochs: int = 100,
        readout_learning_rate: float = 0.001,
        ridge: float = 0.01,
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
        self.readout = readout
        self.random_state = random_state
        self.readout_epochs = readout_epochs
        self.readout_learning_rate = readout_learning_rate
        self.ridge = ridge
        self.activation = activation
        self.scaling = scaling
        self.bias = bias
        self.softness = softness
        self.boson_weight = boson_weight
        self.fermion_weight = fermion_weight
        self.activity = activity
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> Self:
        """Train on X (samples, features) and labels y of any kind; returns self."""
        inputs, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes in the data, but the "
                f"data contains only one class: {self.classes_.tolist()[0]!r}"
            )
        training = self._train(
            inputs,
            codes.astype(np.int64),
            readout=self.readout,
            readout_epochs=self.readout_epochs,
            readout_learning_rate=self.readout_learning_rate,
            ridge=self.ridge,
        )
        self.net_: FermiBoseNet = training.net
        self.net_.config["classes"] = self.classes_.tolist()
        self.history_ = training.history
        return self

    def decision_function(self, X: npt.ArrayLike) -> Floats:
        """Logits (samples, classes); for two classes their difference (samples,)."""
        logits = self._evaluate(X, hidden=False)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    @available_if(lambda self: self.readout == "cross_entropy")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: npt.ArrayLike) -> Floats:
        """Softmax of the logits, (samples, classes)."""
        return torch.from_numpy(self._evaluate(X, hidden=False)).softmax(1).numpy()

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """The most likely label of each sample."""
        best = self._evaluate(X, hidden=False).argmax(1)
        return np.asarray(self.classes_[best])
