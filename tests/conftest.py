"""Settings for all tests."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from artifact.cores import cpu_count

KEPT = {"LONGDOC_SOAK_S"}
"""Variables that tests read; any other variable would change what is tested."""

for name in [name for name in os.environ if name.startswith("LONGDOC_") and name not in KEPT]:
    del os.environ[name]
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup` ignores it in this process and in the servers that it starts
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # xdist runs one test process per core

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("any machine"), max_examples=20)
settings.load_profile("any machine")


LONG = ("tests/e2e/", "tests/unit/model/")
"""Folders with modules that take a minute. They come first, so that no process is left alone with one at the end."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the tests of LONG to the front; the order is else that of pytest-randomly."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return one process per usable core; xdist does not know the CPU quota of a container."""
    del config
    return cpu_count()
