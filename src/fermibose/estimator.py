"""The machine for scikit-learn: a classifier, and its hidden layers as a feature map."""

import copy
import warnings
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fermibose import checks
from fermibose.compute import Interrupted
from fermibose.energy import Coupling, PairEnergy
from fermibose.errors import InputError
from fermibose.machine import (
    ByLabel,
    Energy,
    FermiBoseNet,
    Hidden,
    KernelRidge,
    Lesson,
    Noise,
    Pairing,
    Preset,
    RangeWarning,
    ReadoutKind,
    Recipe,
    Rescaling,
    Scaling,
    SelfSupervised,
    Shift,
    Sides,
    Streamed,
    Training,
    Transform,
    preset,
    rescaling,
    train,
)

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[Any]
Auto = Literal["auto"]
BATCH = 4096  # samples evaluated at once, to bound memory
# Parameters that make up the pair energy, by the names they have there
OF_ENERGY = ("d_f", "softness", "boson_weight", "fermion_weight", "coupling")
# float32 stays what it is, to save memory: it is scaled in float64, some rows at a time.
TYPES = [np.float64, np.float32]
CHECKED: dict[str, Any] = {"dtype": TYPES, "accept_sparse": "csr", "ensure_min_samples": 2}
GRID = (0.1, 0.2, 0.4, 0.8)  # of d_F, where it is chosen from the data
HELD_OUT = 0.25  # of the samples, on which it is chosen


