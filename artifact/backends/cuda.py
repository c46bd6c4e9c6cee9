"""ONNX Runtime on CUDA: short batches are recorded as CUDA graphs and replayed. Used by `artifact.backends`."""

import threading
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from artifact.backends.base import Array, Device, Tensors
from artifact.backends.onnx import load_session
from artifact.errors import BadExport
from artifact.manifest import Graph, TensorSpec

ROWS = (1, 4, 16, 64, 256, 1024)
"""Numbers of rows of recorded batches."""
RECORDED_BYTES = 64 * 4096
"""Maximum size of a recorded batch. The kernels of larger ones take longer than launching them."""
CUDA = "CUDAExecutionProvider"
DTYPES: dict[str, type[np.generic]] = {"UINT8": np.uint8, "INT32": np.int32, "FP32": np.float32}
_turn = threading.Lock()
"""Held while the process uses the device.

With concurrent runs of one session, ONNX Runtime fails with illegal memory accesses, after which the process can no
longer use the device. Recording fails if another thread allocates memory of the device meanwhile.
"""


class CudaBackend:
    """Batches are computed one after another; `run` releases the GIL.

    A batch of up to RECORDED_BYTES is padded to the next of ROWS, and replays the CUDA graph that was recorded for this
    size when the model was loaded: launching the kernels one by one would take several times as long. Larger batches,
    and all batches of a graph without fixed shapes, are padded to powers of two, because cuDNN plans its convolutions
    anew for each shape.
    """

    device: Literal["cpu", "cuda"] = "cuda"

    def __init__(self, files: dict[int, Path], graph: Graph, *, runs_on: Literal["cuda", "cpu"] = "cuda") -> None:
        """Load all sessions and record all batches.

        Args:
            files: ONNX file of each bucket, all in one folder.
            graph: the graph that they compute.
            runs_on: cpu computes the same batches on a CPU, without recording them; for tests.

        Raises: BadExport if a file cannot be loaded or a batch cannot be recorded.

        """
        self._names = [spec.name for spec in graph.inputs]
        self._outputs = [spec.name for spec in graph.outputs]
        sessions = {path: load_session(path, _providers(runs_on)) for path in set(files.values())}
        self._sessions = {bucket: sessions[path] for bucket, path in files.items()}
        self._recorded: dict[tuple[int, int], RecordedBatch] = {}
        if graph.fixed_shapes is None or not (runs_on == "cpu" or self.is_usable):
            return
        for bucket, path in files.items():
            for rows in recorded_rows(_example(graph.inputs[0], 1, bucket).nbytes):
                self._recorded[bucket, rows] = RecordedBatch(
                    path.with_name(graph.fixed_shapes.path),
                    {spec.name: _example(spec, rows, bucket) for spec in graph.inputs},
                    self._outputs,
                    general=self._sessions[bucket],
                    covered={file.path for file in graph.files},
                    runs_on=runs_on,
                )

    @property
    def is_usable(self) -> bool:
        """Whether the sessions use CUDA; ONNX Runtime falls back to the CPU and only logs it."""
        return all(CUDA in session.get_providers() for session in self._sessions.values())

    def run(self, inputs: Tensors) -> dict[str, Array]:
        """Compute one batch, padded to one of the buckets."""
        first = inputs[self._names[0]]
        count, bucket = len(first), first.shape[1]
        rows = padded_rows(count, first[0].nbytes)
        padded = {name: np.concatenate((x, x[:1].repeat(rows - count, axis=0))) for name, x in inputs.items()}
        with _turn:
            if (recorded := self._recorded.get((bucket, rows))) is not None:
                outputs = recorded.run(padded)
            else:
                outputs = self._sessions[bucket].run(self._outputs, padded)
        return {name: output[:count] for name, output in zip(self._outputs, outputs, strict=True)}


