"""Learning curves of Gaussian classes in growing dimension, all alike in theory: docs/real-data.md.

    python benchmarks/real_data.py OUT.csv mnist FOLDER 3/8 50 100

A data set (or fashion-mnist) and the folder of its IDX files, two classes, n, and how many draws.
k copies of the space, each with 1/k of the means and of the covariances, and kn samples have the
theory of one. Started again, it goes on where it stopped. Theory against images is measured by
`fbm reproduce theory-beyond`.
"""

import csv
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.special import ndtr

from fermibose.theory import from_dataset
from fermibose_paper.real_data import COMPONENTS, Classes, trained_unit

COPIES = (1, 2, 4, 8)
MEASURED = ("accuracy", "fermion_distance", "boson_distance", "training_energy")
FIELDS = ("set", "pair", "source", "n", "copies", "draw", *MEASURED)


def copied(theory, copies):
    """As many copies of the space: A, all traces and products of the theory stay."""
    eye = np.eye(copies) / copies
    return replace(
        theory,
        means=np.tile(theory.means / copies, copies),
        covariances=np.array([np.kron(eye, S) for S in theory.covariances]),
    )


def gaussian(theory, n, rng):
    """n samples of Gaussian classes, and their labels ±1."""
    first = round(n * float(theory.shares[0]))
    parts = []
    for mean, covariance, count in zip(
        theory.means, theory.covariances, (first, n - first), strict=True
    ):
        factor = np.linalg.cholesky(covariance).T
        parts.append(mean + rng.standard_normal((count, len(factor))) @ factor)
    return np.concatenate(parts), np.repeat([-1, 1], (first, n - first))


def tested(w, theory):
    """Accuracy and mean D² of fermions and bosons over all Gaussian data: z is Gaussian."""
    mean = theory.means @ w
    width = np.sqrt([w @ S @ w for S in theory.covariances])
    v, weight = np.polynomial.hermite_e.hermegauss(150)
    phi, weight = np.tanh(mean[:, None] + width[:, None] * v), weight / weight.sum()
    first, second, share = phi @ weight, phi**2 @ weight, theory.shares
    accuracy = float(share @ ndtr(np.array([-1, 1]) * mean / width))
    bosons = share**2 @ (2 * (second - first**2)) / (share**2).sum()
    return accuracy, float(second.sum() - 2 * first.prod()), float(bosons)


def drawn(theory, n, draw):
    """One unit on n samples: what is MEASURED of it."""
    x, y = gaussian(theory, n, np.random.default_rng([n, draw, 1]))
    best = trained_unit(theory.problem, x, y)
    w = best.weights * np.sign((y * (x @ best.weights)).mean())
    return (*tested(w, theory), best.training_loss)


def measure(out, dataset, folder, pair, n, draws):
    """Every number of copies; what the file has is not computed again."""
    classes = tuple(int(label) for label in pair.split("/"))
    data = Classes(dataset, *classes, folder).load()
    theory = from_dataset(data.x_train, data.y_train, classes=classes, components=COMPONENTS)
    if not out.exists():
        out.write_text(",".join(FIELDS) + "\n", encoding="utf-8")
    with out.open(encoding="utf-8") as lines:
        done = {tuple(row[name] for name in FIELDS[:6]) for row in csv.DictReader(lines)}
    for copies in COPIES:
        larger = copied(theory, copies)
        for draw in range(draws):
            key = (dataset, pair, "gaussian", n, copies, draw)
            if tuple(map(str, key)) not in done:
                with out.open("a", encoding="utf-8", newline="") as lines:
                    csv.writer(lines).writerow((*key, *drawn(larger, copies * n, draw)))


if __name__ == "__main__":
    if len(sys.argv) != 7:
        sys.exit(__doc__)
    measure(Path(sys.argv[1]), *sys.argv[2:5], *map(int, sys.argv[5:]))
