# The words a contributor needs; CI and the README call only these.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin

.PHONY: install format check test demo bench dist clean

install: $(VENV)/installed

$(VENV)/installed: setup.cfg setup.py pyproject.toml $(wildcard spacy_costner/*/*.pyx spacy_costner/*/*.hpp spacy_costner/*/kernels/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

format: install
	$(BIN)/ruff check --fix spacy_costner tests scripts benchmarks experiments
	$(BIN)/ruff format spacy_costner tests scripts benchmarks experiments

check: install
	$(BIN)/ruff check spacy_costner tests scripts benchmarks experiments
	$(BIN)/ruff format --check spacy_costner tests scripts benchmarks experiments
	$(BIN)/mypy

test: install
	$(BIN)/python -m pytest

demo: install
	$(BIN)/python -m spacy project run demo

# The peers live in an environment of their own.
TABLES = machine chain_speed losses components linear fit_speed growth limit
bench:
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-bench/bin/python -m pip install --quiet . --requirement benchmarks/requirements.txt
	cd benchmarks && for table in $(TABLES); do ../$(VENV)-bench/bin/python -W ignore $$table.py; done \
		> RESULTS.md

dist: install
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) $(VENV)-bench build dist *.egg-info
