"""The classifier with its defaults on data other than bright pictures: none may end at chance.

Balanced accuracy on samples not trained on must reach 90 %, and a linear classifier must fail where
classes are curved.
"""

import numpy as np
import pytest
from sklearn import datasets
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MinMaxScaler, Normalizer

from fermibose import FermiBoseClassifier


def digits(seed, change):
    x, y = datasets.load_digits(return_X_y=True)
    return change(x), y


def words(seed, samples=500, classes=4, vocabulary=300):
    """Counts of words, whose frequencies depend on the class, as TF-IDF: small and sparse."""
    rng = np.random.default_rng(seed)
    common = rng.dirichlet(np.full(vocabulary, 0.3))
    topics = (common + rng.dirichlet(np.full(vocabulary, 0.3), classes)) / 2
    y = rng.integers(0, classes, samples)
    counts = np.array([rng.multinomial(60, topics[k]) for k in y])
    return TfidfTransformer().fit_transform(counts).toarray(), y


def rare(seed, **settings):
    """One class of 85 %, one of 10 % and one of 5 %, well apart."""
    shape = {"n_features": 20, "n_informative": 8, "n_clusters_per_class": 1, "class_sep": 2.0}
    weights = {"n_classes": 3, "weights": [0.85, 0.1, 0.05], "flip_y": 0}
    return datasets.make_classification(1000, random_state=seed, **(shape | weights | settings))


def circles(seed, samples=400, **settings):
    return datasets.make_circles(
        samples, random_state=seed, **({"noise": 0.05, "factor": 0.5} | settings)
    )


def corners(seed, samples=400, spread=0.3):
    """XOR of clusters at the corners of a square."""
    rng = np.random.default_rng(seed)
    corner = rng.integers(0, 2, (samples, 2))
    return corner + spread / 2 * rng.normal(size=(samples, 2)), corner[:, 0] ^ corner[:, 1]


def signs(seed, samples=500):
    """XOR of the signs of two uniform numbers."""
    x = np.random.default_rng(seed).uniform(-1, 1, (samples, 2))
    return x, (x.prod(1) > 0).astype(int)


def unit(make):
    def made(seed):
        x, y = make(seed)
        return MinMaxScaler().fit_transform(x), y

    return made


DATA = {
    "digits / 160": lambda seed: digits(seed, lambda x: x / 160),
    "digits of length 1": lambda seed: digits(seed, Normalizer().fit_transform),
    "words": words,
    "many rare words": lambda seed: words(seed, classes=8, vocabulary=1000),
    "rare classes": rare,
    "rare classes, some labels wrong": lambda seed: rare(seed, flip_y=0.01, n_informative=5),
}
CURVED = {
    "circles": circles,
    "few noisy circles": lambda seed: circles(seed, 200, noise=0.1, factor=0.3),
    "near noisy circles": lambda seed: circles(seed, noise=0.08, factor=0.5),
    "circles in [0, 1]": unit(circles),
    "small circles": lambda seed: (0.01 * circles(seed)[0], circles(seed)[1]),
    "corners": corners,
    "corners in [0, 1]": unit(corners),
    "signs": signs,
}


def reached(model, make, seed):
    x, y = make(seed)
    size = min(500, len(y) * 6 // 10)
    parts = train_test_split(x, y, train_size=size, random_state=seed, stratify=y)
    model.fit(parts[0], parts[2])
    return balanced_accuracy_score(parts[3], model.predict(parts[1]))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", DATA | CURVED)
def test_the_defaults_learn_it(name, seed):
    make = (DATA | CURVED)[name]
    assert reached(FermiBoseClassifier(random_state=seed), make, seed) >= 0.9
    if name in CURVED:
        assert reached(LogisticRegression(), make, seed) < 0.75


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_overlapping_classes_in_50_features_do_not_fall_behind_a_line(seed):
    def make(seed):
        return datasets.make_classification(
            1000, n_features=50, n_informative=10, n_classes=4, random_state=seed
        )

    machine = reached(FermiBoseClassifier(random_state=seed), make, seed)
    assert machine > reached(LogisticRegression(max_iter=1000), make, seed) - 0.02
    assert machine > 0.4
