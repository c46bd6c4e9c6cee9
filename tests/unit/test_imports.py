"""The import contracts between layers, checked as `make check` does."""

import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT


def test_layers_import_downwards_only() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-logo", "--no-cache"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
