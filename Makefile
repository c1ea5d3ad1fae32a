# Every target does all of its own set-up, the virtual environment included. Only the first call takes long.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
INSTALLED := .venv/.installed
PACKAGES := client models protos psserver worker

.PHONY: help install check test test-slow demo bench bench-quick proto clean

help:
	@echo "make demo     train a small network on handwritten digits: 1 shard, 2 workers"
	@echo "make test     run the tests"
	@echo "make test-slow  a hundred million simulated events, ninety kills, long fuzzing and a soak (two hours on two cores)"
	@echo "make check    ruff, mypy, import contracts, generated code up to date"
	@echo "make bench    measure and judge the targets, beside TensorFlow's own runtime (an hour on two cores)"
	@echo "make bench-quick  the same with single pairs, in under three minutes"
	@echo "make proto    write the Python code for protos/*.proto"
	@echo "make install  make the virtual environment .venv with everything in it"
	@echo "make clean    remove environments, builds and caches"

install: $(INSTALLED)

# pip's own lines are of interest only when it fails.
$(INSTALLED): pyproject.toml
	@PYTHON="$(PYTHON)" .ci/venv .venv
	@echo "installing grpc-ps and what it needs into .venv (TensorFlow is large: a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p build && ln -sfn .. build/grpc_ps
	MYPYPATH=build $(BIN)/mypy $(PACKAGES:%=-p grpc_ps.%)
	@if [ -x $(BIN)/lint-imports ]; then echo "$(BIN)/lint-imports"; $(BIN)/lint-imports --no-logo; \
	else echo "import contracts not checked: import-linter needs Python 3.11"; fi
	$(BIN)/python protos/generate.py --check

test: $(INSTALLED)
	$(BIN)/pytest -q --durations=10 --numprocesses=3 --dist=loadfile --no-loadscope-reorder

test-slow: $(INSTALLED)
	$(BIN)/pytest -q -s -m slow

demo: $(INSTALLED)
	@$(BIN)/psctl launch --ps 1 --workers 2 --model mnist
	@echo
	@echo "Try next:"
	@echo "  $(BIN)/psctl launch --ps 2 --workers 3 --model mnist --mode sync --steps 1000"
	@echo "  $(BIN)/psctl launch --ps 1 --workers 2 --model mnist --data-dir DIR    with the MNIST files in DIR"
	@echo "  $(BIN)/psctl launch --help"
	@echo "README.md shows the same over three terminals or machines."

bench: $(INSTALLED)
	@$(BIN)/python benchmarks/bench.py $(BENCH)

bench-quick: $(INSTALLED)
	@$(BIN)/python benchmarks/bench.py --quick $(BENCH)

proto: $(INSTALLED)
	@$(BIN)/python protos/generate.py

clean:
	rm -rf .venv build dist ./*.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
