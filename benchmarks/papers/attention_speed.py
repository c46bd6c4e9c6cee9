"""`python -m benchmarks.papers.attention_speed`: speed and memory of every attention against document length.

Measures the byte classifier of `lra-text` at each length, the attentions in turns; peak memory in a process for each.
`softmax, unfused` is PyTorch's softmax attention without its fused kernel, as in the papers' measurements.
"""

import argparse
import contextlib
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.lib import chart, memory
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.interleave import interleave
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import table
from benchmarks.papers.lra import PAPER_MODE, ROWS
from model.config.recipes import find_recipe, load_recipe
from model.config.run import ClassificationRun
from model.nn.classifier import PaperClassifier

UNFUSED = "softmax, unfused"
QUADRATIC = ("softmax", UNFUSED, "kernelized")
NAMES = (*ROWS, UNFUSED)
LONGEST_QUADRATIC = 4096
"""Maximum length of quadratic attention; longer N x N matrices do not fit into memory."""

KINDS = ("training_s", "inference_s", "memory_bytes")
"""What is measured at each length."""

Costs = dict[str, dict[str, float]]
"""Length -> attention -> seconds or bytes."""


def options(
    parser: argparse.ArgumentParser,
    training: Sequence[int] = (256, 512, 1024, 2048, 4096),
    inference: Sequence[int] = (256, 1024, 4096, 16384),
    batch: int = 4,
) -> None:
    """Add the command-line options."""
    parser.add_argument("--training", type=int, nargs="*", default=list(training), help="lengths")
    parser.add_argument("--inference", type=int, nargs="*", default=list(inference), help="lengths")
    parser.add_argument("--batch", type=int, default=batch, help="documents (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--rows", nargs="+", choices=NAMES, default=list(NAMES), metavar="ROW")


def measure(args: argparse.Namespace, name: str = "attention_speed") -> Iterator[Data]:
    """Median seconds of a training step and of an inference batch, and peak training memory, for every attention.

    Yields after each length; continues the record of the same device and settings.
    """
    data = recorded(args, name)
    for kind, length in parts(args, data):
        if kind == "memory_bytes":
            data[kind][length] = {row: added_memory_of(row, int(length), args.batch) for row in args.rows}
        else:
            trains = kind == "training_s"
            data[kind][length] = speed(args.rows, int(length), args.batch, args.rounds, trains=trains)
        yield data


def recorded(args: argparse.Namespace, name: str) -> Data:
    """Data of the record, or new ones if it has another device or other settings."""
    facts = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "rows": args.rows,
        "batch": args.batch,
        "rounds": args.rounds,
    }
    found = earlier(name, args.out)
    is_same = all(found.get(key) == value for key, value in facts.items())
    return found if is_same else {**facts, **{kind: {} for kind in KINDS}}


def parts(args: argparse.Namespace, data: Data) -> list[tuple[str, str]]:
    """Kinds and lengths that the data lack."""
    lengths = {"training_s": args.training, "inference_s": args.inference, "memory_bytes": args.training}
    return [(kind, str(n)) for kind in KINDS for n in lengths[kind] if str(n) not in data[kind]]


def classifier(name: str, length: int) -> PaperClassifier:
    """Create the classifier with an attention, for documents of `length` bytes."""
    attention = "softmax" if name == UNFUSED else name
    recipe = load_recipe(find_recipe("lra-text"), [*ROWS[attention], f"model.encoder.seq_len={length}"])
    assert isinstance(recipe, ClassificationRun)
    torch.manual_seed(0)
    return PaperClassifier(recipe.model.required_encoder, 2).to("cuda" if torch.cuda.is_available() else "cpu")