class FermiBoseEstimator(BaseEstimator):
    """An estimator with the machine's hidden layers."""

    def _train(
        self, x: Floats, y: npt.NDArray[np.int64], classes: Labels | None, **settings: Any
    ) -> Self:
        """Train on checked inputs and keep the net, which takes raw inputs; returns self.

        After Ctrl-C this model is not fitted; a copy of it that is, as far as training came, is in
        ``done`` of the :class:`fermibose.compute.Interrupted` that is raised.
        """
        recipe, scaling = self._recipe(x, settings)
        if hasattr(self, "d_f_"):  # that an earlier fit chose
            del self.d_f_
        if isinstance(self.d_f, str):
            recipe = self._choose_d_f(scaling(x), y, recipe)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RangeWarning)  # scaling="none" means it
                inputs = Streamed(x, scaling=scaling.__call__)
                training = train(inputs, y, recipe, show=None if self.verbose else False)
        except Interrupted as stop:
            raise Interrupted(copy.copy(self)._take(stop.done, scaling, classes)) from None
        return self._take(training, scaling, classes)

    def _recipe(self, x: Floats, settings: dict[str, Any]) -> tuple[Recipe, Rescaling]:
        """The recipe of these parameters and the scaling of the inputs x that goes with it.

        A parameter that is given is taken, any other is the preset's.
        """
        pairing = settings.get("pairing", ByLabel())
        name, shape = getattr(self, "preset", "auto"), getattr(self, "image_shape", None)
        scaling = rescaling(
            x, self.scaling, bounded=pairing.transforms_inputs, picture=shape is not None
        )
        if name == "auto":
            table = scaling.by_feature and isinstance(pairing, ByLabel)
            name = "table" if table else "paper"
        given = {key: value for key, value in self.get_params().items() if not _left(value)}
        if isinstance(given.get("hidden"), Sequence):
            given["hidden"] = tuple(given["hidden"])
        hidden = given.get("hidden")
        dense = isinstance(hidden, tuple) and all(map(checks.is_whole, hidden))
        chosen = preset(name, shape=shape, dense=dense, bounded=not scaling.by_feature)
        chosen.setdefault("bias", scaling.by_feature)
        if "hidden" in given:  # of which the preset cannot know how many there are
            chosen = {
                k: v[-1] if k in Lesson._fields and isinstance(v, tuple) else v
                for k, v in chosen.items()
            }
        energies = chosen.pop("energy", PairEnergy())
        named = {key: given[key] for key in OF_ENERGY if key in given}
        energy = (
            tuple(self._energy(each, named, name) for each in energies)
            if isinstance(energies, tuple)
            else self._energy(energies, named, name)
        )
        same = {
            field.name: given[field.name]
            for field in fields(Recipe)
            if field.name in given and field.name != "class_weight"  # here one for each label
        }
        others = {
            "energy": energy,
            "seed": int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
            "threads": _threads(self.n_jobs),
        }
        self.preset_ = name
        return Recipe(**chosen | same | others | settings), scaling

    @staticmethod
    def _energy(energy: Energy, named: dict[str, Any], preset: str) -> Energy:
        """The preset's energy with the parameters that were named."""
        known = {field.name for field in fields(energy)}
        if unknown := [key for key in named if key not in known]:
            raise InputError(
                f"{unknown[0]} belongs to the hinge of the pair energy, but preset {preset!r} has "
                "a free energy, without a target distance: leave it out, or take another preset"
            )
        return replace(energy, **named)

    def _choose_d_f(self, x: Floats, y: npt.NDArray[np.int64], recipe: Recipe) -> Recipe:
        """The recipe with the d_F that classifies best a part of the samples held out for that.

        Of equals the one nearest to the default is taken. All others than d_F are as they are.
        """
        checks.choice("d_f", self.d_f, ("auto",))
        if not isinstance(recipe.energy, PairEnergy):
            raise InputError(f"preset {self.preset_!r} has no d_f to choose: leave it out")
        rows = np.random.default_rng(recipe.seed).permutation(len(x))
        held = rows[: max(1, round(HELD_OUT * len(x)))]
        rest = rows[len(held) :]
        scores = {}
        # Layers alone have no readout of their own: that in closed form tells what they are worth.
        read = replace(recipe, readout="ridge") if recipe.readout_epochs == 0 else recipe
        for d_f in GRID:
            tried = replace(read, energy=replace(recipe.energy, d_f=d_f))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of values that are not taken
                net = train(x[rest], y[rest], tried, show=None if self.verbose else False).net
            with torch.no_grad():
                answers = net(torch.tensor(x[held], dtype=torch.float32)).argmax(1).numpy()
            scores[d_f] = float((answers == y[held]).mean())
        self.d_f_ = max(GRID, key=lambda d_f: (scores[d_f], -abs(d_f - PairEnergy.d_f)))
        return replace(recipe, energy=replace(recipe.energy, d_f=self.d_f_))

    def _take(self, training: Training, scaling: Rescaling, classes: Labels | None) -> Self:
        """Be fitted with what was trained."""
        self.net_: FermiBoseNet = training.net
        self.history_ = training.history
        self.scaling_ = scaling.kind
        if scaling.offset is not None and scaling.gain is not None:
            self.net_.take_raw_inputs(
                torch.from_numpy(scaling.offset), torch.from_numpy(scaling.gain)
            )
        if classes is not None:
            self.classes_ = classes
            self.net_.config["classes"] = classes.tolist()
        return self

    @available_if(lambda self: _refuse_pieces())  # type: ignore[untyped-decorator]
    def partial_fit(self, X: npt.ArrayLike, y: npt.ArrayLike | None = None) -> Self:
        """Not offered; the reason is in the AttributeError."""
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "net_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _evaluate(self, x: npt.ArrayLike, *, hidden: bool) -> Floats:
        """In float64, so that a sample's result does not depend on the others in its batch."""
        check_is_fitted(self)
        inputs = validate_data(self, x, dtype=TYPES, accept_sparse="csr", reset=False)
        net = copy.deepcopy(self.net_).double()
        with torch.no_grad():
            starts = range(0, inputs.shape[0], BATCH)
            batches = (torch.tensor(_dense(inputs[i : i + BATCH])) for i in starts)
            out = [net.represent(batch) if hidden else net(batch) for batch in batches]
        return torch.cat(out).numpy()


