"""Ways to break what all rooms share: name, file below src, text, what replaces it, tests that must turn red."""

MUTANTS = [
    ("swap masks", "fermibose/energy.py", "sigma = d2 * 0 + same", "sigma = 1 - (d2 * 0 + same)", "tests/machine/test_local_rule.py"),
    ("sign of the force", "fermibose/energy.py", "attraction - rep", "attraction + rep", "tests/machine/test_local_rule.py"),
    ("no half in the hinge", "fermibose/energy.py", "self.softness / 2 / (root", "self.softness / (root", "tests/test_energy.py"),
    ("the hinge cancels", "fermibose/energy.py", "hinge = positive + self.softness / 2 / (root + (2 * positive - x))", "hinge = (x + root) / 2", "tests/test_energy.py"),
    ("branches of the hinge meet badly", "fermibose/energy.py", "positive = x * (x > 0)", "positive = (x + abs(x)) / 2", "tests/test_energy.py"),
    ("NumPy's numbers kept", "fermibose/energy.py", "number(name, getattr(self, name), least=0))", "getattr(self, name))", "tests/test_energy.py"),
    ("curvature", "fermibose/energy.py", "(2 * square**0.5)", "(square**0.5)", "tests/test_energy.py"),
    ("averaged = labelled", "fermibose/energy.py", '== "labelled":', '!= "":', "tests/test_energy.py"),
    ("averaged: swap counts", "fermibose/energy.py", "* counts[0]", "* counts[1]", "tests/test_energy.py"),
    ("fermion weight lost", "fermibose/energy.py", "self.fermion_weight * (1", "1.0 * (1", "tests/test_energy.py"),
    ("threads: as many as before", "fermibose/compute.py", "wrap(limits=1,", "wrap(limits=2,", "tests/theory/test_solver.py::test_one_thread_computes_and_what_was_before_comes_back"),
    ("progress: late, and no time left", "fermibose/compute.py", "if left > 0 else passed", "if left > -1e9 else passed", "tests/sweep/test_runner.py"),
    ("progress: rate of what is left", "fermibose/compute.py", "(total - done) / rate", "total / rate", "tests/sweep/test_runner.py"),
    ("progress: every bar of a command speaks", "fermibose/compute.py", "and _logs and not _logs[-1]:", "and _logs:", "tests/sweep/test_runner.py"),
    ("progress: a command speaks when it is done", "fermibose/compute.py", "        later.cancel()", "        pass", "tests/sweep/test_runner.py"),
]  # fmt: skip
