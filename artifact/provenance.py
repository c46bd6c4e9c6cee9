"""Git revision of the code, recorded in results and exports. Used by training and benchmarks."""

import os
import subprocess
from pathlib import Path

TEXTS = ("benchmarks/results", "docs", "*.md")
"""Paths whose uncommitted changes do not count as `-dirty`."""


def git_revision() -> str:
    """Revision of the code, with `-dirty` if code has uncommitted changes.

    Outside the project's checkout: the environment variable LONGDOC_REVISION, or `unknown`.
    """
    try:
        # A virtual environment may lie inside the checkout of another project.
        _git("ls-files", "--error-unmatch", Path(__file__).name)
        revision = _git("describe", "--always", "--abbrev=12")
        paths = (":/", *(f":(top,exclude){path}" for path in TEXTS))
        is_dirty = _git("status", "--porcelain", "--untracked-files=no", "--", *paths)
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("LONGDOC_REVISION", "unknown")
    return f"{revision}-dirty" if is_dirty else revision


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
