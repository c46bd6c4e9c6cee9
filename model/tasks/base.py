"""Interface between commands and tasks."""

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact.backends import create_backend
from artifact.backends.base import Device
from artifact.manifest import Graph, Result
from model.config.run import RunConfig
from model.data.own import NO_FILES, HeldOut
from model.errors import UserError
from model.nn.float16 import with_float16_blocks
from model.tasks.tfidf import Baseline

Batch = tuple[Tensor, ...]
Arrays = dict[str, NDArray[Any]]
Facts = dict[str, Any]
"""Plain values that a model needs besides its recipe, such as labels or scaler; stored in checkpoints."""
Run = Callable[[Mapping[str, NDArray[Any]]], NDArray[np.float32]]
"""A function that computes one graph: inputs by name -> its first output."""


FINGERPRINT = "data_sha256"
"""Key of a fact: fingerprint of the user data."""
UNLABELLED = "unlabelled_sha256"
"""Key of a fact: fingerprint of the unlabelled documents."""
BASELINE = "baseline"
"""Key of a fact: name, setting and validation value of the baseline."""

R = TypeVar("R", bound=RunConfig)


@dataclass(frozen=True)
class ExportGraph:
    """A module that is exported as one graph."""

    name: str
    """Base name of its files: NAME.onnx, NAME.ts."""
    module: nn.Module
    golden: Arrays
    """Synthetic inputs, in the order of the module's arguments."""
    outputs: tuple[str, ...]
    """Names of the outputs."""
    buckets: tuple[int, ...]
    """Supported lengths of the inputs' second axis, ascending; the golden inputs have the last."""
    fixed: nn.Module | None = None
    """The same function for CUDA, with shapes that do not depend on values and with equal parameters. None if CUDA can
    use `module`."""
    fixed_for_all_batches: bool = False
    """Whether CUDA uses `fixed` for every batch: `module` contains an operator without a CUDA kernel."""

    def in_float16(self) -> "ExportGraph | None":
        """The graph for CUDA with encoder blocks in float16, as NAME.float16; None if it has no blocks."""
        module, fixed = self.module, self.fixed
        if fixed is not None and self.fixed_for_all_batches:
            module, fixed = fixed, None
        converted = with_float16_blocks(module)
        if converted is None:
            return None
        other = None if fixed is None else with_float16_blocks(fixed)
        return ExportGraph(f"{self.name}.float16", converted, self.golden, self.outputs, self.buckets, other)


class Learner(ABC):
    """The part of a task that the training loop uses."""

    metric: str
    """Validation metric."""
    is_error: ClassVar[bool] = False
    """Whether a smaller value is better."""
    validates_initial_model: bool = False
    """Whether the initial model is validated and may be saved as the best."""
    has_fixed_shapes: bool = False
    """Whether batches have few shapes and no shape in the loss depends on values, so that CUDA can replay a step."""
    unit: ClassVar[str]
    """Unit of progress bars and throughput: doc, pair or window."""

    facts: Facts
    held_out: HeldOut = NO_FILES
    """Files of user data besides the one that `load` is given."""
    test_file: Path | None = None
    """File of user data whose rows are all measured, instead of the test split."""
    notes: tuple[str, ...] = ()
    """Notes about the last measurement to print, one per line."""

    @property
    @abstractmethod
    def examples_per_epoch(self) -> int:
        """Number of examples per epoch, in whole batches."""

    @abstractmethod
    def batches(self, epoch: int) -> Iterator[Batch]:
        """Training batches of one epoch, deterministic; tensors on the CPU."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Loss of a batch that is on the model's device."""

    @abstractmethod
    def validate(self, model: nn.Module, device: torch.device) -> float:
        """Metric on the validation data; the model is in evaluation mode."""


