# Penstock: `make run` starts it, `make test` checks it. Both set up what they need in .venv.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup run test lint types layers test-fast test-brokers test-cluster test-spark test-sql spark-classes bench fuzz chaos clean

# The first Python on the PATH that is new enough; `make PYTHON=... setup` overrides.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done

# Where `make run` keeps its data and listens, and after how many seconds it ends (empty: at Ctrl-C).
# PORT=0 takes any free port.
DATA ?= data
PORT ?= 9092
RUN_SECONDS ?=
# Test processes at once, and more arguments for pytest: make test PYTEST="-k produce"
JOBS ?= 2
PYTEST ?=
FAST := $(wildcard tests/unit tests/sim tests/wire)
# All other directories of tests, so that a new one is never forgotten.
BROKERS := $(filter-out $(FAST) tests/cluster tests/spark tests/sql tests/__pycache__,$(patsubst %/,%,$(wildcard tests/*/)))
PYTEST_RUN := $(BIN)/python -m pytest -q $(PYTEST)
# Tests with brokers wait more than they compute: for sessions that end, elections, clients that try again.
WAITING_JOBS := $(shell echo $$((2 * $(JOBS))))
# What fails beside others that take the cores is run once more, alone: a fault fails again and ends the run,
# and what does not is named in the output of the first.
AGAIN = { code=$$?; [ $$code -eq 1 ] || exit $$code; echo "== FAILED ABOVE, once more, one at a time:"; \
	$(BIN)/python -m pytest -q --last-failed --last-failed-no-failures none $(1); }

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

setup: $(STAMP) ## Make .venv with the package and all that its tests use

$(STAMP): pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then \
		echo "Penstock needs Python 3.11 or newer; the python3 here is: $$(python3 --version 2>&1 || true)." >&2; \
		echo "Install one, or name it: make PYTHON=/path/to/python3.11 setup" >&2; exit 1; fi
	@echo "== setup: $(VENV) with $$($(PYTHON) --version)"
	@[ -x $(BIN)/python ] && $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { \
		echo "$(PYTHON) could not make a virtual environment (on Debian and Ubuntu: apt install python3-venv)." >&2; exit 1; }
	@# The two variables carry the pins into the isolated build of the package, for older and newer pip.
	@PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
		$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	@touch $@

run: setup ## Stream real flights through the platform and Spark (DATA=data PORT=9092 RUN_SECONDS=90)
	@RUN_SECONDS="$(RUN_SECONDS)" exec $(BIN)/penstock demo --data "$(DATA)" --port "$(PORT)"

test: setup lint types layers test-fast test-brokers test-cluster test-spark test-sql ## Everything: style, types, layers, all tests
	@echo "== all green"

lint: setup ## ruff: rules and format
	@echo "== ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup ## mypy --strict on src/
	@echo "== mypy --strict src"
	@$(BIN)/mypy --strict src

layers: setup ## The layers of the design, as a contract
	@echo "== import-linter"
	@$(BIN)/lint-imports

test-fast: setup ## The tests that start no broker process
	@echo "== tests: $(FAST)"
	@$(PYTEST_RUN) -n $(JOBS) --dist worksteal $(FAST) || $(call AGAIN,$(FAST))

test-brokers: setup ## The tests with real brokers, real clients, the registry and Kafka's own tools
	@echo "== tests: $(BROKERS)"
	@$(PYTEST_RUN) -n $(WAITING_JOBS) --dist worksteal $(BROKERS) || $(call AGAIN,$(BROKERS))

# A file's tests share what takes long to start: a cluster, a Spark session.
test-cluster: setup ## The tests with several brokers, ZooKeeper, and faults
	@echo "== tests: tests/cluster"
	@$(PYTEST_RUN) -n $(WAITING_JOBS) --dist loadfile tests/cluster || $(call AGAIN,tests/cluster)

# So that each of the many Sparks that tests start does so in half the time.
spark-classes: setup
	@$(BIN)/python -m tests.spark.class_archive

test-spark: setup spark-classes ## The tests with Spark: source and sink, streams, pipelines
	@echo "== tests: tests/spark"
	@$(PYTEST_RUN) -n $(JOBS) --dist loadfile --no-loadscope-reorder tests/spark || $(call AGAIN,tests/spark)

test-sql: setup spark-classes ## The tests of continuous SQL
	@echo "== tests: tests/sql"
	@$(PYTEST_RUN) -n $(JOBS) --dist loadfile --no-loadscope-reorder tests/sql || $(call AGAIN,tests/sql)

bench: setup ## Measure against limits of the same run; ARGS="--quick" for a short one
	@$(BIN)/python -m bench $(ARGS)

fuzz: setup ## More generated hostile input than `make test` has time for
	@PENSTOCK_FUZZ_EXAMPLES=$${PENSTOCK_FUZZ_EXAMPLES:-20000} $(BIN)/python -m pytest -q -n $(JOBS) --timeout 900 -m fuzz tests

chaos: setup ## Faults at random in a cluster under load, longer than in `make test` (CHAOS_SECONDS=120 SEED=17)
	@$(BIN)/python -m tests.cluster.chaos --seconds $(or $(CHAOS_SECONDS),120) $(if $(SEED),--seed $(SEED))

clean: ## Remove what was built and cached, but not data/
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
