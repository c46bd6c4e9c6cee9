"""`python -m benchmarks.inference_paths`: how fast the classifier runs on this CPU, by runtime.

Compares eager PyTorch, the plain ONNX export in ONNX Runtime, TorchScript (traced and frozen) and `torch.compile`
for the paper's model with random weights. The paths take turns within one run, so that a change of clock or load
meets all of them. Writes `inference_paths-cpu.md` and `.png` into `benchmarks/results/`.
"""

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import matplotlib
import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import nn

from artifact.documents import pad_rows
from model.cli.export import eager, write_graph
from model.config.encoder import EncoderConfig
from model.nn.classifier import ByteClassifier
from model.tasks.base import GraphSource, module_runs
from model.tasks.golden import golden_documents
from model.training.provenance import git_revision

matplotlib.use("Agg")
from matplotlib import pyplot  # the backend must be chosen first

NAME = "inference_paths-cpu"
WARM_UP = 5
"""Rounds before the measured ones: `torch.compile` compiles in the first, TorchScript optimises in the next ones."""

Array = NDArray[Any]
Inputs = dict[str, Array]
Run = Callable[[Inputs], Array]
"""Padded inputs -> logits (B, classes)."""


@dataclass
class Candidate:
    """One path from bytes to logits, and what was measured of it."""

    name: str
    run: Run
    failure: str = ""
    """Why the path does not work here."""
    error: float = 0.0
    """Largest |logit - eager's| over the largest |eager's|."""
    seconds: list[float] = field(default_factory=list)
    """Time of each measured round."""


def main() -> None:
    """Measure, print the table, write it and the chart."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inference_paths", description=__doc__)
    parser.add_argument("--seq-len", type=int, default=4096, help="bytes of a document (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=4, help="documents computed at once (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=30, help="measured batches of each path (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the results")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    header = environment(args)  # before the run, whose own load is not of interest
    inputs = random_documents(args.batch, args.seq_len)
    candidates = build(EncoderConfig(mode="paper", seq_len=args.seq_len), args.threads)
    measure(candidates, inputs, args.rounds)
    report = f"{header}\n{table(candidates, args.batch)}"
    print(report)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{NAME}.md").write_text(report)
    chart(candidates, args, args.out / f"{NAME}.png")


def random_documents(batch: int, seq_len: int) -> Inputs:
    """Full documents of arbitrary bytes; the model's cost does not depend on what they hold."""
    generator = np.random.default_rng(0)
    padded, lengths = pad_rows([generator.bytes(seq_len) for _ in range(batch)], seq_len)
    return {"bytes": padded, "lengths": lengths}


def build(config: EncoderConfig, threads: int) -> list[Candidate]:
    """Make every path from one model; the first is eager, which the others are compared with."""
    torch.manual_seed(0)
    model = ByteClassifier(config, num_classes=2).eval()
    with tempfile.TemporaryDirectory() as folder:
        source = GraphSource("model", model, golden_documents(config.seq_len), "logits", (config.seq_len,))
        write_graph(source, eager(source), Path(folder))
        session = onnx_session(Path(folder) / "model.onnx", threads)
        scripted = torch.jit.load(Path(folder) / "model.ts")
    compiled = cast(nn.Module, torch.compile(model))  # typed as a callable
    plain, script, inductor = module_runs(
        [replace(source, module=module) for module in (model, scripted, compiled)], torch.device("cpu")
    )
    return [
        Candidate("eager PyTorch", plain),
        Candidate("ONNX Runtime, plain export", lambda inputs: np.asarray(session.run(None, inputs)[0])),
        Candidate("TorchScript, traced and frozen", script),
        Candidate("torch.compile", inductor),
    ]


def onnx_session(path: Path, threads: int) -> Any:
    """ONNX Runtime with its defaults, except that its threads rest while the other paths take their turns."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def measure(candidates: list[Candidate], inputs: Inputs, rounds: int) -> None:
    """Warm up, compare with eager, then time the paths in turns, each round beginning with another one."""
    expected = candidates[0].run(inputs)
    for candidate in candidates:
        try:
            for _ in range(WARM_UP):
                got = candidate.run(inputs)
        except RuntimeError as error:  # torch.compile without a C++ compiler
            candidate.failure = str(error).splitlines()[0]
            continue
        candidate.error = float(np.abs(got - expected).max() / np.abs(expected).max())
    working = [candidate for candidate in candidates if not candidate.failure]
    for i in range(rounds):
        first = i % len(working)
        for candidate in working[first:] + working[:first]:
            started = time.perf_counter()
            candidate.run(inputs)
            candidate.seconds.append(time.perf_counter() - started)


def environment(args: argparse.Namespace) -> str:
    """What a reader needs to judge or repeat the figures."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "onnxruntime", "onnx", "numpy"))
    return "\n".join(
        [
            "# Inference paths on CPU",
            "",
            f"The paper's classifier with random weights, {args.seq_len} bytes, batch {args.batch}, float32.",
            f"Median and p95 of {args.rounds} rounds, the paths in turns, after {WARM_UP} rounds each to warm up.",
            "",
            f"- CPU: {cpu_name()}, threads: {args.threads}, load before the run: {os.getloadavg()[0]:.1f}",
            f"- Python {platform.python_version()}, {versions}",
            f"- revision {git_revision()}, {datetime.now(UTC):%Y-%m-%d}",
            f"- command: `python -m benchmarks.inference_paths --seq-len {args.seq_len} --batch {args.batch} "
            f"--rounds {args.rounds} --threads {args.threads}`",
            "",
        ]
    )


def cpu_name() -> str:
    """The processor's name, from the kernel where it gives one."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def table(candidates: list[Candidate], batch: int) -> str:
    """The figures as an aligned Markdown table; relative errors and ratios are against eager."""
    rows = [["path", "documents/s", "ms per batch", "p95", "ratio to eager", "max rel. error"]]
    baseline = float(np.median(candidates[0].seconds))
    for candidate in candidates:
        if candidate.failure:
            rows.append([candidate.name, "not available", "", "", "", ""])
            continue
        median, p95 = float(np.median(candidate.seconds)), float(np.quantile(candidate.seconds, 0.95))
        figures = [f"{batch / median:.1f}", f"{1e3 * median:.1f}", f"{1e3 * p95:.1f}", f"{baseline / median:.2f}x"]
        rows.append([candidate.name, *figures, f"{candidate.error:.0e}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    rows.insert(1, rule)
    lines = []
    for name, *figures in rows:
        cells = [name.ljust(widths[0]), *map(str.rjust, figures, widths[1:])]
        lines.append(f"| {' | '.join(cells)} |\n")
    lines += [f"\n{candidate.name}: {candidate.failure}\n" for candidate in candidates if candidate.failure]
    return "".join(lines)


def chart(candidates: list[Candidate], args: argparse.Namespace, path: Path) -> None:
    """Documents per second as bars; a line reaches down to the slowest twentieth of the rounds."""
    working = [candidate for candidate in candidates if candidate.seconds][::-1]
    median = np.array([args.batch / np.median(candidate.seconds) for candidate in working])
    slow = np.array([args.batch / np.quantile(candidate.seconds, 0.95) for candidate in working])
    figure, axes = pyplot.subplots(figsize=(8, 2.8), layout="constrained")
    bars = axes.barh([candidate.name for candidate in working], median, xerr=[median - slow, 0 * slow], capsize=3)
    axes.bar_label(bars, fmt="%.1f", padding=4)
    axes.set(xlabel="documents/s (median; line to p95)", title=f"{args.seq_len} bytes, batch {args.batch}, CPU")
    axes.set_xlim(right=1.12 * median.max())
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
