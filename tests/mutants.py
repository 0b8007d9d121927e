"""Breaks the source in named ways and demands that the tests notice: ``python tests/mutants.py``.

Each mutant replaces one piece of text in a copy of the package and runs the tests that should turn
red. A mutant that survives, or whose text is no longer found, makes the script fail. Arguments
select mutants whose name contains one of them.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Mutant(NamedTuple):
    """One way to break the package."""

    name: str
    file: str  # below src/fermibose
    old: str
    new: str
    tests: str  # what must turn red


ENERGY = "tests/test_energy.py"
RULE = "tests/machine/test_local_rule.py"
TRAINING = "tests/machine/test_training.py"
MUTANTS = [
    Mutant("swap masks", "energy.py", "sigma = d2 * 0 + same", "sigma = 1 - (d2 * 0 + same)", RULE),
    Mutant("sign of the force", "energy.py", "attraction - rep", "attraction + rep", RULE),
    Mutant("no half in the hinge", "energy.py", "(x + root) / 2", "(x + root)", ENERGY),
    Mutant("curvature", "energy.py", "self.softness / 2 *", "self.softness *", ENERGY),
    Mutant("averaged = labelled", "energy.py", '== "labelled":', '!= "":', ENERGY),
    Mutant("averaged: swap counts", "energy.py", "* counts[0]", "* counts[1]", ENERGY),
    Mutant("fermion weight lost", "energy.py", "self.fermion_weight * (1", "1.0 * (1", ENERGY),
    Mutant("factor 2 of the force", "machine/local_rule.py", "*= -2 / (units", "*= -1 / (units", RULE),
    Mutant("factor 2 of D²", "machine/local_rule.py", "d2 *= -2 / units", "d2 *= -1 / units", RULE),
    Mutant("mean over ordered pairs", "machine/local_rule.py", "size * (size - 1) // 2", "size * (size - 1)", RULE),
    Mutant("self-pairs counted", "machine/local_rule.py", "n * (n - 1) // 2", "n * (n + 1) // 2", RULE),
    Mutant("diagonal left in the energy", "machine/local_rule.py", "energies.reshape(-1)[diagonal] = 0", "pass", RULE),
    Mutant("Laplacian without its diagonal", "machine/local_rule.py", "laplacian.reshape(-1)[diagonal] -= laplacian.sum(1)", "pass", RULE),
    Mutant("wrong diagonal of a block", "machine/local_rule.py", "slice(start, None, size + 1)", "slice(0, None, size + 1)", RULE),
    Mutant("slope of (1+tanh)/2", "machine/activations.py", "return grad.mul_(2)", "return grad", RULE),
    Mutant("in-place (1+tanh)/2", "machine/activations.py", "z.mul_(2).sigmoid_()", "z.sigmoid_()", RULE),
    Mutant("activity penalty", "machine/layers.py", "activity / h.numel()", "activity / len(h)", RULE),
    Mutant("bias gradient", "machine/layers.py", "delta.sum(0)", "delta.mean(0)", RULE),
    Mutant("weight decay per layer width", "machine/training.py", "recipe.weight_decay / recipe.hidden[number]", "recipe.weight_decay", TRAINING),
    Mutant("initial width of weights", "machine/layers.py", "self.weight.shape[0] ** -0.5", "self.weight.shape[1] ** -0.5", TRAINING),
    Mutant("checkpoint forgets the moments", "machine/checkpoint.py", "optimiser.restore(self._moments)", "pass", TRAINING),
    Mutant("checkpoint forgets the generator", "machine/checkpoint.py", 'generator.set_state(tensors["generator"])', "pass", TRAINING),
    Mutant("checkpoint of another training", "machine/checkpoint.py", '!= self.fingerprint', '== ""', TRAINING),
    Mutant("a layer trains the one below", "machine/training.py", "self.layer = net.local_layers[number]", "self.layer = net.local_layers[max(number - 1, 0)]", TRAINING),
    Mutant("denormals stay flushed", "machine/compute.py", "torch.set_flush_denormal(flushed_before)", "pass", TRAINING),
    Mutant("Adam without weight decay", "machine/adam.py", "weight_decay=self.weight_decay", "weight_decay=0.0", "tests/machine/test_adam.py"),
    Mutant("Adam counts twice", "machine/adam.py", "count += 1", "count += 2", "tests/machine/test_adam.py"),
    Mutant("cross-entropy gradient", "machine/readout.py", "residual.div_(len(y))", "residual.div_(2 * len(y))", "tests/machine/test_readout.py"),
    Mutant("ridge scale", "machine/readout.py", "n * ridge * torch.eye(units)", "ridge * torch.eye(units)", "tests/machine/test_readout.py"),
    Mutant("ridge intercept", "machine/readout.py", "t_mean - h_mean @ weights", "t_mean", "tests/machine/test_readout.py"),
    Mutant("shift wraps around", "machine/pairing.py", "(p, p, p, p))", '(p, p, p, p), "constant", 1.0)', "tests/machine/test_pairing.py"),
    Mutant("self pairs by class", "machine/pairing.py", "torch.arange(len(x)).repeat(2)", "y.repeat(2)", "tests/machine/test_pairing.py"),
    Mutant("model checksum ignored", "machine/network.py", 'if _sha256(weights) != config.pop("sha256", None):', 'if config.pop("sha256", None) is None:', "tests/machine/test_network.py"),
    Mutant("rescaling lost", "machine/network.py", "h = ((h - self.offset) * self.gain)", "h = (h * self.gain)", "tests/machine/test_network.py"),
]  # fmt: skip


def survives(mutant: Mutant, folder: Path) -> str | None:
    """Why the mutant is not killed, or None if the tests turn red."""
    source = folder / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    path = source / "fermibose" / mutant.file
    text = path.read_text(encoding="utf-8")
    if mutant.old not in text:
        return "its text is no longer in the source"
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", mutant.tests],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True,
        check=False,
    )
    return "the tests stayed green" if run.returncode == 0 else None


def main(selected: list[str]) -> int:
    """Try the selected mutants (all by default); returns how many survive."""
    survivors = 0
    for mutant in MUTANTS:
        if selected and not any(word in mutant.name for word in selected):
            continue
        with tempfile.TemporaryDirectory() as folder:
            reason = survives(mutant, Path(folder))
        survivors += reason is not None
        print(
            f"{'SURVIVES' if reason else 'killed':9s} {mutant.name}{f': {reason}' if reason else ''}"
        )
    return survivors


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
