# `make` prints what there is. Every target sets itself up: the virtual environment follows the lock file.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
MAKEFLAGS += --no-print-directory
ARGS ?=
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade
WORKERS ?= 4
# The tests start koff hundreds of times: without compiled modules, each start takes half a second more.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all kerberos test-unit test-long test-versions test-benches test-installs check lint format \
  docs lock lock-jars bench jars audit dist release-check wheels sbom clean check-python

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv-demo/.installed ## a Kafka with live consumer groups, koff watching it, until Ctrl-C
	@.venv-demo/bin/python -m koff demo $(ARGS)

test: lint jars ## what check looks at, then the tests, on a real Kafka started here (15 to 30 minutes)
	@$(BIN)/pytest -n $(WORKERS) $(ARGS)

test-all: lint jars kerberos ## the same, and the thorough tests: Spark, images, installs, more faults (about fifty minutes)
	@$(BIN)/pytest -n $(WORKERS) -m "thorough or not thorough" $(ARGS)

kerberos: $(INSTALLED)
	@$(BIN)/python -c 'import gssapi' 2>/dev/null || ! command -v krb5-config >/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-kerberos.lock

test-long: $(INSTALLED) jars ## more of the same: thousands of simulated runs, each broker broken, minutes of churn
	@$(BIN)/pytest -n $(WORKERS) -m "long and (thorough or not thorough)" $(ARGS)

test-versions: $(INSTALLED) jars ## each row on Kafka 2.8 to 4.1, and a rolling upgrade (about five minutes)
	@$(BIN)/pytest -m versions $(ARGS)

test-benches: $(INSTALLED) jars ## each benchmark at its smallest size
	@$(BIN)/pytest -m benches $(ARGS)

test-installs: $(INSTALLED) ## wheel and sdist, each installed by pip into an empty environment
	@$(BIN)/pytest -m "installs and thorough" $(ARGS)

check: lint test-unit ## format, lint, types, imports and the tests that need neither Kafka nor Spark

test-unit: $(INSTALLED) ## only the tests that need neither Kafka nor Spark
	@$(BIN)/pytest -q -n $(WORKERS) -m "not kafka and not spark and not containers and not installs" $(ARGS)

lint: $(INSTALLED) ## format, lint, types and imports
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(INSTALLED) ## rewrite the code as ruff would have it
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(INSTALLED) jars ## the benchmarks: figures as JSON
	@set -e; for script in bench/[a-z]*.py bench/verdicts; do $(BIN)/python -m bench.$$(basename $$script .py); done

jars: $(INSTALLED) ## fetch Kafka's jars into the cache, unless they are there
	@$(BIN)/python -m koff.kafkatest

lock-jars: ## write the lists of Kafka's jars anew (needs Maven)
	@rm -rf build/jars
	@$(PYTHON) .ci/kafka_jars.py build/jars

lock: ## resolve the dependencies anew (needs uv)
	@command -v uv >/dev/null || { echo "no 'uv' on PATH: pip install uv" >&2; exit 1; }
	$(COMPILE) pyproject.toml --extra zookeeper --extra auth --extra aws --extra pkcs12 --output-file requirements.lock
	$(COMPILE) pyproject.toml --extra dev --constraint requirements.lock --output-file requirements-dev.lock
	$(COMPILE) pyproject.toml --extra demo --constraint requirements-dev.lock --output-file requirements-demo.lock
	$(COMPILE) pyproject.toml --extra zookeeper --extra auth --extra aws --extra pkcs12 --extra spark --constraint requirements-dev.lock \
	  --output-file requirements-spark.lock
	$(COMPILE) --group build --constraint requirements-dev.lock --output-file requirements-build.lock
	$(COMPILE) --group docs --constraint requirements-dev.lock --output-file requirements-docs.lock
	$(COMPILE) --group audit --constraint requirements-dev.lock --output-file requirements-audit.lock

docs: .venv-docs/.installed ## the site of docs/, in build/docs; a link to nothing is an error
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --strict
	@echo "build/docs/index.html"

audit: .venv-audit/.installed ## look for known vulnerabilities of what the lock files pin (needs the package index)
	@for lock in *.lock; do \
	  echo "$$lock:"; \
	  .venv-audit/bin/pip-audit --strict --require-hashes --disable-pip --requirement $$lock || failed=1; \
	done; exit $${failed:-0}

dist: .venv-build/.installed ## wheel and sdist, in dist/
	@rm -rf dist
	@.venv-build/bin/python -m build --no-isolation

release-check: .venv-build/.installed wheels sbom ## check that the version may be released: what agrees, equal builds, wheels, licences
	@$(PYTHON) .ci/release.py reproduce --python .venv-build/bin/python
	@$(PYTHON) .ci/release.py check $(ARGS)

# Python 3.13 is that of the image.
wheels: .venv-build/.installed ## check that each library of the image has a wheel for amd64 and for arm64 (needs the package index)
	@for processor in x86_64 aarch64; do \
	  .venv-build/bin/python -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary=:all: \
	    --python-version 3.13 --abi cp313 --abi abi3 --abi none --platform manylinux2014_$$processor \
	    --platform manylinux_2_28_$$processor --dest build/wheels/$$processor --requirement requirements.lock || exit 1; \
	done

sbom: .venv-audit/.installed .venv-run/.installed ## what the image has besides Debian's packages, with the licences: build/koff.cdx.json
	@mkdir -p build
	@.venv-audit/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	  --output-file build/koff.cdx.json .venv-run/bin/python
	@$(PYTHON) .ci/release.py licences build/koff.cdx.json

clean: ## remove the virtual environment, caches and builds (Kafka's jars stay in the user's cache)
	rm -rf $(VENV) .venv-audit .venv-build .venv-demo .venv-run build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The demo needs what koff runs on, a Java and jgo, and neither Spark nor what tests need. koff itself is run from here.
.venv-demo/.installed: requirements-demo.lock | check-python
	@echo "bringing .venv-demo up to the lock file (half a minute, the first time)"
	@$(PYTHON) -m venv .venv-demo
	@.venv-demo/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r $<
	@touch $@

check-python:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "no '$(PYTHON)' on PATH: install Python 3.11 or newer, or say make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "koff needs Python 3.11 or newer and $(PYTHON) is $$($(PYTHON) -V): say make PYTHON=python3.12" >&2; exit 1; }

$(INSTALLED): requirements-dev.lock pyproject.toml | check-python
	@echo "bringing $(VENV) up to the lock file (a minute, the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

# What the image has: neither pip nor what only developers need.
.venv-run/.installed: requirements.lock .venv-audit/.installed
	@$(PYTHON) -m venv --without-pip .venv-run
	@.venv-audit/bin/python -m pip --python .venv-run/bin/python install --quiet --require-hashes -r $<
	@touch $@

.venv-%/.installed: requirements-%.lock
	@$(PYTHON) -m venv .venv-$*
	@.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@
