# Penstock: `make run` starts it, `make test` checks it. Both set up what they need in .venv.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup run test test-ecosystem checks lint types layers collect test-fast test-running test-servers test-streams test-brokers test-cluster test-spark test-sql \
	test-long browser postgresql mariadb messaging spark-classes docs dist bench fuzz chaos clean

# The first Python on the PATH that is new enough; `make PYTHON=... setup` overrides.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done

# Where `make run` keeps its data and listens, and after how many seconds it ends (empty: at Ctrl-C).
# PORT=0 takes any free port. The web console takes one where CONSOLE_PORT is taken.
DATA ?= data
PORT ?= 9092
CONSOLE_PORT ?=
RUN_SECONDS ?=
# Tests start hundreds of Python processes: each would compile all of Penstock again.
unexport PYTHONDONTWRITEBYTECODE
# Test processes at once, and more arguments for pytest: make test PYTEST="-k produce"
JOBS ?= 2
PYTEST ?=
FAST := $(wildcard tests/unit tests/sim tests/wire)
# All other directories of tests, so that a new one is never forgotten.
# What other projects wrote, which takes long to build.
ECOSYSTEM := tests/ecosystem
BROKERS := $(filter-out $(FAST) $(ECOSYSTEM) tests/cluster tests/spark tests/sql tests/__pycache__,$(patsubst %/,%,$(wildcard tests/*/)))
PYTEST_RUN := $(BIN)/python -m pytest -q $(PYTEST)
# Tests with brokers wait more than they compute: for sessions that end, elections, clients that try again.
WAITING_JOBS := $(shell echo $$((2 * $(JOBS))))
# One process for the tests with the SQL server, one for those with the shared Spark, and the others' one.
STREAMS_JOBS := $(shell echo $$(($(JOBS) + 1)))
# One more for tests that compute than there are cores, and those that wait beside them (tests/scheduling.py).
ALL_JOBS := $(shell echo $$((3 * $(JOBS))))
# Tests that share something that takes long to start are a group, which one process runs: see tests/conftest.py.
GROUPED := --dist loadgroup --no-loadscope-reorder
# What fails beside others that take the cores is run once more, alone: a fault fails again and ends the run,
# and what does not is named in the output of the first. Where PYTEST chooses no test of a part, that is no fault.
AGAIN = { code=$$?; [ "$${code}$(and $(PYTEST),chosen)" != 5chosen ] || exit 0; [ $$code -eq 1 ] || exit $$code; echo "== FAILED ABOVE, once more, one at a time:"; \
	$(BIN)/python -m pytest -q -n 1 $(GROUPED) --last-failed --last-failed-no-failures none $(1); }
# The end of each part: how long it took.
TOOK = echo "== $@ took $$((SECONDS / 60)) min $$((SECONDS % 60)) s"
BEGUN := $(shell date +%s)
# What pip says while it downloads, builds and installs: a line for each large package.
PIP_PROGRESS := -e 's,^ *(Downloading|Using cached) ([^ ]*/)?([^ ]+) (\([0-9.]+ MB\)).*,   \1 \3 \4,p' \
	-e 's,^ *Building wheel for ([^ ]+).*started$$,   Building \1,p' -e 's,^Installing collected packages:.*,   Installing all of them,p'

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
	@echo "== setup: about 1.7 GB, of which Spark is the largest part; these are the packages of more than 1 MB:"
	@PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
		$(BIN)/python -m pip install --progress-bar off -c constraints.txt -e '.[dev]' | sed -unE $(PIP_PROGRESS); \
	echo "== setup took $$((SECONDS / 60)) min $$((SECONDS % 60)) s: $$(du -sh $(VENV) | cut -f1) in $(VENV)"
	@touch $@

run: setup ## Stream real flights through the platform and Spark (DATA=data PORT=9092 CONSOLE_PORT=8080 RUN_SECONDS=90)
	@RUN_SECONDS="$(RUN_SECONDS)" exec $(BIN)/penstock demo --data "$(DATA)" --port "$(PORT)" $(if $(CONSOLE_PORT),--console-port "$(CONSOLE_PORT)")

test: setup checks test-fast test-running ## Everything: style, types, layers, all tests but test-ecosystem
	@s=$$(($$(date +%s) - $(BEGUN))); echo "== all green after $$((s / 60)) min $$((s % 60)) s"

# Side by side, as each of them uses one core; and what the tests need.
checks: setup
	@$(MAKE) --no-print-directory -j $(JOBS) $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) \
		types spark-classes collect lint layers browser postgresql mariadb messaging
	@$(TOOK)

lint: setup ## ruff: rules and format; unused code; the links and code blocks of all pages, and the page of promises
	@echo "== ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "== vulture: code that nothing uses"
	@found=$$($(BIN)/vulture) || [ $$? -eq 3 ]; ! grep '^src/' <<< "$$found"
	@echo "== links and code blocks of README and docs, the page of promises"
	@$(BIN)/python -m pytest -q -p no:cacheprovider -k "link or block or promise" tests/unit/test_docs.py tests/unit/test_promises.py

types: setup ## mypy --strict on src/
	@echo "== mypy --strict src"
	@$(BIN)/mypy --strict src

layers: setup ## The layers of the design, as a contract
	@echo "== import-linter"
	@$(BIN)/lint-imports

# Each process of pytest would compile all of them for itself.
collect: setup ## Import all tests
	@echo "== all tests can be imported"
	@$(BIN)/python -m pytest -q -q --collect-only tests >/dev/null || $(BIN)/python -m pytest -q -q --collect-only tests | tail -60

test-fast: setup ## The tests that start no broker process
	@echo "== tests: $(FAST)"
	@$(PYTEST_RUN) -n $(JOBS) --dist worksteal $(FAST) || $(call AGAIN,$(FAST)); $(TOOK)

test-running: setup browser postgresql mariadb messaging spark-classes ## test-servers and test-streams at once: those with Spark compute while the others wait
	@echo "== tests: $(BROKERS) tests/cluster tests/spark tests/sql"
	@$(PYTEST_RUN) -n $(ALL_JOBS) $(GROUPED) tests/sql tests/spark tests/cluster $(BROKERS) || \
		$(call AGAIN,tests/sql tests/spark tests/cluster $(BROKERS)); $(TOOK)

test-servers: setup browser postgresql mariadb messaging ## test-brokers and test-cluster at once, so that no core waits for the last of either
	@echo "== tests: $(BROKERS) tests/cluster"
	@$(PYTEST_RUN) -n $(WAITING_JOBS) $(GROUPED) $(BROKERS) tests/cluster || $(call AGAIN,$(BROKERS) tests/cluster); $(TOOK)

test-streams: setup spark-classes ## test-spark and test-sql at once
	@echo "== tests: tests/spark tests/sql"
	@$(PYTEST_RUN) -n $(STREAMS_JOBS) $(GROUPED) tests/spark tests/sql || $(call AGAIN,tests/spark tests/sql); $(TOOK)

# For tests/browser, which are skipped by name without one.
browser:
	@for b in chromium chromium-browser google-chrome; do command -v $$b >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ]; then as_root=""; elif sudo -n true 2>/dev/null; then as_root="sudo -n"; else as_root=no; fi; \
	command -v apt-get >/dev/null && [ "$$as_root" != no ] || { echo "== no chromium here: tests/browser are skipped"; exit 0; }; \
	echo "== installing chromium for tests/browser"; \
	{ timeout 300 $$as_root apt-get update -qq && timeout 900 $$as_root apt-get install -y -qq --no-install-recommends chromium; } \
		>/dev/null 2>&1 || echo "== chromium could not be installed: tests/browser are skipped"

