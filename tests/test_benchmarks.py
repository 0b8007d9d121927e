"""Benchmarks are not run by the tests, for they measure time; but they must not rot either."""

import importlib.util
import itertools
import math
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


def load(path):
    spec = importlib.util.spec_from_file_location(f"benchmark_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_benchmark_loads_and_says_how_to_run_it(path):
    assert f"python benchmarks/{path.name}" in load(path).__doc__


def test_the_contenders_of_the_machine_all_take_a_step():
    machine = load(next(path for path in FILES if path.stem == "machine"))
    makers = ("local", "floor", "mlp", "our_mlp", "published", "indexed")
    steps = {name: getattr(machine, f"{name}_step")(40) for name in makers}
    times = machine.best_times(steps, dict.fromkeys(steps, 1))
    assert all(0 <= time < math.inf for time in times.values())
    # The published procedure's own mark: its two distances have the ratio of the pair counts.
    boson, fermion, _ = steps["published"]()
    labels = machine.digits(40)[1].tolist()
    same = [a == b for a, b in itertools.combinations(labels, 2)]
    assert boson / fermion == pytest.approx(sum(same) / (len(same) - sum(same)), rel=1e-4)
