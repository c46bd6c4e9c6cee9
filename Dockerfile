# Targets: `cpu` (the default) and `gpu`, which differ only in the runtime they install.

FROM python:3.11-slim-bookworm AS build
# For networks that reach packages through a mirror; if unset, pip's defaults apply.
ARG PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST
# Install only packages that the lock pins by hash, and only wheels: installing a wheel runs none of its code.
ENV PIP_REQUIRE_HASHES=1 PIP_ONLY_BINARY=:all:
RUN python -m venv --without-pip /venv

# These stages do not copy the code, so that a change of it does not reinstall the dependencies.
FROM build AS build-cpu
RUN --mount=type=cache,target=/root/.cache/pip --mount=source=requirements/cpu.txt,target=/cpu.txt \
    pip --python /venv/bin/python install --requirement /cpu.txt

FROM build AS build-gpu
RUN --mount=type=cache,target=/root/.cache/pip --mount=source=requirements/gpu.txt,target=/gpu.txt \
    pip --python /venv/bin/python install --requirement /gpu.txt

FROM python:3.11-slim-bookworm AS serve
WORKDIR /app
# Set modes explicitly: with a strict umask the checkout would be unreadable to the user below.
COPY --chmod=644 LICENSE .
COPY --chmod=755 artifact artifact
COPY --chmod=755 service service
COPY --chmod=755 exports exports
# Otherwise every start would compile them.
RUN python -m compileall -q --invalidation-mode unchecked-hash artifact service
# No bytecode at run time: the root file system may be read-only. No telemetry: ONNX Runtime 1.29 and later sends events to
# Microsoft by default. The health check below needs the port as a variable.
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    ORT_DISABLE_TELEMETRY=1 \
    LONGDOC_HOST=0.0.0.0 \
    LONGDOC_PORT=8000
# A numeric user, so that Kubernetes can verify `runAsNonRoot`.
USER 10001:10001
EXPOSE 8000 8001
STOPSIGNAL SIGTERM
# Without proxies: the proxies that Docker sets in containers would be used for 127.0.0.1 too.
HEALTHCHECK --interval=5s --timeout=3s --start-period=120s --retries=3 CMD ["python", "-c", "\
import os, urllib.request as r; \
r.build_opener(r.ProxyHandler({})).open(f'http://127.0.0.1:{os.environ[\"LONGDOC_PORT\"]}/v2/health/ready')"]
ENTRYPOINT ["python", "-m", "service"]

# Linked layers do not depend on the layers below: new code or a new export does not change these large ones.
FROM serve AS gpu
COPY --link --from=build-gpu /venv /venv

FROM serve AS cpu
COPY --link --from=build-cpu /venv /venv