# For tests/connect/postgres, which are skipped by name without it. Debian's package starts no server of its own.
postgresql: browser  # one after the other: apt has one lock
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && exit 0; \
	if [ "$$(id -u)" = 0 ]; then as_root=""; elif sudo -n true 2>/dev/null; then as_root="sudo -n"; else as_root=no; fi; \
	command -v apt-get >/dev/null && [ "$$as_root" != no ] || { echo "== no PostgreSQL here: tests/connect/postgres are skipped"; exit 0; }; \
	echo "== installing PostgreSQL for tests/connect/postgres"; \
	install() { timeout 900 $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$$1"; }; \
	{ timeout 300 $$as_root apt-get update -qq && install postgresql-common && \
		$$as_root sed -i 's/^#*create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf && \
		install postgresql; } >/dev/null 2>&1 || echo "== PostgreSQL could not be installed: tests/connect/postgres are skipped"

# For the tests of tests/connect/sql and tests/connect/mysql with MariaDB, which are skipped by name without it. They start a server of their own.
mariadb: postgresql  # one after the other: apt has one lock
	@PATH="$$PATH:/usr/sbin" command -v mariadbd >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ]; then as_root=""; elif sudo -n true 2>/dev/null; then as_root="sudo -n"; else as_root=no; fi; \
	command -v apt-get >/dev/null && [ "$$as_root" != no ] || { echo "== no MariaDB here: its tests are skipped"; exit 0; }; \
	echo "== installing MariaDB for tests/connect"; \
	{ timeout 300 $$as_root apt-get update -qq && timeout 900 $$as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends mariadb-server; } >/dev/null 2>&1 \
		|| echo "== MariaDB could not be installed: its tests are skipped"

