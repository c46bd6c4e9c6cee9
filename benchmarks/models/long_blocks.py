"""`python -m benchmarks.models.long_blocks`: what blocks over a whole long document add to its n-gram view.

Needs the runs of `benchmarks.models.long_documents`. A document of up to 65,536 bytes becomes at most 256 tokens, the
means of the word2vec vectors of consecutive words, which stay as they are. A block over the tokens learns from the
labels: S3Attention, a convolution of equal cost, softmax attention, or none. S3Attention also learns from a random part
of each document in each epoch. The logits of a block are added to those of the n-gram view, with weights fitted on
validation. Each result is recorded as soon as it is measured; a restarted benchmark continues.
"""

import argparse
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact.provenance import git_revision
from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import table
from benchmarks.models.classification import CONVOLUTION, NO_BLOCK
from benchmarks.models.long_documents import NAME as RUNS
from benchmarks.models.long_documents import RECIPES, correct, digits, overrides
from benchmarks.models.runs import fingerprint
from model.config.data import DocumentsConfig
from model.config.models import VectorViewConfig
from model.config.recipes import find_recipe, load_recipe
from model.config.run import ClassificationRun
from model.data.documents import Documents, load_test, load_training
from model.nn.encoder import masked_mean
from model.nn.vectors import VectorClassifier
from model.nn.words import WordHasher
from model.tasks.base import Batch, Learner, module_runs
from model.tasks.classification import Classification, Logits, accuracy
from model.tasks.vectors import Words, choose_words, hash_words, known_ids, train_vectors
from model.tasks.views import BATCH, combine, combined, inputs_of
from model.training import checkpoint
from model.training.checkpoint import Progress
from model.training.loop import Job, Trainer
from model.training.trained import load_trained

NAME = "long_blocks"
SETS = ("scotus", "un-debate-country")
SEEDS = 3
TOKENS = 256
SETTINGS = (
    f"model.encoder.seq_len={TOKENS}",
    "model.vector_view.bytes_per_token=64",
    "training.epochs=8",
    f"training.batch_size={BATCH}",
    "training.learning_rate=1e-3",
)
BLOCKS = {
    "none": NO_BLOCK,
    "convolution": CONVOLUTION,
    "softmax attention": ('model.encoder.attention="softmax"', "model.encoder.options={}"),
    "S3Attention": (),
    (PARTS := "S3Attention, random parts"): (),
}
"""Overrides of each block. The convolution has as many products as S3Attention."""
DROPOUT, POOLED_DROPOUT = 0.1, 0.2
SHORTEST_PART = 0.5
"""Minimum length of a random part of a document, as a fraction of its tokens."""

Splits = dict[str, Documents]


@dataclass(frozen=True)
class Inputs:
    """What the blocks of a data set learn from; the keys are splits."""

    labels: dict[str, NDArray[np.int64]]
    tokens: dict[str, list[Tensor]]
    """Tokens (T, C) of each document, in half precision."""
    ngrams: dict[str, Logits]
    """Logits (documents, classes) of the n-gram view on validation and test."""


class TokenClassifier(VectorClassifier):
    """The vector view after its embedding: tokens (B, T, C) and numbers of tokens (B,) -> logits (B, classes).

    `forward` has a third argument, which it ignores, as the base class has three.
    """

    def forward(self, tokens: Tensor, counts: Tensor, _: Tensor) -> Tensor:
        """Classify documents given as tokens."""
        x, is_real = self._encode(tokens, counts)
        highest = x.masked_fill(~is_real.unsqueeze(-1), -torch.inf).amax(dim=1)
        pooled = torch.cat((masked_mean(x, counts), highest), dim=1)
        return self.head(self.pooled_dropout(pooled))  # type: ignore[no-any-return]


class TokenTask(Learner):
    """Training on the labels of documents that are given as tokens.

    Args:
        inputs: documents of all splits.
        seed: seed of the order and of the parts of the documents.
        has_parts: whether each epoch reads another random part of each document instead of all of it.

    """

    unit, metric = "doc", "accuracy"

    def __init__(self, inputs: Inputs, seed: int, *, has_parts: bool = False) -> None:
        self.inputs, self.seed, self.has_parts, self.facts = inputs, seed, has_parts, {}

    @property
    def examples_per_epoch(self) -> int:
        """Number of training documents in whole batches."""
        return len(self.inputs.labels["train"]) // BATCH * BATCH

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield shuffled batches: tokens (B, T, C), their numbers (B,), labels (B,)."""
        tokens, labels = self.inputs.tokens["train"], self.inputs.labels["train"]
        order, generator = list(range(len(labels))), random.Random(f"{self.seed}-{epoch}")
        generator.shuffle(order)
        for first in range(0, self.examples_per_epoch, BATCH):
            chosen = order[first : first + BATCH]
            rows = [part_of(tokens[i], generator) if self.has_parts else tokens[i] for i in chosen]
            yield *padded(rows), torch.from_numpy(labels[chosen])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Cross-entropy."""
        tokens, counts, labels = batch
        return nn.functional.cross_entropy(model(tokens, counts, labels), labels)

    def validate(self, model: nn.Module, device: torch.device) -> float:
        """Accuracy on validation."""
        del device
        return accuracy(self.logits(model, "validation"), self.inputs.labels["validation"])

    def logits(self, model: nn.Module, split: str) -> Logits:
        """Logits (documents, classes) of a split."""
        tokens, parts = self.inputs.tokens[split], []
        with torch.inference_mode():
            for first in range(0, len(tokens), BATCH):
                rows, counts = padded(tokens[first : first + BATCH])
                parts.append(model(rows, counts, counts).numpy())
        return np.concatenate(parts)


