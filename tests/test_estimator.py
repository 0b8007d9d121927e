"""The scikit-learn estimators. Oracles: scikit-learn's own checks, the net behind the estimator."""

import os
import pickle
import signal
from typing import get_args

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import make_classification, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

from fermibose import FermiBoseClassifier, FermiBoseNet, FermiBoseTransformer, PairEnergy
from fermibose.compute import Interrupted
from fermibose.data import load_digits, per_class
from fermibose.errors import InputError
from fermibose.machine import ByLabel, RangeWarning, Recipe, loop, train
from fermibose.machine.local_rule import Dense
from fermibose.machine.loop import drawn
from fermibose.machine.readouts import (
    KernelReadout,
    KernelRidge,
    gaussian_kernel,
    solve_ridge,
)
from fermibose.machine.recipe import Preset

QUICK = {
    "hidden": (30,),
    "epochs": 10,
    "readout_epochs": 20,
    "readout_learning_rate": 0.05,
    "batch_size": 20,
    "random_state": 0,
}


@parametrize_with_checks(
    [
        FermiBoseClassifier(),
        FermiBoseTransformer(),
        *(FermiBoseClassifier(preset=name) for name in get_args(Preset)),
    ]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)
    assert check.func.__name__.startswith("check")


@pytest.fixture(scope="module")
def clusters():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 90)
    x = np.clip(rng.random((3, 12))[y] + 0.08 * rng.normal(size=(90, 12)), 0, 1)
    return x, np.array(["cat", "dog", "emu"])[y]


def test_string_labels_and_probabilities_come_from_the_net(clusters):
    x, y = clusters
    model = FermiBoseClassifier(**QUICK).fit(x, y)
    assert model.score(x, y) == 1
    assert model.net_.config["classes"] == ["cat", "dog", "emu"]
    logits = model.net_(torch.tensor(x, dtype=torch.float32)).double()
    np.testing.assert_allclose(model.predict_proba(x), logits.softmax(1).numpy(), atol=1e-6)
    np.testing.assert_allclose(model.decision_function(x), logits.numpy(), atol=1e-5)
    assert (model.predict(x) == model.classes_[logits.argmax(1).numpy()]).all()
    assert set(model.history_) == {"layer 1", "readout"}
    assert len(model.history_["layer 1"]["fermion_distance"]) == 10 * 5


@pytest.fixture(scope="module")
def pictures():
    """Digits: in [0, 1], half of their pixels dark."""
    x, y = per_class(*load_digits(), 10)
    return x.astype(np.float64), y


def test_pictures_are_used_as_they_are_and_in_other_units_divided_by_the_largest(pictures):
    x, y = pictures
    plain = FermiBoseClassifier(**QUICK).fit(x, y)
    assert plain.scaling_ == "none"
    assert plain.net_.gain is None
    assert plain.net_.local_layers[0].bias is None
    # Bit for bit the machine with the defaults of a recipe.
    recipe = Recipe(**(plain.net_.info["recipe"] | {"energy": PairEnergy(), "pairing": ByLabel()}))
    assert recipe.weight_decay == Recipe().weight_decay
    machine = train(x, y, recipe).net
    for name, value in machine.state_dict().items():
        assert torch.equal(plain.net_.state_dict()[name], value)

    for unit in (255.0, 1 / 160, 1.01):
        scaled = FermiBoseClassifier(**QUICK).fit(unit * x, y)
        assert scaled.scaling_ == "global"
        assert scaled.net_.local_layers[0].bias is None
        np.testing.assert_allclose(
            scaled.decision_function(unit * x), plain.decision_function(x), atol=1e-4
        )
    assert FermiBoseClassifier(**QUICK).fit(x * (1 + 1e-7), y).scaling_ == "none"


def test_tables_are_standardised_inside_and_get_settings_of_their_own(clusters):
    x, y = clusters
    unit = StandardScaler().fit_transform(x)
    reference = FermiBoseClassifier(
        **QUICK, scaling="none", bias=True, boson_weight=0.3, weight_decay=0.001
    ).fit(unit, y)
    for offset, gain in ((0, 1), (1e6, 250), (-0.5, 1e-3)):
        raw = FermiBoseClassifier(**QUICK).fit(offset + gain * x, y)
        assert raw.scaling_ == "standard"
        np.testing.assert_allclose(
            raw.decision_function(offset + gain * x), reference.decision_function(unit), atol=1e-3
        )
        # The net itself takes raw inputs.
        x64 = torch.tensor(offset + gain * x)
        np.testing.assert_allclose(raw.net_(x64).numpy(), raw.decision_function(x64), atol=1e-4)


