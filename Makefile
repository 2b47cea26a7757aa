# make demo | demo ENGINE=both | demo KAFKA=host:port | up | up SPEED=1day/s | test | test-fast | test-airflow | soak | bench | parity | lint | docs | clean | setup.
# Each sets up in .venv what it needs, once (bootstrap.py): demo and up without Java and without Spark.
.PHONY: demo up test test-fast test-airflow soak bench parity lint docs clean setup
SHELL := /bin/bash
.DEFAULT_GOAL := demo
PYTHON := $(shell for p in python3.13 python3.12 python3.11 python3; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
INSTALL_PYTHON := $(if $(filter Darwin,$(shell uname -s)),brew install python@3.12,sudo apt-get install -y python3 python3-venv)
SETS := $(addprefix .venv/.,base dagster spark dev ready browser)

setup: .venv/.ready
	@.venv/bin/python -m demo.inbox inbox
	@echo "ready: try .venv/bin/floodmark --help, or make demo"

$(SETS): requirements.lock pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "floodmark needs Python 3.11 or newer with venv, and found none: run '$(INSTALL_PYTHON)'."; exit 1; }
	@$(PYTHON) bootstrap.py $(@:.venv/.%=%)

# whatever the shell says about compiled code: without it each of the demo's processes would compile all that it imports
demo: $(if $(filter both,$(ENGINE)),.venv/.spark,.venv/.base)
	@$(if $(KAFKA),.venv/bin/python -c "import confluent_kafka" 2>/dev/null || .venv/bin/python -m pip install -q -c requirements.lock confluent-kafka)
	env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -m demo $(if $(filter both,$(ENGINE)),--with-spark) $(if $(KAFKA),--kafka $(KAFKA))

# make up SPEED=1day/s: the year's files arrive while it runs, as fast as that; without SPEED all of them are there
up: .venv/.dagster
	@mkdir -p inbox/flights inbox/weather
	@$(if $(SPEED),.venv/bin/python -m demo.feed inbox "$(SPEED)" & trap "kill $$! 2>/dev/null" EXIT;,.venv/bin/python -m demo.inbox inbox &&) \
	env -u PYTHONDONTWRITEBYTECODE .venv/bin/floodmark up

test: .venv/.browser
	@.venv/bin/python -m floodmark.engines.spark.setup.jars --buckets
	@.venv/bin/python tests/support/kafka_broker.py
	@.venv/bin/python tests/support/search_server.py
	@.venv/bin/python tests/support/yarn_cluster.py
	.venv/bin/python tests/run.py

test-fast: .venv/.dev
	.venv/bin/python tests/run.py --fast

# floodmark-airflow in an environment of its own, with a real Airflow on the loopback
test-airflow: floodmark-airflow/.venv/.ready
	cd floodmark-airflow && .venv/bin/python -m pytest -q

floodmark-airflow/.venv/.ready: .venv/.base floodmark-airflow/requirements.lock floodmark-airflow/pyproject.toml
	@$(PYTHON) bootstrap.py airflow

# make soak PART=3/40 runs one of forty parts; SEED=text, new each time where none is given, draws the schedules; MINUTES=10 cuts it after ten
soak: .venv/.ready
	@.venv/bin/python -m floodmark.engines.spark.setup.jars --buckets
	@.venv/bin/python tests/support/kafka_broker.py
	@.venv/bin/python tests/support/search_server.py
	@.venv/bin/python tests/support/yarn_cluster.py
	FLOODMARK_SEEDS=$(or $(SEED),$(shell date +%s)) .venv/bin/python tests/run.py --soak $(or $(PART),1/1) $(if $(MINUTES),--minutes $(MINUTES))

bench: .venv/.ready
	@[ -f bench/all.py ] || { echo "bench/all.py is missing: there is no benchmark in this clone yet."; exit 1; }
	.venv/bin/python bench/contenders.py --install
	.venv/bin/python bench/all.py

# what Sail answers as Spark does: asks both some 100,000 expressions, and writes the package's table and docs/parity.md anew
parity: .venv/.ready
	@.venv/bin/python -m floodmark.engines.spark.setup.jars
	PYTHONPATH=tests/support .venv/bin/python -m parity build/parity
	.venv/bin/python tests/docs/parity_page.py > docs/parity.md

lint: .venv/.dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy src $(wildcard bootstrap.py demo operators assets resources definitions)
	PYTHONPATH=. .venv/bin/lint-imports

# the pages as a site in build/site, with a reference from docstrings; without a network
docs: .venv/.dev
	.venv/bin/python tests/links.py
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict --quiet
	@echo "the site: build/site/index.html; with search: .venv/bin/python -m http.server --directory build/site --bind 127.0.0.1"

clean:
	rm -rf .venv floodmark-airflow/.venv lake inbox build dist src/*.egg-info spark-warehouse .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
