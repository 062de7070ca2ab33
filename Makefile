# Every target does its own set-up in .venv. Another interpreter: make test PYTHON=python3.12
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help setup demo test slow lint types check format bench bench-smoke bench-list bench-cpu bench-elliptic1d bench-calibration bench-means bench-accuracy bench-auto bench-budget bench-few bench-runs bench-suggest bench-laws bench-laws-2d bench-darcy-noise bench-physics bench-purenoise bench-mixture bench-steps bench-functional bench-cascade bench-meshes bench-triangulations bench-drawing statistics mutants browser coverage clean

help:  ## list all targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: $(READY)  ## install pdno and its development tools into .venv, with the versions of constraints.txt

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "pdno needs Python 3.11 or later: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(READY)  ## run the complete workflow on a small noisy problem, in two or three minutes
	$(BIN)/pdno demo

test: $(READY)  ## run all tests except the slow ones, in under five minutes on two cores
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal -m "not slow"

slow: $(READY)  ## run the tests that take minutes
	OMP_NUM_THREADS=1 $(BIN)/pytest -m slow

lint: $(READY)  ## check the style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## check static types
	$(BIN)/mypy

check: lint types test  ## run everything that continuous integration runs

format: $(READY)  ## format the code and fix style errors that ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## measure solvers, data generation and networks; update results/ and docs/
	$(BIN)/python -m benchmarks.problem
	$(BIN)/python -m benchmarks.network
	$(BIN)/python -m benchmarks.tables

bench-smoke: $(READY)  ## run all of the paper's experiments and figures in miniature, within minutes
	rm -rf bench/smoke
	OMP_NUM_THREADS=1 $(BIN)/pdno bench --scale smoke
	OMP_NUM_THREADS=1 $(BIN)/pdno bench --figures --scale smoke

bench/cpu:
	mkdir -p bench/cpu
	cp -R results/bench bench/cpu/results
	mv bench/cpu/results/figures bench/cpu/figures

bench-list: $(READY) bench/cpu  ## list the paper's experiments and figures, with the results in results/bench
	$(BIN)/pdno bench --list

