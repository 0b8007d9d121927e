"""Robustness of everything: the machine and fair baselines under the same attacks.

    python benchmarks/robustness.py measure --mnist FOLDER    (a folder of MNIST's IDX files)
    python benchmarks/robustness.py report

``measure`` trains on the paper's 1000 images and attacks on its test images, one job after another;
each result is written to the JSON file as soon as it is there, and a later call does only what is
missing. ``report`` prints the tables of docs/robustness.md from that file.

The images: the first 100 of each class of the published test set. Areas, PGD, and AutoAttack where
a known number is checked, use all 1000. AutoAttack on all methods takes hours, so it gives each of
the 5 seeds another 100 images (10 per class; 200 with --blocks 2): the mean over seeds covers 500
(1000) images, and its error bar holds both the spread of seeds and that of images. PGD on the same
images is recorded beside it.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fermibose import FermiBoseNet, PairEnergy
from fermibose.attacks import (
    Adversary,
    ThreatModel,
    accuracy_curve,
    audit,
    auto_attack,
    certified_radius,
    pgd,
    robustness_area,
)
from fermibose.compute import versions
from fermibose.data import paper_split, per_class
from fermibose.files import write_json
from fermibose.machine import (
    InputNoise,
    Recipe,
    compute_settings,
    train,
    train_kernel_ridge,
    train_logistic,
    train_mlp,
    train_rbf_svm,
)
from fermibose.report.robustness import HEAD, SEEDS, audits, collect, mean_error, table

RESULTS = Path(__file__).parent.parent / "src/fermibose/report/measured/robustness.json"
PER_CLASS = 100
# d_F marked in the paper's figures, where areas are published.
MARKED = (0.09, 0.2, 0.375, 0.465, 0.8, 0.9, 1.0, 1.1, 1.2)
CERTIFIED = {"linf": (0.01, 0.02, 0.03), "l2": (0.2, 0.3, 0.5)}
COMPARED = ("machine, labelled, d_F 0.4", "MLP")  # the two nets of the paper's comparison
THREATS = {
    "linf 0.05": ThreatModel("linf", 0.05),
    "linf 0.1": ThreatModel("linf", 0.1),
    "linf 0.2": ThreatModel("linf", 0.2),
    "l2 1.0": ThreatModel("l2", 1.0),
}


def machine(d_f: float, coupling: Any) -> Callable[..., Any]:
    energy = PairEnergy(d_f, coupling=coupling)
    return lambda x, y, seed: train(x, y, Recipe(energy=energy, seed=seed), show=False).net


def mlp(**options: Any) -> Callable[..., Any]:
    return lambda x, y, seed: train_mlp(x, y, Recipe(seed=seed), show=False, **options).net


# Hyperparameters of the baselines: found by benchmarks/tuning.py.
METHODS: dict[str, Callable[..., Any]] = {
    "machine, labelled, d_F 0.4": machine(0.4, "labelled"),
    "machine, averaged, d_F 0.465": machine(0.465, "averaged"),
    "MLP": mlp(),
    "MLP, weight decay 0.03": mlp(weight_decay=0.03),
    "MLP, input noise 0.7": mlp(perturb=InputNoise(0.7)),
    "MLP, FGSM training 0.15": mlp(perturb=Adversary(ThreatModel("linf", 0.15))),
    "MLP, PGD-7 training 0.15": mlp(perturb=Adversary(ThreatModel("linf", 0.15), steps=7)),
    "logistic regression": lambda x, y, seed: train_logistic(x, y, penalty=100),
    "RBF-SVM": lambda x, y, seed: train_rbf_svm(x, y, gamma=0.05, c=10),
    "kernel ridge": lambda x, y, seed: train_kernel_ridge(x, y, gamma=0.07, ridge=0.03),
}
DETERMINISTIC = ("logistic regression", "RBF-SVM", "kernel ridge")


class Bench:
    """Data, nets (trained once) and the results so far."""

    def __init__(self, mnist: Path, results: Path, nets: Path | None) -> None:
        self.x, self.y, x_test, y_test = paper_split(mnist)
        self.all_test = (x_test, y_test)
        self.test = per_class(x_test, y_test, PER_CLASS)
        self.path, self.results, self.nets = results, load(results), nets

    @cache  # noqa: B019  (one instance, for the life of the process)
    def net(self, method: str, seed: int) -> Any:
        if method in DETERMINISTIC:
            return METHODS[method](self.x, self.y, seed)
        kept = self.nets / f"{method}, seed {seed}" if self.nets else None
        if kept is not None and kept.exists():
            return FermiBoseNet.load(kept)
        fit = METHODS.get(method) or machine(float(method.split()[1]), "averaged")
        net = fit(self.x, self.y, seed)
        if kept is not None:
            net.save(kept)
        return net

    def block(self, number: int) -> tuple[Any, Any]:
        """Ten of the hundred images of each class."""
        return per_class(*self.test, 10, start=10 * number)

    def do(self, key: str, job: Callable[[], Any]) -> None:
        if key in self.results:
            return
        self.results[key] = job()
        self.results["versions"] = versions()
        write_json(self.path, self.results)
        print(key, self.results[key], flush=True)


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def areas(bench: Bench, method: str, seed: int) -> dict[str, float]:
    net = bench.net(method, seed)
    fgsm = accuracy_curve(net, *bench.test, ThreatModel("linf"))
    noise = accuracy_curve(net, *bench.test, ThreatModel("noise"), seed=seed)
    every = accuracy_curve(net, *bench.all_test, ThreatModel("linf"), epsilons=(0.0,))
    return {
        "clean": float(fgsm.accuracy[0]),
        "clean_4000": float(every.accuracy[0]),
        "fgsm_area": robustness_area(fgsm),
        "noise_area": robustness_area(noise),
    }


def attack(bench: Bench, method: str, seed: int, threat: ThreatModel, images: Any) -> Any:
    net = bench.net(method, seed)
    first = pgd(net, *images, threat, seed=seed, show=False)
    found = auto_attack(net, *images, threat, seed=seed, show=False)
    return {
        "clean": found.clean_accuracy,
        "pgd": first.robust_accuracy,
        "robust": found.robust_accuracy,
        "images": len(found.robust),
        "flags": list(found.flags),
        "seconds": round(found.seconds, 1),
    }


def attack_by_pgd(bench: Bench, method: str, seed: int, threat: ThreatModel) -> Any:
    found = pgd(bench.net(method, seed), *bench.test, threat, seed=seed, show=False)
    return {"robust": found.robust_accuracy, "images": len(found.robust)}


def judge(bench: Bench, method: str, seed: int) -> Any:
    found = audit(bench.net(method, seed), *bench.test, THREATS["linf 0.1"], seed=seed, show=False)
    return {
        "established": found.established,
        "verdict": found.verdict,
        "robust": found.robust_accuracy,
        "images": found.images,
    }


def certify(bench: Bench, method: str, seed: int, norm: str) -> Any:
    """Certified accuracy, and accuracy under PGD, where there is something to prove."""
    net, strengths = bench.net(method, seed), CERTIFIED[norm]
    proved = certified_radius(net, *bench.test, norm=norm).accuracy(strengths)
    attacked = [
        pgd(net, *bench.test, ThreatModel(norm, e), seed=seed, show=False).robust_accuracy
        for e in strengths
    ]
    return {"epsilons": strengths, "certified": proved.tolist(), "pgd": attacked}


def jobs(bench: Bench, blocks: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    for seed in SEEDS:
        for method in COMPARED:
            yield (
                f"published | {method} | linf 0.1 | seed {seed}",
                lambda m=method, s=seed: attack(bench, m, s, THREATS["linf 0.1"], bench.test),
            )
    for seed in SEEDS:
        for method in (*METHODS, *(f"averaged {d_f:g}" for d_f in MARKED)):
            if seed == 0 or method not in DETERMINISTIC:
                yield f"areas | {method} | seed {seed}", lambda m=method, s=seed: areas(bench, m, s)
    for seed in SEEDS:
        for method in METHODS:
            for name, threat in THREATS.items():
                if seed == 0 or method not in DETERMINISTIC:
                    yield (
                        f"pgd | {method} | {name} | seed {seed}",
                        lambda m=method, s=seed, t=threat: attack_by_pgd(bench, m, s, t),
                    )
    for method in (*COMPARED, "machine, averaged, d_F 0.465"):
        for norm in CERTIFIED:
            yield (
                f"certificate | {method} | {norm} | seed 0",
                lambda m=method, n=norm: certify(bench, m, 0, n),
            )
    for turn in range(blocks):
        for seed in SEEDS:
            for method in METHODS:
                for name, threat in THREATS.items():
                    block = seed + len(SEEDS) * turn
                    yield (
                        f"table | {method} | {name} | seed {seed} | block {block}",
                        lambda m=method, s=seed, t=threat, b=block: attack(
                            bench, m, s, t, bench.block(b)
                        ),
                    )
    for seed in SEEDS:
        for method in COMPARED:
            yield f"audit | {method} | seed {seed}", lambda m=method, s=seed: judge(bench, m, s)


def measure(mnist: Path, results: Path, nets: Path | None, blocks: int) -> None:
    bench = Bench(mnist, results, nets)
    try:
        with compute_settings(threads=1):
            for key, job in jobs(bench, blocks):
                bench.do(key, job)
    except KeyboardInterrupt:
        print(f"interrupted; {results} keeps what is finished, the same command goes on")


def report(results: dict[str, Any]) -> None:
    """The tables, in Markdown; mean ± standard error over seeds."""
    for stage, title in (("pgd", "PGD, 1000 images"), ("table", "AutoAttack, 100 images a seed")):
        print(f"\n{title}\n\n| {' | '.join(HEAD)} |\n{'|---' * len(HEAD)}|")
        for row in table(results, stage):
            print(f"| {' | '.join(row)} |")
    paired = [row for row in collect(results, "table") if "pgd" in row]
    gaps = [100 * (row["pgd"] - row["robust"]) for row in paired]
    if gaps:
        print(f"\nPGD minus AutoAttack on the same images: mean {np.mean(gaps):.2f}, ", end="")
        print(f"largest {max(gaps):.0f} points in {len(gaps)} runs; flags: ", end="")
        print(sorted({flag for row in paired for flag in row["flags"]}) or "none")
    print("\n| net | clean (1000) | FGSM area | noise area |\n|---|---|---|---|")
    for method in ("MLP", *(f"averaged {d_f:g}" for d_f in MARKED)):
        rows = collect(results, "areas", method)
        cells = [mean_error([row["clean"] for row in rows])]
        cells += [mean_error([row[k] / 100 for row in rows]) for k in ("fgsm_area", "noise_area")]
        print(f"| {method} | {' | '.join(cells)} |")
    print("\n| net | clean (1000) | AutoAttack ℓ∞ 0.1 |\n|---|---|---|")
    for method in COMPARED:
        rows = collect(results, "published", method)
        cells = [mean_error([row[k] for row in rows]) for k in ("clean", "robust")]
        print(f"| {method} | {' | '.join(cells)} |")
    report_proofs(results)


def report_proofs(results: dict[str, Any]) -> None:
    """Verdicts of the audit, and what is certified (certified / PGD)."""
    print()
    for method, seed, _, verdict in audits(results):
        print(f"{method}, seed {seed}: {verdict}")
    for norm, strengths in CERTIFIED.items():
        print(f"\n| net | {' | '.join(f'{norm} {e:g}' for e in strengths)} |\n|---|---|---|---|")
        for method in (*COMPARED, "machine, averaged, d_F 0.465"):
            for row in collect(results, "certificate", method, norm):
                pairs = zip(row["certified"], row["pgd"], strict=True)
                cells = [f"{100 * proved:.1f} / {100 * found:.1f}" for proved, found in pairs]
                print(f"| {method} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=("measure", "report"))
    parser.add_argument("--mnist", type=Path, help="folder of MNIST's IDX files")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--nets", type=Path, help="folder in which trained nets are kept")
    parser.add_argument("--blocks", type=int, default=1, help="hundreds of images per seed (1, 2)")
    options = parser.parse_args()
    if options.mode == "report":
        report(load(options.results))
    elif options.mnist is None:
        parser.error("measure needs --mnist FOLDER")
    else:
        measure(options.mnist, options.results, options.nets, options.blocks)


if __name__ == "__main__":
    main()
