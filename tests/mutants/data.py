"""Ways to break the data: name, file below src, text, what replaces it, tests that must turn red."""

MUTANTS = [
    ("data: any full set is Fashion-MNIST", "fermibose/data/datasets.py", "content_digest(*raw) != SHA256[name]", "name == 'mnist' and content_digest(*raw) != SHA256[name]", "tests/data/test_dataset.py"),
    ("data: subfolder of the option ignored", "fermibose/data/datasets.py", "root / name if (root / name).is_dir() else root", "root", "tests/data/test_dataset.py"),
    ("data: a bomb is unpacked", "fermibose/data/idx.py", "found = read_at_most(content, expected)\n", "found = bytearray(content.read())\n", "tests/data/test_idx.py::test_a_gzip_bomb_is_refused_from_its_header_on"),
    ("data: blank images unpacked", "fermibose/data/idx.py", "if expected > max(_TRUST, _RATIO * size):", "if False:", "tests/data/test_idx.py"),
    ("data: more than the header says", "fermibose/data/idx.py", "if len(found) == expected and not content.read(1):", "if len(found) == expected:", "tests/data/test_idx.py"),
    ("data: images without pixels", "fermibose/data/idx.py", "    if 0 in images:", "    if not images[0]:", "tests/data/test_idx.py"),
    ("data: any number of dimensions", "fermibose/data/idx.py", "dimensions > _DIMENSIONS or", "False or", "tests/data/test_idx.py"),
    ("data: row numbers of pandas as a feature", "fermibose/data/table.py", 'if any(name.startswith("Unnamed: ") for name in names):', "if False:", "tests/data/test_table.py"),
    ("data: cells too many lost", "fermibose/data/table.py", "if not isinstance(frame.index, pandas.RangeIndex):", "if False:", "tests/data/test_table.py"),
    ("newcomer: tables scaled by their test rows", "fermibose/data/datasets.py", "low, high = x[~test].min(0), x[~test].max(0)", "low, high = x.min(0), x.max(0)", "tests/data/test_table.py::test_every_fifth_row_of_a_class_is_for_testing_and_ranges_are_those_of_training"),
]  # fmt: skip
