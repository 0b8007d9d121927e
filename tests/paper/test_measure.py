"""Oracles: loops over pairs, scikit-learn's PCA, hand-made trajectories, counts of images."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from fermibose import PairEnergy
from fermibose.attacks import ThreatModel, pgd
from fermibose.data import load_dataset, rank_in_class
from fermibose.errors import InputError
from fermibose.machine.local_rule import pair_force
from fermibose_paper.measure import (
    LOOKS,
    PGD_STRENGTH,
    Images,
    curves,
    learn,
    measure_training,
    principal_components,
    recorded_distances,
    trajectories,
)
from fermibose_paper.scale import quick


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(3)
    h = torch.rand(14, 9, generator=generator)
    return h, torch.randint(0, 4, (14,), generator=generator)


def test_recorded_distances_are_the_mean_over_all_products(batch):
    """The published programme, as a double loop over pairs: every distance meets every label."""
    h, labels = batch
    pairs = list(itertools.combinations(range(len(h)), 2))
    distances = [float((h[i] - h[j]).square().mean()) for i, j in pairs]
    same = [float(labels[i] == labels[j]) for i, j in pairs]
    products = len(pairs) ** 2
    boson = sum(d * s for d in distances for s in same) / products
    fermion = sum(d * (1 - s) for d in distances for s in same) / products

    _, report = pair_force(h, labels, PairEnergy(0.4))
    found = recorded_distances(
        np.array([report.boson_distance]),
        np.array([report.fermion_distance]),
        np.array([report.boson_share]),
    )
    assert found["recorded_boson_distance"] == pytest.approx([boson], rel=1e-5)
    assert found["recorded_fermion_distance"] == pytest.approx([fermion], rel=1e-5)
    # Their ratio knows nothing of the representation.
    assert boson / fermion == pytest.approx(report.n_boson / report.n_fermion)


def test_a_batch_without_bosons_contributes_nothing_to_them():
    found = recorded_distances(np.array([np.nan]), np.array([0.3]), np.array([0.0]))
    assert found["recorded_boson_distance"].tolist() == [0.0]
    assert found["recorded_fermion_distance"] == pytest.approx([0.3])


def test_principal_components_against_scikit_learn(batch):
    h, _ = batch
    shares, coordinates = principal_components(h)
    reference = PCA().fit(h.double().numpy())
    assert shares[:9] == pytest.approx(reference.explained_variance_ratio_, rel=1e-8)
    expected = reference.transform(h.double().numpy())
    assert np.abs(coordinates[:, :3]) == pytest.approx(np.abs(expected[:, :3]), rel=1e-6, abs=1e-9)


def test_trajectories_are_means_over_the_batches_of_an_epoch():
    data = Images("mnist5k", per_class=6).load()
    training = learn(data, "averaged", 0.3, (8,), 3, 25, seed=1)
    paths = trajectories(training)
    record = training.history["layer 1"]
    assert len(record["energy"]) == 9  # 60 images make batches of 25, 25 and 10
    for epoch in range(3):
        part = slice(3 * epoch, 3 * epoch + 3)
        share, boson, fermion = (
            record[name][part] for name in ("boson_share", "boson_distance", "fermion_distance")
        )
        mean = share * boson + (1 - share) * fermion
        assert paths["fermion_distance"][epoch] == pytest.approx(fermion.mean())
        assert paths["recorded_boson_distance"][epoch] == pytest.approx((share * mean).mean())
    assert paths["test_accuracy"] == pytest.approx(training.history["readout"]["test_accuracy"])


def test_boson_share_counts_pairs():
    data = Images("mnist5k", per_class=5).load()
    training = learn(data, "labelled", 0.3, (4,), 1, 50, seed=0)
    # One batch of all 50 images: 10·(5·4/2) of 50·49/2 pairs are bosons.
    assert training.history["layer 1"]["boson_share"] == pytest.approx([100 / 1225])


def test_robustness_against_steps_made_by_hand():
    """FGSM and areas once more: the sign of autograd's gradient, straight lines between points."""
    data = Images("mnist5k", per_class=10).load()
    training = learn(data, "labelled", 0.4, (12,), 4, 50, seed=0)
    net, found = training.net, curves(training, data)
    first = rank_in_class(data.y_test) < 100
    x, y = torch.tensor(data.x_test[first]), torch.tensor(data.y_test[first])
    leaf = x.clone().requires_grad_()
    torch.nn.functional.cross_entropy(net(leaf), y, reduction="sum").backward()
    right = net(x).argmax(1) == y

    def fooled_less(epsilon):
        points = (x + epsilon * leaf.grad.sign()).clamp(0, 1)
        return float((right & (net(points).argmax(1) == y)).double().mean())

    expected = [fooled_less(k / 100) for k in range(80)]
    assert found["fgsm_curve"] == pytest.approx(expected, abs=1.5e-3)
    for kind in ("fgsm", "noise"):
        curve = found[f"{kind}_curve"]
        lines = [(a + b) / 2 for a, b in itertools.pairwise(curve)]
        assert found[f"{kind}_area"] == pytest.approx(sum(lines), abs=1e-3)  # 100 % · 0.01
    assert found["noise_curve"][0] == pytest.approx(float(right.double().mean()))
    image = np.frombuffer(bytes.fromhex(found["noise_example"]), np.uint8) / 255
    assert image[200:500].std() > 0.2  # noise of strength 0.4, clipped


