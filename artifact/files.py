"""Files of exports, opened so that none of them can keep the reader waiting. Used by `artifact.manifest`."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read it.

    Raises: OSError; also if it is a pipe, a device or a folder, which might never answer.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return open(descriptor, "rb")