class RecordedBatch:
    """A batch of one size: a session with fixed shapes, its tensors on the device, and the CUDA graph of its kernels.

    Reference:  https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html, "Using CUDA Graphs".
    """

    def __init__(
        self,
        path: Path,
        inputs: Tensors,
        outputs: Sequence[str],
        *,
        general: Any,
        covered: Collection[str],
        runs_on: Literal["cuda", "cpu"],
    ) -> None:
        """Load the session and record the graph.

        Args:
            path: ONNX file with fixed shapes.
            inputs: example of the inputs.
            outputs: names of the outputs.
            general: session of the same graph for any shape.
            covered: files in the same folder that may hold weights.
            runs_on: device; see `CudaBackend`.

        """
        sizes = {
            name: size
            for spec in general.get_inputs()
            for name, size in zip(spec.shape, inputs[spec.name].shape, strict=True)
            if isinstance(name, str)
        }
        self._session = load_session(path, _providers(runs_on, is_recorded=True), sizes=sizes, covered=covered)
        on_device = partial(onnxruntime.OrtValue.ortvalue_from_numpy, device_type=runs_on, device_id=0)
        with _turn:
            row = general.run(list(outputs), {name: array[:1] for name, array in inputs.items()})
        count = len(inputs[general.get_inputs()[0].name])
        self._inputs = {name: on_device(array) for name, array in inputs.items()}
        self._outputs = [on_device(np.zeros((count, *array.shape[1:]), array.dtype)) for array in row]
        self._binding = self._session.io_binding()
        for name, value in self._inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        for name, value in zip(outputs, self._outputs, strict=True):
            self._binding.bind_ortvalue_output(name, value)
        with _turn:
            self.run(inputs)  # records the graph

    def run(self, inputs: Tensors) -> list[Array]:
        """Compute a batch of exactly this size."""
        for name, value in self._inputs.items():
            value.update_inplace(inputs[name])
        self._session.run_with_iobinding(self._binding)
        return [np.array(value.numpy()) for value in self._outputs]


def recorded_rows(row_bytes: int) -> list[int]:
    """Numbers of rows of the recorded batches of rows of this size."""
    return [rows for rows in ROWS if rows * row_bytes <= RECORDED_BYTES]


def padded_rows(count: int, row_bytes: int) -> int:
    """Number of rows to which a batch of `count` rows is padded: that of a recorded batch, or a power of two."""
    return next((rows for rows in recorded_rows(row_bytes) if rows >= count), 1 << (count - 1).bit_length())


def has_cuda(device: Device) -> bool:
    """Whether to use CUDA. Raises: BadExport if `device` is cuda and the installed ONNX Runtime does not support it."""
    is_supported = CUDA in onnxruntime.get_available_providers()
    if device == "cuda" and not is_supported:
        raise BadExport(
            "device cuda: the installed ONNX Runtime does not support CUDA; install the extra `gpu`", "backend"
        )
    if not is_supported or device == "cpu":
        return False
    onnxruntime.preload_dlls()
    return True


def _providers(runs_on: Literal["cuda", "cpu"], *, is_recorded: bool = False) -> list[Any]:
    """Execution providers of a session."""
    options = {
        "cudnn_conv_algo_search": "HEURISTIC",
        # TF32 would round the inputs of matrix products to 11 bits, and the golden outputs would not match.
        "use_tf32": "0",
        "enable_cuda_graph": str(int(is_recorded)),
        "arena_extend_strategy": "kSameAsRequested" if is_recorded else "kNextPowerOfTwo",
    }
    return [(CUDA, options), "CPUExecutionProvider"] if runs_on == "cuda" else ["CPUExecutionProvider"]


def _example(spec: TensorSpec, rows: int, bucket: int) -> NDArray[Any]:
    """An input of ones: (rows,), or (rows, bucket, ...)."""
    shape = (rows, *(bucket if size == -1 else size for size in spec.shape[1:]))
    return np.ones(shape, DTYPES[spec.datatype])
