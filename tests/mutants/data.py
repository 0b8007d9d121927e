"""Ways to break the data: name, file below src, text, what replaces it, tests that must turn red."""

MUTANTS = [
    ("data: any full set is Fashion-MNIST", "fermibose/data/datasets.py", "content_digest(*raw) != SHA256[name]", "name == 'mnist' and content_digest(*raw) != SHA256[name]", "tests/data/test_dataset.py"),
    ("data: subfolder of the option ignored", "fermibose/data/datasets.py", "root / name if (root / name).is_dir() else root", "root", "tests/data/test_dataset.py"),
]  # fmt: skip
