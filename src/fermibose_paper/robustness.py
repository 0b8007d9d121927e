"""The measured robustness of all methods: results of ``benchmarks/robustness.py``, as tables."""

import json
from collections.abc import Iterable, Iterator
from importlib import resources
from typing import Any

import numpy as np

SEEDS = range(5)
STRENGTHS = {"linf 0.05": "ℓ∞ 0.05", "linf 0.1": "ℓ∞ 0.1", "linf 0.2": "ℓ∞ 0.2", "l2 1.0": "ℓ2 1.0"}
HEAD = ("method", "clean", *STRENGTHS.values(), "noise area", "seeds")


def shipped() -> dict[str, Any]:
    """The results that travel with the package."""
    file = resources.files("fermibose.report") / "measured" / "robustness.json"
    results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return results


def collect(results: dict[str, Any], *parts: str) -> list[Any]:
    """Results whose key starts with the parts."""
    return [value for key, value in results.items() if key.split(" | ")[: len(parts)] == [*parts]]


def mean_error(values: Iterable[float]) -> str:
    """Mean ± standard error of fractions, in percent; of one value the value alone."""
    percent = [100 * value for value in values]
    if len(percent) == 1:
        return f"{percent[0]:.1f}"
    return f"{np.mean(percent):.1f} ± {np.std(percent, ddof=1) / len(percent) ** 0.5:.1f}"


def methods(results: dict[str, Any]) -> list[str]:
    """The methods under PGD, in the order in which they were measured first."""
    return list(dict.fromkeys(key.split(" | ")[1] for key in results if key.startswith("pgd | ")))


def complete(results: dict[str, Any], stage: str) -> set[str]:
    """The seeds for which every method met every threat; an unfinished seed is not reported.

    Methods without randomness have one seed under PGD, which counts for all.
    """
    every = methods(results)

    def met(method: str, threat: str, seed: int) -> bool:
        found = collect(results, stage, method, threat)
        once = stage == "pgd" and len(found) == 1
        return once or bool(collect(results, stage, method, threat, f"seed {seed}"))

    return {
        f"seed {seed}"
        for seed in SEEDS
        if all(met(method, threat, seed) for method in every for threat in STRENGTHS)
    }


def table(results: dict[str, Any], stage: str) -> Iterator[tuple[str, ...]]:
    """Rows under HEAD, in percent. stage: "pgd", or "table" for AutoAttack."""
    seeds = complete(results, stage)
    for method in methods(results):
        areas = collect(results, "areas", method)
        robust = [_by_seed(results, stage, method, threat, seeds) for threat in STRENGTHS]
        yield (
            method,
            mean_error(row["clean_4000"] for row in areas),
            *(mean_error(values) for values in robust),
            mean_error(row["noise_area"] / 100 for row in areas),
            str(len(robust[0])),
        )


def audits(results: dict[str, Any]) -> list[tuple[str, str, bool, str]]:
    """Net, seed, whether its robust accuracy is established, and the verdict, of every audit."""
    found = []
    for key, row in results.items():
        if key.startswith("audit | "):
            _, method, seed = key.split(" | ")
            found.append((method, seed.removeprefix("seed "), row["established"], row["verdict"]))
    return found


def _by_seed(
    results: dict[str, Any], stage: str, method: str, threat: str, seeds: set[str]
) -> list[float]:
    """Robust accuracy of each seed; several blocks of images of a seed are averaged first."""
    found = [collect(results, stage, method, threat, seed) for seed in sorted(seeds)]
    return [float(np.mean([row["robust"] for row in rows])) for rows in found if rows]
