"""Mutants of samples that feel each other, of the theory of given data, and of surrogates."""

CROWD = "tests/theory/test_crowd.py"
DATA = "tests/theory/test_from_dataset.py"
SURROGATE = "tests/data/test_surrogate.py"

MUTANTS = [
    ("crowd: labels that repel their own", "fermibose/theory/panels.py", "fermions = by_label.sum(1, keepdims=True) - by_label", "fermions = by_label", CROWD),
    ("crowd: boson force doubled", "fermibose/theory/panels.py", "pull = total * phi - first", "pull = 2 * (total * phi - first)", CROWD),
    ("crowd: bend of the hinge forgotten", "fermibose/theory/panels.py", "H_DD = 2 * force + 4 * d2 * pair.curvature(d2, False)", "H_DD = 2 * force", CROWD),
    ("crowd: φ″ forgotten", "fermibose/theory/panels.py", "H_DD * slope[:, None] ** 2 + H_D * bend[:, None]", "H_DD * slope[:, None] ** 2", CROWD),
    ("crowd: density without its stretch", "fermibose/theory/crowd.py", "* _normal(omega, g) * stretch", "* _normal(omega, g)", CROWD),
    ("crowd: envelope without the half", "fermibose/theory/crowd.py", "F=float(mass @ (g.c * force**2 / 2 + h))", "F=float(mass @ (g.c * force**2 + h))", CROWD),
    ("crowd: growth of another power", "fermibose/theory/crowd.py", "((j.right - j.left) / g.c) ** 3 / 6", "((j.right - j.left) / g.c) ** 2 / 6", CROWD),
    ("crowd: curvature without its resolvent", "fermibose/theory/crowd.py", "(bend / (1 + g.c * bend)) ** 2", "bend**2", CROWD),
    ("crowd: shares forgotten", "fermibose/theory/crowd.py", "masses[g.label] += g.share * points.folded(mass)", "masses[g.label] += points.folded(mass) / len(self.groups)", CROWD),
    ("crowd: pair energy counted twice", "fermibose/theory/crowd.py", 'return self.mean("F") - self.pair_energy / 2', 'return self.mean("F") - self.pair_energy', CROWD),
    ("crowd: symmetric in name", "fermibose/theory/crowd.py", "field = _Field(problem, groups, panels, symmetric, coarseness)", "field = _Field(problem, groups, panels, False, coarseness)", CROWD),
    ("crowd: unequal labels not even", "fermibose/theory/crowd.py", "self._even = symmetric and problem.odd", "self._even = False", CROWD),
    ("crowd: labels start together", "fermibose/theory/crowd.py", "_NUDGE = 0.5", "_NUDGE = 0.0", CROWD),
    ("crowd: reflection of forces", "fermibose/theory/crowd.py", "np.array([1.0, -1.0, 1.0])", "np.array([1.0, 1.0, 1.0])", CROWD),
    ("crowd: coarse panels kept", "fermibose/theory/crowd.py", "if not state.fine or state.lost > _SPILT:", "if False:", CROWD),
    ("hull: ends of jumps on nodes", "fermibose/theory/hull.py", "_POLISHINGS = 30", "_POLISHINGS = 1", CROWD),
    ("hull: gaps filled", "fermibose/theory/hull.py", "    if not falls.any():", "    if True:", CROWD),
    ("hull: overlapping gaps kept", "fermibose/theory/hull.py", "while found and found[-1][2].right >= gap.left:", "while False:", CROWD),
    ("hull: pieces beside gaps lost", "fermibose/theory/hull.py", "    for panel in touched:", "    for panel in ():", CROWD),
    ("data theory: decay forgotten in A", "fermibose/theory/learning.py", "A[np.diag_indices_from(A)] += theory.problem.weight_decay", "A[np.diag_indices_from(A)] += 1.0", DATA),
    ("data theory: χ̂ of the variance", "fermibose/theory/learning.py", "self._respond(slope / np.exp(x[2:4] / 2))", "self._respond(slope / np.exp(x[2:4]))", DATA),
    ("data theory: signal away from the force", "fermibose/theory/learning.py", "return -self.signal @ force", "return self.signal @ force", DATA),
    ("data theory: no signal in q", "fermibose/theory/learning.py", "q=np.array([w @ S @ w for S in self._theory.covariances]) + trace @ force2", "q=trace @ force2", DATA),
    ("data theory: traces of other products", "fermibose/theory/learning.py", "np.sum(a * b.T)", "np.sum(a * b)", DATA),
    ("data theory: norm of the mean alone", "fermibose/theory/learning.py", "norm2=float(w @ w + fluctuation @ force2)", "norm2=float(w @ w)", DATA),
    ("data theory: energy of ordered pairs", "fermibose/theory/learning.py", "return self.n * self.training_energy / 2 + decay", "return self.n * self.training_energy + decay", DATA),
    ("data theory: classes of equal weight", "fermibose/theory/learning.py", "weight = self.shares**2 / (self.shares**2).sum()", "weight = np.array([0.5, 0.5])", DATA),
    ("data theory: stability of one class", "fermibose/theory/learning.py", "np.linalg.eigvals(found.trace * (n * strength))", "(found.trace * (n * strength))[0, 0]", DATA),
    ("data theory: higher energy wins", "fermibose/theory/learning.py", "best = min(found,", "best = max(found,", DATA),
    ("data theory: least axes", "fermibose/theory/real_data.py", "[:, : -components - 1 : -1]", "[:, :components]", DATA),
    ("data theory: shrinkage of another size", "fermibose/theory/real_data.py", "float(np.sum(S**2)) - d * level**2", "float(np.sum(S**2)) - level**2", DATA),
    ("surrogate: covariance for its root", "fermibose/data/surrogate.py", "vectors * np.sqrt(np.maximum(values, 0.0))", "vectors * values", SURROGATE),
    ("surrogate: one covariance for all", "fermibose/data/surrogate.py", "_root(apart[dataset.y_train == c])", "_root(apart)", SURROGATE),
    ("surrogate: noise about one mean", "fermibose/data/surrogate.py", "noise = float(np.sqrt(np.mean(apart**2)))", "noise = float(np.std(x))", SURROGATE),
]  # fmt: skip