# For tests/connect/messaging, which are skipped by name without them. They start servers of their own.
messaging: mariadb  # one after the other: apt has one lock
	@PATH="$$PATH:/usr/sbin"; missing=""; for p in mosquitto redis-server rabbitmq-server; do \
		command -v $$p >/dev/null || missing="$$missing $$p"; done; [ -n "$$missing" ] || exit 0; \
	if [ "$$(id -u)" = 0 ]; then as_root=""; elif sudo -n true 2>/dev/null; then as_root="sudo -n"; else as_root=no; fi; \
	command -v apt-get >/dev/null && [ "$$as_root" != no ] || { echo "== not here:$$missing: their tests are skipped"; exit 0; }; \
	echo "== installing for tests/connect/messaging:$$missing"; \
	{ timeout 300 $$as_root apt-get update -qq && timeout 900 $$as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
		apt-get install -y -qq --no-install-recommends $$missing; } >/dev/null 2>&1 \
		|| echo "== could not be installed:$$missing: their tests are skipped"

test-brokers: setup browser postgresql mariadb messaging ## The tests with real brokers, real clients, the registry and Kafka's own tools
	@echo "== tests: $(BROKERS)"
	@$(PYTEST_RUN) -n $(WAITING_JOBS) $(GROUPED) $(BROKERS) || $(call AGAIN,$(BROKERS)); $(TOOK)

test-cluster: setup ## The tests with several brokers, ZooKeeper, and faults
	@echo "== tests: tests/cluster"
	@$(PYTEST_RUN) -n $(WAITING_JOBS) $(GROUPED) tests/cluster || $(call AGAIN,tests/cluster); $(TOOK)

# So that each of the many Sparks that tests start does so in half the time.
spark-classes: setup
	@$(BIN)/python -m tests.spark.class_archive

test-spark: setup spark-classes ## The tests with Spark: source and sink, streams, pipelines
	@echo "== tests: tests/spark"
	@$(PYTEST_RUN) -n $(JOBS) $(GROUPED) tests/spark || $(call AGAIN,tests/spark); $(TOOK)

test-sql: setup spark-classes ## The tests of continuous SQL
	@echo "== tests: tests/sql"
	@$(PYTEST_RUN) -n $(JOBS) $(GROUPED) tests/sql || $(call AGAIN,tests/sql); $(TOOK)

test-ecosystem: setup ## The tests with clients in Go and C, where their toolchains are installed
	@echo "== tests: $(ECOSYSTEM)"
	@$(PYTEST_RUN) -n $(JOBS) $(GROUPED) $(ECOSYSTEM) || $(call AGAIN,$(ECOSYSTEM)); $(TOOK)

test-long: setup spark-classes ## What chance decides, many more times than `make test` does; second proofs of promises
	@echo "== tests with more repetitions, and those that only run here"
	@PENSTOCK_TEST_LONG=1 $(PYTEST_RUN) -n $(JOBS) $(GROUPED) --timeout 3600 -m "repeated or long" tests; $(TOOK)

docs: setup ## The documentation site, in build/site; a broken link is an error
	@PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
		$(BIN)/python -m pip install -q -c constraints.txt -e '.[docs]'
	@echo "== mkdocs"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/site
	@echo "open build/site/index.html, or serve it: $(BIN)/mkdocs serve"

dist: setup ## Wheel and source archive in dist/, and the wheel tried in an empty environment
	@rm -rf dist
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -q -c constraints.txt build
	@PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(BIN)/python -m build --quiet --outdir dist
	@ls -lh dist
	@$(BIN)/python -m tests.tools.try_wheel dist/*.whl

bench: setup ## Measure against limits of the same run; ARGS="--quick" for a short one
	@$(BIN)/python -m bench $(ARGS)

fuzz: setup ## More generated hostile input than `make test` has time for
	@PENSTOCK_FUZZ_EXAMPLES=$${PENSTOCK_FUZZ_EXAMPLES:-20000} $(BIN)/python -m pytest -q -n $(JOBS) --timeout 900 -m fuzz tests

chaos: setup ## Faults at random in a cluster under load, longer than in `make test` (CHAOS_SECONDS=120 SEED=17, or CHAOS_MINUTES=60)
	@$(BIN)/python -m tests.cluster.chaos --seconds $(or $(CHAOS_SECONDS),120) $(if $(SEED),--seed $(SEED)) \
		$(if $(CHAOS_MINUTES),--minutes $(CHAOS_MINUTES))

clean: ## Remove what was built and cached, but not data/
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