def test_parameters_that_are_given_are_kept(clusters):
    x, y = clusters
    given = {"d_f": 0.3, "boson_weight": 0.7, "weight_decay": 0.02, "bias": False}
    recipe = FermiBoseClassifier(**QUICK, **given).fit(x, y).net_.info["recipe"]
    assert (recipe["energy"]["d_f"], recipe["energy"]["boson_weight"]) == (0.3, 0.7)
    assert (recipe["weight_decay"], recipe["bias"]) == (0.02, False)


def test_scaling_can_be_asked_for(clusters, pictures):
    x, y = clusters
    stray = x.copy()
    stray[3, 4] = 1.01
    raw = FermiBoseClassifier(**QUICK, scaling="none").fit(stray, y)
    assert raw.scaling_ == "none"
    assert raw.net_.gain is None
    assert raw.net_.local_layers[0].bias is None
    # Against the machine itself, which is given the stray entry, too.
    recipe = Recipe(**(raw.net_.info["recipe"] | {"energy": PairEnergy(), "pairing": ByLabel()}))
    with pytest.warns(RangeWarning):
        machine = train(stray, np.unique(y, return_inverse=True)[1], recipe).net
    for name, value in machine.state_dict().items():
        assert torch.equal(raw.net_.state_dict()[name], value)

    forced = FermiBoseClassifier(**QUICK, scaling="per_feature").fit(x, y)
    np.testing.assert_allclose(forced.net_.gain.numpy(), 1 / (x.max(0) - x.min(0)), rtol=1e-12)
    np.testing.assert_array_equal(forced.net_.offset.numpy(), x.min(0))
    standard = FermiBoseClassifier(**QUICK, scaling="standard").fit(*pictures)
    assert standard.scaling_ == "standard"
    layers = FermiBoseTransformer(hidden=(5,), epochs=1, scaling="none", random_state=0)
    layers.fit(stray, y)
    assert layers.net_.gain is None


def test_self_supervised_layers_see_tables_in_the_unit_range(clusters):
    """Noise is clipped to it; and d_F and weights are those of the paper."""
    x = 250 * clusters[0] - 7
    settings = {"hidden": (5,), "epochs": 1, "random_state": 0}
    layers = FermiBoseTransformer(**settings).fit(x)
    assert layers.scaling_ == "per_feature"
    recipe = layers.net_.info["recipe"]
    assert (recipe["energy"]["d_f"], recipe["energy"]["boson_weight"]) == (0.4, 1.0)
    assert recipe["weight_decay"] == 0.01
    assert FermiBoseTransformer(**settings).fit(x, clusters[1]).scaling_ == "standard"


def test_constant_features_and_huge_values_are_harmless(clusters):
    x, y = clusters
    x = np.column_stack([1e200 * x[:, :6], x[:, 6:], np.full(len(x), -7.0)])
    model = FermiBoseClassifier(**QUICK).fit(x, y)
    assert model.score(x, y) > 0.95


def test_saved_net_predicts_like_the_estimator(clusters, tmp_path):
    x, y = clusters
    model = FermiBoseClassifier(**QUICK).fit(10 * x - 3, y)
    model.net_.save(tmp_path)
    net = FermiBoseNet.load(tmp_path)
    logits = net(torch.tensor(10 * x - 3))
    assert (np.array(net.config["classes"])[logits.argmax(1)] == model.predict(10 * x - 3)).all()


def test_pipeline_grid_search_clone_and_pickle(clusters):
    x, y = clusters
    pipeline = make_pipeline(StandardScaler(), FermiBoseClassifier(**QUICK))
    search = GridSearchCV(pipeline, {"fermiboseclassifier__hidden": [(1,), (30,)]}, cv=3)
    search.fit(x, y)
    assert search.best_params_ == {"fermiboseclassifier__hidden": (30,)}
    copy = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(copy.predict_proba(x), search.predict_proba(x))
    again = clone(search.best_estimator_).fit(x, y)
    np.testing.assert_array_equal(again.predict_proba(x), search.predict_proba(x))


