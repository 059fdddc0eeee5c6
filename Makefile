# Names for `python3 tools/dev.py COMMAND`, which needs no make: setup, demo, check, suites, tests, test, full, docs, clean.
PYTHON ?= python3
# Tests run on two cores; `make test JOBS=8` for more.
export JOBS ?= 2

.PHONY: help setup demo check suites tests test full docs clean
help:
	@$(PYTHON) tools/dev.py --help

setup demo check suites tests test full docs clean:
	@$(PYTHON) tools/dev.py $@
