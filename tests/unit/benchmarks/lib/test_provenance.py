"""Versions of packages."""

import platform
from importlib.metadata import version

from benchmarks.lib.provenance import versions


def test_packages_that_are_not_installed_have_no_version() -> None:
    found = versions(["numpy", "no-such-package"])
    assert found == {"python": platform.python_version(), "numpy": version("numpy")}
