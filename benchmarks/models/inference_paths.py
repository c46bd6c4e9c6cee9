"""`python -m benchmarks.models.inference_paths`: inference speed of the classifier on this CPU, by runtime.

Compares eager PyTorch, the plain ONNX export in ONNX Runtime, TorchScript (traced and frozen) and `torch.compile`
for the paper's model with random weights. ONNX Runtime is measured twice: with several threads for a batch, and as it
is served, each thread with a part of the documents. The measurements are interleaved, so that changes of clock or load
affect all runtimes alike, with pauses between them.
"""

import argparse
import functools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import nn

from artifact.backends.onnx import SLOW_ON_CPU, load_session
from artifact.backends.torchscript import load_module
from artifact.documents import pad_rows
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.interleave import interleave, timed
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table
from model.config.encoder import EncoderConfig
from model.export.graphs import eager, write_graph
from model.nn.classifier import PaperClassifier
from model.tasks.graphs import ExportGraph, golden_documents, module_functions

WARM_UP = 5
"""Warm-up rounds: `torch.compile` compiles in the first, TorchScript optimises in the next ones."""

PAUSE_S = 0.05
"""Pause before each batch: PyTorch's OpenMP threads spin for some milliseconds after a batch, and would take processor
time from the next runtime."""

Array = NDArray[Any]
Inputs = dict[str, Array]
Run = Callable[[Inputs], Array]
"""Padded inputs -> logits (B, classes)."""


@dataclass
class Candidate:
    """One runtime."""

    name: str
    run: Run
    failure: str = ""
    """Error message if the runtime does not work here."""
    error: float = 0.0
    """Maximum |logit - eager logit| over the maximum |eager logit|."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--seq-len", type=int, default=4096, help="bytes of a document (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=4, help="documents computed at once (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=30, help="measured batches of each path (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: %(default)s")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Seconds of every round of every runtime."""
    torch.set_num_threads(args.threads)
    inputs = random_documents(args.batch, args.seq_len)
    candidates = build(EncoderConfig(mode="paper", seq_len=args.seq_len), args.threads)
    compare(candidates, inputs)

    def turn(candidate: Candidate) -> float:
        time.sleep(PAUSE_S)
        return timed(functools.partial(candidate.run, inputs))

    turns = {one.name: functools.partial(turn, one) for one in candidates if not one.failure}
    seconds = interleave(turns, args.rounds)
    yield {
        "paths": [
            {"path": one.name, "failure": one.failure, "error": one.error, "seconds": seconds.get(one.name, [])}
            for one in candidates
        ]
    }


def random_documents(batch: int, seq_len: int) -> Inputs:
    """Full-length random documents; the cost does not depend on their content."""
    generator = np.random.default_rng(0)
    padded, lengths = pad_rows([generator.bytes(seq_len) for _ in range(batch)], seq_len)
    return {"bytes": padded, "lengths": lengths}


def build(config: EncoderConfig, threads: int) -> list[Candidate]:
    """Create all candidates from one model; the first is eager PyTorch, the reference."""
    torch.manual_seed(0)
    model = PaperClassifier(config, num_classes=2).eval()
    with tempfile.TemporaryDirectory() as folder:
        source = ExportGraph("model", model, golden_documents(config.seq_len), ("logits",), (config.seq_len,))
        write_graph(source, eager(source), Path(folder))
        session = onnx_session(Path(folder) / "model.onnx", threads)
        served = load_session(Path(folder) / "model.onnx", ["CPUExecutionProvider"], disabled=SLOW_ON_CPU)
        scripted = load_module(Path(folder) / "model.ts", "cpu")
    compiled = cast(nn.Module, torch.compile(model))  # typed as a callable
    plain, script, inductor = module_functions(
        [replace(source, module=module) for module in (model, scripted, compiled)], torch.device("cpu")
    )
    slots = ThreadPoolExecutor(threads)

    def in_parts(inputs: Inputs) -> Array:
        parts = zip(*(np.array_split(inputs[name], threads) for name in ("bytes", "lengths")), strict=True)
        feeds = [{"bytes": documents, "lengths": lengths} for documents, lengths in parts if len(lengths)]
        return np.concatenate(list(slots.map(lambda feed: served.run(None, feed)[0], feeds)))

    return [
        Candidate("eager PyTorch", plain),
        Candidate("ONNX Runtime, plain export", lambda inputs: np.asarray(session.run(None, inputs)[0])),
        Candidate("ONNX Runtime, as served", in_parts),
        Candidate("TorchScript, traced and frozen", script),
        Candidate("torch.compile", inductor),
    ]


def onnx_session(path: Path, threads: int) -> Any:
    """ONNX Runtime with defaults, except that idle threads do not spin while other candidates run."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def compare(candidates: list[Candidate], inputs: Inputs) -> None:
    """Warm up each candidate and compare it with eager PyTorch."""
    expected = candidates[0].run(inputs)
    for candidate in candidates:
        try:
            for _ in range(WARM_UP):
                got = candidate.run(inputs)
        except RuntimeError as error:  # torch.compile without a C++ compiler
            candidate.failure = str(error).splitlines()[0]
            continue
        candidate.error = float(np.abs(got - expected).max() / np.abs(expected).max())


def report(record: Record) -> str:
    """Report with one row per runtime; errors and ratios are relative to eager PyTorch."""
    settings, paths = record.settings, record.data["paths"]
    rows, baseline = [], float(np.median(paths[0]["seconds"]))
    for path in paths:
        if path["failure"]:
            rows.append([path["path"], "not available", "", "", "", ""])
            continue
        median, p95 = float(np.median(path["seconds"])), float(np.quantile(path["seconds"], 0.95))
        cells = [f"{settings['batch'] / median:.1f}", f"{1e3 * median:.1f}", f"{1e3 * p95:.1f}"]
        rows.append([path["path"], *cells, f"{baseline / median:.2f}", f"{path['error']:.0e}"])
    failures = "".join(f"\n{path['path']}: {path['failure']}\n" for path in paths if path["failure"])
    heads = ["path", "documents/s", "ms per batch", "p95", "ratio to eager", "max rel. error"]
    return (
        f"The paper's classifier with random weights, {settings['seq_len']:,} bytes, batch {settings['batch']}, "
        f"float32, {settings['threads']} threads. Median and p95 of {settings['rounds']} rounds, the paths in turns "
        f"with pauses, after {WARM_UP} rounds each to warm up. As served: each thread computes a part of the batch."
        f"\n\n{table(heads, rows)}{failures}"
    )


BENCHMARK = Benchmark.of(
    "Inference paths on CPU", measure, report, None, options, ("torch", "onnxruntime", "onnx", "numpy")
)

if __name__ == "__main__":
    BENCHMARK.main()
