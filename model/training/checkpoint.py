"""Checkpoints: everything a run needs to go on, on a CPU bit for bit. Used by the commands."""

import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from model.config.run import RunConfig
from model.config.stored import from_stored
from model.errors import UserError


@dataclass
class Progress:
    """Where a run stands."""

    epoch: int = 0
    """Epochs finished."""
    step: int = 0
    """Steps taken in the current epoch."""
    seconds: float = 0.0
    """Time spent training, over all resumptions."""
    loss_sum: float = 0.0
    """Sum of the training losses of the current epoch's steps."""
    best: float | None = None
    """Best value of the validation metric so far."""
    peak_memory_bytes: int = 0
    device: str = ""
    """Hardware the run was made on."""
    revision: str = ""
    """Git revision of the code at the start of the run."""
    history: list[dict[str, float]] = field(default_factory=list)
    """One record an epoch, as in metrics.jsonl."""


def save(path: Path, config: RunConfig, progress: Progress, facts: dict[str, Any], state: dict[str, Any]) -> None:
    """Write a checkpoint atomically; `state` holds model, optimiser, schedule and generator states."""
    partial = path.with_suffix(".partial")
    torch.save({"config": config.to_dict(), "progress": vars(progress), "facts": facts, **state}, partial)
    os.replace(partial, path)


def load(path: Path) -> tuple[RunConfig, Progress, dict[str, Any], dict[str, Any]]:
    """Read what `save` wrote; tensors and plain values only, no code. Raises: UserError naming the file."""
    if not path.is_file():
        raise UserError(f"{path} does not exist")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        config = from_stored(state.pop("config"))
        return config, Progress(**state.pop("progress")), state.pop("facts"), state
    except pickle.UnpicklingError:
        raise UserError(f"{path} is not a checkpoint: it holds more than tensors and plain values") from None
    except (AttributeError, EOFError, KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a checkpoint: {(str(error) or 'it is empty').splitlines()[0]}") from None


def load_weights(model: nn.Module, state: dict[str, Any], path: Path) -> None:
    """Put a checkpoint's weights into a model of its config. Raises: UserError naming the file."""
    try:
        model.load_state_dict(state["model"])
    except (RuntimeError, KeyError) as error:
        raise UserError(f"{path} does not fit its own recipe: {str(error).splitlines()[0]}") from None
