"""Where a command computes. Used by the commands."""

import torch

from model.errors import UserError


def choose_device(name: str) -> torch.device:
    """Resolve `auto`; refuse `cuda` where there is none. Raises: UserError."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: no CUDA device is available")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
