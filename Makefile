# The verbs of this project. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
NATIVE := $(wildcard native/src/*.rs) native/Cargo.toml native/Cargo.lock
ARGS ?=

export CARGO_TARGET_DIR := $(CURDIR)/target
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python

.PHONY: help setup tools run test lint format bench soak clean

help: ## list the verbs
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

tools:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is missing: install it from https://python.org or your system's packages (Debian: apt-get install python3 python3-venv)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is $$($(PYTHON) -V 2>&1): Laurels needs Python 3.11 or newer (say which with make PYTHON=python3.12 ...)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "Python's venv module is missing: install it (Debian: apt-get install python3-venv)"; exit 1; }
	@command -v cargo >/dev/null || { echo "Rust is missing: install it from https://rustup.rs (version 1.88 or newer)"; exit 1; }
	@command -v cc >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null || { echo "A C compiler is missing: install one (Debian: apt-get install gcc libc6-dev; macOS: xcode-select --install)"; exit 1; }

setup: $(READY) ## set up everything in .venv: dependencies, the native kernel, the package

$(READY): pyproject.toml $(NATIVE) | tools
	@test -x $(BIN)/python || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing dependencies"; $(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev
	@echo "building the native kernel (about a minute the first time)"
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --quiet --release --extras all
	@touch $(READY)

run: setup ## run the main job: a score file in, exact leaderboards out
	@$(BIN)/laurels demo $(ARGS)

test: setup ## run all tests
	cargo test --quiet --release --locked --manifest-path native/Cargo.toml
	$(BIN)/pytest $(ARGS)

lint: setup ## check style, types, import rules and the native code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	cargo fmt --manifest-path native/Cargo.toml --check
	cargo clippy --quiet --locked --manifest-path native/Cargo.toml --all-targets -- -D warnings

format: setup ## put everything into shape
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .
	cargo fmt --manifest-path native/Cargo.toml

bench: setup ## run every benchmark; each prints JSON on its last line
	@set -e; for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python $$file $(ARGS); done

soak: setup ## the long campaigns: 10 million random steps of the rank index, many kill -9 during ingest
	cargo test --release --locked --manifest-path native/Cargo.toml -- --ignored
	$(BIN)/pytest -m campaign tests/faults $(ARGS)

clean: ## remove what was built
	rm -rf $(VENV) target build dist src/laurels/_native.*.so
