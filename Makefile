# Two commands after `git clone`: `make demo` and `make test`. Both make .venv first: the demo with the package alone, the tests with all they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.base
STAMP := $(VENV)/.installed
# Many tests wait for other processes, so more workers than cores keep the cores busy.
WORKERS ?= 6

.PHONY: demo test test-fast coverage mutants lint types stores soak integrations chaos alerts browser pythons check-fresh bench burst record reference format clean

$(BASE): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Outlast needs Python 3.11 or later: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $(BASE)

$(STAMP): $(BASE)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev --no-binary claude-agent-sdk
	touch $(STAMP)

demo: $(BASE)
	$(BIN)/outlast demo $(DEMO_ARGS)

# The README's picture, docs/demo.svg, and its text: what the demo draws today.
record: $(BASE)
	PATH="$(CURDIR)/$(BIN):$$PATH" outlast demo --record docs/demo.svg

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/prose.py
	$(BIN)/python scripts/reference.py --check

types: $(STAMP)
	$(BIN)/mypy

# The tests are compiled beside the types: in a new clone each of the workers would compile all of them.
test: lint
	$(BIN)/python -m pytest --collect-only -qq > /dev/null 2>&1 & $(MAKE) --no-print-directory types && wait
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)
	$(BIN)/python -m bench.guard

# The inner loop: workflows, effects, values and settings, without servers and other processes.
# These tests compute and hardly wait, and each worker collects them all: more workers than cores cost time.
# About 60 seconds of CPU time. The client, the HTTP API, the web UI and the command line are left out: after a change to
# one of them, run its folder. Each would cost 10 to 20 seconds more.
FAST_WORKERS ?= auto
FAST := $(addprefix tests/,api codec cost each effects engine execution fencing sessions settings spending streams sync testing \
	store/test_conformance.py) \
	$(wildcard tests/store/test_writer*.py) tests/store/test_loop_commits.py
test-fast: $(STAMP)
	$(BIN)/python -m pytest -q -n $(FAST_WORKERS) --dist worksteal $(PYTEST_ARGS) $(FAST) \
	  -k "not postgres and not redis and not process and not death and not kill and not crash and not ledger and not hung and not generated and not plugin"

# Line and branch coverage, and which test executes which line. `make mutants` reads it.
coverage: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --cov --cov-context=test --cov-report=term:skip-covered $(PYTEST_ARGS)

# A sample of small faults in the core, and how many of them the tests notice. Run `make coverage` first.
MUTANTS ?= 300
MUTANT_SEED ?= 1
mutants: $(STAMP)
	$(BIN)/python scripts/mutants.py --count $(MUTANTS) --seed $(MUTANT_SEED)

# The tests on every store that they could be on; `make test` has each on one of them.
stores: $(STAMP)
	OUTLAST_TEST_STORES=all $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

# The adapters under the newest and the previous version of each framework, in environments of their own, and runs that change the version in between.
# ADAPTERS="openai_agents langgraph" chooses; scripts/integrations.py has the table of versions.
integrations: $(STAMP)
	OUTLAST_TEST_STORES=all $(BIN)/python scripts/integrations.py --pytest "-q -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)" $(ADAPTERS)

# The long forms of the tests that kill and of the generated workflows, on the stock loop and on uvloop, and new examples for
# the tests that draw them. A test checks that no long form is left out.
SOAK := $(addprefix tests/,process property fleet each shutdown effects streams store sessions faults spending engine codec \
	execution/test_anyio.py server/test_openapi.py ui/test_time_axis.py)
soak: $(STAMP)
	OUTLAST_TEST_STORES=all OUTLAST_TEST_KILLS=200 OUTLAST_TEST_PROPERTY_CASES=3000 OUTLAST_TEST_ITEMS=1000000 OUTLAST_TEST_MODEL_EXAMPLES=1000 $(BIN)/python -m pytest -n $(WORKERS) --timeout 3600 $(SOAK)

# Each alert rule, firing and not firing, by Prometheus' own promtool on what real workers exported. promtool is taken from
# Debian's package, unpacked and not installed, unless there is one.
PROMTOOL ?= $(or $(shell command -v promtool),$(CURDIR)/.cache/prometheus/usr/bin/promtool)

