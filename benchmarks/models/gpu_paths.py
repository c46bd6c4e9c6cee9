"""`python -m benchmarks.models.gpu_paths PATH`: the paper's encoder by one path. Used by `benchmarks.serving.gpu`.

Prints one JSON object for each batch size. The model and its outputs in float32 on the CPU are written to `--folder` by
the first path and read by the others.
"""

import argparse
import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.serving.gpu import COMPILED, PATHS
from model.config.encoder import EncoderConfig
from model.export.graphs import eager, write_graph
from model.nn.classifier import ByteClassifier
from model.tasks.graphs import ExportGraph, golden_documents

Array = NDArray[Any]
Run = Callable[[Array, Array], Array]
"""bytes (B, N) and lengths (B,) -> logits (B, classes)."""
LENGTH = 4096
ROWS = (1, 64)
SECONDS = 0.5


def main() -> None:
    """Measure one path."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models.gpu_paths", description=__doc__)
    parser.add_argument("path", choices=PATHS)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--length", type=int, default=LENGTH, help="bytes of a document (default: %(default)s)")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = ByteClassifier(EncoderConfig(mode="paper", seq_len=args.length), num_classes=2).eval()
    if not (args.folder / "model.onnx").is_file():
        write_model(model, args.folder, args.length)
    compiles = args.path in COMPILED
    for count in ROWS[-1:] if compiles else ROWS:  # compiling takes half a minute for each size
        documents, lengths = random_documents(count, args.length)
        if args.path.startswith("ONNX"):
            run = onnx_run(args.folder, args.path, args.device, documents, lengths)
        else:
            run = torch_run(model, args.path, args.device)
        got, expected = run(documents, lengths), np.load(args.folder / f"expected-{count}.npy")
        error = float(np.abs(got - expected).max() / np.abs(expected).max())
        ms = median_ms(partial(run, documents, lengths))
        print(json.dumps({"path": args.path, "rows": count, "ms": ms, "error": error}), flush=True)


def random_documents(count: int, length: int) -> tuple[Array, Array]:
    """Full-length random documents (B, N) uint8 and lengths (B,) int32."""
    generator = np.random.default_rng(0)
    return generator.integers(1, 256, (count, length), dtype=np.uint8), np.full(count, length, np.int32)


def write_model(model: nn.Module, folder: Path, length: int) -> None:
    """Write model.onnx, half.onnx and the expected outputs."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    source = ExportGraph("model", model, golden_documents(length), ("logits",), (length,))
    write_graph(source, eager(source), folder)
    half = convert_float_to_float16(onnx.load(folder / "model.onnx"), keep_io_types=True)
    onnx.save(half, folder / "half.onnx")
    run = torch_run(model, "PyTorch", "cpu")
    for count in ROWS:
        np.save(folder / f"expected-{count}.npy", run(*random_documents(count, length)))


def onnx_run(folder: Path, path: str, device: str, documents: Array, lengths: Array) -> Run:
    """Run a session; with a CUDA graph, its buffers have the shapes of the given inputs."""
    if device == "cuda":
        onnxruntime.preload_dlls()
    is_graph = device == "cuda" and path.endswith("CUDA graph")
    cuda = {"use_tf32": str(int(path.endswith("TF32"))), "enable_cuda_graph": str(int(is_graph))}
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        folder / ("half.onnx" if path.endswith("float16") else "model.onnx"),
        settings,
        providers=[("CUDAExecutionProvider", cuda)] if device == "cuda" else ["CPUExecutionProvider"],
    )
    if not is_graph:
        return lambda documents, lengths: np.asarray(session.run(None, {"bytes": documents, "lengths": lengths})[0])
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    inputs = {"bytes": value(documents, device, 0), "lengths": value(lengths, device, 0)}
    output = value(np.zeros((len(documents), 2), np.float32), device, 0)
    binding = session.io_binding()
    for name, tensor in inputs.items():
        binding.bind_ortvalue_input(name, tensor)
    binding.bind_ortvalue_output("logits", output)

    def replay(documents: Array, lengths: Array) -> Array:
        inputs["bytes"].update_inplace(documents)
        inputs["lengths"].update_inplace(lengths)
        session.run_with_iobinding(binding)
        return np.asarray(output.numpy())

    return replay


def torch_run(model: nn.Module, path: str, device: str) -> Run:
    """Run the module, compiled if the path says so; float32 without TF32."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    module = model.to(device)
    if path in COMPILED:
        module = cast(nn.Module, torch.compile(module, dynamic=False))
    precision = torch.autocast(device, torch.bfloat16) if path.endswith("bfloat16") else nullcontext()

    def run(documents: Array, lengths: Array) -> Array:
        with torch.inference_mode(), precision:
            logits = module(torch.from_numpy(documents).to(device), torch.from_numpy(lengths).to(device))
        return np.asarray(logits.float().cpu().numpy())

    return run


def median_ms(turn: Callable[[], Array]) -> float:
    """Median milliseconds of a turn, after three that are not measured."""
    for _ in range(3):
        turn()
    found, until = list[float](), time.perf_counter() + SECONDS
    while len(found) < 5 or time.perf_counter() < until:
        started = time.perf_counter()
        turn()
        found.append(time.perf_counter() - started)
    return round(1000 * float(np.median(found)), 4)


if __name__ == "__main__":
    main()
