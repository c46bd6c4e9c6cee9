"""ONNX Runtime on CUDA: short batches are recorded as CUDA graphs and replayed. Used by `artifact.backends`."""

import functools
import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from artifact.arrays import Array
from artifact.backends.base import LOAD_LIMIT_S, Device, Tensors, first_line, output_error
from artifact.backends.onnx import load_session, run_session
from artifact.errors import BadExport
from artifact.manifest import Graph, Precision, TensorSpec

ROWS = (1, 4, 16, 64)
"""Numbers of rows of recorded batches."""
RECORDED_BYTES = 16 * 4096
"""Maximum size of a recorded batch. The kernels of larger ones take longer than launching them."""
ALLOWED_ERROR: dict[Precision, float] = {"float32": 1e-4, "float16": 1e-2}
"""Maximum difference of a recorded batch, as `output_error`."""
CUDA = "CUDAExecutionProvider"
DTYPES: dict[str, type[np.generic]] = {"UINT8": np.uint8, "INT32": np.int32, "FP32": np.float32}
RunsOn = Literal["cuda", "cpu"]
T = TypeVar("T")
_CALLS = queue.SimpleQueue[Callable[[], None]]()
"""Calls for the only thread that uses the device; see `on_device_thread`."""
_START_LOCK = threading.Lock()
"""Held while the thread is started."""


