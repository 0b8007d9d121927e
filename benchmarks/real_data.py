"""Learning curves of one unit on pairs of classes: theory, real images, Gaussian surrogates.

    python benchmarks/real_data.py measure OUT.csv MNIST FASHION     folders of IDX files
    python benchmarks/real_data.py sizes OUT.csv MNIST mnist 3/8 50  surrogates of growing dimension
    python benchmarks/real_data.py draw OUT.csv FIGURE.png           the figure of docs/real-data.md

Every row of the table is a prediction (source "theory") or one draw of n images ("real": of the
training set, "gaussian": of Gaussian classes with its means and covariances). A run that is started
again goes on where it stopped.
"""

import csv
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr

from fermibose.data import load_dataset
from fermibose.plotting import COLOURS, canvas
from fermibose.statistics import summary
from fermibose.theory import from_dataset

SIZES = (50, 100, 200, 500, 1000, 1500, 3000)
DRAWS, COMPONENTS = 10, 100
PAIRS = {"mnist": ((3, 8), (4, 9), (0, 1)), "fashion": ((0, 6), (7, 9))}
TITLES = {"mnist": "MNIST", "fashion": "Fashion"}
COPIES = (1, 2, 4, 8)
FIELDS = (
    "set", "pair", "source", "n", "copies", "draw", "accuracy", "rest_accuracy", "fermion_distance",
    "boson_distance", "training_energy", "at_eigenvalue", "gradient", "seconds",
)  # fmt: skip

MODES, PERIOD = 128, 5.0  # of the cosine series of the fermion energy on |D| <= 2


