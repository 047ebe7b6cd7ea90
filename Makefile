# Everything runs in .venv; `make demo` on a clean clone needs Python 3.11 or later and a package index, no more.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
# Images for containers often set it: each of some hundred processes of the tests would compile this project anew.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help env demo test prove prove-engines pythons mutants check format readme docs upstream traces clean

PYTHON ?= python3
PYTHONS ?= python3.12 python3.13 python3.14
BIN := .venv/bin
STAMP := .venv/.installed
MODEL ?= meta-llama/Llama-3.1-8B
GPUS ?= 8xH100
# Benchmarks that need no GPU; each writes to benchmarks/results.
BENCHMARKS := real.cpu_activations accuracy real.distributed_cpu real.matrix damage.faults real.captured_scripts \
  told.device_maps real.inference_runs sweeps.check_regressions damage.damaged_checkpoints \
  damage.hostile_inputs damage.ways_out sweeps.document_commands

help:
	@echo 'make demo    plan $(MODEL) on $(GPUS)'
	echo 'make test    the tests of every change, on all cores: no network, minutes'
	echo 'make prove   all tests and the benchmarks that need no GPU: results go to benchmarks/'
	echo 'make prove-engines  install SLURM (Debian, root), Ray and the SDK of Kubeflow if need be, start them, run plans on them, stop them'
	echo 'make mutants plant one fault at a time: which tests notice goes to benchmarks/results/mutants.md'
	echo 'make pythons the project under $(PYTHONS), each in an environment of its own'
	echo 'make check   ruff, mypy, import contracts, declared dependencies'
	echo 'make format  let ruff rewrite what it can'
	echo 'make readme  put the present output into README.md, and publish the JSON schemas'
	echo 'make docs    build the documents as a site: build/site, without network'
	echo 'make upstream  hold the present sources of what is mirrored: planner/upstream/held.csv'
	echo 'make traces  trace again what is shipped traced: planner/trace/shipped, minutes for each model'
	echo 'make clean   remove the environment and all caches of tools'

env: $(STAMP)

# torch is pinned in constraints.txt: that exact version installs without CUDA, a range would fetch gigabytes.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("plan needs Python 3.11 or later, this is %d.%d: make PYTHON=python3.11" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	rm -rf *.egg-info  # of an older layout: it would hide what is installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: $(STAMP)
	@$(BIN)/plan $(MODEL) --gpus $(GPUS)

test: $(STAMP)
	$(BIN)/python -m pytest -n auto

prove: $(STAMP)
	$(BIN)/python -m pytest -n auto -m ''
	for module in $(BENCHMARKS); do $(BIN)/python -m "benchmarks.$$module"; done

# Daemons are started and ended by the tests; where an engine is not installed, its tests are skipped and say what is missing.
prove-engines: $(STAMP)
	if ! command -v sbatch >/dev/null && command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends slurm-wlm munge
	fi
	$(BIN)/python -c "import ray, kubeflow" 2>/dev/null || $(BIN)/pip install -q -c constraints.txt 'ray[default,train]' kubeflow
	$(BIN)/python -m pytest -n0 -m '' -rs tests/engines

# What is unchanged since it was last tried (the fault, its file, its tests) is not tried again.
mutants: $(STAMP)
	$(BIN)/python -m benchmarks.mutants

pythons:
	for python in $(PYTHONS); do tests/packaging/try_python.sh "$$python"; done

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry src planner executor reports tui

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

readme: $(STAMP)
	$(BIN)/python -m tests.support.fact_twins
	$(BIN)/python -m tests.support.refresh_readme

docs: $(STAMP)
	$(BIN)/mkdocs build --strict

# After reading again what moved (the test of planner/upstream names it), and after naming another source.
upstream: $(STAMP)
	$(BIN)/python -m tests.support.upstream.gather

# After any change of what tracing gives, on the pinned versions; MODELS='owner/name ...' for some of them.
# Some models go through kinds of layers in the order of a set of words: that of one seed.
traces: export PYTHONHASHSEED = 0
traces: $(STAMP)
	$(BIN)/python -m tests.support.shipped_traces $(MODELS)
	$(BIN)/python -m tests.support.shipped_traces --facts $(MODELS)
	$(BIN)/python -m tests.support.searched_traces $(MODELS)
	$(BIN)/python -m tests.support.generated_traces $(MODELS)

clean:
	rm -rf .venv .pythons *.egg-info src/*.egg-info build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