$(CURDIR)/.cache/prometheus/usr/bin/promtool:
	mkdir -p .cache && cd .cache && apt-get download prometheus && dpkg -x prometheus_*.deb prometheus

alerts: $(STAMP) $(PROMTOOL)
	PROMTOOL=$(PROMTOOL) $(BIN)/python -m pytest -q tests/alerts/rules_evaluated.py

# Journeys through the web UI in a real Chromium: the machine's, or Debian's package, unpacked and not installed. The pictures are in
# .cache/browser; look at them. PICTURES=folder puts them elsewhere. Copy *.webp into docs/images to renew those of the docs.
CHROMIUM ?= $(or $(shell command -v chromium || command -v chromium-browser || command -v google-chrome),$(CURDIR)/.cache/chromium/chromium)
PICTURES ?= $(CURDIR)/.cache/browser

$(CURDIR)/.cache/chromium/chromium:
	scripts/unpack_chromium.sh .cache/chromium

$(VENV)/.browser: $(STAMP)
	$(BIN)/python -m pip install --quiet --group browser
	touch $(VENV)/.browser

browser: $(VENV)/.browser $(CHROMIUM)
	mkdir -p $(PICTURES)
	CHROMIUM=$(CHROMIUM) BROWSER_PICTURES=$(PICTURES) $(BIN)/python -m pytest -q $(PYTEST_ARGS) tests/browser/journeys.py

# Workers killed by a plan on every store, ten minutes in all; reports and logs in chaos-report/. CHAOS_SEED=… repeats the faults.
CHAOS_SECONDS ?= 150
CHAOS_SEED ?=
CHAOS_KILLS ?= 45
CHAOS := $(BIN)/outlast chaos --seconds $(CHAOS_SECONDS) $(if $(CHAOS_SEED),--seed $(CHAOS_SEED))
chaos: $(STAMP)
	rm -rf chaos-report && mkdir chaos-report
	$(CHAOS) --report chaos-report/sqlite --workers 4 --kills-per-minute $(CHAOS_KILLS)
	$(CHAOS) --report chaos-report/postgres --workers 4 --kills-per-minute $(CHAOS_KILLS) --server postgres
	$(CHAOS) --report chaos-report/redis --workers 4 --kills-per-minute $(CHAOS_KILLS) --server redis
	$(CHAOS) --report chaos-report/file --workers 1 --kills-per-minute 12 --store file:$(CURDIR)/chaos-report/file-store

# The tests on every Python from 3.11 on that is installed, each in an environment of its own.
pythons:
	@for version in 3.11 3.12 3.13 3.14; do \
	  for python in $$(ls -d $$HOME/.pyenv/versions/$$version.*/bin/python 2>/dev/null) $$(command -v python$$version); do \
	    if $$python -c 'import sqlite3, ssl' 2>/dev/null; then \
	      echo "== $$version"; \
	      $(MAKE) --no-print-directory VENV=.venv-$$version PYTHON=$$python pytest || exit 1; break; \
	    fi; \
	  done; \
	done

pytest: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

# HEAD in an empty folder, with an empty home: what somebody who clones it sees.
check-fresh:
	folder=$$(mktemp -d) && git clone --quiet . $$folder/outlast && mkdir $$folder/home && cd $$folder/outlast && \
	began=$$(date +%s) && HOME=$$folder/home $(MAKE) $(BASE) && echo "$$(($$(date +%s) - began)) s from the clone until the demo begins" && \
	HOME=$$folder/home $(MAKE) demo && HOME=$$folder/home $(MAKE) test && rm -rf $$folder

bench: $(STAMP)
	$(BIN)/python -m bench.contest --write

# What a gentle start is for, on a virtual clock: docs/burst.md and its plots. A few minutes.
burst: $(STAMP)
	$(BIN)/python -m bench.burst --write docs

# The reference pages, docs/reference-*.md, from the docstrings.
reference: $(STAMP)
	$(BIN)/python scripts/reference.py

# The site, into site/; a link that leads nowhere ends it (with --quiet it would not: what is not logged is not counted). The variable keeps advertisements out of its output.
.PHONY: docs
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .venv-*