class Landscape:
    """E = (1/n) Σ_{i<j} H + λ|w|²/2 of w on given samples, at the price of n·modes.

    On |D| <= 2 the fermion energy is a cosine series, whose terms fall apart into one factor for
    each sample; bosons are polynomials.
    """

    def __init__(self, problem, x, second):
        self.problem, self.x, self.second = problem, x, second
        D = 2 * np.sin(np.linspace(0, np.pi / 2, 1200))
        k = 2 * np.pi / PERIOD * np.arange(MODES)
        self.k, self.coefficients = k, np.linalg.lstsq(
            np.cos(np.outer(D, k)), problem.fermion_energy(D**2), rcond=1e-13
        )[0]  # fmt: skip

    def _waves(self, phi):
        """e^{ikφ} for all k, by doubling."""
        waves = np.ones((phi.size, MODES), dtype=complex)
        waves[:, 1] = np.exp(1j * self.k[1] * phi)
        done = 2
        while done < MODES:
            step = waves[:, done // 2 : done // 2 + 1] ** 2
            waves[:, done : 2 * done] = waves[:, :done] * step
            done *= 2
        return waves

    def pairs(self, z):
        """(1/n) Σ_{i<j} H and its derivatives with respect to z."""
        n, total, force = z.size, 0.0, np.empty_like(z)
        phi = np.tanh(z)
        waves = self._waves(phi)
        for own in (self.second, ~self.second):
            other = waves[~own].sum(0)
            mine, p = waves[own], phi[own]
            field = self.coefficients * other.conj()
            total += (mine @ field).real.sum() / 2
            total += (p.size * (p**2).sum() - p.sum() ** 2) / 2
            force[own] = -(mine @ (self.k * field)).imag + p.size * p - p.sum()
        return total / n, force * (1 - phi**2) / n

    def __call__(self, w):
        """E and its gradient."""
        energy, force = self.pairs(self.x @ w)
        decay = self.problem.weight_decay
        return energy + decay * (w @ w) / 2, self.x.T @ force + decay * w


def ground_state(problem, x, second):
    """The lower of the minima downhill from a short and from a long vector between the classes."""
    landscape, options = (
        Landscape(problem, x, second),
        {"maxiter": 2000, "ftol": 1e-13, "gtol": 1e-6},
    )
    between = x[second].mean(0) - x[~second].mean(0)
    found = [
        minimize(
            landscape,
            length * between / (between @ between),
            jac=True,
            method="L-BFGS-B",
            options=options,
        )
        for length in (0.3, 4.0)
    ]
    best = min(found, key=lambda minimum: minimum.fun)
    return best.x, float(np.abs(best.jac).max())


def tested(w, x, second):
    """Accuracy with threshold 0, mean D² of fermion and of boson pairs, over all pairs."""
    z = x @ w
    phi = np.tanh(z)
    first = np.array([phi[~second].mean(), phi[second].mean()])
    square = np.array([(phi[~second] ** 2).mean(), (phi[second] ** 2).mean()])
    share = np.array([1 - second.mean(), second.mean()])
    return float(np.mean((z > 0) == second)), *distances(first, square, share)


def tested_exactly(w, theory):
    """The same of all Gaussian data there could be: z is Gaussian for a given w."""
    mean = theory.means @ w
    width = np.sqrt([w @ S @ w for S in theory.covariances])
    v, weight = np.polynomial.hermite_e.hermegauss(150)
    phi = np.tanh(mean[:, None] + width[:, None] * v)
    weight = weight / weight.sum()
    accuracy = float(theory.shares @ ndtr(np.array([-1, 1]) * mean / width))
    return accuracy, *distances(phi @ weight, phi**2 @ weight, theory.shares)


def distances(first, square, share):
    """Mean D² of fermion and of boson pairs from E φ and E φ² of the classes."""
    bosons = share**2 @ (2 * (square - first**2)) / (share**2).sum()
    return float(square.sum() - 2 * first.prod()), float(bosons)


def trained(theory, x, second, test):
    """One row: a ground state on the training samples, and how it does on others by ``test``."""
    began = time.process_time()
    w, gradient = ground_state(theory.problem, x, second)
    z = x @ w
    if z[second].mean() < z[~second].mean():
        w = -w
    energy = 2 * Landscape(theory.problem, x, second).pairs(x @ w)[0] / len(x)
    names = ("accuracy", "fermion_distance", "boson_distance", "rest_accuracy")
    row = dict(zip(names, test(w), strict=False))
    row |= {"training_energy": energy, "gradient": gradient}
    return row | {"seconds": time.process_time() - began}


def predicted(theory, n):
    began = time.process_time()
    p = theory.predict(n)
    names = ("accuracy", "fermion_distance", "boson_distance", "training_energy", "at_eigenvalue")
    row = {name: getattr(p, name) for name in names}
    return row | {"gradient": p.residual, "seconds": time.process_time() - began}


def counts(theory, n):
    """Samples of either class among n."""
    first = round(n * float(theory.shares[0]))
    return first, n - first


def gaussian(theory, n, rng):
    """n samples of Gaussian classes."""
    parts = []
    for c, count in enumerate(counts(theory, n)):
        factor = np.linalg.cholesky(theory.covariances[c]).T
        parts.append(theory.means[c] + rng.standard_normal((count, len(factor))) @ factor)
    return np.concatenate(parts), np.repeat([False, True], counts(theory, n))


def copied(theory, copies):
    """As many copies of the space, alike in theory for as many times the samples.

    Each has its part of the means and of the covariances: A, all traces and products stay.
    """
    eye = np.eye(copies) / copies
    return replace(
        theory,
        means=np.tile(theory.means / copies, copies),
        covariances=np.array([np.kron(eye, S) for S in theory.covariances]),
    )


def of_pair(folder, classes):
    """The theory of two classes, and projected images: training, test."""
    data = load_dataset(str(folder))
    theory = from_dataset(data.x_train, data.y_train, classes=classes, components=COMPONENTS)
    sets = []
    for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test)):
        keep = np.isin(y, classes)
        sets.append((theory.project(x[keep]), y[keep] == classes[1]))
    return theory, *sets


def drawn(theory, images, n, rng):
    """n of the images, and the others."""
    x, second = images
    chosen = np.zeros(len(x), dtype=bool)
    for c, count in enumerate(counts(theory, n)):
        chosen[rng.choice(np.flatnonzero(second == bool(c)), count, replace=False)] = True
    return (x[chosen], second[chosen]), (x[~chosen], second[~chosen])


class Table:
    """Rows of a CSV file, each written at once; what is there is not computed again."""

    def __init__(self, path):
        self.path = Path(path)
        if not self.path.exists():
            self.path.write_text(",".join(FIELDS) + "\n", encoding="utf-8")
        with self.path.open(encoding="utf-8") as lines:
            self.done = {self._key(row) for row in csv.DictReader(lines)}

    @staticmethod
    def _key(row):
        return tuple(str(row[name]) for name in FIELDS[:6])

    def add(self, compute, **key):
        if self._key(key) not in self.done:
            row = key | compute()
            with self.path.open("a", encoding="utf-8", newline="") as lines:
                csv.DictWriter(lines, FIELDS).writerow(row)


