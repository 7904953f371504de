# `make demo` and `make test` install what they need into .venv.
PYTHON ?= python3.11
VENV := .venv
WORKERS ?= 2
BIN := $(VENV)/bin
LAB := $(VENV)/.installed-lab
STAMP := $(VENV)/.installed
PIP := $(BIN)/pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt

unexport PYTHONDONTWRITEBYTECODE  # or every process of the tests would compile torch again

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-pythons lint types bench docs dist format clean

help:  ## list these commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(LAB): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found; choose another Python >= 3.10: make PYTHON=python3 ..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing heldin and its lab into $(VENV) (a few minutes the first time)"
	@$(PIP) -e '.[lab]' 2>$(VENV)/install.log || { cat $(VENV)/install.log; exit 1; }
	@touch $@

$(STAMP): $(LAB)
	@echo "installing what tests and documentation need, with all frameworks (a few more minutes)"
	@$(PIP) -e '.[dev]' 2>$(VENV)/install.log || { cat $(VENV)/install.log; exit 1; }
	@touch $@

demo: $(LAB)  ## compare gradient disparity with cross-validation and no early stopping, on few noisy digits
	@$(BIN)/heldin demo

test: lint types  ## run linters, type checker and all tests that are not slow
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

test-all: lint types  ## the same, with the slow tests
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-pythons:  ## install heldin with each Python from 3.10 to 3.13 that is found, and run a small loop
	@$(PYTHON) tests/install/pythons.py

lint: $(STAMP)  ## run ruff
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP)  ## run mypy
	@$(BIN)/mypy

format: $(STAMP)  ## format the code with ruff
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP)  ## measure time and memory as ratios, into benchmarks/results/
	@$(BIN)/python benchmarks/bench_measure.py
	@$(BIN)/python benchmarks/bench_moments.py
	@$(BIN)/python benchmarks/bench_signals.py
	@$(BIN)/python benchmarks/bench_lab.py
	@$(BIN)/python benchmarks/bench_lora.py
	@$(BIN)/python benchmarks/bench_training_probes.py

docs: $(STAMP)  ## build the documentation, into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "open site/index.html"

dist: $(STAMP)  ## build the archive of the sources and the wheel, into dist/
	@rm -rf dist build
	@$(BIN)/python -m build --quiet && ls dist/*

clean:  ## remove what make installed and built, also .venv; records of runs stay
	rm -rf $(VENV) build dist site src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
