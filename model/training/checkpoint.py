"""Checkpoints: the full state of a run, to resume it; bit for bit on a CPU. Used by the commands."""

import io
import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from model.config.run import RunConfig
from model.config.stored import from_stored
from model.errors import UserError, writing

FINAL = "final.pt"
"""Checkpoint of the model that was trained on all rows of user data, if the recipe asks for it."""


@dataclass
class Progress:
    """Progress of a run."""

    epoch: int = 0
    """Number of finished epochs."""
    step: int = 0
    """Number of steps in the current epoch."""
    seconds: float = 0.0
    """Training time, over all resumed parts of the run."""
    loss_sum: float = 0.0
    """Sum of the losses of the current epoch."""
    best: float | None = None
    """Best value of the validation metric so far."""
    peak_memory_bytes: int = 0
    device: str = ""
    """Hardware of the run."""
    revision: str = ""
    """Git revision of the code when the run started."""
    data: str = ""
    """Absolute path of the user data; empty for a data set."""
    validation: str = ""
    test: str = ""
    """Absolute paths of the files of validation and test; empty without them."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """One record per epoch, or per stage, as in metrics.jsonl."""


def save(path: Path, config: RunConfig, progress: Progress, facts: dict[str, Any], state: dict[str, Any]) -> None:
    """Write a checkpoint atomically; `state` contains the states of model, optimiser, schedule and generator.

    Raises: UserError, OSError; an existing file is then unchanged.
    """
    partial, content = path.with_suffix(".partial"), io.BytesIO()
    torch.save({"config": config.to_dict(), "progress": vars(progress), "facts": facts, **state}, content)
    try:
        with writing(path):
            partial.write_bytes(content.getbuffer())
            os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def load(path: Path) -> tuple[RunConfig, Progress, dict[str, Any], dict[str, Any]]:
    """Read a checkpoint; only tensors and plain values, no code. Raises: UserError naming the file."""
    if not path.is_file():
        raise UserError(f"{path} does not exist")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        config = from_stored(state.pop("config"))
        return config, Progress(**state.pop("progress")), state.pop("facts"), state
    except pickle.UnpicklingError:
        raise UserError(f"{path} is not a checkpoint: it contains more than tensors and plain values") from None
    except (AttributeError, EOFError, KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a checkpoint: {(str(error) or 'it is empty').splitlines()[0]}") from None


def load_weights(model: nn.Module, state: dict[str, Any], path: Path) -> None:
    """Load a checkpoint's weights into a model. Raises: UserError naming the file."""
    try:
        model.load_state_dict(state["model"])
    except (RuntimeError, KeyError) as error:
        raise UserError(f"{path} does not fit its own recipe: {str(error).splitlines()[0]}") from None
