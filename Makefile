# Every target does its own set-up in .venv. Another interpreter: make test PYTHON=python3.12
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help setup demo test slow lint types check format bench bench-elliptic1d bench-judgement bench-means bench-accuracy bench-auto bench-budget browser coverage clean

help:  ## this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: $(READY)  ## install pdno and its tools into .venv, with the versions of constraints.txt

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "pdno needs Python 3.11 or later: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(READY)  ## the main job end to end on a small noisy problem
	$(BIN)/pdno demo

test: $(READY)  ## all tests but the slow ones, in under five minutes on two cores
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto -m "not slow"

slow: $(READY)  ## the tests that take minutes
	OMP_NUM_THREADS=1 $(BIN)/pytest -m slow

lint: $(READY)  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## static types
	$(BIN)/mypy

check: lint types test  ## everything that the continuous integration runs

format: $(READY)  ## put the style right where that can be done
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## measure solvers, generator and networks into results/, and put the numbers into docs/
	$(BIN)/python -m benchmarks.problem
	$(BIN)/python -m benchmarks.network
	$(BIN)/python -m benchmarks.tables

bench-accuracy: $(READY)  ## train models for the paper's problems and judge them, two hours: into results/ and docs/
	$(BIN)/python -m benchmarks.accuracy
	$(BIN)/python -m benchmarks.tables

bench-auto: $(READY)  ## the default against its rivals, an hour; DATA=FOLDER adds published sets, BUDGET=SECONDS ONLY='NAME …' OUT=FILE: into results/ and docs/
	$(BIN)/python -m benchmarks.auto $(if $(DATA),--data $(DATA)) $(if $(BUDGET),--budget $(BUDGET)) $(if $(ONLY),--only $(ONLY)) $(if $(OUT),--out $(OUT))
	$(BIN)/python -m benchmarks.tables

bench-budget: $(READY)  ## whether the default keeps its budget, a quarter of an hour: into results/ and docs/
	$(BIN)/python -m benchmarks.budget
	$(BIN)/python -m benchmarks.tables

bench-means: $(READY)  ## fit mean operators to the paper's problems, five minutes: into results/ and docs/
	$(BIN)/python -m benchmarks.means
	$(BIN)/python -m benchmarks.tables

bench-judgement: $(READY)  ## memory, false alarms and missed flaws of the judgement, twenty minutes: into results/ and docs/
	$(BIN)/python -m benchmarks.judgement
	$(BIN)/python -m benchmarks.tables

bench-elliptic1d: $(READY)  ## train Test 1 of the paper and judge it, an hour: into results/ and docs/
	$(BIN)/python -m benchmarks.elliptic1d
	$(BIN)/python -m benchmarks.tables

browser: $(READY)  ## the report in headless Chromium, which must be installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[browser]'
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/whole/test_browser.py

coverage: $(READY)  ## which lines the tests run
	OMP_NUM_THREADS=1 $(BIN)/coverage run -m pytest -m "not slow" && $(BIN)/coverage report --show-missing

clean:  ## remove what the other targets made
	rm -rf .venv demo build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