def part_of(tokens: Tensor, generator: random.Random) -> Tensor:
    """A random part of a document's tokens (T, C), of at least SHORTEST_PART of them."""
    count = generator.randint(math.ceil(SHORTEST_PART * len(tokens)), len(tokens))
    start = generator.randint(0, len(tokens) - count)
    return tokens[start : start + count]


def padded(tokens: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Tokens of documents (B, T, C), padded with zeros, and the number of each (B,)."""
    rows = nn.utils.rnn.pad_sequence([row.float() for row in tokens], batch_first=True)
    return rows, torch.tensor([len(row) for row in tokens])


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    add_data_dir(parser)
    parser.add_argument("--runs", default="runs", type=Path, help="folder of all runs (default: %(default)s)")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS, help="default: all")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train the blocks that the record lacks."""
    results: list[Data] = earlier(NAME, args.out).get("results", [])
    for name in args.sets:
        wanted = [
            {"documents": name, "block": block, "seed": seed, "recipe": fingerprint(RECIPES[name], changes)}
            for seed in range(SEEDS)
            for block in BLOCKS
            for changes in (settings(name, block),)
        ]
        missing = [key for key in wanted if not any(key.items() <= found.items() for found in results)]
        if not missing:
            continue
        inputs = prepare(name, args)
        for key in missing:
            found = train(key, inputs, args.runs / NAME)
            results = [row for row in results if any(row[part] != key[part] for part in ("documents", "block", "seed"))]
            results.append({**key, "revision": git_revision(), **found})
            yield {"results": results}


def settings(name: str, block: str) -> tuple[str, ...]:
    """Changes of the recipe of a data set for a block."""
    return (*overrides(name, "whole"), *SETTINGS, *BLOCKS[block])


def config_of(name: str, block: str) -> ClassificationRun:
    """Recipe of a data set with a block."""
    config = load_recipe(find_recipe(RECIPES[name]), list(settings(name, block)))
    assert isinstance(config, ClassificationRun)
    return config


def prepare(name: str, args: argparse.Namespace) -> Inputs:
    """Read a data set, compute the logits of its n-gram view, and train word vectors on its training split."""
    config = config_of(name, "S3Attention")
    assert isinstance(config.data, DocumentsConfig)
    data = load_training(config.data, args.data_dir)
    test = load_test(config.data, args.data_dir, data.labels)
    splits = {"train": data.train, "validation": data.validation, "test": test}
    return Inputs(
        {split: np.array(found.labels) for split, found in splits.items()},
        tokenise(config, splits),
        ngram_logits(next((args.runs / RUNS / f"{name}-whole").iterdir()), splits, args.data_dir),
    )


def ngram_logits(folder: Path, splits: Splits, data_dir: Path) -> dict[str, Logits]:
    """Logits of a run's n-gram view on validation and test."""
    trained = load_trained(folder, data_dir)
    task = trained.task
    assert isinstance(task, Classification)
    run = module_runs(task.graphs(trained.model), torch.device("cpu"))[0]
    return {
        split: np.stack([windows.mean(0) for windows in task.logits(run, splits[split])])
        for split in ("validation", "test")
    }


def tokenise(config: ClassificationRun, splits: Splits) -> dict[str, list[Tensor]]:
    """Tokens of each document: means of the vectors of its words, which are trained on the training split."""
    view, dim = view_of(config), config.model.required_encoder.dim
    hasher = WordHasher(1, config.model.max_length)
    words = {split: hash_words(hasher, found.texts) for split, found in splits.items()}
    vocabulary = choose_words([words["train"]], hash_words(hasher, [b""]), view.vectors.num_words)
    known = {split: known_ids(found, vocabulary) for split, found in words.items()}
    model = VectorClassifier(config.model.required_encoder, view, 1)
    model.vectors.data = torch.from_numpy(train_vectors([known["train"]], view.vectors.num_words, dim, view.vectors, 0))
    return {split: embedded(model, found) for split, found in known.items()}


def view_of(config: ClassificationRun) -> VectorViewConfig:
    """Configuration of the vector view."""
    assert config.model.vector_view is not None
    return config.model.vector_view


@torch.inference_mode()
def embedded(model: VectorClassifier, words: Words) -> list[Tensor]:
    """Tokens of each document."""
    found: list[Tensor] = []
    for first in range(0, len(words), BATCH):
        ids, doc_index, lengths = inputs_of(words, range(first, min(first + BATCH, len(words))))
        x, counts, _ = model.embed(ids, doc_index, lengths, torch.zeros_like(ids))
        found += [row[:count].half() for row, count in zip(x, counts.tolist(), strict=True)]
    return found


def train(key: Data, inputs: Inputs, runs: Path) -> Data:
    """Train a block with a seed; results on validation and test, alone and with the n-gram view."""
    config = config_of(key["documents"], key["block"])
    view = view_of(config)
    torch.manual_seed(key["seed"])
    no_words = view.model_copy(update={"vectors": view.vectors.model_copy(update={"num_words": 1})})
    model = TokenClassifier(config.model.required_encoder, no_words, inputs.ngrams["test"].shape[1])
    model.vectors.requires_grad_(False)
    model.set_dropout(DROPOUT, POOLED_DROPOUT, 0.0)
    task = TokenTask(inputs, key["seed"], has_parts=key["block"] == PARTS)
    folder = runs / f"{key['documents']}-{key['block'].replace(', ', '-').replace(' ', '-')}-{key['seed']}"
    folder.mkdir(parents=True, exist_ok=True)
    progress = Trainer(Job(config, task, model, folder, torch.device("cpu")), Progress())()
    checkpoint.load_weights(model, checkpoint.load(folder / "best.pt")[3], folder / "best.pt")
    second = {split: task.logits(model.eval(), split) for split in inputs.ngrams}
    weights = combine(inputs.ngrams["validation"], second["validation"], inputs.labels["validation"])
    first, labels = inputs.ngrams["test"], inputs.labels["test"]
    both = combined(first, second["test"], weights)
    return {
        "validation": progress.best,
        "weights": list(weights),
        "seconds": progress.seconds,
        "alone": digits(second["test"].argmax(1) == labels),
        "correct": digits(both.argmax(1) == labels),
        "ngrams": digits(first.argmax(1) == labels),
    }


def report(record: Record) -> str:
    """Report with one row per data set and block."""
    rows = []
    for name in SETS:
        for block in BLOCKS:
            if found := [row for row in record.data["results"] if (row["documents"], row["block"]) == (name, block)]:
                alone = [100 * correct({"correct": row["alone"]}).mean() for row in found]
                both = [100 * correct(row).mean() for row in found]
                rows.append(
                    [
                        name,
                        block,
                        str(len(found)),
                        spread(alone),
                        f"{100 * correct({'correct': found[0]['ngrams']}).mean():.1f}",
                        spread(both),
                        gain(found),
                        f"{np.mean([row['weights'][1] for row in found]):.2f}",
                    ]
                )
    columns = ["documents", "block", "runs", "block alone", "n-gram view", "both", "gain", "weight"]
    return (
        "Test accuracy in %, mean ± standard deviation over the seeds. The gain is that of both views over the n-gram "
        "view in points, the mean over the seeds ± the standard error of the same test documents. The weight is that "
        "of the block's logits.\n\n"
        f"{table(columns, rows, left=2)}\n"
        f"Revisions: {', '.join(sorted({found['revision'] for found in record.data['results']}))}.\n"
    )


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation."""
    deviation = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{deviation}"


def gain(found: Sequence[Data]) -> str:
    """Mean gain over the n-gram view ± its standard error over the test documents, in points."""
    gains = [100 * (correct(row) - correct({"correct": row["ngrams"]})) for row in found]
    values = np.mean(gains, axis=0)
    return f"{values.mean():+.1f} ± {values.std(ddof=1) / math.sqrt(len(values)):.1f}"


def draw(record: Record, path: Path) -> None:
    """Chart with one panel per data set: accuracy of both views by block, and of the n-gram view."""
    results = record.data["results"]
    names = [name for name in SETS if any(row["documents"] == name for row in results)]
    figure, panels = chart.figure((6 * len(names), 3), len(names))
    for axes, name in zip(panels, names, strict=True):
        found = [row for row in results if row["documents"] == name]
        for place, block in enumerate(BLOCKS):
            values = [100 * correct(row).mean() for row in found if row["block"] == block]
            axes.plot(values, [place] * len(values), "o")
        for row in found[:1]:
            axes.axvline(100 * correct({"correct": row["ngrams"]}).mean(), color="C7", label="n-gram view alone")
            axes.legend(fontsize=8)
        axes.set(title=name, xlabel="test accuracy of both views, %")
        axes.set_yticks(range(len(BLOCKS)), list(BLOCKS))
        axes.grid(alpha=0.3)
    chart.save(figure, path)


BENCHMARK = Benchmark(
    program="benchmarks.models.long_blocks",
    title="Blocks over long documents",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    chart=draw,
    packages=("torch", "numpy", "gensim"),
)

if __name__ == "__main__":
    BENCHMARK.main()
