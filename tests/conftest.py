"""Settings for all tests."""

import os

import pytest
from hypothesis import HealthCheck, settings

from artifact.cores import cpu_count

KEPT = {"LONGDOC_SOAK_S"}
"""Variables that tests read; all others would change what is tested."""

for name in [name for name in os.environ if name.startswith("LONGDOC_") and name not in KEPT]:
    del os.environ[name]
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests run side by side, one process a core

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process per core that may be used; xdist does not know of a container's quota."""
    del config
    return cpu_count()