def test_parallel_grid_search_gives_the_same_bits(clusters):
    x, y = clusters
    grid = {"d_f": [0.2, 0.4]}
    scores = [
        GridSearchCV(FermiBoseClassifier(**QUICK), grid, cv=2, n_jobs=jobs, scoring="neg_log_loss")
        .fit(x, y)
        .cv_results_["mean_test_score"]
        for jobs in (1, 2)
    ]
    np.testing.assert_array_equal(*scores)


def test_ridge_readout_classifies_but_offers_no_probabilities(clusters):
    x, y = clusters
    model = FermiBoseClassifier(**QUICK, readout="ridge").fit(x, y)
    assert model.score(x, y) == 1
    assert not hasattr(model, "predict_proba")


def test_curved_classes_need_the_hidden_layer():
    """With fermions alone: bosons at full weight squeeze each moon and unbend nothing."""
    x, y = make_moons(400, noise=0.1, random_state=0)
    assert LogisticRegression().fit(x, y).score(x, y) < 0.9
    model = FermiBoseClassifier(
        (200,), 0.2, boson_weight=0, weight_decay=0, readout="ridge", ridge=1e-4, random_state=0
    )
    assert model.fit(x, y).score(x, y) > 0.97


def test_transformer_learns_with_and_without_labels(clusters):
    x, y = clusters
    for labels in (y, None):
        layers = FermiBoseTransformer(**{k: v for k, v in QUICK.items() if "readout" not in k})
        h = layers.fit(x, labels).transform(x)
        expected = layers.net_.represent(torch.tensor(x, dtype=torch.float32)).numpy()
        np.testing.assert_allclose(h, expected, atol=1e-6)
        assert "readout" not in layers.history_
        assert LogisticRegression().fit(h, y).score(h, y) == 1
        assert layers.get_feature_names_out()[0] == "fermibosetransformer0"


def test_image_shape_brings_shifts_into_self_supervised_pairs(clusters):
    x, _ = clusters
    settings = {"hidden": (10,), "epochs": 2, "random_state": 0, "noise": 0.1}
    shifted = FermiBoseTransformer(**settings, image_shape=(3, 4), shift=1).fit(x)
    noisy = FermiBoseTransformer(**settings).fit(x)
    bosons = [m.history_["layer 1"]["boson_distance"][0] for m in (shifted, noisy)]
    assert bosons[0] > 1.5 * bosons[1]  # a shift and noise change an input more than noise alone
    with pytest.raises(InputError, match="12 features, but images of shape"):
        FermiBoseTransformer(**settings, image_shape=(5, 5)).fit(x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (np.where(x > 0.9, np.nan, x), y), "Input X contains NaN"),
        (lambda x, y: (np.where(x > 0.9, np.inf, x), y), "Input X contains infinity"),
        (lambda x, y: (x, np.full(len(y), "cat")), "contains only one class: 'cat'"),
        (lambda x, y: (x[:1], y[:1]), "minimum of 2 is required"),
        (lambda x, y: (x[:, :0], y), "0 feature"),
        (lambda x, y: (x, np.linspace(0, 1, len(y))), "Unknown label type: continuous"),
    ],
)
def test_messages_scikit_learn_users_expect(clusters, change, message):
    with pytest.raises(ValueError, match=message):
        FermiBoseClassifier(**QUICK).fit(*change(*clusters))


def test_wrong_width_and_unfitted_use_are_refused(clusters):
    x, y = clusters
    with pytest.raises(NotFittedError):
        FermiBoseClassifier().predict(x)
    model = FermiBoseClassifier(**QUICK).fit(x, y)
    with pytest.raises(ValueError, match="X has 5 features, but FermiBoseClassifier is expecting"):
        model.predict(x[:, :5])


