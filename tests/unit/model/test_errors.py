"""Errors of the commands of `model`."""

import errno
import os
import re
from pathlib import Path

import pytest

from model.errors import UserError, writing
from tests.support.disk import full_beyond


def test_full_disk_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    expected = f"{path} cannot be written: {os.strerror(errno.EFBIG)}"
    with full_beyond(10), pytest.raises(UserError, match=f"^{re.escape(expected)}$"), writing(path):
        path.write_bytes(bytes(11))


def test_error_that_names_a_file_is_unchanged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none"), writing(tmp_path):
        (tmp_path / "none" / "file").write_bytes(b"")
