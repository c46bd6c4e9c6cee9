"""A server that is started in another way than the others: with variables, or by code that breaks something in it."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.e2e.conftest import ROOT, START_S, Server


class RiggedServer(Server):
    """Args: arguments of the interpreter; flags of the server; variables; the file of its log."""

    def __init__(
        self,
        log: Path,
        *flags: str,
        python: Sequence[str] = ("-m", "service"),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(list(flags), log)
        command = [sys.executable, *python, "--port", "0", *flags]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("LONGDOC_")}
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                command, stderr=stream, stdout=stream, cwd=ROOT, env={**clean, **(variables or {})}
            )
        until = time.monotonic() + START_S
        while not (found := re.search(r"listening on (http://\S+)", self.text())):
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < until, self.text()
            time.sleep(0.02)
        self.url = found[1]

    def __enter__(self) -> "RiggedServer":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
