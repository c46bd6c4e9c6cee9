"""Choice of the device. Used by the commands."""

import torch

from model.errors import UserError


def choose_device(name: str) -> torch.device:
    """Resolve `auto`. Raises: UserError if `cuda` is not available."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: no CUDA device is available")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
