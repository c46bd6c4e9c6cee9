"""`python -m benchmarks.classifier_speed`: what a document costs the served classifier, beside the paper's.

Served: `exports/imdb-s3` in ONNX Runtime at each length bucket, and the paper's encoder exported at 4,096 bytes, one
thread, in turns. Training: forward, backward and optimiser step of both in eager PyTorch on IMDb's training reviews at
their real lengths, in turns; peak memory of each in a process of its own. Writes `classifier_speed.md` and `.png` into
`benchmarks/results/`.
"""

import argparse
import itertools
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import matplotlib
import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from tqdm import tqdm

from artifact.backends import create_backend
from artifact.backends.base import InferenceBackend
from artifact.documents import pad_rows
from artifact.manifest import newest_version, read_manifest
from model.cli.export import eager, write_graph
from model.config.recipes import find_recipe, load_recipe
from model.config.run import ClassificationRun
from model.tasks.base import Batch
from model.tasks.classification import Classification
from model.training.loop import parameter_groups
from model.training.provenance import git_revision

matplotlib.use("Agg")
from matplotlib import pyplot  # the backend must be chosen first

BATCH_BYTES = 4 * 4096
"""Bytes computed at once when served, as the service does on a CPU: four long documents, or more shorter ones."""
STEP = 32
"""Documents in a training step of both."""
OURS, PAPER = "imdb-s3", "imdb-paper"


def main() -> None:
    """Measure, print and write tables and chart; or, called by itself, train one of the two and print its memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), type=Path)
    parser.add_argument("--rounds", type=int, default=20, help="measured rounds (default: %(default)s)")
    parser.add_argument("--out", default=Path(__file__).parent / "results", type=Path)
    parser.add_argument("--memory-of", choices=[OURS, PAPER], help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.memory_of:
        trainer = Trainer.of(args.memory_of, args.data_dir)
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
        before = memory("VmRSS")
        for _ in range(5):
            trainer.step()
        print(before, memory("VmHWM"))
        return
    served = measure_serving(args.rounds)
    training = measure_training(args)
    text = report(served, training, args.rounds)
    print(text)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "classifier_speed.md").write_text(text)
    chart(served, args.out / "classifier_speed.png")


def memory(field: str) -> int:
    """Resident memory of this process in MiB: VmRSS now, VmHWM at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) // 1024


@dataclass
class Trainer:
    """A model with its optimiser and an endless supply of batches."""

    task: Classification
    model: nn.Module
    optimiser: torch.optim.Optimizer
    batches: Iterator[Batch]

    @classmethod
    def of(cls, recipe: str, data_dir: Path) -> "Trainer":
        """Ready to train a recipe."""
        config = load_recipe(find_recipe(recipe), [f"training.batch_size={STEP}"])
        assert isinstance(config, ClassificationRun)
        task = Classification(config)
        task.load(data_dir)
        torch.manual_seed(0)
        model = task.build()
        task.initialise(model, torch.device("cpu"))
        optimiser = torch.optim.AdamW(parameter_groups(model.train(), config.training.learning_rate))
        return cls(task, model, optimiser, itertools.chain.from_iterable(task.batches(e) for e in itertools.count()))

    def step(self) -> float:
        """Seconds of one step: forward, backward, optimiser."""
        batch = next(self.batches)
        started = time.perf_counter()
        self.optimiser.zero_grad(set_to_none=True)
        self.task.loss(self.model, batch).backward()
        self.optimiser.step()
        return time.perf_counter() - started

    def flops(self) -> int:
        """Multiplications and additions of matrix products for one document of 4,096 bytes."""
        document, lengths = pad_rows([b"word " * 819 + b"w"], 4096)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            self.model.eval()(torch.from_numpy(document), torch.from_numpy(lengths))
        return int(counter.get_total_flops())


def measure_serving(rounds: int) -> dict[str, list[float]]:
    """Seconds a document of each round: ours at each bucket, and the paper's."""
    folder = newest_version(Path("exports") / OURS)
    manifest = read_manifest(folder)
    ours = create_backend(manifest, folder, device="cpu")
    runs: dict[str, Callable[[], object]] = {}
    for bucket in sorted(manifest.files_of("onnx")):
        runs[str(bucket)] = computing(ours, bucket)
    config = load_recipe(find_recipe(PAPER))
    assert isinstance(config, ClassificationRun)
    task = Classification(config)
    task.restore({"labels": ["negative", "positive"]})
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as partial:
        source = task.graphs(task.build().eval())[0]
        graph = write_graph(source, eager(source), Path(partial))
        runs["paper"] = computing(create_backend(graph, Path(partial), device="cpu"), 4096)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in tqdm(range(rounds + 3), desc="serving", unit="round"):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            if number >= 3:
                documents = BATCH_BYTES // (4096 if name == "paper" else int(name))
                seconds[name].append((time.perf_counter() - started) / documents)
    return seconds


