# Targets: `cpu` (the default) and `gpu`, which differ only in the runtime they install.

FROM python:3.11-slim-bookworm AS build
# For networks that reach packages through a mirror; unset, pip's defaults hold.
ARG PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST
# Nothing but what the lock names by its hash, and only wheels: to install them runs no code of theirs.
ENV PIP_REQUIRE_HASHES=1 PIP_ONLY_BINARY=:all:
RUN python -m venv --without-pip /venv

# The code stays out, so that a change to it does not install the dependencies again.
FROM build AS build-cpu
RUN --mount=type=cache,target=/root/.cache/pip --mount=source=requirements/cpu.txt,target=/cpu.txt \
    pip --python /venv/bin/python install --requirement /cpu.txt

FROM build AS build-gpu
RUN --mount=type=cache,target=/root/.cache/pip --mount=source=requirements/gpu.txt,target=/gpu.txt \
    pip --python /venv/bin/python install --requirement /gpu.txt

FROM python:3.11-slim-bookworm AS serve
WORKDIR /app
# Modes are set because a checkout made under a strict umask would be unreadable to the user below.
COPY --chmod=644 LICENSE .
COPY --chmod=755 artifact artifact
COPY --chmod=755 service service
COPY --chmod=755 exports exports
# No bytecode: the root file system may be read-only. No telemetry: from 1.29 on, ONNX Runtime sends events to its makers
# unless told not to. The health check below needs the port as a variable.
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    ORT_DISABLE_TELEMETRY=1 \
    LONGDOC_HOST=0.0.0.0 \
    LONGDOC_PORT=8000
# A number, so that Kubernetes can verify `runAsNonRoot`.
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
# Without proxies: those that Docker hands to containers would be asked for 127.0.0.1 too.
HEALTHCHECK --interval=5s --timeout=3s --start-period=120s --retries=3 CMD ["python", "-c", "\
import os, urllib.request as r; \
r.build_opener(r.ProxyHandler({})).open(f'http://127.0.0.1:{os.environ[\"LONGDOC_PORT\"]}/v2/health/ready')"]
ENTRYPOINT ["python", "-m", "service"]

# Linked layers do not depend on those below: new code or a new export leaves the large ones as they are.
FROM serve AS gpu
COPY --link --from=build-gpu /venv /venv

FROM serve AS cpu
COPY --link --from=build-cpu /venv /venv
