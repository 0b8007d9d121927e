"""Ways to break the figure of the theory beyond the paper: name, file below src, text, what replaces it, tests that must turn red."""

_T = "tests/paper/test_theory_beyond.py"

MUTANTS = [
    (
        "theory-beyond: attacks of the norm, not of its dual",
        "fermibose_paper/theory_beyond.py",
        "float(norm) / (float(norm) - 1)",
        "float(norm)",
        _T,
    ),
    (
        "theory-beyond: any deviation will do",
        "fermibose_paper/theory_beyond.py",
        "min(1.0, len(known) * known[where])",
        "1.0",
        _T,
    ),
    (
        "theory-beyond: partners not heeded",
        "fermibose_paper/theory_beyond.py",
        "partners=partners or None",
        "partners=None",
        _T,
    ),
    (
        "theory-beyond: tested on the pool",
        "fermibose_paper/real_data.py",
        "x_train=data.x_test,",
        "x_train=data.x_train,",
        _T,
    ),
    (
        "theory-beyond: lost data asked for",
        "fermibose_paper/real_data.py",
        "if dataset in scale.lost:",
        "if False:",
        _T,
    ),
    (
        "theory-beyond: distances of one class",
        "fermibose_paper/real_data.py",
        "float(second.sum() - 2 * first.prod())",
        "float(second.sum())",
        _T,
    ),
    (
        "real-data: judged at any number of images",
        "fermibose_paper/real_data.py",
        "if n >= JUDGED and values",
        "if values",
        _T,
    ),
    (
        "real-data: theory drawn in other units than points",
        "fermibose_paper/real_data.py",
        "ax.plot(sizes, scale * predicted",
        "ax.plot(sizes, predicted",
        _T,
    ),
]
