# `make demo` shows clew at work, `make test` passes the tests; both set up what they need in .venv first.
PYTHON ?= python3
BIN := .venv/bin
ENOUGH := .venv/.enough
READY := .venv/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo demo-case test lint bench docs clean

demo: $(ENOUGH)
	@cd examples && CLEW_HOME=$$(mktemp -d) ../$(BIN)/clew run spirals.py

demo-case: $(ENOUGH)
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/stuck_classifier.sh

test: $(READY) lint
	$(BIN)/pytest -n 2
	$(BIN)/pytest examples/tested_project

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m clew.knowledge
	$(BIN)/python tools/exams.py --check
	$(BIN)/python tools/lint_docs.py --check

bench: $(READY)
	$(BIN)/python bench/startup.py
	$(BIN)/python bench/weigh.py
	$(BIN)/python bench/archive.py
	$(BIN)/python bench/observe.py
	$(BIN)/python bench/lint.py

docs: $(READY)
	$(BIN)/python tools/exams.py
	$(BIN)/python tools/lint_docs.py

$(ENOUGH): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "clew needs Python 3.11 or newer; say which with: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(PIP) --editable '.[torch]'
	touch $@

$(READY): $(ENOUGH)
	$(PIP) --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