def test_pgd_is_measured_on_the_machine_of_this_coupling_and_is_stronger_than_one_step():
    data = Images("mnist5k").load()
    settings = {"coupling": "averaged", "d_f": 0.4, "hidden": 12, "epochs": 3, "seed": 2}
    settings |= {"dataset": "mnist5k", "data": data}
    found = measure_training(**settings, also=["curves", "pgd"])
    net = learn(data, "averaged", 0.4, (12,), 3, 50, seed=2).net
    first = rank_in_class(data.y_test) < 100
    threat = ThreatModel("linf", PGD_STRENGTH)
    by_hand = pgd(net, data.x_test[first], data.y_test[first], threat, steps=20, seed=2)
    assert found["pgd_accuracy"] == by_hand.robust_accuracy
    assert found["pgd_accuracy"] <= found["fgsm_curve"][10]


def test_one_training_gives_what_each_look_alone_gives():
    data = Images("mnist5k", per_class=10).load()
    settings = {"coupling": "labelled", "d_f": 0.4, "hidden": 6, "epochs": 2, "seed": 1}
    settings |= {"dataset": "mnist5k", "data": data}
    whole, bare = (
        measure_training(**settings, also=sorted(LOOKS)),
        measure_training(**settings, also=[]),
    )
    alone = {name: measure_training(**settings, also=[name]) for name in LOOKS}
    assert bare.items() < whole.items()
    assert all(bare.items() < found.items() < whole.items() for found in alone.values())
    assert set(whole) == set().union(*alone.values())
    assert whole["test_accuracy"] == pytest.approx(
        np.mean(whole["test_accuracy_per_epoch"]), rel=1e-5
    )


def test_imbalance_is_geometric_and_keeps_the_first_images():
    whole, skewed = (
        Images("mnist5k", per_class=40).load(),
        Images("mnist5k", per_class=40, imbalance=10.0).load(),
    )
    counts = np.bincount(skewed.y_train)
    assert counts.tolist() == [round(40 * 10 ** (-k / 9)) for k in range(10)]
    for k in (0, 5, 9):
        first = whole.x_train[whole.y_train == k][: counts[k]]
        assert np.array_equal(skewed.x_train[skewed.y_train == k], first)
    assert np.array_equal(skewed.y_test, whole.y_test)


def test_refuses_what_makes_no_sense():
    with pytest.raises(InputError, match="100 training images"):
        Images("mnist5k", per_class=200).load()
    with pytest.raises(InputError, match="imbalance"):
        Images("mnist5k", imbalance=0.5).load()
    with pytest.raises(InputError, match="no d_F"):
        learn(Images("mnist5k", per_class=5).load(), "mlp", 0.3, (4,), 1, 50, seed=0)
    nothing = {"coupling": "mlp", "d_f": None, "dataset": "mnist5k", "data": None}
    with pytest.raises(InputError, match="no 'beauty' to look at: choose from components"):
        measure_training(**nothing, also=["beauty"])


def test_a_net_is_the_same_job_for_every_figure_and_has_what_all_of_them_want():
    scale = quick()

    def looks(coupling, d_f, seed=0, **changed):
        return scale.job(coupling, d_f, seed, **changed).params["also"]

    assert looks("mlp", None) == sorted(LOOKS)
    assert looks("averaged", 1.2) == ["components", "courses", "curves"]
    assert looks("labelled", 1.2) == ["components", "curves"]
    assert looks("averaged", 0.25) == ["courses"]
    assert looks("labelled", 0.3) == ["courses", "curves"]
    assert looks("labelled", 0.3, seed=1) == ["curves"]  # what goes beyond the paper has one seed
    assert looks("labelled", 0.8, seed=1) == ["pgd"]
    assert looks("labelled", 0.455, seed=1) == ["courses", "pgd"]
    assert looks("mlp", None, depth=2) == looks("averaged", 0.2, per_class=30) == ["courses"]
    assert looks("averaged", 0.2, dataset="fashion-mnist") == ["courses"]


def test_the_folder_is_absolute_and_no_part_of_the_identity(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Images("mnist", folder="here").folder == str(tmp_path / "here")
    assert Images("mnist5k", folder="here") == Images("mnist5k")
    one, other = (replace(quick(), folder=folder).job("mlp", None, 0) for folder in ("a", None))
    assert one.key == other.key


def test_images_are_loaded_once_and_have_the_checksum_of_their_numbers():
    images = Images("mnist5k", per_class=7)
    assert images.load() is Images("mnist5k", per_class=7).load()
    plain = load_dataset("mnist5k", train_per_class=7, test_per_class=400)
    assert images.load().checksum == plain.checksum
