"""`python -m benchmarks.papers.questions`: what reviewers of SKTformer asked about S3Attention, on Text.

Sampled indices: how much the accuracy depends on which rows and columns are sampled, compared with the seed of the
training, and what a trained model loses if they are drawn again, as on loading a model of the released code. Kernel L:
whether it overfits, on few training documents. Averages: the deviation of the published average over five tasks.
"""

import argparse
import math
import random
import statistics
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from artifact.documents import softmax
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import mean_and_deviation, table
from benchmarks.papers.claims import prepare, steps
from model.data.documents import LabelledDocuments
from model.nn.attention.s3 import SkeletonAttention
from model.nn.classifier import ByteClassifier
from model.tasks.classification import ByteLearner
from model.tasks.graphs import module_functions

LENGTH = 256
RECIPE = ("model.encoder.mode=paper-masked", f"model.encoder.seq_len={LENGTH}")
CASES = ((0, 0), (0, 1), (0, 2), (1, 0), (2, 0))
"""Seed of the training and `sampling_seed`."""
DRAWS = 3
FEW, FEW_STEPS = 400, 200
"""Training documents and steps of the runs that may overfit."""
KERNELS = {"with L": (), "without L": ("model.encoder.options.use_fourier=false",)}
PUBLISHED = {
    "r = s1 = s2 = 8": ((38.30, 69.27, 83.26, 53.90, 75.82), (0.40, 0.83, 0.45, 1.54, 0.97), "64.11 (2.07)"),
    "best": ((39.15, 71.58, 83.73, 57.73, 78.20), (0.48, 0.95, 0.61, 1.83, 1.32), "66.08 (2.56)"),
}
"""Accuracies of the five tasks, their deviations over five runs, and the average (SKTformer, Table 1)."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--steps", type=int, default=400, help="training steps on all documents (default: %(default)s)")
    parser.add_argument(
        "--seeds", type=int, default=3, help="seeds of the runs on few documents (default: %(default)s)"
    )
    add_data_dir(parser)


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train the runs of both questions."""
    found: Data = {"sampling": [], "kernel": []}
    learner, _ = prepare(args.data_dir, *RECIPE)
    validation = cut(learner.data.validation)
    for seed in range(args.seeds):
        for name, changes in KERNELS.items():
            own, model = prepare(args.data_dir, *RECIPE, *changes, f"seed={seed}", like=learner)
            own = replace(own, data=replace(own.data, train=few(learner.data.train, seed)))
            train(own, model, FEW_STEPS, f"{name}, seed {seed}")
            run = {"train": scores(own, model, cut(own.data.train)), "validation": scores(own, model, validation)}
            found["kernel"].append({"row": name, "seed": seed, **run})
            yield found
    for seed, sampling_seed in CASES:
        overrides = (*RECIPE, f"seed={seed}", f"model.encoder.sampling_seed={sampling_seed}")
        own, model = prepare(args.data_dir, *overrides, like=learner)
        train(own, model, args.steps, f"seed {seed}, sampling_seed {sampling_seed}")
        accuracy = scores(own, model, validation)[0]
        again = []
        for draw in range(DRAWS):
            draw_again(model, torch.Generator().manual_seed(1000 + draw))
            again.append(scores(own, model, validation)[0])
        found["sampling"].append({"seed": seed, "sampling_seed": sampling_seed, "accuracy": accuracy, "again": again})
        yield found


def train(learner: ByteLearner, model: ByteClassifier, count: int, name: str) -> None:
    """Train for `count` steps."""
    for _ in steps(learner, model, count, name):
        pass
    model.eval()


def cut(documents: LabelledDocuments) -> LabelledDocuments:
    """The first LENGTH bytes of each document."""
    return LabelledDocuments([text[:LENGTH] for text in documents.texts], documents.labels)


def few(documents: LabelledDocuments, seed: int) -> LabelledDocuments:
    """A random sample of FEW documents."""
    chosen = random.Random(seed).sample(range(len(documents)), FEW)
    return LabelledDocuments([documents.texts[i] for i in chosen], [documents.labels[i] for i in chosen])


