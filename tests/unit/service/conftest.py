"""What the unit tests of the service share."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def restored_log() -> Iterator[None]:
    """The handlers of the tests come back."""
    root, access = logging.getLogger(), logging.getLogger("uvicorn.access")
    before = root.handlers[:], root.level, access.disabled
    yield
    root.handlers, root.level, access.disabled = before
