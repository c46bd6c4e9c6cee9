"""Run the code blocks of README and docs."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

BLOCK = re.compile(r"(?:<!-- test: (?P<mark>[a-z_]+) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)```", re.DOTALL)


def environment() -> dict[str, str]:
    """Variables that make `python` the interpreter of the tests and import the packages of the checkout."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"}


def run(code: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=folder, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def values(text: str) -> list[object]:
    """Parse a Python literal or a sequence of JSON values."""
    try:
        return [ast.literal_eval(text.strip())]
    except (SyntaxError, ValueError):
        found = []
        while text := text.strip():
            value, end = json.JSONDecoder().raw_decode(text)
            found.append(value)
            text = text[end:]
        return found
