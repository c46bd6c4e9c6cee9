"""`python -m benchmarks.models.classifier_speed`: cost per document of the shipped and the paper's classifier.

Serving: `exports/imdb-s3` in ONNX Runtime, in batches at each length bucket and for single documents of 300 bytes, one
thread; `--earlier` adds an earlier version of the export, in turns. Then the paper's encoder, exported at 4,096 bytes.
Training: forward, backward and optimiser step of the vector view of ours, and of the paper's model, in eager PyTorch on
IMDb's training reviews at their lengths, interleaved. Peak memory is measured in a separate process for each model.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from artifact.backends import create_backend
from artifact.backends.base import InferenceBackend
from artifact.documents import pad_rows
from artifact.manifest import read_manifest, version_folder
from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.interleave import interleave
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table
from benchmarks.models import memory, untrained
from model.config.recipes import find_recipe, load_recipe
from model.config.run import ClassificationRun
from model.nn.classifier import WordClassifier
from model.tasks.base import Batch, Learner
from model.tasks.classification import Classification
from model.tasks.vectors import choose_words, hash_words, known_ids
from model.tasks.views import VectorRound
from model.training.loop import parameter_groups

BATCH_BYTES = 4 * 4096
"""Bytes per batch when served, as in the service on a CPU: four long documents, or more shorter ones."""
SINGLE_BYTES = 300
"""Bytes of a document that is served alone."""
STEP_DOCUMENTS = 32
"""Documents per training step."""
TRAINED_DOCUMENTS = 4_000
"""Number of reviews that the vector view is trained on."""
OURS, PAPER = "imdb-s3", "imdb-paper"
EARLIER, SINGLE = "earlier ", "single"
"""Prefix of the turns of an earlier version, and name of the turn of a document alone."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    add_data_dir(parser)
    parser.add_argument("--earlier", type=Path, metavar="FOLDER", help="version folder of an earlier export")
    parser.add_argument("--rounds", type=int, default=20, help="measured rounds (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Seconds of each round of serving and training; memory and FLOPs."""
    torch.set_num_threads(1)
    yield {"serving_s": serving_seconds(args.rounds, args.earlier), "training": training(args.rounds, args.data_dir)}


def training(rounds: int, data_dir: Path) -> dict[str, Data]:
    """Seconds of each step, additional memory of training in bytes, and FLOPs, of both models."""
    trainers = {name: Trainer.of(name, data_dir) for name in (OURS, PAPER)}
    turns = {name: trainer.step for name, trainer in trainers.items()}
    seconds = interleave(turns, rounds, warm_up=2, label="training")
    return {
        name: {
            "step_s": seconds[name],
            "memory_bytes": memory.in_own_process(added_memory, name, data_dir),
            "flops": trainer.flops(),
        }
        for name, trainer in trainers.items()
    }


def added_memory(name: str, data_dir: Path) -> int:
    """Peak memory of training in bytes, above that of the process before."""
    torch.set_num_threads(1)
    trainer = Trainer.of(name, data_dir)
    before = memory.forget_peak()
    for _ in range(5):
        trainer.step()
    return memory.peak() - before


@dataclass
class Trainer:
    """A model, the part of it that is trained, its optimiser and an endless iterator of batches."""

    learner: Learner
    model: nn.Module
    trained: nn.Module
    optimiser: torch.optim.Optimizer
    batches: Iterator[Batch]

    @classmethod
    def of(cls, recipe: str, data_dir: Path) -> "Trainer":
        """Create a trainer for a recipe."""
        config = load_recipe(find_recipe(recipe), [f"training.batch_size={STEP_DOCUMENTS}"])
        assert isinstance(config, ClassificationRun)
        task = Classification(config)
        task.load(data_dir)
        torch.manual_seed(0)
        model = task.build()
        learner, trained = (task, model) if config.model.kind == "bytes" else vector_round(task, model)
        if config.model.kind == "bytes":
            task.initialise(model, torch.device("cpu"))
        optimiser = torch.optim.AdamW(parameter_groups(trained.train(), config.training.learning_rate), fused=True)
        batches = itertools.chain.from_iterable(learner.batches(epoch) for epoch in itertools.count())
        return cls(learner, model, trained, optimiser, batches)

    def step(self) -> float:
        """Run one step (forward, backward, optimiser); returns its duration in seconds."""
        batch = next(self.batches)
        started = time.perf_counter()
        self.optimiser.zero_grad(set_to_none=True)
        self.learner.loss(self.trained, batch).backward()
        self.optimiser.step()
        return time.perf_counter() - started

    def flops(self) -> int:
        """FLOPs of matrix products for one document of 4,096 bytes."""
        document, lengths = pad_rows([b"word " * 819 + b"w"], 4096)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            self.model.eval()(torch.from_numpy(document), torch.from_numpy(lengths))
        return int(counter.get_total_flops())


def vector_round(task: Classification, model: nn.Module) -> tuple[Learner, nn.Module]:
    """A round of the vector view on labelled reviews, with random word vectors, and the vector view."""
    assert isinstance(model, WordClassifier)
    assert model.vector_view is not None
    texts = [text[: task.length] for text in task.data.train.texts[:TRAINED_DOCUMENTS]]
    words = hash_words(model.words, texts)
    known = known_ids(words, choose_words((words,), hash_words(model.words, []), len(model.vector_view.vectors) - 1))
    model.vector_view.vectors.data.normal_()
    targets = np.eye(len(task.data.labels), dtype=np.float32)[task.data.train.labels[: len(texts)]]
    return VectorRound(known, targets, STEP_DOCUMENTS, "0"), model.vector_view


def serving_seconds(rounds: int, earlier: Path | None) -> dict[str, list[float]]:
    """Seconds per document of each round: the shipped model, an earlier version of it, and the paper's."""
    turns = export_turns(version_folder(Path("exports") / OURS), "")
    if earlier is not None:
        turns |= export_turns(earlier, EARLIER)
    paper = turn(untrained.load(PAPER), 4096, 4096, BATCH_BYTES // 4096)
    # Not between the others: its activations would displace theirs from the caches, and change how memory is allocated.
    seconds = interleave(turns, rounds, warm_up=3, label="serving")
    return seconds | interleave({"paper": paper}, rounds, warm_up=3, label="serving the paper's")


def export_turns(folder: Path, prefix: str) -> dict[str, Callable[[], float]]:
    """Turns of an export: one for each bucket, in batches, and one for a short document alone."""
    manifest = read_manifest(folder)
    backend = create_backend(manifest, folder, device="cpu")
    buckets = sorted(manifest.files_of("onnx"))
    bucket = next(size for size in buckets if size >= SINGLE_BYTES)
    single = {f"{prefix}{SINGLE}": turn(backend, SINGLE_BYTES, bucket, 1)}
    return single | {f"{prefix}{size}": turn(backend, size, size, BATCH_BYTES // size) for size in buckets}


def turn(backend: InferenceBackend, length: int, bucket: int, count: int) -> Callable[[], float]:
    """Function that computes one batch of `count` documents of English words; returns seconds per document."""
    text = Path("README.md").read_bytes()
    rows = [(text[i * 997 % len(text) :] + text)[:length] for i in range(count)]
    document, lengths = pad_rows(rows, bucket)

    def compute() -> float:
        started = time.perf_counter()
        backend.run({"bytes": document, "lengths": lengths})
        return (time.perf_counter() - started) / count

    return compute


def report(record: Record) -> str:
    """Report on serving and training."""
    ms = {name: 1000 * statistics.median(seconds) for name, seconds in record.data["serving_s"].items()}
    serving = [
        [
            label_of(name),
            f"{value:.2f}",
            f"{value / ms[EARLIER + name]:.2f} x" if EARLIER + name in ms else "",
            f"{ms['paper'] / value:.1f} x",
        ]
        for name, value in ms.items()
        if not name.startswith(EARLIER)
    ]
    earlier = record.settings.get("earlier")
    trained = record.data["training"]
    speed = {name: STEP_DOCUMENTS * len(found["step_s"]) / sum(found["step_s"]) for name, found in trained.items()}
    rows = [
        [
            "ours" if name == OURS else "the paper's",
            f"{speed[name]:.1f}",
            f"{speed[name] / speed[PAPER]:.1f}",
            f"{found['memory_bytes'] / 2**20:.0f}",
            f"{found['flops'] / 1e6:.0f}",
        ]
        for name, found in trained.items()
    ]
    heads = ["model", "documents/s", "ratio", "memory of training, MiB", "MFLOP a document of 4,096 bytes"]
    return "\n".join(
        [
            f"Served by ONNX Runtime, one thread, batches of {BATCH_BYTES:,} bytes: median of "
            f"{record.settings['rounds']} rounds in turns; the paper's model is timed after the others."
            + (f" The earlier version is `{earlier}`." if earlier else ""),
            "",
            table(["model and bytes", "ms a document", "to the earlier version", "the paper's takes"], serving),
            f"A document of 512 bytes costs {ms['4096'] / ms['512']:.1f} times less than one of 4,096.",
            "",
            f"Training on IMDb's reviews at their lengths, one thread, steps of {STEP_DOCUMENTS} documents in turns, "
            "eager PyTorch:",
            "",
            table(heads, rows),
            "FLOPs are those of matrix products and convolutions; look-ups and FFTs are not counted.",
        ]
    )


def label_of(name: str) -> str:
    """Label of a row of the report."""
    if name == "paper":
        return "the paper's, any up to 4,096"
    return f"ours, {SINGLE_BYTES}, alone" if name == SINGLE else f"ours, {int(name):,}"


def draw(record: Record, path: Path) -> None:
    """Chart of milliseconds against bytes."""
    served = record.data["serving_s"]
    lengths = [int(name) for name in served if name.isdigit()]
    figure, (axes,) = chart.figure((6, 4))
    axes.plot(lengths, [1000 * statistics.median(served[str(n)]) for n in lengths], marker="o", label="ours")
    axes.axhline(1000 * statistics.median(served["paper"]), color="black", label="the paper's")
    axes.set(xlabel="bytes", ylabel="ms a document, one thread", xscale="log", yscale="log", xticks=lengths)
    axes.set_xticklabels([f"{n:,}" for n in lengths])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    chart.save(figure, path)


BENCHMARK = Benchmark(
    program="benchmarks.models.classifier_speed",
    title="Cost of a document",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    chart=draw,
    packages=("torch", "onnxruntime", "numpy"),
)

if __name__ == "__main__":
    BENCHMARK.main()