class FermiBoseClassifier(ClassifierMixin, FermiBoseEstimator):
    """Fermi-Bose machine: hidden layers trained locally on pairs, then a readout.

    Pictures (see ``scaling``) get the settings of the paper's digits, anything else is a table: its
    features are standardised inside the model, which takes raw inputs. ``preset`` changes that as a
    whole; parameters that are "auto" are the preset's, any other takes its place.

    Parameters
    ----------
    hidden : tuple, default="auto"
        Units of each hidden layer, first to last, or ``Conv`` and ``Pointwise`` of
        :mod:`fermibose.machine`. (1000,) in most presets.
    d_f : float, "auto" or None, default=None
        Target squared distance of fermion pairs (mean over units, so at most 1 makes sense). None
        is the preset's, 0.4; "auto" tries 0.1, 0.2, 0.4 and 0.8, holding a quarter of the samples
        out, and takes the most accurate (``d_f_``).
    coupling : {"labelled", "averaged"}, default="auto"
        The loss as printed ("auto"), or the one the published figures were made with.
    epochs : int, default="auto"
        Passes over the data for each hidden layer; 100 in the paper.
    batch_size : int, default="auto"
        Samples in a mini-batch; all their pairs are used. 50 in the paper.
    learning_rate : float, default="auto"
        Of Adam, for the hidden layers; 0.01 in the paper.
    weight_decay : float or "auto", default="auto"
        λ of the penalty (λ/2N)|W|² on each hidden layer of N units. "auto": 0.01 for pictures,
        0.001 for tables, which need larger weights for the same distances; 0 in presets "robust"
        and "accurate".
    readout : {"cross_entropy", "ridge", "prototype"} or KernelRidge, default="auto"
        How the readout is trained. Only "cross_entropy" offers ``predict_proba``.
    preset : {"paper", "table", "robust", "accurate"}, default="auto"
        Settings that were measured together. "auto" is "paper" for pictures and "table" for tables.
        "robust" and "accurate" are for few labels: convolutions on augmented images if
        ``image_shape`` is given, else a dense layer; a free energy of pairs; kernel ridge. "robust"
        learns against a local adversary.
    image_shape : (rows, columns) or (channels, rows, columns), default=None
        Shape of the images that the features flatten, if they are images.
    readout_epochs : int, default=100
        Passes over the data for the cross-entropy readout.
    readout_learning_rate : float, default=0.001
        Of Adam, for the cross-entropy readout.
    ridge : float, default=0.01
        Penalty of the ridge readout: (1/n)Σ|Vh−t|² + ridge·|V|².
    activation : {"half_tanh", "tanh", "relu"}, default="auto"
        Of dense layers: (1 + tanh z)/2 as in the paper, tanh z, or max(z, 0). "auto": the first; in
        presets "robust" and "accurate" the last.
    scaling : {"auto", "none", "global", "standard", "per_feature"}, default="auto"
        "none" uses the inputs as they are, "global" divides them by the largest absolute entry,
        "standard" takes each feature to mean 0 and standard deviation 1, "per_feature" from its
        training minimum and maximum to [0, 1]. "auto" is "none" for pictures whose largest entry is
        0.9 to 1, "global" for pictures in another unit, such as bytes, and "standard" for tables.
        Pictures are inputs with at least 64 features, none negative, a fifth of all entries 0, and
        a root mean square of at least a quarter of the largest; with ``image_shape`` all inputs
        that are not negative. Scaled feature by feature, one of small span is amplified, and so is
        what an attack adds to it: fix the choice where robustness is compared.
    bias : bool or "auto", default="auto"
        Whether hidden units have a bias. "auto": in every preset but "paper"; there only if
        features are scaled one by one, for then their zero means nothing.
    softness : float, default="auto"
        a of the smooth hinge (x + √(x²+a))/2; 0, the hard hinge, if not given.
    boson_weight : float or "auto", default="auto"
        Weight of boson pairs. "auto": 1 for pictures, 0.3 for tables, where a class may be curved
        (circles, moons) and most pairs are boson pairs if one class is frequent.
    fermion_weight : float, default="auto"
        Weight of fermion pairs; 1 if not given.
    activity : float, default=0.0
        Penalty on the mean activity ⟨|h|⟩.
    class_weight : dict, "balanced" or None, default=None
        Weight of each class, as everywhere in scikit-learn: a sample of weight 2 counts as two, for
        pairs as for the readout (see :func:`fermibose.machine.loop.drawn`).
    random_state : int, RandomState or None, default=None
        Determines the weights bit for bit, whatever ``n_jobs`` is.
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
    preset_ : str
        The preset whose settings were used.
    d_f_ : float
        What d_f="auto" chose.
    scaling_ : str
        What was done with the inputs: "none", "global", "standard" or "per_feature". With
        "standard" and "per_feature", and no preset given, parameters that are "auto" are those of
        tables.
    classes_ : ndarray
        The labels, in the order of the net's outputs.
    n_features_in_ : int
        Width of the inputs.
    """

    def __init__(
        self,
        hidden: tuple[Hidden, ...] | Auto = "auto",
        d_f: float | Auto | None = None,
        coupling: Coupling | Auto = "auto",
        epochs: int | Auto = "auto",
        batch_size: int | Auto = "auto",
        learning_rate: float | Auto = "auto",
        weight_decay: float | Auto = "auto",
        readout: ReadoutKind | KernelRidge | Auto = "auto",
        random_state: int | np.random.RandomState | None = None,
        *,
        preset: Preset | Auto = "auto",
        image_shape: Sides | None = None,
        readout_epochs: int = 100,
        readout_learning_rate: float = 0.001,
        ridge: float = 0.01,
        activation: str = "auto",
        scaling: Scaling = "auto",
        bias: bool | Auto = "auto",
        softness: float | Auto = "auto",
        boson_weight: float | Auto = "auto",
        fermion_weight: float | Auto = "auto",
        activity: float = 0.0,
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
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
        self.class_weight = class_weight
        self.random_state = random_state
        self.preset = preset
        self.image_shape = image_shape
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

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, **refused: Any) -> Self:
        """Train on X (samples, features), dense or sparse, and labels y of any kind; returns self.

        A sparse X is made dense: the layers are. A ``sample_weight`` is refused.
        """
        _refuse_weights(refused)
        inputs, y = validate_data(self, X, y, **CHECKED)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes in the data, but the "
                f"data contains only one class: {classes.tolist()[0]!r}"
            )
        weights = None
        if self.class_weight is not None:
            found = compute_class_weight(self.class_weight, classes=classes, y=y)
            weights = tuple(found.tolist())
        return self._train(_dense(inputs), codes.astype(np.int64), classes, class_weight=weights)

    def decision_function(self, X: npt.ArrayLike) -> Floats:
        """Logits (samples, classes); for two classes their difference (samples,)."""
        logits = self._evaluate(X, hidden=False)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    @available_if(lambda self: self._has_softmax())  # type: ignore[untyped-decorator]
    def predict_proba(self, X: npt.ArrayLike) -> Floats:
        """Softmax of the logits, (samples, classes)."""
        return torch.from_numpy(self._evaluate(X, hidden=False)).softmax(1).numpy()

    def _has_softmax(self) -> bool:
        """Whether the logits are those of a cross-entropy."""
        if _left(self.readout):
            return self.preset not in ("robust", "accurate")
        return bool(self.readout == "cross_entropy")

    def predict(self, X: npt.ArrayLike) -> Labels:
        """The most likely label of each sample."""
        best = self._evaluate(X, hidden=False).argmax(1)
        return np.asarray(self.classes_[best])


class FermiBoseTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, FermiBoseEstimator):
    """The hidden layers alone, as a feature map for another estimator.

    With labels, pairs are made by class. Without labels (``fit(X)``) they are made self-supervised:
    an input and its noisy (and, for images, shifted) copy are a boson pair, two different inputs a
    fermion pair; then tables are scaled "per_feature", since noise is clipped to [0, 1], and
    parameters that are "auto" are those of pictures, but for ``bias``, which follows the scaling.

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
        hidden: tuple[Hidden, ...] | Auto = "auto",
        d_f: float | Auto | None = None,
        coupling: Coupling | Auto = "auto",
        epochs: int | Auto = "auto",
        batch_size: int | Auto = "auto",
        learning_rate: float | Auto = "auto",
        weight_decay: float | Auto = "auto",
        random_state: int | np.random.RandomState | None = None,
        *,
        pairing: str = "auto",
        noise: float = 0.2,
        shift: int = 2,
        image_shape: Sides | None = None,
        activation: str = "auto",
        scaling: Scaling = "auto",
        bias: bool | Auto = "auto",
        softness: float | Auto = "auto",
        boson_weight: float | Auto = "auto",
        fermion_weight: float | Auto = "auto",
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

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike | None = None, **refused: Any) -> Self:
        """Train the layers on X (samples, features), by labels y if given; returns self."""
        _refuse_weights(refused)
        checks.choice("pairing", self.pairing, ("auto", "labels", "self"))
        by_labels = self.pairing == "labels" or (self.pairing == "auto" and y is not None)
        if by_labels and y is None:
            raise InputError("pairing='labels' needs y; give labels, or use pairing='self'")
        if isinstance(self.d_f, str) and not by_labels:
            raise InputError("d_f='auto' is chosen by labels, and none are used: give a number")
        if by_labels:
            inputs, y = validate_data(self, X, y, **CHECKED)
            check_classification_targets(y)
            codes = np.unique(y, return_inverse=True)[1].astype(np.int64)
        else:
            inputs = validate_data(self, X, **CHECKED)
            codes = np.zeros(inputs.shape[0], dtype=np.int64)
        pairing = ByLabel() if by_labels else self._self_supervised()
        return self._train(_dense(inputs), codes, None, pairing=pairing, readout_epochs=0)

    def transform(self, X: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Representation after the last hidden layer, (samples, units)."""
        return self._evaluate(X, hidden=True).astype(np.float32)

    @property
    def _n_features_out(self) -> int:
        return int(self.net_.readout.weight.shape[0])

    def _self_supervised(self) -> Pairing:
        transforms: list[Transform] = [Noise(self.noise)]
        if self.image_shape is not None:
            transforms.insert(0, Shift(self.image_shape, self.shift))
        return SelfSupervised(tuple(transforms))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _refuse_pieces() -> bool:
    raise AttributeError(
        "partial_fit is not offered: layers learn one after another, so the second would have to "
        "begin before the first has seen all data. For data that do not fit into memory give "
        "fermibose.machine.train a mapped file (numpy.load(path, mmap_mode='r')) or a Dataset"
    )


