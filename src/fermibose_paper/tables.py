"""Tables: the classifier with its defaults beside scikit-learn's, by five times twofold validation.

Four tables that come with scikit-learn and seven that it makes. Every method has its own defaults
and standardised features; nothing is tuned, for any of them. A run is one split in halves, with
each half once to learn from and once to judge.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn import datasets
from sklearn.base import ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from fermibose import FermiBoseClassifier
from fermibose.machine import compute_settings
from fermibose.statistics import Summary, summary
from fermibose_paper.job import Job, measurement
from fermibose_paper.page import Table
from fermibose_paper.scale import Scale
from fermibose_paper.store import Row
from fermibose_paper.verdict import Verdict, number

Samples = tuple[npt.NDArray[Any], npt.NDArray[Any]]
SPLITS = 5
ALLOWED = 1.0  # points below the best other method, on average


def _friedman() -> Samples:
    x, y = datasets.make_friedman1(1000, noise=1.0, random_state=0)
    return x, (y > np.median(y)).astype(int)


def _made(**settings: Any) -> Callable[[], Samples]:
    return lambda: datasets.make_classification(random_state=0, **settings)


TABLES: dict[str, Callable[[], Samples]] = {
    "iris": lambda: datasets.load_iris(return_X_y=True),
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "breast cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "digits": lambda: datasets.load_digits(return_X_y=True),
    "clusters": _made(n_samples=1500, n_features=20, n_informative=10, n_classes=4),
    "noisy": _made(n_samples=1000, n_features=50, n_informative=8, flip_y=0.1),
    "moons": lambda: datasets.make_moons(1000, noise=0.25, random_state=0),
    "circles": lambda: datasets.make_circles(1000, noise=0.12, factor=0.6, random_state=0),
    "shells": lambda: datasets.make_gaussian_quantiles(
        n_samples=1500, n_features=10, n_classes=3, random_state=0
    ),
    "ten squares": lambda: datasets.make_hastie_10_2(2000, random_state=0),
    "Friedman": _friedman,
}
OURS = "fermibose"
METHODS: dict[str, Callable[[int], ClassifierMixin]] = {
    OURS: lambda seed: FermiBoseClassifier(preset="table", random_state=seed),
    "logistic regression": lambda seed: LogisticRegression(max_iter=5000),
    "SVC": lambda seed: SVC(),
    "random forest": lambda seed: RandomForestClassifier(random_state=seed),
    "MLP": lambda seed: MLPClassifier(max_iter=1000, random_state=seed),
}
SAMPLE = ("iris", "wine")


@measurement("table", version=1)
def measure_table(*, table: str, method: str, seed: int = 0) -> dict[str, float]:
    """Mean accuracy over both halves of a split drawn by the seed."""
    x, y = TABLES[table]()
    halves = StratifiedKFold(2, shuffle=True, random_state=seed)
    model = make_pipeline(StandardScaler(), METHODS[method](seed))
    with compute_settings(1):
        return {"accuracy": float(cross_val_score(model, x, y, cv=halves).mean())}


def plan(scale: Scale) -> list[Job]:
    """Every method on every table; of a sample two tables, split once."""
    return [
        Job(measure_table, {"table": table, "method": method}, seed)
        for table in _tables(scale)
        for method in METHODS
        for seed in range(1 if scale.sample else SPLITS)
    ]


def _tables(scale: Scale) -> Sequence[str]:
    return SAMPLE if scale.sample else tuple(TABLES)


def tables(rows: Sequence[Row], scale: Scale) -> list[Table]:
    """Accuracy of every method on every table."""
    lines = []
    for table in _tables(scale):
        known = _accuracies(rows, table)
        lines.append(
            (table, *(str(known[m]) if m in known else "—" for m in METHODS), _gap_text(known))
        )
    head = ("table", *METHODS, "above the best other")
    return [Table(head, lines, "Accuracy in %, mean ± standard error over five splits in halves")]


def verdicts(rows: Sequence[Row], scale: Scale) -> list[Verdict]:
    """Whether ours is near the best of the others, on average over tables."""
    every = (_accuracies(rows, table) for table in _tables(scale))
    gaps = [gap for known in every if (gap := _gap(known)) is not None]
    mean, error, _ = summary(gaps)
    return [
        Verdict.at_least(
            "tables",
            "accuracy above the best other method of each table, on average",
            number(mean),
            bound=-ALLOWED,
            error=number(error),
            unit="points",
            unpublished=True,
            note=f"{len(gaps)} tables",
        )
    ]


def _accuracies(rows: Sequence[Row], table: str) -> dict[str, Summary]:
    """Of every method measured on a table, in percent."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.name == "table" and row.result is not None and row.params["table"] == table:
            found.setdefault(row.params["method"], []).append(row.result["accuracy"])
    return {method: summary(values, scale=100) for method, values in found.items()}


def _gap(known: dict[str, Summary]) -> float | None:
    """Ours above the best other, in points; None if not all are measured."""
    if known.keys() != METHODS.keys():
        return None
    return float(known[OURS].mean - max(known[m].mean for m in METHODS if m != OURS))


def _gap_text(known: dict[str, Summary]) -> str:
    gap = _gap(known)
    return "—" if gap is None else f"{gap:+.1f}"
