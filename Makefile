# Commands of the project; `make help` lists them. Everything is installed below .venv/.
PYTHON ?= python3
DEV := .venv/dev/bin
SERVE := .venv/serve/bin
RECIPE ?= imdb-s3
RUN ?= runs/imdb-s3-seed0
# PyTorch's CPU wheels, where that index can be reached; elsewhere pip's own settings decide.
TORCH_INDEX = $(shell $(PYTHON) -c "import socket; socket.create_connection(('download.pytorch.org', 443), 3)" 2>/dev/null && echo --extra-index-url https://download.pytorch.org/whl/cpu)

.PHONY: help run env test test-docker check train export bench docker

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

.venv/serve/.installed: pyproject.toml
	$(PYTHON) -m venv .venv/serve
	$(SERVE)/python -m pip install --quiet --editable '.[cpu]'
	touch $@

.venv/dev/.installed: pyproject.toml
	$(PYTHON) -m venv .venv/dev
	$(DEV)/python -m pip install --quiet $(TORCH_INDEX) torch==2.13.0
	$(DEV)/python -m pip install --quiet --editable '.[cpu,train,bench,dev]'
	touch $@

run: .venv/serve/.installed  ## serve exports/ on http://127.0.0.1:8000, on CPU, without torch
	exec $(SERVE)/python -m service --device cpu --default-forecaster ettm2

env: .venv/dev/.installed  ## everything for training and tests, in .venv/dev

test: .venv/dev/.installed  ## run the tests (all but the docker ones)
	$(DEV)/python -m pytest -m "not docker"

test-docker: .venv/dev/.installed  ## build and run the containers, where an engine is up
	$(DEV)/python -m pytest -m docker

check: .venv/dev/.installed  ## format, lint, types, import rules
	$(DEV)/ruff format --check
	$(DEV)/ruff check
	$(DEV)/mypy
	$(DEV)/lint-imports

train: .venv/dev/.installed  ## train RECIPE=imdb-s3 on the data in LONGDOC_DATA
	$(DEV)/python -m model train $(RECIPE)

export: .venv/dev/.installed  ## export RUN=runs/imdb-s3-seed0 to exports/
	$(DEV)/python -m model export $(RUN)

bench: .venv/dev/.installed  ## run the benchmarks, write benchmarks/results/
	$(DEV)/python -m benchmarks.inference_paths

docker:  ## build and start the service and Prometheus
	docker compose up --build
