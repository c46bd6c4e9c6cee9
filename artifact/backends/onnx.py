"""Default backend: ONNX Runtime, on a CPU here and on CUDA in `artifact.backends.cuda`."""

import functools
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import onnxruntime

from artifact.arrays import Array
from artifact.backends.base import Tensors, first_line
from artifact.errors import BadExport
from artifact.manifest import Graph

OLDEST = (1, 27)
"""Lowest version of ONNX Runtime. Earlier ones take weights from anywhere: from memory, or from outside the folder of
an export, whose files are all checked by their hashes."""
_ARENA_LOCK = threading.Lock()
TICK_S = 1.0
"""Unit in which a time limit is counted."""
SLOW_ON_CPU = ["SkipLayerNormFusion"]
"""Optimizers that are off: on a CPU, the fused kernel of a sum and its LayerNorm is slower than its parts."""


class OnnxBackend:
    """One session per file; buckets may share a file. `run` releases the GIL."""

    device: Literal["cpu", "cuda"] = "cpu"

    def __init__(self, files: dict[int, Path], graph: Graph) -> None:
        self._input = graph.inputs[0].name
        self._outputs = [spec.name for spec in graph.outputs]
        providers = ["CPUExecutionProvider"]
        sessions = {path: load_session(path, providers, disabled=SLOW_ON_CPU) for path in set(files.values())}
        self._sessions = {bucket: sessions[path] for bucket, path in files.items()}

    def run(self, inputs: Tensors, limit_s: float | None = None) -> dict[str, Array]:
        """Compute one batch, padded to one of the buckets."""
        outputs = run_session(self._sessions[inputs[self._input].shape[1]], self._outputs, inputs, limit_s)
        return dict(zip(self._outputs, outputs, strict=True))


def run_session(session: Any, outputs: Sequence[str], inputs: Tensors, limit_s: float | None = None) -> list[Array]:
    """Compute one batch.

    Args:
        session: an ONNX Runtime session.
        outputs: names of the outputs.
        inputs: tensors by name.
        limit_s: time limit. ONNX Runtime then stops before the next operator; those in a loop count.

    Raises: TimeoutError; errors of ONNX Runtime, unchanged.

    """
    if limit_s is None:
        return list(session.run(outputs, dict(inputs)))
    options, has_ended = onnxruntime.RunOptions(), threading.Event()

    def watch() -> None:
        for _ in range(math.ceil(limit_s / TICK_S)):  # a pause of the process counts as one tick
            if has_ended.wait(min(limit_s, TICK_S)):
                return
        options.terminate = True

    threading.Thread(target=watch, name="limit", daemon=True).start()
    try:
        return list(session.run(outputs, dict(inputs), options))
    except Exception:
        if options.terminate:
            raise TimeoutError(f"more than {limit_s:g} s") from None
        raise
    finally:
        has_ended.set()


def load_session(path: Path, providers: Sequence[Any], *, disabled: Sequence[str] = ()) -> Any:
    """Create an ONNX Runtime session that computes in the calling thread.

    One thread only: with several, ONNX Runtime loses some of the sums of ScatterND.

    Args:
        path: the ONNX file. It may take weights from other files in its folder.
        providers: execution providers, with their options.
        disabled: names of optimizers that are not used.

    Raises: BadExport if the file is not valid, takes weights from elsewhere, or ONNX Runtime is too old to refuse that.

    """
    if tuple(map(int, onnxruntime.__version__.split(".")[:2])) < OLDEST:
        lowest = ".".join(map(str, OLDEST))
        raise BadExport(f"onnxruntime {onnxruntime.__version__} is too old; install {lowest} or later", "backend")
    try:
        return onnxruntime.InferenceSession(
            path, session_options(), providers=providers, disabled_optimizers=list(disabled)
        )
    except Exception as error:  # ONNX Runtime's exceptions share no base class but Exception
        raise BadExport(f"{path.name} cannot be loaded: {first_line(error)}", "backend") from None


def session_options() -> Any:
    """Options of a session that computes in the calling thread and allocates tensors from the shared arena."""
    with _ARENA_LOCK:
        _share_arena()
    options = onnxruntime.SessionOptions()
    # Parallelism comes from concurrent batches. With several threads, ScatterND may lose some of what it adds up.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Spinning threads would compete with the event loop and with other runs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.log_severity_level = 3
    return options


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
