"""What a result was made with: hardware and revision of the code. Used by training runs and benchmarks."""

import subprocess
from pathlib import Path

import torch

TEXTS = ("benchmarks/results", "docs", "*.md")
"""What a result may change without changing the code that gave it."""


def hardware(device: torch.device) -> str:
    """Name the hardware for the manifest."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def git_revision() -> str:
    """Revision of the code, with `-dirty` if code has uncommitted changes; `unknown` outside a checkout."""
    try:
        revision = _git("describe", "--always", "--abbrev=12")
        paths = (":/", *(f":(top,exclude){path}" for path in TEXTS))
        is_dirty = _git("status", "--porcelain", "--untracked-files=no", "--", *paths)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{revision}-dirty" if is_dirty else revision


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
