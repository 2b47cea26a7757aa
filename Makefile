# make demo | up | test | test-fast | soak | bench | parity | lint | docs | clean | setup.  All but clean set the clone up first, once, in .venv.
.PHONY: demo up test test-fast soak bench parity lint docs clean setup
SHELL := /bin/bash
.DEFAULT_GOAL := demo
PYTHON := $(shell for p in python3.13 python3.12 python3.11 python3; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
JAVA := $(shell for j in "$$JAVA_HOME/bin/java" java /usr/lib/jvm/*/bin/java /opt/homebrew/opt/openjdk*/bin/java \
	/usr/local/opt/openjdk*/bin/java; do \
	v=$$("$$j" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p'); [ "$${v:-0}" -ge 17 ] && { echo "$$j"; break; }; done)
INSTALL := $(if $(filter Darwin,$(shell uname -s)),brew install,sudo apt-get install -y)
INSTALL_JAVA := $(INSTALL) $(if $(filter Darwin,$(shell uname -s)),openjdk@17,openjdk-17-jre-headless)
INSTALL_PYTHON := $(INSTALL) $(if $(filter Darwin,$(shell uname -s)),python@3.12,python3 python3-venv)

setup: .venv/.ready
	@.venv/bin/python -m demo.inbox inbox
	@echo "ready: try .venv/bin/floodmark --help, or make demo"

.venv/.ready: requirements.lock pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "floodmark needs Python 3.11 or newer with venv, and found none: run '$(INSTALL_PYTHON)'."; exit 1; }
	@[ -n "$(JAVA)" ] || { echo "floodmark needs Java 17 or newer, and found none: run '$(INSTALL_JAVA)'."; exit 1; }
	@echo "setting up .venv with $$($(PYTHON) --version), once, in a few minutes, most of them downloads:"
	@echo "  1. packages: 1 GB to fetch, 450 MB of them Spark; 2. Delta's jars for Spark: 20 MB; nothing outside .venv and ~/.cache/floodmark"
	@[ -x .venv/bin/python ] || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --disable-pip-version-check --progress-bar on --no-deps -r requirements.lock
	.venv/bin/python -m pip install --disable-pip-version-check --quiet --no-deps -e .
	@.venv/bin/python -m floodmark.engines.spark.setup.jars
	@touch $@

.venv/.browser: .venv/.ready
	@command -v chromium chromium-browser google-chrome >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing Chromium for the browser tests"; \
			apt-get update -qq >/dev/null && apt-get install -qq -y --no-install-recommends chromium >/dev/null; \
		else echo "no Chromium, so the browser tests will fail: $(INSTALL) chromium"; fi; }
	@touch $@

demo: .venv/.ready
	.venv/bin/python -m demo

up: .venv/.ready
	.venv/bin/python -m demo.inbox inbox
	.venv/bin/floodmark up

test: .venv/.ready .venv/.browser
	@.venv/bin/python -m floodmark.engines.spark.setup.jars
	.venv/bin/python tests/run.py

test-fast: .venv/.ready
	.venv/bin/python tests/run.py --fast

# make soak PART=3/40 runs one of forty parts; SEED=text, new each time where none is given, draws the schedules; MINUTES=10 cuts it after ten
soak: .venv/.ready
	@.venv/bin/python -m floodmark.engines.spark.setup.jars
	FLOODMARK_SEEDS=$(or $(SEED),$(shell date +%s)) .venv/bin/python tests/run.py --soak $(or $(PART),1/1) $(if $(MINUTES),--minutes $(MINUTES))

bench: .venv/.ready
	@[ -f bench/run.py ] || { echo "bench/run.py is missing: there is no benchmark in this clone yet."; exit 1; }
	.venv/bin/python bench/run.py

# what Sail answers as Spark does: asks both some 100,000 expressions, and writes the package's table and docs/parity.md anew
parity: .venv/.ready
	@.venv/bin/python -m floodmark.engines.spark.setup.jars
	PYTHONPATH=tests/support .venv/bin/python -m parity build/parity
	.venv/bin/python tests/docs/parity_page.py > docs/parity.md

lint: .venv/.ready
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy src $(wildcard demo operators assets resources definitions)
	PYTHONPATH=. .venv/bin/lint-imports

docs: .venv/.ready
	.venv/bin/python tests/links.py

clean:
	rm -rf .venv lake inbox build dist src/*.egg-info spark-warehouse .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