def test_bad_parameters_are_named_in_fit(clusters):
    for bad, message in (
        ({"d_f": -1.0}, "d_f"),
        ({"coupling": "both"}, "coupling"),
        ({"hidden": ()}, "hidden"),
        ({"epochs": 1.5}, "epochs"),
        ({"d_f": "soft"}, "d_f"),
        ({"hidden": 50}, "hidden"),
        ({"n_jobs": "2"}, "n_jobs"),
        (
            {"scaling": "per-feature"},
            "scaling must be 'auto' or 'none' or 'global' or",
        ),
        ({"scaling": None}, "scaling"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"n_jobs": 1.5}, "n_jobs"),
    ):
        with pytest.raises(InputError, match=message):
            FermiBoseClassifier(**(QUICK | bad)).fit(*clusters)
    unfit = FermiBoseTransformer(image_shape=64)
    with pytest.raises(InputError, match="image_shape"):
        unfit.fit(clusters[0])
    with pytest.raises(NotFittedError):
        unfit.transform(clusters[0])
    with pytest.raises(ValueError, match="pairing"):
        FermiBoseTransformer(pairing="none").fit(*clusters)
    with pytest.raises(ValueError, match="needs y"):
        FermiBoseTransformer(pairing="labels").fit(clusters[0])


@pytest.fixture
def pressed(monkeypatch):
    """Ctrl-C is pressed at the third mini-batch of the first training."""
    record = loop._record
    presses = iter([True])

    def press(records, stage, values):
        record(records, stage, values)
        if len(records.get(stage, {}).get("energy", ())) == 3 and next(presses, False):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(loop, "_record", press)


def test_ctrl_c_keeps_what_is_trained(clusters, pressed):
    with pytest.raises(Interrupted) as stop:
        FermiBoseClassifier(**QUICK).fit(*clusters)
    model = stop.value.done
    assert len(model.history_["layer 1"]["energy"]) == 5  # the epoch was finished
    assert model.score(*clusters) == 1


@pytest.mark.parametrize("kind", [FermiBoseClassifier, FermiBoseTransformer])
def test_ctrl_c_leaves_no_half_fitted_model(clusters, pressed, kind):
    settings = {key: QUICK[key] for key in QUICK if "readout" not in key}
    model = kind(**settings)
    with pytest.raises(Interrupted) as stop:
        model.fit(*clusters)
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    check_is_fitted(stop.value.done)


def test_ctrl_c_ends_a_grid_search(clusters, pressed):
    search = GridSearchCV(FermiBoseClassifier(**QUICK), {"d_f": [0.2, 0.4]}, cv=2)
    with pytest.raises(KeyboardInterrupt):
        search.fit(*clusters)


@pytest.mark.parametrize("preset", ["paper", "table", "robust", "accurate"])
def test_every_preset_classifies_digits_and_is_kept_in_a_file(preset, tmp_path):
    x, y = load_digits()
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    model = FermiBoseClassifier(preset=preset, image_shape=(8, 8), random_state=0)
    model.fit(x[:300], y[:300])
    assert model.preset_ == preset
    assert model.score(x[300:800], y[300:800]) > 0.9
    model.net_.save(tmp_path)
    logits = FermiBoseNet.load(tmp_path)(torch.tensor(x[300:310], dtype=torch.float32))
    np.testing.assert_allclose(logits.numpy(), model.decision_function(x[300:310]), atol=1e-4)
    assert hasattr(model, "predict_proba") == (preset in ("paper", "table"))


def test_a_robust_net_of_a_table_is_kept_in_a_file(clusters, tmp_path):
    """Its adversary knows no bounds, and JSON knows no infinity."""
    x, y = clusters
    model = FermiBoseClassifier(preset="robust", epochs=2, random_state=0).fit(x, y)
    model.net_.save(tmp_path)
    threat = FermiBoseNet.load(tmp_path).info["recipe"]["adversary"]["threat"]
    assert threat["bounds"] == [None, None]


