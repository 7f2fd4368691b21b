# `make help` lists the targets. They set up what they need by themselves and start nothing that they do not stop.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup check test soak demo bench serve docs lock clean

PY := .venv/bin/python
SETUP := bash tests/realparts/setup.sh

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile

setup:  ## everything the other targets need: .venv, and as root the Debian packages
	@$(SETUP) tests

check:  ## format, lint, types, import layers, unit tests (a minute; needs only Python)
	@$(SETUP) python
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'
	$(PY) -m pytest -q tests/unit tests/shape

test:  ## all tests, on a real Docker engine, Prometheus and Alertmanager, and a GPU driver without a GPU (PYTEST="-k restart" adds arguments)
	@$(SETUP) tests
	@PYTHONPATH=tests $(PY) -m realparts.alertmanager
	REMEDIATOR_REQUIRE=docker,alertmanager,nvml,system $(PY) -m pytest -q -n 4 --dist loadfile --no-loadscope-reorder $(PYTEST)

soak:  ## what takes hours to believe: 200 kills, an hour of load, whole storms, long stories and fuzzing (SOAK="--only kills" adds arguments)
	@$(SETUP) tests
	@PYTHONPATH=tests $(PY) -m soak $(SOAK)

demo:  ## a real leak, a real alert, a real restart, in two minutes (KEEP=1 leaves it running)
	@$(SETUP) parts
	@$(PY) deploy/demo/demo.py $(if $(KEEP),--keep)

bench:  ## the figures of bench/RESULTS.md, measured here (BENCH="--quick --only matching" adds arguments)
	@$(SETUP) parts
	@$(PY) -m bench $(BENCH)

serve:  ## the engine, with CONFIG=remediator.toml, else with a configuration for trying it out
	@$(SETUP) python
	@$(PY) -m remediator serve --config "$(or $(CONFIG),$(firstword $(wildcard remediator.toml) deploy/dev/remediator.toml))"

docs:  ## write docs/reference/ anew from the code
	@$(SETUP) python
	$(PY) -m remediator.cli.reference docs/reference

lock:  ## write constraints.txt anew: the newest versions that fit pyproject.toml
	@$(SETUP) lock

clean:  ## remove what the targets made in this folder
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