def measure(out, mnist, fashion):
    """All pairs of classes."""
    table = Table(out)
    for name, folder in (("mnist", mnist), ("fashion", fashion)):
        for classes in PAIRS[name]:
            theory, images, test = of_pair(folder, classes)
            key = {"set": name, "pair": "{}/{}".format(*classes), "copies": 1}
            for n in SIZES:
                table.add(partial(predicted, theory, n), source="theory", n=n, draw=0, **key)
                for draw in range(DRAWS):
                    made = partial(on_images, theory, images, test, n, draw)
                    table.add(made, source="real", n=n, draw=draw, **key)
                    made = partial(on_gaussians, theory, n, draw)
                    table.add(made, source="gaussian", n=n, draw=draw, **key)
            print(key, "done", flush=True)


def on_images(theory, images, test, n, draw):
    """Trained on n images, tested on test images and on the other training images."""
    rng = np.random.default_rng([n, draw, 0])
    (x, second), rest = drawn(theory, images, n, rng)
    return trained(theory, x, second, lambda w: (*tested(w, *test), tested(w, *rest)[0]))


def on_gaussians(theory, n, draw):
    """Trained on n Gaussian samples, tested on all there could be."""
    rng = np.random.default_rng([n, draw, 1])
    return trained(theory, *gaussian(theory, n, rng), lambda w: tested_exactly(w, theory))


def sizes(out, folder, name="mnist", pair="3/8", n="50", repeats="100"):
    """Surrogates of n, 2n, 4n, … samples in as many copies of the space: all alike in theory."""
    table, n = Table(out), int(n)
    theory, _, _ = of_pair(folder, tuple(int(label) for label in pair.split("/")))
    key = {"set": name, "pair": pair, "n": n}
    table.add(partial(predicted, theory, n), source="theory", copies=1, draw=0, **key)
    for copies in COPIES:
        larger = copied(theory, copies)
        for draw in range(int(repeats)):
            made = partial(on_gaussians, larger, copies * n, draw)
            table.add(made, source="gaussian", copies=copies, draw=draw, **key)
        print(copies, "copies done", flush=True)


def rows_of(path):
    """The table, numbers as numbers."""
    with open(path, encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        for name in FIELDS[6:]:
            row[name] = float(row[name] or "nan")
        row["n"] = int(row["n"])
    return rows


def draw(table, figure):
    """Accuracy, distances and training energy of every pair: lines of theory, points of draws."""
    rows = rows_of(table)
    pairs = list(dict.fromkeys((row["set"], row["pair"]) for row in rows))
    panels = (
        ("accuracy", "accuracy on new data"),
        ("fermion_distance", "$D_F^2$ of new data"),
        ("boson_distance", "$D_B^2$ of new data"),
        ("training_energy", "mean $H$ of training pairs"),
    )
    marks = {"real": ("o", COLOURS["machine"]), "gaussian": ("s", COLOURS["highlight"])}
    size = (2.6 * len(pairs), 9.0)
    with canvas(rows=len(panels), columns=len(pairs), size=size) as (picture, axes):
        for column, pair in enumerate(pairs):
            own = [row for row in rows if (row["set"], row["pair"]) == pair]
            for line, (name, label) in enumerate(panels):
                ax = axes[line, column]
                theory = sorted((r["n"], r[name]) for r in own if r["source"] == "theory")
                ax.plot(*zip(*theory, strict=True), color=COLOURS["theory"], label="theory")
                for shift, (source, (mark, colour)) in enumerate(marks.items()):
                    points = []
                    for n, _ in theory:
                        found = [r[name] for r in own if r["source"] == source and r["n"] == n]
                        said = summary(found)
                        points.append((n * (0.97 + 0.06 * shift), said.mean, said.error))
                    x, mean, error = zip(*points, strict=True)
                    label_of = {"real": "images", "gaussian": "Gaussian surrogate"}[source]
                    ax.errorbar(
                        x, mean, error, fmt=mark, ms=4, mfc="none", color=colour, lw=1,
                        label=label_of,
                    )  # fmt: skip
                ax.set_xscale("log")
                if line == 0:
                    ax.set_title(f"{TITLES[pair[0]]} {pair[1]}")
                if line == len(panels) - 1:
                    ax.set_xlabel("training images n")
                if column == 0:
                    ax.set_ylabel(label)
        axes[0, 0].legend(loc="lower right", fontsize=8)
        picture.savefig(figure)


def main(arguments):
    commands = {"measure": measure, "sizes": sizes, "draw": draw}
    if not arguments or arguments[0] not in commands:
        print(__doc__)
        return 2
    commands[arguments[0]](*arguments[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
