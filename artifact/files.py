"""Reads the files of exports without blocking on pipes or devices. Used by `artifact.exports` and others."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

MAX_JSON_BYTES = 16 * 2**20
"""Maximum size of a manifest, or of the list of default models."""


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading.

    Raises: OSError, also if the path is a pipe, a device or a folder.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return open(descriptor, "rb")


def read_json_file(path: Path) -> bytes:
    """Read a JSON file without parsing it. Raises: OSError, also if it has more than MAX_JSON_BYTES."""
    with open_regular(path) as stream:
        content = stream.read(MAX_JSON_BYTES + 1)
    if len(content) > MAX_JSON_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MAX_JSON_BYTES} bytes")
    return content