def test_what_is_given_takes_the_place_of_the_presets(clusters):
    x, y = clusters
    settings = {"preset": "robust", "random_state": 0, "epochs": 2, "hidden": (7,)}
    model = FermiBoseClassifier(**settings, boson_weight=0.5, readout="ridge").fit(x, y)
    recipe = model.net_.info["recipe"]
    assert (recipe["epochs"], recipe["hidden"], recipe["readout"]) == (2, [7], "ridge")
    assert recipe["energy"]["boson_weight"] == 0.5
    assert recipe["energy"]["sharpness"] > 0
    assert recipe["adversary"]["threat"]["bounds"] == [None, None]  # of standardised features
    with pytest.raises(InputError, match="d_f belongs to the hinge"):
        FermiBoseClassifier(**settings, d_f=0.3).fit(x, y)
    with pytest.raises(InputError, match="has no d_f to choose"):
        FermiBoseClassifier(**settings, d_f="auto").fit(x, y)
    with pytest.raises(InputError, match="preset"):
        FermiBoseClassifier(preset="best").fit(x, y)


@pytest.mark.filterwarnings("ignore::fermibose.machine.CollapseWarning")  # noise has no classes
def test_images_of_any_look_are_pictures_if_their_shape_is_known():
    """Bright photographs have no background of zeros."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(50, 255, (60, 64)).astype(float), rng.integers(0, 2, 60)
    settings = {"hidden": (50,), "epochs": 5, "readout_epochs": 1, "random_state": 0}
    assert FermiBoseClassifier(**settings).fit(x, y).scaling_ == "standard"
    known = FermiBoseClassifier(**settings, image_shape=(8, 8)).fit(x, y)
    assert (known.scaling_, known.preset_) == ("global", "paper")
    with pytest.raises(InputError, match="64 features, but images of shape"):
        FermiBoseClassifier(**settings, image_shape=(8, 9)).fit(x, y)


@pytest.mark.parametrize("kind", [FermiBoseClassifier, FermiBoseTransformer])
def test_d_f_is_chosen_on_samples_held_out(clusters, monkeypatch, kind):
    """The scores are made up, so that the best is known; ties go to the value nearest to 0.4."""
    from fermibose import estimator

    x, y = clusters
    tried, wrong = [], set()

    def fake(x, y, recipe, **_):
        tried.append((recipe.energy.d_f, len(x)))
        right = train(x, y, recipe, show=False)
        if recipe.energy.d_f in wrong:
            right.net.readout.weight.zero_()
        return right

    settings = {"hidden": (20,), "epochs": 10, "random_state": 0, "scaling": "none"}
    if kind is FermiBoseClassifier:
        settings["readout_epochs"] = 50
    else:
        with pytest.raises(InputError, match="chosen by labels, and none are used"):
            kind(d_f="auto", **settings).fit(x)
    monkeypatch.setattr(estimator, "train", fake)
    for spoilt, best in (((), 0.4), ((0.4,), 0.2), ((0.1, 0.2), 0.8)):
        tried.clear()
        wrong.update(spoilt)
        model = kind(d_f="auto", **settings).fit(x, y)
        assert model.d_f_ == best
        assert model.net_.info["recipe"]["energy"]["d_f"] == best
        assert [d for d, _ in tried] == [0.1, 0.2, 0.4, 0.8, best]
        assert [n for _, n in tried] == [68, 68, 68, 68, 90]
    assert not hasattr(model.set_params(d_f=0.3).fit(x, y), "d_f_")  # it chose nothing


def test_a_class_weight_is_that_of_samples_drawn_as_often():
    """Oracle: the mean number of copies, c = n w/Σw; never more than one copy from it, n in all."""
    weights = torch.tensor([1.0, 2.0, 3.0, 0.5, 0.0] * 8)
    expected = 40 * weights / weights.sum()
    generator, total = torch.Generator().manual_seed(0), torch.zeros(40)
    for _ in range(400):
        copies = torch.bincount(drawn(40, weights, generator), minlength=40)
        assert int(copies.sum()) == 40
        assert bool(((copies >= expected.floor()) & (copies <= expected.ceil())).all())
        total += copies
    # a count varies by at most ½, its mean over 400 epochs by 0.025: five of that
    assert torch.allclose(total / 400, expected, atol=0.125)


@pytest.mark.parametrize("units", [3, 30])
def test_a_weighted_ridge_is_that_of_duplicated_samples(units):
    h, y = torch.rand(12, units), torch.arange(12) % 2
    weights = 1.0 + 2 * y  # a sample of class 1 counts as three
    copies = torch.arange(12).repeat_interleave(weights.long())
    one, other = Dense(units, 2, bias=True), Dense(units, 2, bias=True)
    solve_ridge(one, h, y, ridge=0.1, weights=weights)
    solve_ridge(other, h[copies], y[copies], ridge=0.1)
    assert torch.allclose(one.weight, other.weight, atol=1e-6)
    assert torch.allclose(one.bias, other.bias, atol=1e-6)


@pytest.mark.parametrize("readout", ["cross_entropy", "ridge"])
def test_class_weight_brings_back_a_rare_class(readout):
    x, y = make_classification(400, 10, weights=[0.93], class_sep=0.6, random_state=0)
    recall = {}
    for weight in (None, "balanced", {0: 1.0, 1: 0.0}):
        model = FermiBoseClassifier(
            hidden=(30,), epochs=10, readout=readout, class_weight=weight, random_state=0
        )
        recall[str(weight)] = model.fit(x, y).predict(x)[y == 1].mean()
    assert recall["balanced"] > recall["None"]
    assert recall["{0: 1.0, 1: 0.0}"] == 0


@pytest.mark.parametrize("centres", [12, 5])
def test_a_weighted_kernel_ridge_minimises_the_weighted_error(centres):
    """Oracle: the gradient of Σ w (Kα − t)² + r αᵀKα, which must vanish; w has the mean 1."""
    h, y = torch.rand(12, 3, dtype=torch.float64), torch.arange(12) % 2
    weights, spec = 1.0 + 2 * y.double(), KernelRidge(penalty=0.1)
    readout = KernelReadout(3, 2, 3, centres).double()
    readout.solve(h, y, spec, torch.Generator().manual_seed(0), weights)
    u, c, gamma = readout.project(h), readout.centres, readout.gamma
    k, inner = gaussian_kernel(u, c, gamma), gaussian_kernel(c, c, gamma)
    errors = k @ readout.coefficients - (2.0 * torch.nn.functional.one_hot(y, 2) - 1)
    gradient = k.T @ (weights[:, None] / 2 * errors) + 0.1 * inner @ readout.coefficients
    assert gradient.abs().max() < 1e-9


def test_sparse_input_is_taken_as_the_array_it_is(monkeypatch):
    x, y = make_classification(60, 8, random_state=0)
    sparse = csr_matrix(np.where(np.abs(x) > 0.8, x, 0))
    model = FermiBoseClassifier(hidden=(10,), epochs=2, random_state=0)
    found = model.fit(sparse, y).decision_function(sparse)
    dense = sparse.toarray()
    assert np.array_equal(found, model.fit(dense, y).decision_function(dense))
    features = FermiBoseTransformer(hidden=(10,), epochs=2, random_state=0).fit(sparse)
    assert features.transform(sparse).shape == (60, 10)
    monkeypatch.setattr("fermibose.checks.free_memory", lambda: 8 * 60 * 8 - 1)
    with pytest.raises(InputError, match=r"60 × 8, takes as an array .* use fewer features"):
        model.fit(sparse, y)


@pytest.mark.parametrize("kind", [FermiBoseClassifier, FermiBoseTransformer])
def test_what_is_not_offered_is_refused_with_a_remedy(kind):
    x, y = np.random.default_rng(0).random((20, 3)), np.arange(20) % 2
    with pytest.raises(InputError, match="class_weight, or repeat samples"):
        kind().fit(x, y, sample_weight=np.ones(20))
    assert not hasattr(kind(), "partial_fit")
    with pytest.raises(AttributeError) as refusal:
        kind().partial_fit(x, y)
    assert "mmap_mode" in str(refusal.value.__cause__)


def test_float32_is_scaled_as_its_doubles_are():
    """It stays float32 in memory, and nothing else changes."""
    x = np.random.default_rng(0).normal(3, 2, (60, 5)).astype(np.float32)
    y = np.arange(60) % 3
    one, other = (
        FermiBoseClassifier((9,), epochs=2, readout_epochs=2, random_state=0).fit(x.astype(t), y)
        for t in (np.float32, np.float64)
    )
    for key, value in one.net_.state_dict().items():
        assert torch.equal(value, other.net_.state_dict()[key])
    np.testing.assert_array_equal(one.decision_function(x), other.decision_function(x * 1.0))
