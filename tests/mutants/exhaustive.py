"""Ways to break the theory of all pairs: name, file below src, text, what replaces it, tests that must turn red."""

_X = "fermibose/theory/exhaustive.py"
_F = "fermibose/theory/frozen.py"
_T = "tests/theory/test_exhaustive.py"

MUTANTS = [
    (
        "exhaustive: pairs counted twice in f",
        _X,
        "self._potentials(now.mass) - 2 * now.h",
        "2 * self._potentials(now.mass) - 2 * now.h",
        _T,
    ),
    (
        "exhaustive: samples counted once",
        _X,
        "force2=2 * float((weight * force**2).sum()),",
        "force2=float((weight * force**2).sum()),",
        _T,
    ),
    (
        "exhaustive: labels attract",
        _X,
        "others = mass[:, ::-1] if self._mirrored",
        "others = mass if self._mirrored",
        _T,
    ),
    (
        "exhaustive: wrong labels unheard of",
        _X,
        "Kind(share * wrong, y, (1 + y) // 2)",
        "Kind(share * wrong, y, (1 - y) // 2)",
        _T,
    ),
    (
        "exhaustive: classes of equal size",
        _X,
        "((1, problem.balance), (-1, 1 - problem.balance))",
        "((1, 0.5), (-1, 0.5))",
        _T,
    ),
    (
        "exhaustive: AT of a sample alone",
        _X,
        "return 2 * float(law.weight @ self._bend",
        "return float(law.weight @ self._bend",
        _T,
    ),
    (
        "exhaustive: sign of the bend",
        _X,
        "((first / Z) ** 2 - second / Z) / self",
        "((first / Z) ** 2 + second / Z) / self",
        _T,
    ),
    (
        "exhaustive: half the potential at T = 0",
        _F,
        "free=lambda: 2 * now.functional,",
        'free=lambda: 2 * now.mean("F"),',
        _T,
    ),
    (
        "exhaustive: clusters in one place at T = 0",
        _F,
        "k.y * mean, width, c)",
        "mean, width, c)",
        _T,
    ),
    ("exhaustive: potentials that never settle", _X, "_SETTLED = 1e-12", "_SETTLED = 1e-1", _T),
    (
        "exhaustive: α for γ",
        "fermibose/theory/problem.py",
        "return self.samples / 2",
        "return self.samples",
        _T,
    ),
    (
        "exhaustive: population without decay",
        "fermibose/theory/population.py",
        "+ problem.weight_decay * float(q) / 2",
        "",
        _T,
    ),
]
