"""Checkpoints: the full state of a run, to resume it; bit for bit on a CPU. Used by the stages and the commands."""

import io
import json
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zipfile import BadZipFile

import numpy as np
import torch
from torch import nn

from model.config.run import RunConfig
from model.config.stored import from_stored
from model.errors import UserError, writing

METRICS = "metrics.jsonl"
"""File of a run: one record per epoch, or per stage."""
BEST, LAST = "best.pt", "last.pt"
"""Checkpoints of a run: the best weights, and all that a resumed run needs."""
FINAL = "final.pt"
"""Checkpoint of the model that was trained on all rows of user data, if the recipe asks for it."""

Facts = dict[str, Any]
"""Plain values that a model needs besides its recipe, such as labels or scaler; stored in checkpoints."""


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
    is_stuck: bool = False
    """Whether the last `patience` epochs did not improve the metric, which ends the run."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """One record per epoch, or per stage, as in metrics.jsonl."""


class Checkpoint(NamedTuple):
    """Content of a checkpoint."""

    config: RunConfig
    progress: Progress
    facts: Facts
    state: dict[str, Any]
    """States of model, optimiser, schedule and generator, as far as it has them."""


@dataclass(frozen=True)
class RunFolder:
    """Where the stages of a run keep what they have computed, and what every checkpoint says of the run."""

    path: Path
    config: RunConfig
    device: torch.device
    facts: Facts
    origin: Mapping[str, str]
    """Fields of `Progress` that are known when a run starts: hardware, revision of the code, files of the user."""

    def started(self) -> Progress:
        """Progress of a run that starts."""
        return Progress(**dict(self.origin))  # type: ignore[arg-type]  # names of its fields that are strings

    def begin(self) -> None:
        """Write last.pt without weights, so that a run that ends before its first checkpoint is known as unfinished.

        One with weights, or with what is known now, stays. Raises: UserError.
        """
        found = load(self.path / LAST) if (self.path / LAST).is_file() else None
        if found is None or not (found.state or (found.config, found.facts) == (self.config, self.facts)):
            self.save(LAST, self.started(), {})

    def resumed(self) -> Checkpoint | None:
        """The last checkpoint with weights; None if there is none."""
        found = load(self.path / LAST) if (self.path / LAST).is_file() else None
        return found if found is not None and found.state else None

    def inside(self, name: str, config: RunConfig) -> "RunFolder":
        """A folder in this one for a stage that trains a part of the model."""
        origin = {key: self.origin[key] for key in ("device", "revision")}
        return RunFolder(self.path / name, config, self.device, {}, origin)

    def save(self, name: str, progress: Progress, state: dict[str, Any]) -> None:
        """Write a checkpoint. Raises: UserError, OSError; an existing file is then unchanged."""
        self.path.mkdir(parents=True, exist_ok=True)
        save(self.path / name, self.config, progress, self.facts, state)

    def write_metrics(self, records: Sequence[dict[str, Any]]) -> None:
        """Write metrics.jsonl: one record per epoch, or per stage. Raises: UserError, OSError."""
        self.path.mkdir(parents=True, exist_ok=True)
        with writing(path := self.path / METRICS):
            path.write_text("".join(json.dumps(record) + "\n" for record in records))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a new file that replaces `path` at the end, so that no reader finds a part of it.

    Raises: UserError, OSError; an existing file is then unchanged.
    """
    partial = path.with_suffix(".partial")
    try:
        with writing(path):
            yield partial
            os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays and numbers by name as .npz, atomically. Raises: UserError, OSError; see `replacing`."""
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


@contextmanager
def reading_result(path: Path) -> Iterator[BinaryIO]:
    """Open the file with a stage's result; damage is an error that says how to go on. Raises: UserError, OSError."""
    with path.open("rb") as file:
        try:
            yield file
        except (AttributeError, BadZipFile, EOFError, KeyError, OSError, TypeError, ValueError) as error:
            found = (str(error) or "it is empty").splitlines()[0].partition(". ")[0]  # the rest is advice for code
            raise UserError(f"{path} is damaged: {found}; remove it, and --resume computes it again") from None


def save(path: Path, config: RunConfig, progress: Progress, facts: Facts, state: dict[str, Any]) -> None:
    """Write a checkpoint atomically; `state` contains the states of model, optimiser, schedule and generator.

    Raises: UserError, OSError; an existing file is then unchanged.
    """
    content = io.BytesIO()
    torch.save({"config": config.to_dict(), "progress": vars(progress), "facts": facts, **state}, content)
    with replacing(path) as partial:
        partial.write_bytes(content.getbuffer())


def load(path: Path) -> Checkpoint:
    """Read a checkpoint; only tensors and plain values, no code. Raises: UserError naming the file."""
    if not path.is_file():
        raise UserError(f"{path} does not exist")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        config = from_stored(state.pop("config"))
        return Checkpoint(config, Progress(**state.pop("progress")), state.pop("facts"), state)
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


def load_best(model: nn.Module, folder: Path) -> None:
    """Load the best weights of a run folder into a model. Raises: UserError."""
    load_weights(model, load(folder / BEST).state, folder / BEST)
