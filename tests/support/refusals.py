"""Run `python -m service` until it exits, and check how it refuses to start."""

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_S


def run(
    *arguments: str, program: Sequence[str] = ("-m", "service"), **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *program, *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, **environment},
        check=False,
    )


def check_refusal(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stderr
    check_last_line(done.stderr, *words)


def check_last_line(written: str, *words: str) -> None:
    assert "Traceback" not in written
    last = written.strip().splitlines()[-1]
    for word in words:
        assert word in last, last
