"""What tests have the process for large bodies do."""

import os
import threading


def process(body: bytes) -> int:
    """Tell the process."""
    del body
    return os.getpid()


def wait(body: bytes) -> None:
    """Never return."""
    del body
    threading.Event().wait()


def die(body: bytes) -> None:
    """End the process, as a lack of memory does."""
    del body
    os.abort()
