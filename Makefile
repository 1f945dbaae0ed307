# Everything a newcomer needs: `make demo` and `make test` set up what they use.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test test-slow lint bench docs dist fuzz clean

setup: $(STAMP)

# PyTorch is named first so that pip takes the pinned build and nothing larger.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

demo: setup
	$(BIN)/evergraph run --dataset cora --method dslr --seed 0 --output runs/demo

test: lint
	$(BIN)/python -m pytest -q -n 2 -m "not slow"

test-slow: setup
	$(BIN)/python -m pytest -q -m slow

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python benchmarks/bench.py

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# A wheel and a source distribution under dist/, with what is in the environment already.
dist: setup
	rm -rf dist
	$(BIN)/python -m build --outdir dist

fuzz: setup
	$(BIN)/python scripts/fuzz.py all --cases 20000

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
