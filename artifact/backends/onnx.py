"""Default backend: ONNX Runtime on CPU or CUDA."""

import functools
import os
import threading
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np

# ONNX Runtime 1.29 and later sends telemetry unless this is set before the import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

from artifact.backends.base import Array, Device, Tensors
from artifact.backends.external import refuse_external_data
from artifact.errors import BadExport
from artifact.manifest import Graph

FEWEST_ROWS = 64
FEWEST_BYTES = 64 * 4096
"""Rows and bytes of the smallest batch on CUDA: fewer take hardly less time."""


class OnnxBackend:
    """One session per file; buckets may share a file. `run` releases the GIL.

    On CUDA, the batches of a model are computed one after another: with concurrent runs of one session, ONNX Runtime
    fails with illegal memory accesses, after which the process can no longer use the device. Batches are padded to few
    numbers of rows (`padded_rows`), because the first batch of each takes milliseconds longer: cuDNN plans convolutions
    for a shape.
    """

    def __init__(self, files: dict[int, Path], graph: Graph, *, device: Device) -> None:
        self.device = _device(device)
        self._input = graph.inputs[0].name
        self._outputs = [spec.name for spec in graph.outputs]
        sessions = {path: self._load(path) for path in set(files.values())}
        self._sessions = {bucket: sessions[path] for bucket, path in files.items()}
        if self.device == "cuda" and any(
            "CUDAExecutionProvider" not in session.get_providers() for session in self._sessions.values()
        ):  # ONNX Runtime falls back to the CPU and only logs it
            if device == "cuda":
                raise BadExport("device cuda: ONNX Runtime finds no usable CUDA device or driver", "backend")
            self.device = "cpu"
        self._turn: AbstractContextManager[Any] = threading.Lock() if self.device == "cuda" else nullcontext()

    def _load(self, path: Path) -> Any:
        refuse_external_data(path)
        _share_arena()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # parallelism comes from concurrent batches
        options.inter_op_num_threads = 1
        # Spinning threads would compete with the event loop and with other runs.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.use_env_allocators", "1")
        options.log_severity_level = 3
        # TF32 would round the inputs of matrix products to 11 bits, and the golden outputs would not match.
        cuda: Any = ("CUDAExecutionProvider", {"cudnn_conv_algo_search": "HEURISTIC", "use_tf32": "0"})
        providers = [cuda, "CPUExecutionProvider"] if self.device == "cuda" else ["CPUExecutionProvider"]
        # On a CPU, the fused kernel of a sum and its LayerNorm is slower than its parts.
        slow = ["SkipLayerNormFusion"] if self.device == "cpu" else []
        try:
            return onnxruntime.InferenceSession(path, options, providers=providers, disabled_optimizers=slow)
        except Exception as error:  # ONNX Runtime's exceptions share no base class but Exception
            raise BadExport(f"{path.name} cannot be loaded: {str(error).splitlines()[0]}", "backend") from None

    def run(self, inputs: Tensors) -> dict[str, Array]:
        """Compute one batch, padded to one of the buckets."""
        rows = inputs[self._input]
        session, count = self._sessions[rows.shape[1]], len(rows)
        if self.device == "cuda":
            missing = padded_rows(count, rows[0].nbytes) - count
            inputs = {name: np.concatenate((x, x[:1].repeat(missing, axis=0))) for name, x in inputs.items()}
        with self._turn:
            outputs = session.run(self._outputs, dict(inputs))
        return {name: output[:count] for name, output in zip(self._outputs, outputs, strict=True)}


def padded_rows(count: int, row_bytes: int) -> int:
    """Number of rows to which a batch of `count` rows is padded on CUDA: a power of two."""
    fewest = min(FEWEST_ROWS, FEWEST_BYTES // row_bytes)
    return int(1 << (max(count, fewest) - 1).bit_length())


@functools.cache
def _share_arena() -> None:
    """Create the arena from which all sessions of the process allocate tensors on the CPU.

    It keeps its memory. Without an arena, each large tensor is mapped anew and every page of it faults: batches of long
    rows take up to twice as long. Arenas of single sessions would each keep the memory of their largest batches.
    """
    memory = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(memory, None)


def _device(device: Device) -> Literal["cpu", "cuda"]:
    """Resolve `auto`. Raises: BadExport if `cuda` is requested and the installed runtime does not support it."""
    has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    if device == "cuda" and not has_cuda:
        raise BadExport(
            "device cuda: the installed ONNX Runtime does not support CUDA; install the extra `gpu`", "backend"
        )
    if has_cuda and device != "cpu":
        onnxruntime.preload_dlls()
        return "cuda"
    return "cpu"
