"""The interface of a task, and the computations that its methods return.

A request to a model is a generator, a `Computation`: it yields what the model is to compute, is sent the outputs, and
returns the answer. So the server's batcher, the threads of `artifact.load` and the tests run the same code.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from artifact.arrays import Array, Floats
from artifact.documents import OnOverflow, TextCoverage, pad_rows
from artifact.manifest import ArrayFile, ExportManifest, Format
from artifact.series import SeriesCoverage

T = TypeVar("T")


class RunModel(NamedTuple):
    """Compute rows, which may be batched with those of other requests."""

    rows: Sequence[bytes]


class RunHead(NamedTuple):
    """Compute the match logits of pairs of encodings."""

    a: Floats
    """(pairs, encoding_size)"""
    b: Floats
    """(pairs, encoding_size)"""


Work = RunModel | RunHead
StepOutputs = Sequence[Floats]
"""Of a RunModel, the output of each row; of a RunHead, one array: the logits (pairs,)."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The end of a computation."""

    value: T
    coverages: Sequence[TextCoverage] | Sequence[SeriesCoverage]
    """How much was read of each document or series of the request."""


Computation = Generator[Work, StepOutputs, Answer[T]]


def advance(computation: Computation[T], outputs: StepOutputs | None = None) -> Work | Answer[T]:
    """Run a computation up to its next step, or to its answer.

    Args:
        computation: the computation.
        outputs: outputs of the step before; None at the start.

    Raises: what the computation raises.

    """
    try:
        return next(computation) if outputs is None else computation.send(outputs)
    except StopIteration as end:
        answer: Answer[T] = end.value
        return answer


class VectorCache(Protocol):
    """Vectors of texts that were encoded before. Thread-safe."""

    def find(self, keys: Collection[bytes]) -> dict[bytes, Floats]:
        """Key -> vector, of the keys in the cache."""
        ...

    def put(self, key: bytes, vector: Floats) -> None:
        """Store a vector."""
        ...


class Tensor(NamedTuple):
    """An input or output for clients that send tensors; -1 is any size.

    Clients of Triton cannot fill an item without dimensions: a text has the shape [1], and [-1, 1] stands for [n], too.
    """

    name: str
    datatype: Literal["BYTES", "FP32"]
    """Of the Open Inference Protocol."""
    shape: tuple[int, ...]
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class TensorAnswer:
    """Outputs for clients that send tensors."""

    outputs: dict[str, Array]
    """float32, or object arrays of strings."""
    parameters: dict[str, int | float]
    """How much of the inputs was read, summed over the request."""


class Task(ABC):
    """The task of one export: converts inputs to rows of its graph, and the graph's outputs to answers. Thread-safe.

    Each subclass is an entry of `artifact.tasks.TASKS`. Serving, the compatible protocols and `artifact.load` ask it
    for everything that differs between tasks.
    """

    name: ClassVar[str]
    """Name in manifests and recipes."""
    kind: ClassVar[str]
    """What its models are called. `default_KIND` is the setting that names the default model."""
    manifest_type: ClassVar[type[ExportManifest]]
    operations: ClassVar[tuple[str, ...]]
    """What `predict` and `batch` compute; the first is the default. Each is a method of `artifact.local.Model`. Tasks
    whose requests have another `field` may share one."""
    field: ClassVar[str] = "inputs"
    """Field of JSON requests with the inputs; it differs between tasks with the same operation."""
    is_chosen_by_input: ClassVar[bool] = False
    """Whether the inputs of a request without a model's name may choose another model than the default."""
    has_head: ClassVar[bool] = False
    """Whether pairs of outputs are computed by a second graph; the outputs of texts are then worth caching."""
    head_rows: int = 256
    """Fixed number of pairs in a batch of the head; a pair's score then does not depend on the number of other pairs.
    """
    public: ClassVar[frozenset[str]]
    """Fields of the manifest that `/v1/models` returns, beside those of every task."""

    manifest: ExportManifest

    def __init__(self, manifest: ExportManifest) -> None:
        self.manifest = manifest

    @classmethod
    def open(cls, manifest: Any, read: Callable[[ArrayFile, str], dict[str, Array]]) -> Self:
        """The task of an export.

        Args:
            manifest: a manifest of `manifest_type`.
            read: reads an archive of the export; its second argument is the reason of the BadExport that it raises.

        Raises: BadExport.

        """
        del read
        return cls(manifest)

    def row_lengths(self, format: Format) -> list[int]:
        """Row length in bytes of each bucket, ascending."""
        return sorted(self.manifest.files_of(format))

    def pack(self, rows: Sequence[bytes], bucket: int) -> dict[str, Array]:
        """Inputs of the graph for a batch of rows, none longer than `bucket` bytes, by name."""
        return dict(zip((spec.name for spec in self.manifest.inputs), pad_rows(rows, bucket), strict=True))

    def unpack(self, outputs: Mapping[str, Array]) -> Floats:
        """Outputs of the graph for a batch as one array (rows, ...)."""
        first, *others = (outputs[spec.name] for spec in self.manifest.outputs)
        if not others:
            return first
        return np.concatenate([values.reshape(len(first), -1) for values in (first, *others)], axis=1)

    @property
    @abstractmethod
    def tensors(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Inputs and outputs for clients that send tensors."""

    @property
    @abstractmethod
    def parameters(self) -> dict[str, str | list[str]]:
        """What these clients need to read the outputs, such as the labels."""

    @abstractmethod
    def infer(
        self, inputs: Mapping[str, Any], on_overflow: OnOverflow, cache: VectorCache | None = None
    ) -> Computation[TensorAnswer]:
        """Compute the outputs for tensors.

        Args:
            inputs: by name: a list of documents for BYTES, else an array.
            on_overflow: how to read documents longer than the model's max_length.
            cache: vectors of texts, if the task has a head.

        Raises: InvalidInput naming the tensor.

        """
