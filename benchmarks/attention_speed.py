"""`python -m benchmarks.attention_speed`: what every attention costs against length, in training and inference.

The byte classifier of `lra-text` at each length, one attention after the other in turns; peak memory in a process of
its own each. `softmax, unfused` is what the papers measure: PyTorch's softmax attention without its fused kernel.
Writes `attention_speed.md` and `.png` into `benchmarks/results/`.
"""

import argparse
import contextlib
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from tqdm import tqdm

from benchmarks.inference_paths import cpu_name
from benchmarks.lra import PAPER_MODE, ROWS
from benchmarks.served import RESULTS, ROOT, table
from model.config.recipes import RECIPES, load_recipe
from model.config.run import ClassificationRun
from model.nn.classifier import ByteClassifier
from model.training.provenance import git_revision

matplotlib.use("Agg")
from matplotlib import pyplot  # the backend must be chosen first

NAME = "attention_speed"
UNFUSED = "softmax, unfused"
QUADRATIC = ("softmax", UNFUSED, "kernelized")
NAMES = (*ROWS, UNFUSED)
LONGEST_QUADRATIC = 4096
"""Beyond it, matrices of N x N do not fit a machine of this size."""


def main() -> None:
    """Measure, print the tables, write them and the chart."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.attention_speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--training", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096], help="lengths")
    parser.add_argument("--inference", type=int, nargs="+", default=[256, 1024, 4096, 16384], help="lengths")
    parser.add_argument("--batch", type=int, default=4, help="documents (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--memory-of", choices=NAMES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_of:
        print(_own_memory(args.memory_of, args.training[0], args.batch))
        return
    training = {n: _speed(n, args.batch, args.rounds, trains=True) for n in args.training}
    inference = {n: _speed(n, args.batch, args.rounds, trains=False) for n in args.inference}
    memory = {n: {name: _memory(name, n, args.batch) for name in NAMES} for n in tqdm(args.training, "memory")}
    flags = f"--training {' '.join(map(str, args.training))} --inference {' '.join(map(str, args.inference))}"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{cpu_name()}, {os.cpu_count()} cores"
    report = "\n".join(
        [
            "# What every attention costs",
            "",
            f"Byte classifier of `lra-text` (2 blocks, width 64, 2 heads), batches of {args.batch}; median of "
            f"{args.rounds} rounds in turns. In brackets: ratio to `{UNFUSED}` of the same length. A training step is "
            "forward and backward, without the optimiser's; slope: d log(seconds) / d log(length) between the two "
            "longest lengths.",
            "",
            f"- {device}; PyTorch {torch.__version__}; revision {git_revision()}",
            f"- command: `python -m benchmarks.attention_speed {flags} --batch {args.batch} --rounds {args.rounds}`",
            "",
            "## Training steps a second",
            "",
            _table(training, _rate, slope=True),
            "## Inference, batches a second",
            "",
            _table(inference, _rate, slope=True),
            "## Peak memory of training, MiB above that of the program",
            "",
            _table(memory, lambda size, base: f"{size / 2**20:.0f} ({size / (base or size):.2f})", slope=False),
        ]
    )
    print(report)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{NAME}.md").write_text(report)
    _draw(training, inference, memory)


Figures = dict[int, dict[str, float]]
"""Length -> name -> seconds or bytes."""


def _classifier(name: str, length: int) -> ByteClassifier:
    attention = "softmax" if name == UNFUSED else name
    recipe = load_recipe(RECIPES / "lra-text.toml", [*ROWS[attention], f"model.encoder.seq_len={length}"])
    assert isinstance(recipe, ClassificationRun)
    torch.manual_seed(0)
    return ByteClassifier(recipe.model.encoder, 2).to("cuda" if torch.cuda.is_available() else "cpu")


def _batch(length: int, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Documents of full length."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(0)
    documents = torch.randint(0, 256, (batch, length), dtype=torch.uint8, generator=generator)
    return documents.to(device), torch.full((batch,), length, dtype=torch.int32, device=device)


@contextlib.contextmanager
def _kernels(name: str) -> Iterator[None]:
    with sdpa_kernel(SDPBackend.MATH) if name == UNFUSED else contextlib.nullcontext():
        yield


def _step(name: str, model: ByteClassifier, data: tuple[torch.Tensor, torch.Tensor], *, trains: bool) -> float:
    """Seconds of one step."""
    with _kernels(name):
        started = time.perf_counter()
        if trains:
            labels = torch.arange(len(data[0]), device=data[0].device) % 2
            nn.functional.cross_entropy(model(*data), labels).backward()
            model.zero_grad(set_to_none=True)
        else:
            with torch.inference_mode():
                model(*data)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - started


def _speed(length: int, batch: int, rounds: int, *, trains: bool) -> dict[str, float]:
    """Median seconds of a step."""
    names = [name for name in NAMES if length <= LONGEST_QUADRATIC or name not in QUADRATIC]
    models = {name: _classifier(name, length).train(trains) for name in names}
    data = _batch(length, batch)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in tqdm(range(rounds + 1), f"{'training' if trains else 'inference'} at {length}"):
        for name, model in models.items():
            found = _step(name, model, data, trains=trains)
            if turn:  # the first one warms
                seconds[name].append(found)
    return {name: statistics.median(values) for name, values in seconds.items()}


def _own_memory(name: str, length: int, batch: int) -> int:
    """Bytes that training takes above what the process had before."""
    _step("s3", _classifier("s3", 32), _batch(32, 1), trains=True)
    before = _forget_peak()
    model, data = _classifier(name, length).train(), _batch(length, batch)
    for _ in range(2):
        _step(name, model, data, trains=True)
    return torch.cuda.max_memory_allocated() - before if torch.cuda.is_available() else _status("VmHWM") - before


def _forget_peak() -> int:
    """Begin to look for the peak anew; bytes that are taken now."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(key: str) -> int:
    found = re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def _memory(name: str, length: int, batch: int) -> float:
    command = [sys.executable, "-m", "benchmarks.attention_speed", "--memory-of", name]
    command += ["--training", str(length), "--batch", str(batch)]
    return max(1.0, float(subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout))