bench-cpu: $(READY) bench/cpu  ## run those of the paper's experiments that have no results, days in all; PARTS='NAME …'; update results/ and docs/
	$(BIN)/pdno bench $(PARTS) --scale cpu
	$(BIN)/pdno bench --figures --scale cpu
	mkdir -p results/bench/figures
	cp bench/cpu/results/*.json results/bench/
	cp bench/cpu/figures/* results/bench/figures/
	$(BIN)/python -m benchmarks.tables

bench-accuracy: $(READY)  ## train and evaluate models of the paper's problems, two hours; update results/ and docs/
	$(BIN)/python -m benchmarks.accuracy
	$(BIN)/python -m benchmarks.tables

bench-auto: $(READY)  ## compare the default with baselines, an hour; DATA=FOLDER adds published data sets, BUDGET=SECONDS, ONLY='NAME …' and OUT=FILE are options
	$(BIN)/python -m benchmarks.auto $(if $(DATA),--data $(DATA)) $(if $(BUDGET),--budget $(BUDGET)) $(if $(ONLY),--only $(ONLY)) $(if $(OUT),--out $(OUT))
	$(BIN)/python -m benchmarks.tables

bench-laws: $(READY)  ## 17 distributions with a known truth, an hour; BUDGET=SECONDS, ONLY='NAME …', METHODS='NAME …', AGAIN=1
	$(BIN)/python -m benchmarks.laws $(if $(BUDGET),--budget $(BUDGET)) $(if $(ONLY),--only $(ONLY)) $(if $(METHODS),--methods $(METHODS)) $(if $(AGAIN),--again)
	$(BIN)/python -m benchmarks.tables

bench-laws-2d: $(READY)  ## six distributions with a known truth on 32 × 32 points, an hour; BUDGET, ONLY, METHODS and AGAIN as above
	$(BIN)/python -m benchmarks.laws --grid 32x32 $(if $(BUDGET),--budget $(BUDGET)) $(if $(ONLY),--only $(ONLY)) $(if $(METHODS),--methods $(METHODS)) $(if $(AGAIN),--again)
	$(BIN)/python -m benchmarks.tables

bench-few: $(READY)  ## small data sets, the default and textbook methods, half an hour; BUDGET=SECONDS, ONLY='NAME …', METHODS='NAME …', OUT=FILE
	$(BIN)/python -m benchmarks.few $(if $(BUDGET),--budget $(BUDGET)) $(if $(ONLY),--only $(ONLY)) $(if $(METHODS),--methods $(METHODS)) $(if $(OUT),--out $(OUT))
	$(BIN)/python -m benchmarks.tables

bench-runs: $(READY)  ## few runs of simulations with a few parameters, the default and textbook emulators, an hour; ONLY='NAME …', RUNS='20 40', SEEDS=3, METHODS='NAME …', AGAIN=1
	$(BIN)/python -m benchmarks.runs $(if $(ONLY),--only $(ONLY)) $(if $(RUNS),--runs $(RUNS)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(METHODS),--methods $(METHODS)) $(if $(AGAIN),--again)
	$(BIN)/python -m benchmarks.tables

bench-suggest: $(READY)  ## suggested and random runs of the same simulations, a quarter of an hour; ONLY='NAME …', SEEDS=2, AGAIN=1
	$(BIN)/python -m benchmarks.suggest $(if $(ONLY),--only $(ONLY)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(AGAIN),--again)
	$(BIN)/python -m benchmarks.tables

bench-mixture: $(READY)  ## sample mixtures with the exact score in 128² nodes, ten minutes; update results/ and docs/
	$(BIN)/python -m benchmarks.mixture
	$(BIN)/python -m benchmarks.tables

bench-steps: $(READY)  ## compare 10 with 100 sampling steps of diffusions, a quarter of an hour; BUDGET=SECONDS, ONLY='NAME …', AGAIN=1
	$(BIN)/python -m benchmarks.steps $(if $(BUDGET),--budget $(BUDGET)) $(if $(ONLY),--only $(ONLY)) $(if $(AGAIN),--again)
	$(BIN)/python -m benchmarks.tables

bench-functional: $(READY)  ## diffusion in function space: train on one grid, draw on finer ones, a quarter of an hour; ONLY='line plane', METHODS='NAME …', AGAIN=1
	$(BIN)/python -m benchmarks.functional $(if $(ONLY),--only $(ONLY)) $(if $(METHODS),--methods $(METHODS)) $(if $(AGAIN),--again)
	$(BIN)/python -m benchmarks.tables

bench-cascade: $(READY)  ## Darcy flow from 16² to 64² and from 64² to 256² points by a cascade of two models, ten minutes; ONLY='64 256', AGAIN=1
	$(BIN)/python -m benchmarks.cascade $(if $(ONLY),--only $(ONLY)) $(if $(AGAIN),--again)
	$(BIN)/python -m benchmarks.tables

bench-meshes: $(READY)  ## train on one grid, predict on others, a quarter of an hour; ONLY='NAME …'
	$(BIN)/python -m benchmarks.meshes $(if $(ONLY),--only $(ONLY))
	$(BIN)/python -m benchmarks.tables

bench-triangulations: $(READY)  ## fields on the nodes of triangulations beside principal components with Gaussian processes, eight minutes; ONLY='NAME …', AGAIN=1
	$(BIN)/python -m benchmarks.triangulations $(if $(ONLY),--only $(ONLY)) $(if $(AGAIN),--again)
	$(BIN)/python -m benchmarks.tables

bench-drawing: $(READY)  ## time and memory of 10,000 members of a field of 128² nodes, ten minutes; ONLY='LAW …'
	$(BIN)/python -m benchmarks.drawing $(if $(ONLY),--only $(ONLY))
	$(BIN)/python -m benchmarks.tables

bench-darcy-noise: $(READY)  ## noise of Darcy flow, twenty minutes a model; BUDGET=SECONDS, ONLY='CASE …', POINTS='64 128', AGAIN=1
	$(BIN)/python -m benchmarks.darcy_noise $(if $(BUDGET),--budget $(BUDGET)) $(if $(ONLY),--only $(ONLY)) $(if $(POINTS),--points $(POINTS)) $(if $(AGAIN),--again)
	$(BIN)/python -m benchmarks.tables

bench-purenoise: $(READY)  ## pure noise in small data sets, half an hour; BUDGET=SECONDS, ONLY='white correlated', AGAIN=1
	$(BIN)/python -m benchmarks.purenoise $(if $(BUDGET),--budget $(BUDGET)) $(if $(ONLY),--only $(ONLY)) $(if $(AGAIN),--again)
	$(BIN)/python -m benchmarks.tables

bench-physics: $(READY)  ## train networks on data, on the equation and on both, seven minutes; update results/ and docs/
	$(BIN)/python -m benchmarks.physics
	$(BIN)/python -m benchmarks.tables

bench-budget: $(READY)  ## measure the training time of the default relative to its budget, a quarter of an hour; update results/ and docs/
	$(BIN)/python -m benchmarks.budget
	$(BIN)/python -m benchmarks.tables

bench-means: $(READY)  ## fit mean models to the paper's problems, five minutes; update results/ and docs/
	$(BIN)/python -m benchmarks.means
	$(BIN)/python -m benchmarks.tables

bench-calibration: $(READY)  ## measure memory, false-positive rate and power of the evaluation, twenty minutes; update results/ and docs/
	$(BIN)/python -m benchmarks.calibration
	$(BIN)/python -m benchmarks.tables

statistics: $(READY)  ## measure false positives and coverage of verdict, tests and conformal intervals, a quarter of an hour; ONLY='ranks novelty conformal fitted verdicts', AGAIN=1
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.statistics $(if $(ONLY),--only $(ONLY)) $(if $(AGAIN),--again)
	$(BIN)/python -m benchmarks.tables

mutants: $(READY)  ## change the formulas of the evaluation and of the laws one by one, and list the changes that no test notices, hours; ONLY='PATTERN …', such as 'pdno.evaluation.conformal*'
	OMP_NUM_THREADS=1 $(BIN)/mutmut run $(ONLY)
	$(BIN)/mutmut results

bench-elliptic1d: $(READY)  ## train and evaluate Test 1 of the paper, an hour; update results/ and docs/
	$(BIN)/python -m benchmarks.elliptic1d
	$(BIN)/python -m benchmarks.tables

browser: $(READY)  ## test the report in headless Chromium, which must be installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[browser]'
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/whole/test_browser.py

coverage: $(READY)  ## list the lines that no test runs
	OMP_NUM_THREADS=1 $(BIN)/coverage run -m pytest -m "not slow" && $(BIN)/coverage report --show-missing

clean:  ## remove .venv, the demo, build files and caches
	rm -rf .venv demo build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage mutants
