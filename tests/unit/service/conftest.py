"""Fixtures of the unit tests of the service."""

import logging
from collections.abc import Iterator

import pytest

from artifact.backends import base


@pytest.fixture
def restored_log() -> Iterator[None]:
    """Restore the log handlers of the tests."""
    root, access = logging.getLogger(), logging.getLogger("uvicorn.access")
    before = root.handlers[:], root.level, access.disabled
    yield
    root.handlers, level, access.disabled = before
    root.setLevel(level)  # an assignment would not clear what other loggers have cached of it


@pytest.fixture
def one_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let engines compute one batch at a time, however many cores there are."""
    monkeypatch.setattr(base, "cpu_count", lambda: 1)