def _refuse_weights(weights: Any) -> None:
    if weights:
        raise InputError(
            f"fit takes no {', '.join(weights)}: mini-batches are drawn at random, so that a "
            "sample of weight 2 would be like two in the mean only, not in one fit as scikit-learn "
            "asks. Weigh classes by class_weight, or repeat samples: X.repeat(weights, axis=0)"
        )


def _dense(x: Any) -> Floats:
    """The inputs as an array: layers are dense, and so is what they learn from."""
    if not issparse(x):
        return np.asarray(x)
    rows, features = x.shape
    checks.memory(
        f"the sparse input, {rows} × {features}, takes as an array",
        8.0 * rows * features,
        "use fewer features (feature_selection or TruncatedSVD of scikit-learn)",
    )
    return np.asarray(x.toarray())


def _threads(n_jobs: Any) -> int:
    """Threads that scikit-learn's n_jobs asks for: −1 means all, −2 all but one."""
    if n_jobs is None:
        return 1
    if not checks.is_whole(n_jobs) or n_jobs == 0:
        raise InputError(f"n_jobs must be None or a whole number other than 0, got {n_jobs!r}")
    return int(n_jobs) if n_jobs > 0 else max(torch.get_num_threads() + 1 + int(n_jobs), 1)


def _left(value: Any) -> bool:
    """Whether a parameter is left to the preset."""
    return value is None or (isinstance(value, str) and value == "auto")
