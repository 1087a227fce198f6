# The verbs of this project; `make help` lists them. PYTHON says which interpreter makes .venv, ARGS goes to the verb's program.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
NATIVE := $(wildcard native/src/*.rs native/src/*/*.rs) native/Cargo.toml native/Cargo.lock
RUST_MIN := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' native/Cargo.toml)

# cargo and maturin share one target directory; both build for the interpreter of .venv.
export CARGO_TARGET_DIR := $(CURDIR)/target
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python

# What the Rust tests test is pure Rust: without the Python boundary they need no libpython, and build in seconds.
KERNEL = --locked --no-default-features --manifest-path native/Cargo.toml
CARGO_TEST = cargo test --release $(KERNEL)

.PHONY: help tools setup run test lint format bench soak race clean

help: ## list the verbs
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

tools:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is missing: get it from https://www.python.org/downloads/ or your system's packages (Debian: apt-get install python3 python3-venv)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is $$($(PYTHON) -V 2>&1), and Laurels needs Python 3.11 or newer: get it from https://www.python.org/downloads/ and name it, as in make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv module is missing: get it from your system's packages (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@cargo --version >/dev/null 2>&1 || { echo "Rust is missing: get version $(RUST_MIN) or newer from https://rustup.rs" >&2; exit 1; }
	@found=$$(rustc --version | cut -d' ' -f2); printf '%s\n' $(RUST_MIN) $$found | sort -V -C || { echo "Rust is $$found, and Laurels needs $(RUST_MIN) or newer: run rustup update, or get it from https://rustup.rs" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "A C compiler is missing (Rust links with cc): get one from your system's packages (Debian: apt-get install gcc libc6-dev; macOS: xcode-select --install)" >&2; exit 1; }

setup: $(READY) ## set up everything in .venv: dependencies, the native kernel, the package

# pip 25.1 is the first that reads dependency groups. `pip install --editable` builds the kernel with the release profile.
$(READY): pyproject.toml $(NATIVE) | tools
	@echo "setting up $(VENV) (a minute or two the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[all]'
	@touch $(READY)

run: setup ## run the main job: a score file in, exact leaderboards out
	@$(BIN)/laurels demo $(ARGS)

test: setup ## run the tests of the kernel and of the package
	$(CARGO_TEST) --quiet
	$(BIN)/pytest $(ARGS)

lint: setup ## check style, types, import rules and the native code
	@cargo fmt --version >/dev/null 2>&1 || { echo "rustfmt is missing: run rustup component add rustfmt" >&2; exit 1; }
	@cargo clippy --version >/dev/null 2>&1 || { echo "clippy is missing: run rustup component add clippy" >&2; exit 1; }
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	cargo fmt --manifest-path native/Cargo.toml --check
	cargo clippy --quiet --locked --manifest-path native/Cargo.toml --all-targets -- -D warnings

format: setup ## put everything into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	cargo fmt --manifest-path native/Cargo.toml

bench: setup ## run all benchmarks and write docs/benchmarks.md (40 minutes; ARGS=--quick: a few minutes, nothing written)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	@$(BIN)/python benchmarks/run.py $(ARGS)

soak: setup ## run the long campaigns: 10 million random steps of the rank index, kill -9 again and again
	$(CARGO_TEST) -- --ignored --nocapture
	$(BIN)/pytest -m campaign --timeout 0 $(ARGS)

# Nightly, because the sanitizer wants a standard library that is built with it. A build of its own, without Python.
race: export CARGO_TARGET_DIR := $(CURDIR)/target/race
race: ## look for data races and undefined behaviour in the kernel: ThreadSanitizer and Miri, on nightly Rust
	@cargo +nightly --version >/dev/null 2>&1 || { echo "nightly Rust is missing: get rustup from https://rustup.rs and run rustup toolchain install nightly --component rust-src,miri" >&2; exit 1; }
	@test -f "$$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" || { echo "the source of the standard library is missing: run rustup component add rust-src --toolchain nightly" >&2; exit 1; }
	@cargo +nightly miri --version >/dev/null 2>&1 || { echo "Miri is missing: run rustup component add miri --toolchain nightly" >&2; exit 1; }
	LAURELS_RACE_TURNS=$${LAURELS_RACE_TURNS:-1000} RUSTFLAGS=-Zsanitizer=thread cargo +nightly test -Zbuild-std --target $$(rustc +nightly -vV | sed -n 's/^host: //p') $(KERNEL) --test readers_beside_writer
	MIRIFLAGS=-Zmiri-permissive-provenance cargo +nightly miri test $(KERNEL) --lib --test readers_beside_writer

clean: ## remove what was made, .venv too
	rm -rf $(VENV) target build dist src/laurels/_native.*.so .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests benchmarks -type d -name __pycache__ -prune -exec rm -rf {} +
