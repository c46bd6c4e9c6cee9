# Commands of the project; `make help` lists them. Everything is installed below .venv/.
PYTHON ?= python3
DEV := .venv/dev/bin
SERVE := .venv/serve/bin
TOOLS := .venv/tools/bin
RECIPE ?= imdb-s3
RUN ?= runs/imdb-s3-seed0
# PyTorch's CPU wheels, where that index can be reached; elsewhere pip's own settings decide.
TORCH_INDEX = $(shell $(PYTHON) -c "import socket; socket.create_connection(('download.pytorch.org', 443), 3)" 2>/dev/null && echo --extra-index-url https://download.pytorch.org/whl/cpu)
# Nothing but what the lock names by its hash, and only wheels: to install them runs no code of theirs.
LOCKED := --require-hashes --only-binary :all:
# One process per core. A file is never split, since its fixtures train and export models.
SIDE_BY_SIDE := --numprocesses auto --dist loadscope --no-loadscope-reorder

.PHONY: help run env test test-slow test-docker check lock audit train export bench bench-peers docker

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

# The project itself is not installed: it runs from here, and its build would fetch tools that have no hash.
.venv/serve/.installed: requirements/cpu.txt
	$(PYTHON) -m venv --clear .venv/serve
	$(SERVE)/python -m pip install --quiet $(LOCKED) --requirement $<
	touch $@

# The lock comes before the rest, so that the tests run what is served. Modules are compiled when they are imported:
# to compile all of them takes as long as to fetch them.
.venv/dev/.installed: pyproject.toml requirements/cpu.txt
	$(PYTHON) -m venv .venv/dev
	$(DEV)/python -m pip install --quiet --no-compile $(TORCH_INDEX) torch==2.13.0
	$(DEV)/python -m pip install --quiet --no-compile $(LOCKED) --requirement requirements/cpu.txt
	$(DEV)/python -m pip install --quiet --no-compile --editable '.[cpu,train,bench,dev]'
	touch $@

.venv/tools/.installed: Makefile
	$(PYTHON) -m venv --clear .venv/tools
	$(TOOLS)/python -m pip install --quiet 'pip-audit>=2.9,<3' 'ruff==0.17.6' 'uv>=0.9,<1'
	touch $@

run: .venv/serve/.installed  ## serve exports/ on http://127.0.0.1:8000, on CPU, without torch
	exec $(SERVE)/python -m service --device cpu

env: .venv/dev/.installed  ## everything for training and tests, in .venv/dev

test: .venv/dev/.installed  ## run the tests but the slow ones and those of docker; COVERAGE=1 measures and bounds coverage
	$(DEV)/python -m pytest -m "not docker and not slow" $(SIDE_BY_SIDE) $(if $(COVERAGE),--cov)

test-slow: .venv/dev/.installed  ## soak, 100,000 fuzzed bodies, 1 GB uploads: half an hour
	$(DEV)/python -m pytest -m slow

test-docker: .venv/dev/.installed  ## build and run the containers, where an engine is up
	$(DEV)/python -m pytest -m docker

check: .venv/dev/.installed  ## format, lint, types, import rules
	$(DEV)/ruff format --check
	$(DEV)/ruff check
	$(DEV)/mypy
	$(DEV)/lint-imports

# One resolution for every platform and Python from 3.11 on; versions that stand in the files stay unless asked.
lock: .venv/tools/.installed  ## pin what is served in requirements/; UPGRADE=1 takes the newest versions
	for extra in cpu gpu; do \
		$(TOOLS)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --only-binary :all: \
			--generate-hashes --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade) \
			--extra $$extra --output-file requirements/$$extra.txt pyproject.toml || exit; \
	done

# Strict: a package without an answer from the advisories would otherwise pass. `assert` (S101) narrows types here,
# and commands (S603) are lists of words, none of them a client's.
audit: .venv/tools/.installed  ## known vulnerabilities of what is served, suspicious code in service/ and artifact/
	$(TOOLS)/ruff check --select S --ignore S101,S603 service artifact
	@$(TOOLS)/pip-audit --strict --require-hashes --disable-pip -r requirements/cpu.txt -r requirements/gpu.txt || { \
		echo 'audit: not passed; with no vulnerability listed above, the advisories could not be read' >&2; \
		exit 1; }

train: .venv/dev/.installed  ## train RECIPE=imdb-s3 on the data in LONGDOC_DATA
	$(DEV)/python -m model train $(RECIPE)

export: .venv/dev/.installed  ## export RUN=runs/imdb-s3-seed0 to exports/
	$(DEV)/python -m model export $(RUN)

bench: .venv/dev/.installed  ## compare the paths of inference (each other benchmark: python -m benchmarks.GROUP.NAME)
	$(DEV)/python -m benchmarks.models.inference_paths

bench-peers: .venv/dev/.installed  ## compare with other servers (20 minutes; 1.6 GB below .venv/peers)
	$(DEV)/python -m benchmarks.peers

docker:  ## build and start the service and Prometheus
	docker compose up --build