class Task(Learner, Generic[R]):
    """One task with one recipe. `load` or `restore` sets its facts."""

    def __init__(self, config: R) -> None:
        self.config = config

    @property
    def recipe(self) -> R:
        """The recipe of the model, without the parts that the model does not have."""
        return self.config

    @abstractmethod
    def load(self, data_dir: Path) -> None:
        """Read training and validation data and set the facts. Raises: UserError naming file and line."""

    def restore(self, facts: Facts) -> None:
        """Set the facts from a checkpoint or a manifest, without reading the training data."""
        self.facts = facts

    @abstractmethod
    def describe(self) -> str:
        """One-line summary of the loaded data."""

    @abstractmethod
    def build(self) -> nn.Module:
        """Create the model, without data-dependent initialisation."""

    def fingerprint(self, path: Path) -> str:
        """Fingerprint of a file or folder of user data, to recognise the training data; empty if there is none.

        Raises: UserError naming file and line.
        """
        del path
        return ""

    def baseline(self, *settings: str) -> Baseline | None:
        """Fit the baseline of user data to the loaded data with the settings that are best on validation.

        `settings` are the candidates; by default all. Returns None if there is nothing to compare with.
        """
        del settings
        return None

    def note_baseline(self) -> None:
        """Fit the baseline once and note its name, setting and validation value in the facts."""
        if BASELINE not in self.facts and (found := self.baseline()) is not None:
            self.facts[BASELINE] = {"name": found.name, "setting": found.setting, "value": found.value}

    def check_fingerprint(self, fingerprint: str, path: Path) -> None:
        """Check that the loaded user data is what the model was trained on; store its fingerprint in the facts.

        Raises: UserError if the facts hold another fingerprint: the splits would differ from those of training.
        """
        if self.facts.setdefault(FINGERPRINT, fingerprint) != fingerprint:
            raise UserError(f"{path} is not what {self.config.name} was trained on: its rows differ from those of then")

    @abstractmethod
    def initialise(self, model: nn.Module, device: torch.device) -> None:
        """Initialise a new model from the training data."""

    def compare(self, model: nn.Module, device: torch.device) -> str:
        """Compare a trained model with baselines on validation data: a table, empty for tasks without baselines."""
        del model, device
        return ""

    def finish(self, model: nn.Module, data_dir: Path) -> None:  # a no-op for most tasks
        """Post-process a trained model before evaluation and export: calibrate on validation data, quantise."""

    @abstractmethod
    def graphs(self, model: nn.Module) -> Sequence[ExportGraph]:
        """Graphs to export; the first is the main model."""

    @abstractmethod
    def measure(self, runs: Sequence[Run], data_dir: Path) -> tuple[Result, ...]:
        """Evaluate on the test split, which is read only here. `runs` compute the graphs, in the same order."""

    @abstractmethod
    def manifest(self, runs: Sequence[Run], results: Sequence[Result], data_dir: Path, folder: Path) -> dict[str, Any]:
        """Task-specific keys of the manifest; additional archives are written to `folder`."""

    @abstractmethod
    def terms(self) -> tuple[str, bool]:
        """Terms of use of the data, and whether they forbid commercial use."""


class TextTask(Task[R]):
    """A task whose user data is split by text, so that a final model can be trained on all of it."""

    @abstractmethod
    def finish_final(self, model: nn.Module) -> None:
        """Post-process the model that was trained on all splits, with the calibration that `finish` has found."""

    @abstractmethod
    def join_splits(self, data_dir: Path) -> str:
        """Make the user data of all splits the training data; returns its size to print, such as `500 documents`.

        Raises: UserError naming file and line.
        """


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write an .npz file in one go: NumPy's own writer raises a second error on closing after the disk is full."""
    archive = io.BytesIO()
    np.savez_compressed(archive, allow_pickle=False, **arrays)
    path.write_bytes(archive.getbuffer())


def module_runs(sources: Sequence[ExportGraph], device: torch.device) -> list[Run]:
    """PyTorch modules as `Run`s; moves them to `device` and sets evaluation mode."""
    return [_module_run(source.module.eval().to(device), list(source.golden), device) for source in sources]


def _module_run(module: nn.Module, names: Sequence[str], device: torch.device) -> Run:
    return lambda inputs: module_outputs(module, [inputs[name] for name in names], device)[0]


def module_outputs(
    module: nn.Module, inputs: Sequence[NDArray[Any]], device: torch.device
) -> list[NDArray[np.float32]]:
    """Outputs of a PyTorch module, which returns a tensor or a tuple of tensors."""
    with torch.inference_mode():
        outputs = module(*(torch.from_numpy(array).to(device) for array in inputs))
        return [output.cpu().numpy() for output in (outputs if isinstance(outputs, tuple) else (outputs,))]


def backend_run(graph: Graph, folder: Path, device: Device) -> Run:
    """A graph of an export as a `Run`, computed by the backend that serves it."""
    backend = create_backend(graph, folder, device=device)
    output = graph.outputs[0].name
    return lambda inputs: backend.run(inputs)[output]
