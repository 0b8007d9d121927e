# Everything here needs only Python >= 3.11, make and a package index; the environment lives in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo explore test lint docs package bench mutants clean

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
	@echo "next: make explore, or '. $(BIN)/activate' and then fbm --help"

# The app, with what its pages need: marimo, pyautoattack for an audit, the two nets of the demo.
.venv/explore: $(BIN)/fbm
	$(BIN)/pip install --quiet --editable ".[attacks,explore]"
	touch $@

fbm-demo/comparison.json: | $(BIN)/fbm
	$(BIN)/fbm demo

explore: .venv/explore fbm-demo/comparison.json
	$(BIN)/fbm explore

test: install
	$(BIN)/pytest -n 2 --dist loadfile -rs

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The site in site/; a warning, such as a dead link, is an error.
docs: install
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs site

# Wheel and source package in dist/; the demo runs from the wheel, beside the dependencies of .venv.
package: install
	rm -rf dist
	$(BIN)/python -m build --quiet --outdir dist
	$(BIN)/pip install --quiet --no-deps --target dist/installed dist/*.whl
	PYTHONPATH=dist/installed $(BIN)/python -m fermibose demo --epochs 2 --output dist/demo

# All of them, also where one misses a bound.
bench: install
	@missed=; for name in machine theory attacks sweep cavity; do \
	  $(BIN)/python benchmarks/$$name.py check || missed="$$missed $$name"; \
	done; test -z "$$missed" || { echo "bounds missed:$$missed"; exit 1; }

mutants: install
	$(BIN)/python tests/mutants/run.py

clean:
	rm -rf .venv dist site docs/gallery docs/api/generated .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