def _rate(seconds: float, base: float | None) -> str:
    return f"{1 / seconds:.2f}" + (f" ({base / seconds:.1f}x)" if base else "")


def _table(figures: Figures, show: Callable[[float, float | None], str], *, slope: bool) -> str:
    lengths = list(figures)
    rows = []
    for name in NAMES:
        cells = [show(found[name], found.get(UNFUSED)) if name in found else "" for found in figures.values()]
        rows.append([name, *cells, *([_slope(figures, name)] if slope else [])])
    return table(["", *(f"{n:,}" for n in lengths), *(["slope"] if slope else [])], rows)


def _slope(figures: Figures, name: str) -> str:
    """D log(seconds) / d log(length) between the two longest that were measured."""
    known = [n for n in figures if name in figures[n]][-2:]
    if len(known) < 2:
        return ""
    low, high = known
    return f"{math.log(figures[high][name] / figures[low][name]) / math.log(high / low):.2f}"


def _draw(training: Figures, inference: Figures, memory: Figures) -> None:
    figure, axes = pyplot.subplots(1, 3, figsize=(14, 4))
    panels = (("seconds a training step", training), ("seconds a batch, inference", inference), ("bytes", memory))
    for axis, (title, figures) in zip(axes, panels, strict=True):
        for i, name in enumerate(NAMES):
            known = [n for n in figures if name in figures[n]]
            width = 2.5 if name in ("s3", PAPER_MODE) else 1.2
            style = "--" if name in QUADRATIC else "-"
            axis.loglog(
                known, [figures[n][name] for n in known], style, marker=".", lw=width, color=f"C{i}", label=name
            )
        axis.set(title=title, xlabel="bytes of a document")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(RESULTS / f"{NAME}.png", dpi=110)


if __name__ == "__main__":
    main()
