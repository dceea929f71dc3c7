# The words a contributor needs; CI and the README call only these.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin

.PHONY: install format check test demo dist clean

install: $(VENV)/installed

$(VENV)/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

format: install
	$(BIN)/ruff check --fix spacy_costner tests scripts
	$(BIN)/ruff format spacy_costner tests scripts

check: install
	$(BIN)/ruff check spacy_costner tests scripts
	$(BIN)/ruff format --check spacy_costner tests scripts
	$(BIN)/mypy

test: install
	$(BIN)/python -m pytest

demo: install
	$(BIN)/python -m spacy project run demo

dist: install
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) build dist *.egg-info