class CudaBackend:
    """Batches are computed one after another, by one thread for all models; `run` releases the GIL.

    A batch of up to RECORDED_BYTES is padded to the next of ROWS, and replays the CUDA graph that was recorded for this
    size when the model was loaded: launching the kernels one by one would take several times as long. Larger batches,
    and all batches of a graph without fixed shapes, are padded to powers of two, because cuDNN plans its convolutions
    anew for each shape.
    """

    device: Literal["cpu", "cuda"] = "cuda"

    def __init__(self, files: dict[int, Path], graph: Graph, *, runs_on: RunsOn = "cuda") -> None:
        """Load all sessions and record all batches.

        Args:
            files: ONNX file of each bucket (`Graph.cuda_files`), all in one folder.
            graph: the graph that they compute.
            runs_on: cpu computes the same batches on a CPU, without recording them; for tests.

        Raises: BadExport if a file cannot be loaded or a batch cannot be recorded.

        """
        self._input = graph.inputs[0].name
        self._outputs = [spec.name for spec in graph.outputs]
        self._runs_on = runs_on
        self._sessions: dict[int, Any] = {}
        self._recorded: dict[tuple[int, int], RecordedBatch] = {}
        weakref.finalize(self, _release, self._sessions, self._recorded).atexit = False
        for path in set(files.values()):
            if problem := on_device_thread(self._load, path, [bucket for bucket in files if files[bucket] == path]):
                raise BadExport(problem, "backend")
        if graph.fixed_shapes is None or not (runs_on == "cpu" or self.is_usable):
            return
        fixed = next(iter(files.values())).with_name(graph.fixed_shapes.path)
        for bucket in files:
            row = {spec.name: _example(spec, 1, bucket) for spec in graph.inputs}
            for rows in recorded_rows(row[self._input].nbytes):
                if problem := on_device_thread(self._record, fixed, row, rows):
                    raise BadExport(f"{fixed.name}: {rows} rows of {bucket} cannot be recorded: {problem}", "backend")
        for bucket, rows in self._recorded:
            self._check_recorded([_random(spec, rows, bucket) for spec in graph.inputs], graph, fixed.name)

    def _load(self, path: Path, buckets: Sequence[int]) -> str:
        """Load the session of some buckets, in the device's thread; returns why it cannot be loaded, or "".

        An exception would keep a session until another thread drops it.
        """
        try:
            session = load_session(path, _providers(self._runs_on))
        except BadExport as error:
            return str(error)
        self._sessions.update(dict.fromkeys(buckets, session))
        return ""

    def _record(self, path: Path, row: Tensors, rows: int) -> str:
        """Record a batch of copies of `row`, in the device's thread; returns why it cannot be recorded, or ""."""
        bucket = row[self._input].shape[1]
        try:
            computed = run_session(self._sessions[bucket], self._outputs, row, LOAD_LIMIT_S)
            outputs = dict(zip(self._outputs, computed, strict=True))
            session = load_session(path, _providers(self._runs_on, is_recorded=True))
            # Only the shapes of the outputs matter: they size the output buffers.
            inputs, shapes = ({name: x.repeat(rows, axis=0) for name, x in of.items()} for of in (row, outputs))
            self._recorded[bucket, rows] = RecordedBatch(session, inputs, shapes, self._runs_on)
        except Exception as error:  # ONNX Runtime's exceptions share no base class but Exception
            return first_line(error) or type(error).__name__
        return ""

    def _check_recorded(self, inputs: Sequence[Array], graph: Graph, name: str) -> None:
        """Compare what a recorded batch replays for other inputs with the graph's session. Raises: BadExport."""
        given = {spec.name: array for spec, array in zip(graph.inputs, inputs, strict=True)}
        rows, bucket = inputs[0].shape[:2]
        found = on_device_thread(self._recorded[bucket, rows].run, given)
        expected = on_device_thread(run_session, self._sessions[bucket], self._outputs, given, LOAD_LIMIT_S)
        error = max(output_error(x, y) for x, y in zip(found, expected, strict=True))
        if not error <= (allowed := ALLOWED_ERROR[graph.precision]):
            raise BadExport(
                f"{name}: a recorded batch of {rows} rows of {bucket} is {error:.2e} from the same batch without a "
                f"recording; allowed {allowed:.0e}",
                "backend",
            )

    @property
    def is_usable(self) -> bool:
        """Whether the sessions use CUDA; ONNX Runtime falls back to the CPU and only logs it."""
        return all(CUDA in session.get_providers() for session in self._sessions.values())

    def run(self, inputs: Tensors, limit_s: float | None = None) -> dict[str, Array]:
        """Compute one batch, padded to one of the buckets."""
        first = inputs[self._input]
        count, bucket = len(first), first.shape[1]
        rows = padded_rows(count, recorded_rows(first[0].nbytes) if self._recorded else ())
        padded = {name: np.concatenate((x, x[:1].repeat(rows - count, axis=0))) for name, x in inputs.items()}
        outputs = on_device_thread(self._compute, padded, bucket, limit_s)
        return {name: output[:count] for name, output in zip(self._outputs, outputs, strict=True)}

    def _compute(self, inputs: Tensors, bucket: int, limit_s: float | None) -> list[Array]:
        """Outputs of a padded batch."""
        if (recorded := self._recorded.get((bucket, len(inputs[self._input])))) is not None:
            return recorded.run(inputs)
        return run_session(self._sessions[bucket], self._outputs, inputs, limit_s)


class RecordedBatch:
    """A batch of one size: its tensors on the device, and the CUDA graph of its kernels.

    Each has its own session. A replay copies some values from host memory that belongs to the session; recording a
    second graph in the same session could overwrite them.

    Reference:  https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html, "Using CUDA Graphs".
    """

    def __init__(self, session: Any, inputs: Tensors, outputs: Tensors, runs_on: RunsOn) -> None:
        """Record the graph.

        Args:
            session: new session of the graph with fixed shapes.
            inputs: example of the inputs.
            outputs: arrays with the shapes of the outputs.
            runs_on: device; see `CudaBackend`.

        """
        on_device = functools.partial(onnxruntime.OrtValue.ortvalue_from_numpy, device_type=runs_on, device_id=0)
        self._inputs = {name: on_device(array) for name, array in inputs.items()}
        self._outputs = {name: on_device(array) for name, array in outputs.items()}
        self._session, self._binding = session, session.io_binding()
        for name, value in self._inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        for name, value in self._outputs.items():
            self._binding.bind_ortvalue_output(name, value)
        self.run(inputs)

    def run(self, inputs: Tensors) -> list[Array]:
        """Compute a batch of exactly this size."""
        for name, value in self._inputs.items():
            value.update_inplace(inputs[name])
        self._session.run_with_iobinding(self._binding)
        # On a CPU, `numpy()` shares the memory that the next run overwrites.
        return [np.array(value.numpy()) for value in self._outputs.values()]


