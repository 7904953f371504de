# `make demo` and `make test` set everything up by themselves.
PYTHON ?= python3.11
VENV := .venv
WORKERS ?= 2
BIN := $(VENV)/bin
LAB := $(VENV)/.installed-lab
STAMP := $(VENV)/.installed
PIP := $(BIN)/pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint types bench docs format clean

help:  ## list what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(LAB): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found; name another Python >= 3.10: make PYTHON=python3 ..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing heldin and its lab into $(VENV) (a few minutes the first time)"
	@$(PIP) -e '.[lab]' 2>$(VENV)/install.log || { cat $(VENV)/install.log; exit 1; }
	@touch $@

$(STAMP): $(LAB)
	@echo "installing what tests and documents need, all frameworks among it (a few minutes more)"
	@$(PIP) -e '.[dev]' 2>$(VENV)/install.log || { cat $(VENV)/install.log; exit 1; }
	@touch $@

demo: $(LAB)  ## few, noisy digits: gradient disparity against cross-validation and no stopping
	@$(BIN)/heldin demo

test: lint types  ## linters, types and the whole suite
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

test-all: lint types  ## the same, with the slow suites
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP)
	@$(BIN)/mypy

format: $(STAMP)  ## let ruff lay out the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP)  ## time and memory of a measurement, as ratios, into benchmarks/results/
	@$(BIN)/python benchmarks/bench_measure.py
	@$(BIN)/python benchmarks/bench_moments.py
	@$(BIN)/python benchmarks/bench_signals.py
	@$(BIN)/python benchmarks/bench_lab.py
	@$(BIN)/python benchmarks/bench_lora.py

docs: $(STAMP)  ## the documentation site, into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "open site/index.html"

clean:  ## remove everything that was made, .venv too
	rm -rf $(VENV) build site .mypy_cache .pytest_cache .ruff_cache .hypothesis
