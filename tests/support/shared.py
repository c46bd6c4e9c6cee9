"""Folders that a test run makes once, in whichever process needs them first. None outlives the run."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

MADE = ".made"
"""File in a folder that is complete."""


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder of this name, which `make` fills; tests that change its files copy it.

    Args:
        factory: the session's factory of temporary folders.
        name: one for each content.
        make: fills an empty folder, whose path stays the same. If it raises, the next caller tries again.

    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # whose own folder is in that of the run
        base = base.parent
    shared = base / "shared"
    shared.mkdir(exist_ok=True)
    folder = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / MADE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            (folder / MADE).touch()
    return folder
