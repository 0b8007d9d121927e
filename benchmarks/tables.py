"""The estimator on tables: what its defaults do beside other settings, and what they reach.

    python benchmarks/tables.py choice      candidates, on validation data only
    python benchmarks/tables.py reached     the defaults beside other methods, on test data
    python benchmarks/tables.py dimmed      pictures of less and less contrast, used as they are

Of each table 40 % is test data, up to 500 of the other samples are trained on, and a quarter of
those is validation data for ``choice``. Numbers are balanced accuracies (%), mean over seeds ±
standard error. Three of the tables come with the package river (``pip install river``).
"""

import sys
from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
from sklearn import datasets
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from fermibose import FermiBoseClassifier
from fermibose.machine import LocalDense
from fermibose.machine.local_rule import Dense
from fermibose.statistics import summary

BEFORE = {"scaling": "per_feature", "d_f": 0.4, "boson_weight": 1.0, "weight_decay": 0.01}
PAPER = BEFORE | {"scaling": "standard"}
CHOSEN = PAPER | {"boson_weight": 0.3, "weight_decay": 0.001}
NEARER = CHOSEN | {"d_f": 0.2}
CANDIDATES = {
    "per_feature, as for pictures": BEFORE,
    "standard, as for pictures": PAPER,
    "… weight_decay 0.001": PAPER | {"weight_decay": 0.001},
    "… … boson_weight 0.3": CHOSEN,
    "… … … d_f 0.2": NEARER,
    "… … … d_f 0.2, thresholds from 0": NEARER | {"thresholds": False},
    "… … … d_f 0.2, per_feature": NEARER | {"scaling": "per_feature"},
    "… … boson_weight 0.1, d_f 0.2": NEARER | {"boson_weight": 0.1},
    "… … boson_weight 1, d_f 0.2": NEARER | {"boson_weight": 1.0},
}


def from_river(name):
    from river import datasets as streams

    rows = list(getattr(streams, name)())
    x = np.array([[float(value) for value in row.values()] for row, _ in rows])
    return x, np.unique([str(label) for _, label in rows], return_inverse=True)[1]


def bundled(name):
    return getattr(datasets, f"load_{name}")(return_X_y=True)


def xor(seed):
    x = np.random.default_rng(seed).uniform(-1, 1, (600, 2))
    return x, (x.prod(1) > 0).astype(int)


def overlapping(seed, **settings):
    return datasets.make_classification(1000, random_state=seed, **settings)


RARE = {"n_classes": 3, "n_clusters_per_class": 1, "class_sep": 2.0, "weights": [0.85, 0.1, 0.05]}
TABLES = {
    "iris": lambda seed: bundled("iris"),
    "wine": lambda seed: bundled("wine"),
    "breast cancer": lambda seed: bundled("breast_cancer"),
    "digits, as a table": lambda seed: bundled("digits"),
    "image segments": lambda seed: from_river("ImageSegments"),
    "phishing": lambda seed: from_river("Phishing"),
    "bananas": lambda seed: from_river("Bananas"),
    "50 features": lambda seed: overlapping(seed, n_features=50, n_informative=10, n_classes=4),
    "20 features": lambda seed: overlapping(seed, n_features=20, n_informative=10, n_classes=3),
    "rare classes": lambda seed: overlapping(seed, n_features=20, n_informative=10, **RARE),
    "circles": lambda seed: datasets.make_circles(600, noise=0.1, factor=0.5, random_state=seed),
    "moons": lambda seed: datasets.make_moons(600, noise=0.1, random_state=seed),
    "XOR": xor,
}


def parts(name, seed):
    """Training and test part of a table: x, x_test, y, y_test."""
    x, y = TABLES[name](seed)
    kept, x_test, labels, y_test = train_test_split(
        x, y, test_size=0.4, stratify=y, random_state=seed
    )
    if len(kept) > 500:
        kept, _, labels, _ = train_test_split(
            kept, labels, train_size=500, stratify=labels, random_state=seed
        )
    return kept, x_test, labels, y_test


def machine(seed, thresholds=True, **settings):
    """A classifier, and the context that it is to be fitted in."""
    context = (
        nullcontext() if thresholds else patch.object(LocalDense, "initialise", Dense.initialise)
    )
    return FermiBoseClassifier(random_state=seed, **settings), context


def score(model, context, x, x_test, y, y_test):
    with context:
        return balanced_accuracy_score(y_test, model.fit(x, y).predict(x_test))


def show(rows, seeds, measure):
    """Print a line for each row (name → its settings): every table, and the mean over tables."""
    print(" | ".join(["", *TABLES, "mean", ""]))
    print("|" + "---|" * (len(TABLES) + 2))
    for name, settings in rows.items():
        found = np.array([[measure(settings, t, seed) for t in TABLES] for seed in seeds])
        cells = [str(summary(column, scale=100)) for column in (*found.T, found.mean(1))]
        print(" | ".join(["", name, *cells, ""]), flush=True)


def choice(seeds=(0, 1)):
    """Balanced accuracy of each candidate on validation data; test data are not looked at."""

    def measure(settings, name, seed):
        x, _, y, _ = parts(name, seed)
        x, held, y, held_y = train_test_split(x, y, test_size=0.25, stratify=y, random_state=seed)
        return score(*machine(seed, **settings), x, held, y, held_y)

    show(CANDIDATES, seeds, measure)


def reached(seeds=(10, 11, 12)):
    """Balanced accuracy on test data, with seeds that no choice was made on."""
    methods = {
        "the defaults": machine,
        "RBF-SVM": lambda seed: (make_pipeline(StandardScaler(), SVC()), nullcontext()),
        "MLP of scikit-learn": lambda seed: (
            make_pipeline(StandardScaler(), MLPClassifier(max_iter=500, random_state=seed)),
            nullcontext(),
        ),
        "per_feature, as for pictures": lambda seed: machine(seed, **BEFORE),
        "standard, as for pictures": lambda seed: machine(seed, **PAPER),
    }
    show(methods, seeds, lambda make, name, seed: score(*make(seed), *parts(name, seed)))


def dimmed(seeds=3):
    """Accuracy on digits used as they are, of a contrast that falls from 1 to 0.1."""
    x, y = datasets.load_digits(return_X_y=True)
    for contrast in (1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1):
        dim = contrast * x / 16
        found = [
            score(
                *machine(seed, scaling="none"),
                *train_test_split(dim, y, train_size=500, stratify=y, random_state=seed),
            )
            for seed in range(seeds)
        ]
        print(f"root mean square {np.sqrt((dim**2).mean()):.3f}   {summary(found, scale=100)}")


if __name__ == "__main__":
    {"choice": choice, "reached": reached, "dimmed": dimmed}[sys.argv[1]]()
