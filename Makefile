# Two commands on a fresh machine: `make demo` and `make test`. Each sets up all that it needs.
# Needs Python 3.11 or later. `make test` also needs Java 17 or later (Spark) and Chromium (the web interface): as root on
# Debian and Ubuntu it installs them, elsewhere it says what to install. `make PYTHON=python3.12 demo` picks a Python.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3

# The demo's environment has no Spark (half a gigabyte); the developer's has everything.
DEMO := .venv
DEV := .venv-dev

# An active environment of the caller's, or a PYTHONPATH, must not leak into ours.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE CONDA_PREFIX

# The collector's tests train on a CPU. torch is in no lock: its builds for a CPU and for each CUDA bear one version and
# different hashes, a lock for all platforms would bring gigabytes of CUDA, and nothing but these tests needs it.
TORCH := 2.13.0

# How many processes run the tests. One more than there are cores, up to four: a process waits for browsers, stores and
# Spark a quarter of its time. Each needs about 3 GB of memory, and a Spark session lives in one of them.
JOBS ?= $(shell awk -v jobs="$$(nproc)" '/^MemTotal/ { room = int($$2 / 3e6); if (jobs++ > 2) jobs = 4; \
	if (jobs > room) jobs = room; if (jobs < 1) jobs = 1; print jobs }' /proc/meminfo 2>/dev/null || echo 2)

# Settings of a command, for example `make demo ARGS=--help` or `make test ARGS='-k kineto'`.
ARGS ?=
# `make lock UPGRADE=1` takes newer versions; without it a lock changes only where pyproject.toml asks.
UPGRADE ?=

.PHONY: help
help: ## list the targets
	@echo "usage: make TARGET"
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## \(.*\)$$/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) \
	    | while IFS='|' read -r name text; do printf '%-12s %s\n' "$$name" "$$text"; done

.PHONY: demo
demo: $(DEMO)/.ready ## land the bundled recordings and show what is in them
	@$(DEMO)/bin/teetotal demo $(ARGS)

.PHONY: test
test: ## lint, type check, check the import contracts, run all tests
	@$(MAKE) --no-print-directory --jobs=2 system-packages $(DEV)/.torch
	@echo "ruff, mypy and import-linter run beside the tests; what they say is printed at the end"
	@$(MAKE) --no-print-directory $(DEV)/.spark-classes.jsa check >$(DEV)/.check.log 2>&1 & linters=$$!; \
	failed=0; $(DEV)/bin/pytest -n $(JOBS) --dist loadgroup $(ARGS) || failed=$$?; \
	wait $$linters || failed=1; cat $(DEV)/.check.log; exit $$failed

.PHONY: soak
soak: system-packages $(DEV)/.torch ## the same tests with every campaign at its large size: hours, for a nightly job
	TEETOTAL_SOAK=1 $(DEV)/bin/pytest -n $(JOBS) --dist loadgroup --timeout 14400 $(ARGS)

.PHONY: check
check: $(DEV)/.torch ## the linters only: ruff, mypy, import-linter
	$(DEV)/bin/ruff check .
	$(DEV)/bin/ruff format --check .
	$(DEV)/bin/mypy
	$(DEV)/bin/lint-imports

.PHONY: bench
bench: $(DEMO)/.ready ## time the pipeline on traces made from a recording
	$(DEMO)/bin/python -m benchmarks $(ARGS)

.PHONY: ui
ui: $(DEMO)/.ready ## the web interface, and the daemon behind it, on this machine (Ctrl-C stops both)
	@$(DEMO)/bin/teetotal ui $(ARGS)

.PHONY: site
site: $(DEV)/.torch ## make a site of docs/ in .site/
	NO_MKDOCS_2_WARNING=1 $(DEV)/bin/mkdocs build --quiet --strict $(ARGS)

.PHONY: wheels
wheels: $(DEV)/.torch ## build the wheels of teetotal and of its collector into dist/
	$(DEV)/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w dist . ./collector

.PHONY: bill
bill: $(DEMO)/.ready $(DEV)/.torch ## write what a user installs, with versions and licences (CycloneDX), into dist/
	@mkdir -p dist
	$(DEV)/bin/cyclonedx-py environment $(DEMO)/bin/python --pyproject pyproject.toml --of JSON -o dist/teetotal.cdx.json

.PHONY: audit
audit: $(DEV)/.torch ## look up known vulnerabilities of what a user installs (needs an advisory source)
	$(DEV)/bin/pip-audit --strict --require-hashes --disable-pip -r requirements/base.lock

