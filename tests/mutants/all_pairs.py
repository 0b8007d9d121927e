"""Ways to break instances of all pairs: name, file below src, text, replacement, tests."""

_TESTS = "tests/cavity/test_all_pairs.py"
_DATA = "tests/cavity/test_samples.py"
_AMP = "fermibose/cavity/exhaustive.py"
_FORCES = "fermibose/cavity/forces.py"
_INSTANCE = "fermibose/cavity/instance.py"
_GROUND = "fermibose/cavity/ground.py"

MUTANTS = [
    ("no Onsager term", _AMP, "self.x @ old_m - V * old_f", "self.x @ old_m - 0 * V * old_f", _TESTS),
    ("A·m dropped", _AMP, "tilted.f @ self.x + A * old_m", "tilted.f @ self.x", _TESTS),
    ("A of the wrong sign", _AMP, "A = -(tilted.df @ self.x2)", "A = tilted.df @ self.x2", _TESTS),
    ("V missing in AT", _AMP, "((V * tilted.df) ** 2)", "(tilted.df ** 2)", _TESTS),
    ("a sample feels itself", _AMP, "if own is not None:", "if False:", _TESTS),
    ("a sample feels itself twice", _AMP, "felt -= (values**2", "felt += (values**2", _TESTS),
    ("pairs counted twice in f", _AMP, "- samples - beta * energy)", "- samples - 0 * energy)", _TESTS),
    ("pairs of the wrong sign in f", _AMP, "- samples - beta * energy)", "- samples + beta * energy)", _TESTS),
    ("no ½f²V in f", _AMP, "tilted.log_z + tilted.f**2 * V / 2", "tilted.log_z", _TESTS),
    ("a pair with itself counts", _AMP, "potential) - with_itself) / 2", "potential)) / 2", _TESTS),
    ("each pair twice", _AMP, "- with_itself) / 2)", "- with_itself))", _TESTS),
    ("fermions of the own class", _AMP, "tilted.density[::-1] @ self._fermions", "tilted.density @ self._fermions", _TESTS),
    ("second moment of ω", _AMP, "- mean**2\n", "\n", _TESTS),
    ("class for label in the channel", _AMP, "(samples.taught == -1)", "(samples.y == -1)", _TESTS),
    ("loss over n/2", _AMP, "energy / ((V.size - 1) / 2)", "energy / (V.size / 2)", _TESTS),
    ("windows too small", _AMP, "_DEPTH = 30.0", "_DEPTH = 1.0", _TESTS),
    ("energy gained forgotten", _AMP, "_DEPTH + self.problem.beta *", "_DEPTH + 0 *", _TESTS),
    ("the potential not watched", _AMP, "changes = (m - old_m, v - old_v, potential - old_h)", "changes = (m - old_m, v - old_v)", _TESTS),
    ("few partners by AMP", "fermibose/cavity/amp.py", "elif train.meetings is None:", "elif True:", _TESTS),
    ("bosons without their mean", _FORCES, "members.size * mine - total", "members.size * mine", _DATA),
    ("each boson twice", _FORCES, "(mine**2).sum(0) - total**2) / 2", "(mine**2).sum(0) - total**2)", _DATA),
    ("waves not conjugate", _FORCES, "(sums * other_sums.conj()).real", "(sums * other_sums).real", _DATA),
    ("push and pull exchanged", _FORCES, "return float(energy), pull, push", "return float(energy), -pull, -push", _DATA),
    ("direct push of the wrong sign", _FORCES, "force.sum(1), -force.sum(0)", "force.sum(1), force.sum(0)", _DATA),
    ("a coarse series", _FORCES, "_ACCURACY = 1e-5", "_ACCURACY = 1e-2", _DATA),
    ("the period of the span", _FORCES, "_PERIOD = 1.05", "_PERIOD = 0.95", _DATA),
    ("partners at weight 1", _FORCES, "self._scale = self.weight / pairs", "self._scale = 1.0", _DATA),
    ("class for label among partners", _FORCES, "samples.taught[samples.meetings]", "samples.y[samples.meetings]", _DATA),
    ("class for label among all", _FORCES, "np.flatnonzero(samples.taught == y)", "np.flatnonzero(samples.y == y)", _DATA),
    ("weight n/2 of all pairs", _FORCES, "self.weight = (n - 1) / 2", "self.weight = n / 2", _DATA),
    ("mislabelled patterns moved", _INSTANCE, "x = _patterns(problem, n, y, rng)", "x = _patterns(problem, n, taught, rng)", _DATA),
    ("ρ of new pairs", _INSTANCE, "_chosen(problem.bosons, pairs", "_chosen(problem.rho, pairs", _DATA),
    ("meetings with oneself", _INSTANCE, "(ends[0] == ends[1]) | ~first", "~first", _DATA),
    ("the same two twice", _INSTANCE, "(ends[0] == ends[1]) | ~first", "ends[0] == ends[1]", _DATA),
    ("mirror images apart", _GROUND, "    if flips:\n        overlap", "    if False:\n        overlap", _DATA),
    ("excess over the mean", _GROUND, "self.energy.mean() / min(", "self.energy.mean() / max(", _DATA),
]  # fmt: skip
