"""Ways to break online learning: name, file below src, text, what replaces it, tests that must turn red."""

_FLOW, _STEADY, _ESCAPE = (f"fermibose/theory/{name}.py" for name in ("flow", "steady", "escape"))
_CLASSES, _SGD = "fermibose/theory/classes.py", "fermibose/cavity/online.py"
_ONE, _MANY = (f"tests/theory/test_{name}.py" for name in ("dynamics", "classes"))
_RUNS = "tests/cavity/test_online.py"

MUTANTS = [
    ("dynamics: samples of a batch do not share", _FLOW, "(self.h2 + (batch - 2) * self.mean2)", "self.h2", _ONE),
    ("dynamics: noise of B−1 partners", _FLOW, "(batch - 2) * self.mean2", "(batch - 1) * self.mean2", _ONE),
    ("dynamics: no noise", _FLOW, "noise - 2 * shrink * v", "-2 * shrink * v", _ONE),
    ("dynamics: decay halved", _FLOW, "(2 * a.stretch / q + decay)", "(2 * a.stretch / q + decay / 2)", _ONE),
    ("dynamics: projection on w lost", _FLOW, "2 * a.stretch / q + decay", "a.stretch / q + decay", _ONE),
    ("dynamics: fermions attract", _FLOW, "h = one.slope * (same * away - other * K)", "h = one.slope * (same * away + other * K)", _ONE),
    ("dynamics: fermions of one label", _FLOW, "labels[:, ::-1].reshape(4, -1)", "labels.reshape(4, -1)", _ONE),
    ("dynamics: partners without variance", _FLOW, "(away**2 + variance)", "away**2", _ONE),
    ("dynamics: labels never wrong", _FLOW, "[first * right, second * wrong]", "[first * right, first * wrong]", _ONE),
    ("dynamics: coarse grids pass", _FLOW, "_COARSE = 1e-8", "_COARSE = 1e-2", _ONE),
    ("dynamics: slope of half tanh", "fermibose/theory/problem.py", "slope / 2, bend / 2", "slope, bend / 2", _ONE),
    ("dynamics: cross term of V", _FLOW, "2 * a.h2 + 2 * cross", "2 * a.h2 - 2 * cross", _ONE),
    ("dynamics: partner's force in V", _FLOW, "2 * lean[:, None] * h * back + back**2", "back**2", _ONE),
    ("dynamics: any ρ in a batch", _FLOW, "problem.rho != 0.5:", "False:", _ONE),
    ("dynamics: resting rate halved", _STEADY, "drift = 4 * a.stretch", "drift = 2 * a.stretch", _ONE),
    ("dynamics: unstable called stable", _STEADY, "max(complex(e).real", "min(complex(e).real", _ONE),
    ("dynamics: derivatives doubled", _STEADY, "(2 * step.sum())", "step.sum()", _ONE),
    ("dynamics: start without its own M", _ESCAPE, "return q + float(end.y[2, -1])", "return float(end.y[2, -1])", _ONE),
    ("dynamics: escape of √N", _ESCAPE, "math.sqrt(S / n)", "S / n", _ONE),
    ("dynamics: median of one sign", _ESCAPE, "erfc(np.exp(logs) / math.sqrt(2))", "erfc(np.exp(logs))", _ONE),
    ("dynamics: half the classes' pull", _CLASSES, "M_dot = -2 * eta * h.T", "M_dot = -1 * eta * h.T", _MANY),
    ("dynamics: classes blind to G", _CLASSES, "self.classes.gram[self.labels] + noise", "np.eye(self.classes.count)[self.labels] + noise", _MANY),
    ("dynamics: units not mixed by Q", _CLASSES, "noise @ np.linalg.pinv(root) @ M", "noise @ M", _MANY),
    ("dynamics: batches share nothing", _CLASSES, "(batch - 2) * (both + both.T) / 2", "0 * both", _MANY),
    ("dynamics: cross terms of h hᵀ", _CLASSES, "inner -= mixed + mixed.transpose(0, 2, 1)", "inner -= mixed", _MANY),
    ("dynamics: D² summed over units", _CLASSES, "np.maximum(d2, 0) / units, same", "np.maximum(d2, 0), same", _MANY),
    ("dynamics: Plotkin of C", _CLASSES, "count / (2 * (count - 1))", "count / (2 * count)", _MANY),
    ("dynamics: fermions of all pairs", _CLASSES, "2 * count / (count - 1) * float", "2 * float", _MANY),
    ("dynamics: rank not centred", _CLASSES, "self.means - self.means.mean(1, keepdims=True)", "self.means", _MANY),
    ("dynamics: sgd in N directions less two", _SGD, "self.rng.chisquare(self.n - 2, (count, self.runs))", "np.zeros((count, self.runs))", _RUNS),
    ("dynamics: sgd without Δ along 1", _SGD, "(m * y + delta * a)", "(m * y)", _RUNS),
    ("dynamics: sgd of the sum of pairs", _SGD, "(2 / (self.batch * (self.batch - 1)))", "(1 / (self.batch - 1))", _RUNS),
    ("dynamics: sgd with right labels only", _SGD, "< problem.mislabelled, -y, y)", "< 0, -y, y)", _RUNS),
    ("dynamics: runs without error", "fermibose/theory/dynamics.py", 'f"{name}_error": found.error', 'f"{name}_error": found.spread', "tests/theory/test_cli_dynamics.py"),
]  # fmt: skip
