# `make demo` and `make test` do everything on a fresh machine; the rest are parts of them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
LOWEST := .venv-lowest

.PHONY: help install browser postgres demo test test-federation test-image wheelhouse test-lowest test-bounds fuzz check lint types imports unit coverage docs gallery quality records scale bench experiments experiments-full clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml $(wildcard packages/*/pyproject.toml)
	$(PYTHON) -c 'import sys; sys.exit("felb needs Python 3.11 or newer: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --disable-pip-version-check --group dev \
	  --editable "packages/felb[all]" --editable "packages/felb-sites[nvflare]" --editable packages/felb-paper
	@touch $@

install: $(STAMP)  ## create .venv and install felb with all extras and the developers' tools

browser:  ## install Chromium for the tests of pages, if there is none and apt-get may; without it they are skipped
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
	  if command -v $$name > /dev/null; then exit 0; fi; \
	done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  echo "installing Chromium"; \
	  { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core; } > /dev/null \
	    || echo "Chromium could not be installed; pages will not be tested in a browser"; \
	fi

postgres:  ## install PostgreSQL for the tests of databases, if there is none and apt-get may; without it they are skipped
	@if command -v initdb > /dev/null || ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  echo "installing PostgreSQL"; \
	  { apt-get -qq update && apt-get -qq install -y --no-install-recommends postgresql; } > /dev/null \
	    || echo "PostgreSQL could not be installed; reading from it will not be tested"; \
	fi

demo: $(STAMP)  ## ten simulated clients on planted and on real data: scores, components, a picture
	$(BIN)/python examples/demo.py

test: lint types imports unit  ## linter, types, import contracts and the test suite; COVERAGE=yes measures its coverage too

test-federation: $(STAMP)  ## relay, vaults and couriers as real processes over TLS on this machine
	$(BIN)/python -m pytest -m federation packages/felb-sites/tests

$(LOWEST)/.installed: pyproject.toml $(wildcard packages/*/pyproject.toml)
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --group test \
	  --editable "packages/felb[all]"
	@touch $@

# Old packages beside new ones warn about each other; only here that is no error.
test-lowest: $(LOWEST)/.installed  ## the computing parts of the test suite with the oldest packages pyproject.toml allows
	$(LOWEST)/bin/python -m pytest --numprocesses auto --dist worksteal -m 'not federation' -W default \
	  $(addprefix packages/felb/tests/,optim data kernels centralized federated estimators)

# Numba compiles with a check of every index; its cache keeps these kernels apart from the fast ones.
test-bounds: $(STAMP)  ## the computing parts of the test suite with kernels that check every index
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=build/numba-bounds $(BIN)/python -m pytest --numprocesses auto --dist worksteal \
	  $(addprefix packages/felb/tests/,data kernels centralized federated fuzz)

FUZZ_SECONDS ?= 900

fuzz: $(STAMP)  ## mutants of every file, record, message and parameter, a quarter of an hour; FUZZ_SECONDS=7200 for two hours
	PYTHONPATH=packages/felb/tests:packages/felb-sites/tests/helpers \
	  $(BIN)/python packages/felb-sites/tests/site_fuzz.py --seconds $(FUZZ_SECONDS)

check: $(STAMP)  ## linter, types and the mirroring tests of one file: make check FILE=packages/felb/src/felb/optim/prox.py
	@test -f "$(FILE)" || { echo "name a file: make check FILE=packages/felb/src/felb/optim/prox.py"; exit 2; }
	$(BIN)/ruff check "$(FILE)"
	$(BIN)/ruff format --check "$(FILE)"
	case "$(FILE)" in packages/*/src/*) $(BIN)/mypy "$(FILE)";; esac
	$(BIN)/python -m pytest --exitfirst $$($(BIN)/python .ci/mirror.py "$(FILE)")

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports --no-logo

unit: $(STAMP) browser postgres
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal$(if $(COVERAGE), --cov --cov-report= --cov-fail-under=0)

coverage: $(STAMP)  ## the share of lines that the tests execute, in processes of sites too, and those they do not; half an hour
	$(MAKE) unit COVERAGE=yes
	$(BIN)/python -m pytest -m federation --cov --cov-append --cov-report= --cov-fail-under=0 packages/felb-sites/tests
	$(BIN)/coverage report

test-image: $(STAMP)  ## execute the steps of the container image in a root file system of Debian; needs root and debootstrap
	rm -rf build/image && mkdir -p build
	debootstrap --variant=minbase --include=python3,python3-venv,python-is-python3,ca-certificates stable build/image
	FELB_IMAGE_ROOT=$(CURDIR)/build/image $(BIN)/python -m pytest -rs packages/felb-sites/tests/test_deploy_files.py

wheelhouse: $(STAMP)  ## wheels of the three packages and of all they need in build/wheelhouse, for machines without a network
	$(BIN)/pip wheel --quiet --disable-pip-version-check --wheel-dir build/wheelhouse \
	  "packages/felb[privacy,secure,sql,report]" packages/felb-sites packages/felb-paper

docs: $(STAMP)  ## the documentation as a site in build/site; open build/site/index.html, no server needed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

gallery: $(STAMP)  ## the pictures of the gallery, a few minutes
	$(BIN)/python examples/zoo.py --picture docs/images/zoo.png
	$(BIN)/python examples/clients.py --picture docs/images/clients.png
	$(BIN)/python examples/noise.py --picture docs/images/noise-quick.png

quality: $(STAMP)  ## F1* on planted data against the bars the methods must hold
	$(BIN)/python benchmarks/quality.py

records: $(STAMP)  ## wrong cells on small matrices against the smallest published; keeps what is measured, writes benchmarks/RECORDS.md
	$(BIN)/python benchmarks/records.py

scale: $(STAMP)  ## three rounds on data of Movielens' size: time and peak memory
	$(BIN)/python benchmarks/paper_scale.py --shape ratings --rounds 3

bench: $(STAMP)  ## speed, memory and start against their bars, about ten minutes; writes benchmarks/RESULTS.md
	$(BIN)/python benchmarks/bench.py

experiments: $(STAMP)  ## the paper's ten experiments in quick form, about ten minutes on two idle cores; writes docs/results
	$(BIN)/felb experiment run all --quick --out experiments-output
	$(BIN)/felb experiment pages experiments-output --to docs/results

experiments-full: $(STAMP)  ## the same in full form, many hours; goes on where it stopped, here or elsewhere; writes docs/results/full
	$(BIN)/felb experiment run all --out experiments-full --store docs/results/runs
	$(BIN)/felb experiment pages experiments-full --to docs/results/full

clean:  ## remove the virtual environment and every cache
	rm -rf $(VENV) $(LOWEST) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage demo-output experiments-output build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
