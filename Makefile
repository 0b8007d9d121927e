# Everything here needs only Python >= 3.11, make and a package index; the environment lives in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test lint bench mutants clean

install: .venv/installed

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable ".[dev]"
	touch $@

# The demo needs the package alone, without the tools of its developers.
$(BIN)/fbm: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable .
	touch $@

demo: $(BIN)/fbm
	$(BIN)/fbm demo

test: install
	$(BIN)/pytest -n 2

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install
	$(BIN)/python benchmarks/machine.py check
	$(BIN)/python benchmarks/theory.py check
	$(BIN)/python benchmarks/attacks.py check
	$(BIN)/python benchmarks/sweep.py check
	$(BIN)/python benchmarks/cavity.py check

mutants: install
	$(BIN)/python tests/mutants/run.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