def scores(learner: ByteLearner, model: ByteClassifier, documents: LabelledDocuments) -> tuple[float, float]:
    """Accuracy and cross-entropy."""
    (function,) = module_functions(learner.task.graphs(model), torch.device("cpu"))
    rows, labels = learner.task.logits(function, documents.texts), np.array(documents.labels)
    logits = np.stack([windows[0] for windows in rows])
    right = softmax(logits)[np.arange(len(labels)), labels]
    return float((logits.argmax(1) == labels).mean()), float(-np.log(right).mean())


def draw_again(model: ByteClassifier, generator: torch.Generator) -> None:
    """Sample other rows and columns in every layer."""
    for layer in model.modules():
        if isinstance(layer, SkeletonAttention):
            layer.rows.copy_(torch.randperm(LENGTH, generator=generator)[: len(layer.rows)])
            columns = torch.randperm(layer.per_head[1], generator=generator)
            layer.columns.copy_(columns[: len(layer.columns)])


def report(record: Record) -> str:
    """Report with one section per question."""
    sampling, kernel = record.data["sampling"], record.data["kernel"]
    own = {(run["seed"], run["sampling_seed"]): 100 * run["accuracy"] for run in sampling}
    losses = [100 * (value - run["accuracy"]) for run in sampling for value in run["again"]]
    varied = {
        "sampling_seed 0, 1, 2; seed 0": [value for (seed, _), value in own.items() if seed == 0],
        "seed 0, 1, 2; sampling_seed 0": [value for (_, sampling_seed), value in own.items() if sampling_seed == 0],
    }
    varied["drawn again after training: difference"] = losses
    rows = [[name, mean_and_deviation(values, ".1f"), str(len(values))] for name, values in varied.items() if values]
    return "\n".join(
        [
            f'Recipe `lra-text` in the paper\'s form (`mode = "paper-masked"`, r = s1 = s2 = 8), the first {LENGTH} '
            "bytes of a review, steps of 16 reviews. Accuracy on validation reviews; mean ± standard deviation.",
            "\n## Kernel L on few documents\n",
            f"Trained on {FEW} reviews alone, {FEW_STEPS} steps. L has {LENGTH // 2 + 1} x 64 complex numbers in each "
            "of two blocks.\n",
            table(["", "n", "training, %", "validation, %", "training, nats", "validation, nats"], kernel_rows(kernel)),
            "## Sampled rows and columns\n",
            f"Trained on all reviews, {record.settings['steps']} steps.\n",
            table(["varied", "accuracy, %", "n"], rows),
            "## Deviation of the published average\n",
            averages(),
        ]
    )


def kernel_rows(runs: list[Data]) -> list[list[str]]:
    """Accuracy and cross-entropy of each row of KERNELS, and the difference of the same seeds."""
    columns = {
        name: [
            [run[split][place] * (1 if place else 100) for run in runs if run["row"] == name]
            for place in (0, 1)
            for split in ("train", "validation")
        ]
        for name in KERNELS
    }
    count = min(len(values[0]) for values in columns.values())
    first, second = columns.values()
    columns["difference"] = [
        [a - b for a, b in zip(one[:count], other[:count], strict=True)]
        for one, other in zip(first, second, strict=True)
    ]
    forms = (".1f", ".1f", ".3f", ".3f")
    return [
        [name, str(len(of[0])), *(mean_and_deviation(values, form) for values, form in zip(of, forms, strict=True))]
        for name, of in columns.items()
        if of[0]
    ]


def averages() -> str:
    """Table of the published averages, with the deviations of the sum and of the mean of independent tasks."""
    rows = []
    for name, (means, deviations, published) in PUBLISHED.items():
        total = math.sqrt(sum(deviation**2 for deviation in deviations))
        rows.append([name, f"{statistics.mean(means):.2f}", published, f"{total:.2f}", f"{total / len(means):.2f}"])
    heads = ["SKTformer, Table 1", "average", "published average", "deviation of the sum", "deviation of the average"]
    return table(heads, rows) + (
        "\nThe published deviation is about that of the sum of five independent tasks, five times that of their "
        "average.\n"
    )


BENCHMARK = Benchmark(
    program="benchmarks.papers.questions",
    title="Questions about S3Attention",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    packages=("torch", "numpy"),
)

if __name__ == "__main__":
    BENCHMARK.main()