def computing(backend: InferenceBackend, length: int) -> Callable[[], object]:
    """One batch of full documents of English words."""
    text = Path("README.md").read_bytes()
    rows = [(text[i * 997 % len(text) :] + text)[:length] for i in range(BATCH_BYTES // length)]
    document, lengths = pad_rows(rows, length)
    return lambda: backend.run({"bytes": document, "lengths": lengths})


def measure_training(args: argparse.Namespace) -> dict[str, tuple[list[float], int, int]]:
    """Seconds of each step, MiB added by training, FLOPs; of both."""
    trainers = {name: Trainer.of(name, args.data_dir) for name in (OURS, PAPER)}
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    for number in tqdm(range(args.rounds + 2), desc="training", unit="round"):
        for name, trainer in trainers.items():
            took = trainer.step()
            if number >= 2:
                seconds[name].append(took)
    out = {}
    for name, trainer in trainers.items():
        command = [sys.executable, "-m", "benchmarks.classifier_speed", "--memory-of", name]
        done = subprocess.run([*command, "--data-dir", str(args.data_dir)], check=True, capture_output=True, text=True)
        before, after = map(int, done.stdout.split())
        out[name] = (seconds[name], after - before, trainer.flops())
    return out


def report(served: dict[str, list[float]], training: dict[str, tuple[list[float], int, int]], rounds: int) -> str:
    """Both tables in Markdown."""
    ms = {name: 1000 * statistics.median(seconds) for name, seconds in served.items()}
    lines = [
        "# Cost of a document",
        "",
        f"Served by ONNX Runtime, one thread, batches of {BATCH_BYTES:,} bytes: median of {rounds} rounds in turns.",
        "",
        "| model and bytes          | ms a document | to half the bytes | the paper's takes |",
        "| ------------------------ | ------------: | ----------------: | ----------------: |",
    ]
    previous = None
    for name, value in ms.items():
        label = "the paper's, any up to 4,096" if name == "paper" else f"ours, {int(name):,}"
        step = f"{value / previous:.2f} x" if previous and name != "paper" else ""
        lines.append(f"| {label:<24} | {value:>13.2f} | {step:>17} | {ms['paper'] / value:>15.1f} x |")
        previous = value
    lines += [
        "",
        f"A document of 512 bytes costs {ms['4096'] / ms['512']:.1f} times less than one of 4,096.",
        "",
        f"Training on IMDb's reviews at their lengths, one thread, steps of {STEP} documents in turns, eager PyTorch:",
        "",
        "| model       | documents/s | ratio | memory of training, MiB | MFLOP a document of 4,096 bytes |",
        "| ----------- | ----------: | ----: | ----------------------: | ------------------------------: |",
    ]
    speed = {name: STEP * len(seconds) / sum(seconds) for name, (seconds, _, _) in training.items()}
    for name, (_, memory, flops) in training.items():
        label = "ours" if name == OURS else "the paper's"
        lines.append(
            f"| {label:<11} | {speed[name]:>11.1f} | {speed[name] / speed[PAPER]:>5.1f} | {memory:>23} | "
            f"{flops / 1e6:>31.0f} |"
        )
    lines += [
        "",
        "FLOPs are those of matrix products and convolutions; look-ups and FFTs are not counted.",
        "",
        f"- {platform.processor() or platform.machine()}, Python {platform.python_version()}, "
        f"torch {version('torch')}, onnxruntime {version('onnxruntime')}, numpy {np.__version__}",
        f"- revision {git_revision()}, {datetime.now(UTC):%Y-%m-%d}",
        "- command: `python -m benchmarks.classifier_speed`",
        "",
    ]
    return "\n".join(lines)


def chart(served: dict[str, list[float]], path: Path) -> None:
    """Milliseconds against bytes."""
    lengths = [int(name) for name in served if name != "paper"]
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    axes.plot(lengths, [1000 * statistics.median(served[str(n)]) for n in lengths], marker="o", label="ours")
    axes.axhline(1000 * statistics.median(served["paper"]), color="black", label="the paper's")
    axes.set(xlabel="bytes", ylabel="ms a document, one thread", xscale="log", yscale="log", xticks=lengths)
    axes.set_xticklabels([f"{n:,}" for n in lengths])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