.PHONY: snapshots
snapshots: system-packages $(DEV)/.torch ## rewrite the snapshots that tests compare with
	$(DEV)/bin/pytest --snapshot-update $(ARGS)
	@echo
	@echo "Snapshots were rewritten. Read '$(DEV)/bin/python -m pipelines.review', then commit with a line for each:"
	@echo "  Snapshot-Reason: gold.step_overhead: which decision changed it, and why the new value is right"
	@echo "An unexplained snapshot is not merged (CONTRIBUTING.md)."

.PHONY: lock
lock: $(DEMO)/.uv ## resolve requirements/*.lock from pyproject.toml (UPGRADE=1 takes newer versions)
	$(call compile,bootstrap,--group bootstrap)
	$(call compile,base,pyproject.toml --group build)
	$(call compile,server,pyproject.toml --extra postgres --group build -c requirements/base.lock)
	$(call compile,dev,pyproject.toml --extra spark --extra postgres --extra dev --group build --group build-spark \
	    -c requirements/base.lock)
	$(call compile,trainers,--group trainers -c requirements/dev.lock --override requirements/without-torch.txt \
	    --no-emit-package torch)

.PHONY: clean
clean: ## remove the environments, caches and build outputs; data/ stays
	rm -rf $(DEMO) $(DEV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# One lock: names, versions and hashes for every platform; no address, no path.
define compile
	$(DEMO)/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade) $(2) -o requirements/$(1).lock
endef

# ---- environments: a stamp says that one is complete, so a second call starts at once ----

# uv alone, checked against its hash, is what pip installs; uv installs the rest.
$(DEMO)/.uv $(DEV)/.uv: %/.uv: requirements/bootstrap.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "teetotal needs Python 3.11 or later; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)." >&2; \
	    echo "Install one, or name it: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "setting up $* (once, from requirements/*.lock)"
	@$(PYTHON) -m venv --clear $* || { \
	    echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu install the package python3-venv." >&2; exit 1; }
	@$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
	    -r requirements/bootstrap.lock
	@touch $@

$(DEMO)/.ready: requirements/base.lock
$(DEV)/.ready: requirements/dev.lock
$(DEMO)/.ready $(DEV)/.ready: %/.ready: %/.uv pyproject.toml
	@echo "installing $$(grep -c '==' $(filter requirements/%,$^)) packages into $*"
	@$*/bin/uv pip sync --quiet --python $*/bin/python --require-hashes \
	    --build-constraints $(filter requirements/%,$^) $(filter requirements/%,$^)
	@$*/bin/uv pip install --quiet --python $*/bin/python --no-deps --no-build-isolation --offline -e .
	@touch $@

# pip, not uv: where a machine offers only a CPU build, pip takes it. It leaves what the lock brought as it is, and comes
# after it, since a sync of the lock removes torch again.
$(DEV)/.torch: $(DEV)/.ready requirements/trainers.lock
	@echo "installing torch $(TORCH) into $(DEV), for the collector's tests"
	@$(DEV)/bin/python -m pip install --quiet --disable-pip-version-check torch==$(TORCH)
	@$(DEV)/bin/uv pip install --quiet --python $(DEV)/bin/python --no-deps --require-hashes -r requirements/trainers.lock
	@touch $@

# The tests start Spark some thirty times: half of what that takes is loading classes. Tests go on without this file.
$(DEV)/.spark-classes.jsa: $(DEV)/.ready benchmarks/spark_classes.py
	@$(DEV)/bin/python -m benchmarks.spark_classes

# Java for Spark, a browser for the web interface and the report, a font that the pictures ask for by name, the proxy of
# docs/nginx.conf with a certificate, and clocks that jump. RUNLEVEL=1, so that no package starts a service.
.PHONY: system-packages
system-packages:
	@missing=""; advice=""; \
	java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	found="$$("$$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1 || true)"; \
	if [ "$${found:-0}" -lt 17 ]; then \
	    missing="default-jre-headless"; advice="Java 17 or later (found: $${found:-none}; JAVA_HOME may name one)"; \
	fi; \
	if ! { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null; then \
	    missing="$$missing chromium fonts-dejavu-core"; advice="$${advice:+$$advice and }chromium or google-chrome"; \
	fi; \
	if [ ! -x /usr/sbin/nginx ] && ! command -v nginx >/dev/null; then \
	    missing="$$missing nginx"; advice="$${advice:+$$advice and }nginx"; \
	fi; \
	for program in openssl faketime; do \
	    if ! command -v $$program >/dev/null; then \
	        missing="$$missing $$program"; advice="$${advice:+$$advice and }$$program"; \
	    fi; \
	done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing $$missing, which the tests need"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
	        apt-get install -qq -y --no-install-recommends $$missing >/dev/null; \
	else \
	    echo "The tests need $$advice. Install it (on Debian and Ubuntu: apt-get install $$missing), then run again." >&2; \
	    exit 1; \
	fi
