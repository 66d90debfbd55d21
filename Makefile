# `make demo` and `make test` do all their own set-up in .venv on a machine with python3.11+, pip and make.

PYTHON ?= python3
VENV := .venv
GPU_VENV := .venv-gpu
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c .ci/constraints.txt
CORE := $(VENV)/.core
INSTALLED := $(VENV)/.installed

.PHONY: install demo test test-all check docs bench fuzz on-gpu clean

install: $(INSTALLED)

# What a prediction needs. An editable installation compiles its inner loops where it runs.
$(CORE): pyproject.toml .ci/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "tracekit needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Installing tracekit into $(VENV): 0.5 GB, half a minute"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) -e .
	@touch $@

$(INSTALLED): $(CORE)
	@echo "Installing what tests and checks need, PyTorch and a browser's driver among it: 2.6 GB, some minutes"
	@$(PIP_INSTALL) -e '.[dev]'
	@# Without what it declares: a notebook server, of which its analyses need nothing.
	@$(PIP_INSTALL) --no-deps HolisticTraceAnalysis
	@touch $@

demo: $(CORE)
	$(BIN)/tracekit demo --force

test: install
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not heavy"

# What takes long: all real traces, whole models, the pages in a browser, 200 examples of each property instead of 20.
test-all: install
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "heavy or hypothesis" --hypothesis-profile thorough

check: install docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: install
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/mkdocs build --strict

bench: install
	$(BIN)/python -m pytest tests/benchmarks --benchmark-enable --benchmark-only

fuzz: install
	$(BIN)/python -m tests.fuzz all

# With the PyTorch of $(PYTHON), which knows the GPU.
on-gpu:
	@$(PYTHON) -c 'import torch' || { echo "PyTorch isn't installed there: make on-gpu PYTHON=/path/to/its/python"; exit 1; }
	$(PYTHON) -m venv --system-site-packages $(GPU_VENV)
	$(GPU_VENV)/bin/pip install --quiet nvidia-ml-py
	$(GPU_VENV)/bin/python -m tests.validation.on_gpu on_gpu.tar.gz

clean:
	rm -rf $(VENV) $(GPU_VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache site