def on_device_thread(compute: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function in the only thread of the process that uses the device; errors propagate.

    ONNX Runtime records CUDA graphs for a thread: another one would record them anew. While it records, no thread may
    load a model or use the device otherwise. Concurrent runs of one session end with illegal memory accesses, after
    which the process can no longer use the device.
    """
    with _START_LOCK:
        _start_device_thread()
    done = Future[T]()

    def call() -> None:
        try:
            done.set_result(compute(*args, **kwargs))
        except BaseException as error:  # the caller handles it
            done.set_exception(error)

    _CALLS.put(call)
    return done.result()


@functools.cache
def _start_device_thread() -> None:
    """Start the thread that makes all calls, in order."""

    def work() -> None:
        while True:
            call = _CALLS.get()
            call()
            del call  # it may hold a session

    threading.Thread(target=work, name="cuda", daemon=True).start()


def _release(*held: dict[Any, Any]) -> None:
    """Drop sessions and recorded batches in the device's thread: freeing memory would disturb a recording, too.

    Called at any time, also while a lock is held: `put` of this queue is reentrant.
    """

    def clear() -> None:
        for one in held:
            one.clear()

    _CALLS.put(clear)


def recorded_rows(row_bytes: int) -> list[int]:
    """Numbers of rows of the recorded batches of rows of this size."""
    return [rows for rows in ROWS if rows * row_bytes <= RECORDED_BYTES]


def padded_rows(count: int, recorded: Sequence[int]) -> int:
    """Number of rows to which a batch of `count` rows is padded: the next one that is recorded, or a power of two."""
    return next((rows for rows in recorded if rows >= count), 1 << (count - 1).bit_length())


def use_cuda(device: Device) -> bool:
    """Whether to use CUDA; if so, load its libraries.

    Raises: BadExport if `device` is cuda and the installed ONNX Runtime does not support it.
    """
    is_supported = CUDA in onnxruntime.get_available_providers()
    if device == "cuda" and not is_supported:
        raise BadExport(
            "device cuda: the installed ONNX Runtime does not support CUDA; install the extra `gpu`", "backend"
        )
    if not is_supported or device == "cpu":
        return False
    onnxruntime.preload_dlls()
    return True


def _providers(runs_on: RunsOn, *, is_recorded: bool = False) -> list[Any]:
    """Execution providers of a session."""
    options = {
        "cudnn_conv_algo_search": "HEURISTIC",
        # TF32 would round the inputs of matrix products to 11 bits, and the golden outputs would not match.
        "use_tf32": "0",
        "enable_cuda_graph": str(int(is_recorded)),
    }
    return [(CUDA, options), "CPUExecutionProvider"] if runs_on == "cuda" else ["CPUExecutionProvider"]


def _random(spec: TensorSpec, rows: int, bucket: int) -> NDArray[Any]:
    """A random input of the same shape as `_example`: printable bytes, full lengths, or normal numbers."""
    shape, generator = _example(spec, rows, bucket).shape, np.random.default_rng(0)
    if spec.datatype == "FP32":
        return generator.standard_normal(shape, np.float32)
    if spec.datatype == "INT32":
        return np.full(shape, bucket, np.int32)
    return generator.integers(32, 127, shape, np.uint8)


def _example(spec: TensorSpec, rows: int, bucket: int) -> NDArray[Any]:
    """An input of ones: (rows,), or (rows, bucket, ...)."""
    shape = (rows, *(bucket if size == -1 else size for size in spec.shape[1:]))
    return np.ones(shape, DTYPES[spec.datatype])
