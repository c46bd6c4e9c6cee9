"""Functions that tests run in the parser process."""

import os
import re
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


def spin(body: bytes) -> None:
    """Never return, and use a core."""
    while True:
        del body
        body = b""


def search(body: bytes) -> object:
    """Spend ages in one call of a C function."""
    del body
    return re.match(r"(a|a)*b", "a" * 100)


def leave(body: bytes) -> None:
    """End the process, as a crash does."""
    del body
    os._exit(3)


def abort(body: bytes) -> None:
    """Abort the process, as code in Rust does when memory runs out."""
    del body
    os.abort()


def huge(body: bytes) -> list[int]:
    """Return something that cannot be pickled within the limit of memory."""
    del body
    return [0] * 2**24 + list(range(2**22))


def allocate(body: bytes) -> bytes:
    """Allocate a terabyte."""
    return body * 2**40


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