def documents(length: int, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random documents of full length."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(0)
    documents = torch.randint(0, 256, (batch, length), dtype=torch.uint8, generator=generator)
    return documents.to(device), torch.full((batch,), length, dtype=torch.int32, device=device)


@contextlib.contextmanager
def kernels(name: str) -> Iterator[None]:
    """Context without fused softmax attention for UNFUSED; for other names it changes nothing."""
    with sdpa_kernel(SDPBackend.MATH) if name == UNFUSED else contextlib.nullcontext():
        yield


def step(name: str, model: PaperClassifier, data: tuple[torch.Tensor, torch.Tensor], *, trains: bool) -> float:
    """Run one step; returns its duration in seconds."""
    with kernels(name):
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


def speed(rows: Sequence[str], length: int, batch: int, rounds: int, *, trains: bool) -> dict[str, float]:
    """Median seconds of a step, by attention."""
    names = [name for name in rows if length <= LONGEST_QUADRATIC or name not in QUADRATIC]
    data = documents(length, batch)

    def turn(name: str) -> Callable[[], float]:
        model = classifier(name, length).train(trains)
        return lambda: step(name, model, data, trains=trains)

    label = f"{'training' if trains else 'inference'} at {length}"
    measured = interleave({name: turn(name) for name in names}, rounds, warm_up=1, label=label)
    return {name: statistics.median(seconds) for name, seconds in measured.items()}


def added_memory_of(name: str, length: int, batch: int) -> int:
    """As `added_memory`; on a CPU, the memory of a process can only be told of one that has not measured before."""
    if torch.cuda.is_available():
        return added_memory(name, length, batch)
    return memory.in_own_process(added_memory, name, length, batch)


def added_memory(name: str, length: int, batch: int) -> int:
    """Peak memory of training in bytes, above that of the process before."""
    step("s3", classifier("s3", 32), documents(32, 1), trains=True)
    before = forget_peak()
    model, data = classifier(name, length).train(), documents(length, batch)
    for _ in range(2):
        step(name, model, data, trains=True)
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else memory.resident(key="VmHWM")
    return max(1, peak - before)


def forget_peak() -> int:
    """Reset the peak memory; returns the current value in bytes."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    return memory.forget_peak()


def report(record: Record) -> str:
    """Report with one table each for training, inference and memory."""
    settings, data = record.settings, record.data
    return "\n".join(
        [
            f"Byte classifier of `lra-text` (2 blocks, width 64, 2 heads), batches of {settings['batch']}, device "
            f"{data['device']}; median of {settings['rounds']} rounds in turns. In brackets: ratio to `{UNFUSED}` of "
            "the same length. A training step is forward and backward, without the optimiser; slope: d log(seconds) / "
            "d log(length) between the two longest lengths.",
            "",
            "## Training steps a second",
            "",
            costs_table(data["training_s"], rate, has_slope=True),
            "## Inference, batches a second",
            "",
            costs_table(data["inference_s"], rate, has_slope=True),
            "## Peak memory of training, MiB above that of the program",
            "",
            costs_table(data["memory_bytes"], mebibytes, has_slope=False),
        ]
    )


def rate(seconds: float, base: float | None) -> str:
    """Cell: steps per second, and the speed-up over `base`."""
    return f"{1 / seconds:.2f}" + (f" ({base / seconds:.1f}x)" if base else "")


def mebibytes(size: float, base: float | None) -> str:
    """Cell: memory in MiB, and the ratio to `base`."""
    return f"{size / 2**20:.0f} ({size / (base or size):.2f})"


def costs_table(costs: Costs, cell: Callable[[float, float | None], str], *, has_slope: bool) -> str:
    """Table with one row per attention and one column per length."""
    rows = []
    for name in NAMES:
        if not any(name in found for found in costs.values()):
            continue
        cells = [cell(found[name], found.get(UNFUSED)) if name in found else "" for found in costs.values()]
        rows.append([name, *cells, *([slope(costs, name)] if has_slope else [])])
    return table(["", *(f"{int(n):,}" for n in costs), *(["slope"] if has_slope else [])], rows)


def slope(costs: Costs, name: str) -> str:
    """Slope d log(seconds) / d log(length) between the two longest measured lengths."""
    known = [n for n in costs if name in costs[n]][-2:]
    if len(known) < 2:
        return ""
    low, high = known
    return f"{math.log(costs[high][name] / costs[low][name]) / math.log(int(high) / int(low)):.2f}"


def draw(record: Record, path: Path) -> None:
    """Chart of seconds and bytes against length."""
    figure, axes = chart.figure((14, 4), 3)
    data = record.data
    panels = {
        "seconds a training step": data["training_s"],
        "seconds a batch, inference": data["inference_s"],
        "bytes": data["memory_bytes"],
    }
    for axis, (title, costs) in zip(axes, panels.items(), strict=True):
        for i, name in enumerate(NAMES):
            known = [n for n in costs if name in costs[n]]
            width = 2.5 if name in ("s3", PAPER_MODE) else 1.2
            style = "--" if name in QUADRATIC else "-"
            values = [costs[n][name] for n in known]
            axis.loglog([int(n) for n in known], values, style, marker=".", lw=width, color=f"C{i}", label=name)
        axis.set(title=title, xlabel="bytes of a document")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=7)
    chart.save(figure, path)


def benchmark(name: str, title: str, description: str, **lengths: Any) -> Benchmark:
    """The benchmark as a record of its own, with other defaults of its options."""
    return Benchmark(
        f"benchmarks.papers.{name}", title, description, functools.partial(measure, name=name), report, draw,
        functools.partial(options, **lengths), ("torch", "numpy"),
        lambda args: [" ".join(part) for part in parts(args, recorded(args, name))],
    )  # fmt: skip


BENCHMARK = benchmark("attention_speed", "Speed and memory of the attentions", __doc__)

if __name__ == "__main__":
    BENCHMARK.main()
