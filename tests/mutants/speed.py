"""Ways to break diagrams by continuation: name, file below src, text, replacement, tests."""

MUTANTS = [
    ("speed: no search on the way", "fermibose/theory/continuation.py", "            if index in looks:", "            if False:", "tests/theory/test_surfaces.py"),
    ("speed: rivals never lower", "fermibose/theory/solve.py", "and other.free_energy < least for", "and False for", "tests/theory/test_surfaces.py"),
    ("speed: rivals carried over", "fermibose/theory/solve.py", "return replace(near, rivals=tuple(rivals))", "return replace(near, rivals=start.rivals)", "tests/theory/test_surfaces.py"),
    ("speed: rivals change their kind", "fermibose/theory/search.py", "if _kind(new) != _kind(state):", "if False:", "tests/theory/test_surfaces.py"),
    ("speed: neighbours not asked", "fermibose/theory/surfaces.py", "again = asked(point, others, tol=tol)", "again = point", "tests/theory/test_surfaces.py"),
    ("speed: neighbours asked once", "fermibose/theory/surfaces.py", "            queue += beside", "            pass", "tests/theory/test_surfaces.py"),
    ("speed: only lower states are kept", "fermibose/theory/solve.py", "return replace(best, rivals=(*best.rivals, *kept))", "return replace(best, rivals=())", "tests/theory/test_surfaces.py"),
    ("speed: any state is one already known", "fermibose/theory/search.py", "distance(problem, to_overlaps(x), k.overlaps) < _SAME for k", "distance(problem, to_overlaps(x), k.overlaps) < 1e9 for k", "tests/theory/test_surfaces.py"),
    ("speed: variance averaged twice", "fermibose/theory/channel.py", "c / self.beta - self._variance", "c / self.beta", "tests/theory/test_surfaces.py"),
    ("speed: too few nodes after an average", "fermibose/theory/channel.py", "THIN = 0.35", "THIN = 0.6", "tests/theory/test_surfaces.py"),
    ("speed: an average taken beforehand for narrower ones", "fermibose/theory/disjoint.py", "blur.variance, LEAST_BLURRED", "blur.variance, 0.3", "tests/theory/test_surfaces.py"),
    ("speed: the wrong part of a kept table", "fermibose/theory/channel.py", "0 if t.folded else self.weight.shape[1] - 1 +", "0 if t.folded else r.nodes.size - 1 +", "tests/theory/test_surfaces.py"),
    ("speed: fields that end along the wrong axis", "fermibose/theory/channel.py", "(r[..., part_r, :], t), (t[..., part_t, :], r)", "(r[..., part_t, :], t), (t[..., part_r, :], r)", "tests/theory/test_channel.py"),
    ("speed: fermion curvature along the other axis", "fermibose/theory/channel.py", "return self._grid(a, b), self._grid(b, a)", "return self._grid(a), self._grid(b)", "tests/theory/test_channel.py"),
    ("speed: fields that end early", "fermibose/theory/disjoint.py", "else (tail + _MORE) * width", "else 2.5 * width", "tests/theory/test_brute_force.py"),
    ("speed: a lattice is good beyond the field's end", "fermibose/theory/disjoint.py", "tail + _MORE * width <= self.end", "True", "tests/theory/test_channel.py"),
    ("speed: predictions that leap", "fermibose/theory/continuation.py", "_LEAP = 0.7", "_LEAP = 1e9", "tests/theory/test_surfaces.py"),
    ("speed: a sensitivity of elsewhere", "fermibose/theory/precision.py", "moved * strength < _STALE", "True", "tests/theory/test_surfaces.py"),
    ("speed: rows and columns exchanged", "fermibose/theory/surfaces.py", "return _turned(grid) if turned else grid", "return grid", "tests/theory/test_surfaces.py"),
    ("speed: rows of finished columns", "fermibose/theory/surfaces.py", "raise Interrupted(_turned(stop.done) if turned else stop.done)", "raise Interrupted(stop.done)", "tests/theory/test_surfaces.py"),
]  # fmt: skip
