"""The interface between the commands and the tasks."""

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

Batch = tuple[Tensor, ...]
Arrays = dict[str, NDArray[Any]]
Facts = dict[str, Any]
"""What a model needs beside its recipe, in plain values: labels, or channels and scaler. Stored in checkpoints."""
Run = Callable[[Mapping[str, NDArray[Any]]], NDArray[np.float32]]
"""One graph: inputs by name -> its output."""


R = TypeVar("R", bound=RunConfig)


@dataclass(frozen=True)
class GraphSource:
    """A module to be exported as one graph."""

    name: str
    """Of its files: NAME.onnx, NAME.ts."""
    module: nn.Module
    golden: Arrays
    """Synthetic inputs, in the order of the module's arguments."""
    output: str
    buckets: tuple[int, ...]
    """Lengths of the inputs' second axis that it computes, ascending; the golden inputs have the last."""


class Task(ABC, Generic[R]):
    """One task with one recipe; `load` or `restore` gives it its facts."""

    metric: str
    """What validation measures."""
    is_error: ClassVar[bool] = False
    """Whether smaller is better."""
    starts_useful: bool = False
    """Whether the model before the first step may turn out to be the best."""
    unit: ClassVar[str]
    """Of progress bars and speeds: doc, pair, window."""

    facts: Facts

    def __init__(self, config: R) -> None:
        self.config = config

    @abstractmethod
    def load(self, data_dir: Path) -> None:
        """Read what training may see, and set the facts. Raises: UserError naming file and line."""

    def restore(self, facts: Facts) -> None:
        """Take the facts of a checkpoint or a manifest instead of reading the training data."""
        self.facts = facts

    @abstractmethod
    def describe(self) -> str:
        """One line about the data that was read."""

    @abstractmethod
    def build(self) -> nn.Module:
        """The model, not initialised from data."""

    @abstractmethod
    def initialise(self, model: nn.Module, device: torch.device) -> None:
        """Start a new model from the training data."""

    @property
    @abstractmethod
    def examples_per_epoch(self) -> int:
        """Examples of an epoch, whole batches only."""

    @abstractmethod
    def batches(self, epoch: int) -> Iterator[Batch]:
        """Training batches of one epoch, the same each time; tensors on the CPU."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Loss of a batch that lies where the model does."""

    @abstractmethod
    def validate(self, model: nn.Module, device: torch.device) -> float:
        """Value of the metric on validation data; the model is in evaluation mode."""

    def finish(self, model: nn.Module, data_dir: Path) -> None:  # most tasks serve what they trained
        """Turn a trained model into what is measured and exported: calibrate on validation data, round."""

    @abstractmethod
    def graphs(self, model: nn.Module) -> Sequence[GraphSource]:
        """What is exported; the first is the model itself."""

    @abstractmethod
    def measure(self, runs: Sequence[Run], data_dir: Path) -> tuple[Result, ...]:
        """Results on the test split, the only place that reads it. `runs` compute the graphs, in their order."""

    @abstractmethod
    def manifest(self, runs: Sequence[Run], results: Sequence[Result], data_dir: Path, folder: Path) -> dict[str, Any]:
        """Keys of the manifest that only this task has; further archives are written into `folder`."""

    @abstractmethod
    def terms(self) -> tuple[str, bool]:
        """Terms of use of the data, and whether they forbid commercial use."""


def module_runs(sources: Sequence[GraphSource], device: torch.device) -> list[Run]:
    """PyTorch modules as `Run`s; moves them to `device` and to evaluation mode."""
    return [_module_run(source.module.eval().to(device), list(source.golden), device) for source in sources]


def _module_run(module: nn.Module, names: Sequence[str], device: torch.device) -> Run:
    def run(inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        with torch.inference_mode():
            output: NDArray[np.float32] = module(*(torch.from_numpy(inputs[n]).to(device) for n in names)).cpu().numpy()
            return output

    return run


def backend_run(graph: Graph, folder: Path, device: Device) -> Run:
    """A graph of an export, computed by the backend that serves it."""
    backend = create_backend(graph, folder, device=device)
    output = graph.outputs[0].name
    return lambda inputs: backend.run(inputs)[output]
