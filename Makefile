# Commands of the project; `make help` lists them. Everything is installed below .venv/.
PYTHON ?= python3
DEV := .venv/dev/bin
# PyTorch's CPU wheels, where that index can be reached; elsewhere pip's own settings decide.
TORCH_INDEX = $(shell $(PYTHON) -c "import socket; socket.create_connection(('download.pytorch.org', 443), 3)" 2>/dev/null && echo --extra-index-url https://download.pytorch.org/whl/cpu)

.PHONY: help test check

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

.venv/dev/.installed: pyproject.toml
	$(PYTHON) -m venv .venv/dev
	$(DEV)/python -m pip install --quiet $(TORCH_INDEX) torch==2.13.0
	$(DEV)/python -m pip install --quiet --editable '.[cpu,train,dev]'
	touch $@

test: .venv/dev/.installed  ## run the tests (all but the docker ones)
	$(DEV)/python -m pytest -m "not docker"

check: .venv/dev/.installed  ## format, lint, types, import rules
	$(DEV)/ruff format --check
	$(DEV)/ruff check
	$(DEV)/mypy
	$(DEV)/lint-imports
