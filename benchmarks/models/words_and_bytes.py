"""`python -m benchmarks.models.words_and_bytes`: whether a model of bytes improves the shipped classifier of words.

Trains the recipe `imdb-bytes`, and adds its logits to those of `imdb-s3`, with weights fitted on
validation, as the views of one model are combined. Both have learned from the same reviews, with and without labels.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

import artifact
from artifact.local import Model
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table
from benchmarks.models.long_documents import correct, digits, points
from benchmarks.models.runs import train
from model.data.documents import LabelledDocuments
from model.data.own import DataFiles
from model.runs.load import Trained, load_trained
from model.tasks.classification import ClassificationTask
from model.tasks.graphs import module_functions
from model.tasks.link import Outputs
from model.tasks.views import combined, cross_entropies, fit_weights, held_out_logits

NAME = "words_and_bytes"
SMALLEST = 1e-12
"""Smallest score of which a logarithm is taken."""
WORDS, BYTES, BOTH = "words", "bytes", "words + bytes"
OVERRIDES = ("seed=0",)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    add_data_dir(parser)
    parser.add_argument("--runs", default=f"runs/{NAME}", type=Path, help="default: %(default)s")
    parser.add_argument("--export", default="exports/imdb-s3", type=Path, help="default: %(default)s")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train the model of bytes, or find its run; classify the validation and the test reviews with both models."""
    run = load_trained(train("imdb-bytes", OVERRIDES, args.runs, args.data_dir, threads=1), DataFiles(args.data_dir))
    served, validation, test = artifact.load(args.export, device="cpu"), run.data.validation, run.data.test
    truth, answers = np.array(validation.labels), np.array(test.labels)
    first, first_test = (served_logits(served, run.data.labels, split.texts) for split in (validation, test))
    second, second_test = logits_of(run, validation), logits_of(run, test)
    weights = fit_weights(first, second, truth)
    models = {
        WORDS: (held_out_logits(first, None, truth), first_test),
        BYTES: (held_out_logits(second, None, truth), second_test),
        BOTH: (held_out_logits(first, second, truth), combined(first_test, second_test, weights)),
    }
    results = {
        model: {
            "validation": float(cross_entropies(held_out, truth).mean()),
            "test": float(cross_entropies(tested, answers).mean()),
            "correct": digits(tested.argmax(1) == answers),
        }
        for model, (held_out, tested) in models.items()
    }
    yield {"words": f"{served.manifest.name}/{served.manifest.version}", "weights": list(weights), "results": results}


def served_logits(model: Model, labels: Sequence[str], texts: Sequence[bytes]) -> Outputs:
    """Logarithms (documents, classes) of the scores of an exported classifier."""
    found = [
        {one["label"]: one["score"] for one in model.classify(text)["scores"]}
        for text in tqdm(texts, unit="doc", leave=False)
    ]
    scores = np.array([[scores[label] for label in labels] for scores in found])
    logits: Outputs = np.log(np.maximum(scores, SMALLEST)).astype(np.float32)
    return logits


def logits_of(run: Trained, documents: LabelledDocuments) -> Outputs:
    """Logits of a trained classifier, (documents, classes)."""
    assert isinstance(run.task, ClassificationTask)
    return run.task.document_logits(module_functions(run.finished.graphs, torch.device("cpu"))[0], documents.texts)


def report(record: Record) -> str:
    """Report with one row per model."""
    results, weights = record.data["results"], record.data["weights"]
    words = correct(results[WORDS])
    rows = [
        [
            model,
            f"{100 * correct(found).mean():.2f}",
            "" if model == WORDS else points(correct(found) - words),
            f"{found['test']:.4f}",
            f"{found['validation']:.4f}",
        ]
        for model, found in results.items()
    ]
    columns = ["model", "accuracy", "less words", "cross-entropy", "cross-entropy on validation"]
    return (
        f"IMDb's {len(words):,} test reviews, `{record.data['words']}` and a model of bytes. Accuracy in %; the "
        "difference in points, ± its standard error over the reviews. On validation, each fold is classified with "
        f"weights fitted on the others. Weights of the logits: {weights[0]:.2f} and {weights[1]:.2f}.\n\n"
        f"{table(columns, rows)}\n"
    )


BENCHMARK = Benchmark.of("Words and bytes", measure, report, None, options, ("torch", "numpy"))

if __name__ == "__main__":
    BENCHMARK.main()
