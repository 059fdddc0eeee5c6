# `make demo` and `make test` need Python 3.11 or newer and nothing else: they make a virtual environment in .venv first.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# What `make check` runs, in seconds: FileCheck, and the tests of single parts.
QUICK := filecheck registry ir_infrastructure ln_opt json_ir notation runtime passes
# Tests run on two cores; `make test JOBS=8` for more.
JOBS ?= 2

.PHONY: help setup demo check test full docs clean

help:
	@echo "make demo    set up .venv and run a network"
	@echo "make test    set up .venv and run the tests (minutes)"
	@echo "make check   lint, docs, FileCheck and the quickest tests (seconds)"
	@echo "make full    all tests, the slow ones too"
	@echo "make docs    write the generated reference pages"
	@echo "make clean   remove what the others made"

setup: $(STAMP)

# pyproject.toml lists what is installed; the stamp says that this was done.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: setup
	$(BIN)/python examples/squeezedet.py

check: setup
	$(BIN)/ruff check .
	$(BIN)/python tools/docs.py --check
	$(BIN)/pytest -n $(JOBS) $(QUICK:%=tests/test_%.py)

test: setup
	$(BIN)/pytest -n $(JOBS) -m 'not slow'

full: setup
	$(BIN)/pytest -n $(JOBS)

docs: setup
	$(BIN)/python tools/docs.py

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
