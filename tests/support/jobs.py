"""Functions that tests run in the parser process."""

import os
import threading
from collections.abc import Callable


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


def echo(received: object) -> object:
    """Return what the process received."""
    return received


class Priority:
    """Becomes, when it is received, the niceness of the process that receives it."""

    def __reduce__(self) -> tuple[Callable[[int, int], int], tuple[int, int]]:
        """Tell what to call when it is received."""
        return os.getpriority, (os.PRIO_PROCESS, 0)
