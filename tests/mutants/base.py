"""Ways to break what all rooms share: name, file below src, text, what replaces it, tests that must turn red."""

MUTANTS = [
    ("swap masks", "fermibose/energy.py", "sigma = d2 * 0 + same", "sigma = 1 - (d2 * 0 + same)", "tests/machine/test_local_rule.py"),
    ("sign of the force", "fermibose/energy.py", "attraction - rep", "attraction + rep", "tests/machine/test_local_rule.py"),
    ("no half in the hinge", "fermibose/energy.py", "(x + root) / 2", "(x + root)", "tests/test_energy.py"),
    ("curvature", "fermibose/energy.py", "self.softness / 2 *", "self.softness *", "tests/test_energy.py"),
    ("averaged = labelled", "fermibose/energy.py", '== "labelled":', '!= "":', "tests/test_energy.py"),
    ("averaged: swap counts", "fermibose/energy.py", "* counts[0]", "* counts[1]", "tests/test_energy.py"),
    ("fermion weight lost", "fermibose/energy.py", "self.fermion_weight * (1", "1.0 * (1", "tests/test_energy.py"),
    ("progress: late, and no time left", "fermibose/progress.py", "if left > 0 else told", "if left > -1e9 else told", "tests/sweep/test_runner.py"),
    ("progress: rate of what is left", "fermibose/progress.py", "(total - done) / rate", "total / rate", "tests/sweep/test_runner.py"),
]  # fmt: skip
