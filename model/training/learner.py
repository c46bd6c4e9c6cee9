"""What a stage that learns by gradients needs: batches, loss and validation. The tasks define it for their data."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

TrainingBatch = tuple[Tensor, ...]


class Learner(ABC):
    """Data, and how a model learns from them by gradients."""

    metric: str
    """Validation metric, of a learner that has `validate`."""
    is_error: ClassVar[bool] = False
    """Whether a smaller value is better."""
    validates_initial_model: bool = False
    """Whether the initial model is validated and may be saved as the best."""
    has_fixed_shapes: bool = False
    """Whether batches have few shapes and no shape in the loss depends on values, so that CUDA can replay a step."""
    unit: ClassVar[str]
    """Unit of progress bars and throughput: doc, pair or window."""

    @property
    @abstractmethod
    def examples_per_epoch(self) -> int:
        """Number of examples per epoch, in whole batches."""

    @abstractmethod
    def batches(self, epoch: int) -> Iterator[TrainingBatch]:
        """Training batches of one epoch, deterministic; tensors on the CPU."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: TrainingBatch) -> Tensor:
        """Loss of a batch that is on the model's device."""

    def validate(self, model: nn.Module, device: torch.device) -> float:
        """Metric on the validation data; the model is in evaluation mode.

        A learner that is only fitted, without validation, has none.
        """
        raise NotImplementedError


class TaskLearner(Learner):
    """A learner that trains the whole model of a task."""

    @abstractmethod
    def build(self) -> nn.Module:
        """Create the model, without data-dependent initialisation."""

    @abstractmethod
    def initialise(self, model: nn.Module, device: torch.device) -> None:
        """Initialise a new model from the training data."""

    def compare(self, model: nn.Module, device: torch.device) -> str:
        """Compare a trained model with baselines on validation data: a table, empty without baselines."""
        del model, device
        return ""

    def on_all(self) -> "tuple[TaskLearner, str]":
        """A learner on the examples of all splits, and their number to print, such as `500 documents`.

        Called only if the recipe asks for a final fit, which those of series cannot.
        """
        raise NotImplementedError
