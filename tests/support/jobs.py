"""Functions that tests run in the parser process."""

import os
import threading


def process(body: bytes) -> int:
    """Return the process ID."""
    del body
    return os.getpid()


def wait(body: bytes) -> None:
    """Never return."""
    del body
    threading.Event().wait()


def die(body: bytes) -> None:
    """Abort the process, as it ends when memory runs out."""
    del body
    os.abort()


def large(body: bytes) -> bytes:
    """Return more bytes than a socket buffer holds."""
    del body
    return bytes(2**24)
