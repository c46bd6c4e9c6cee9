"""`python -m benchmarks.models.words_and_bytes`: whether a model of bytes improves the classifier of words.

Trains the recipes `imdb-s3` and `imdb-bytes`, the latter without a vector view, and adds their logits, with weights
fitted on validation, as the views of one model are combined. Both learn from the same reviews, with and without labels.
Each result is recorded when its runs end; a restarted benchmark continues.
"""

import argparse
from collections.abc import Iterator

import numpy as np
import torch
from tqdm import tqdm

from artifact.provenance import git_revision
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import mean_and_deviation, table
from benchmarks.models.long_documents import correct, digits, points
from benchmarks.models.runs import Case, options_of, revisions, train
from model.data.documents import LabelledDocuments
from model.data.own import DataFiles
from model.runs.load import Trained, load_trained
from model.tasks.classification import ClassificationTask
from model.tasks.graphs import module_functions
from model.tasks.link import Outputs
from model.tasks.views import combined, cross_entropies, fit_weights, held_out_logits

NAME = "words_and_bytes"
WORDS = Case("words", "imdb-s3")
BYTES = Case("bytes", "imdb-bytes", overrides=("model.vector_view.rounds=[]",))
BOTH = "words + bytes"
SEEDS = 1


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train the runs that the record lacks."""
    recipes = [WORDS.fingerprint, BYTES.fingerprint]
    results: list[Data] = [one for one in earlier(NAME, args.out).get("results", []) if one["recipes"] == recipes]
    done = {one["seed"] for one in results}
    for seed in tqdm([seed for seed in range(SEEDS) if seed not in done], unit="seed"):
        words, of_bytes = (trained(case, seed, args) for case in (WORDS, BYTES))
        validation, test = words.data.validation, words.data.test
        truth, answers = np.array(validation.labels), np.array(test.labels)
        first, second = logits_of(words, validation), logits_of(of_bytes, validation)
        first_test, second_test = logits_of(words, test), logits_of(of_bytes, test)
        weights = fit_weights(first, second, truth)
        models = {
            WORDS.name: (held_out_logits(first, None, truth), first_test),
            BYTES.name: (held_out_logits(second, None, truth), second_test),
            BOTH: (held_out_logits(first, second, truth), combined(first_test, second_test, weights)),
        }
        for model, (held_out, tested) in models.items():
            measured = {
                "validation": float(cross_entropies(held_out, truth).mean()),
                "test": float(cross_entropies(tested, answers).mean()),
                "correct": digits(tested.argmax(1) == answers),
            }
            found = {"model": model, "seed": seed, "recipes": recipes, "revision": git_revision()}
            results.append(found | measured | ({"weights": list(weights)} if model == BOTH else {}))
        yield {"results": results}


def trained(case: Case, seed: int, args: argparse.Namespace) -> Trained:
    """Train a case, or find its run."""
    folder = train(case.recipe, (*case.overrides, f"seed={seed}"), args.runs / case.folder, args.data_dir, threads=1)
    return load_trained(folder, DataFiles(args.data_dir))


def logits_of(run: Trained, documents: LabelledDocuments) -> Outputs:
    """Logits of a trained classifier, (documents, classes)."""
    assert isinstance(run.task, ClassificationTask)
    return run.task.document_logits(module_functions(run.finished.graphs, torch.device("cpu"))[0], documents.texts)


def report(record: Record) -> str:
    """Report with one row per model."""
    results = record.data["results"]
    by_model = {model: [one for one in results if one["model"] == model] for model in (WORDS.name, BYTES.name, BOTH)}
    words = np.mean([correct(one) for one in by_model[WORDS.name]], axis=0)
    rows = [
        [
            model,
            str(len(found)),
            mean_and_deviation([100 * correct(one).mean() for one in found], ".2f"),
            "" if model == WORDS.name else points(np.mean([correct(one) for one in found], axis=0) - words),
            mean_and_deviation([one["test"] for one in found], ".4f"),
            mean_and_deviation([one["validation"] for one in found], ".4f"),
        ]
        for model, found in by_model.items()
    ]
    columns = ["model", "seeds", "accuracy", "less words", "cross-entropy", "cross-entropy on validation"]
    weights = "; ".join("{:.2f} and {:.2f}".format(*one["weights"]) for one in by_model[BOTH])
    return (
        f"IMDb's {len(words):,} test reviews. Accuracy in %, mean ± standard deviation over seeds; the difference to "
        "the model of words in points, ± its standard error over the reviews. On validation, each fold is classified "
        f"with weights fitted on the others. Weights of the logits: {weights}.\n\n{table(columns, rows)}\n"
        f"{revisions(results)}\n"
    )


BENCHMARK = Benchmark.of("Words and bytes", measure, report, None, options_of(NAME), ("torch", "numpy"))

if __name__ == "__main__":
    BENCHMARK.main()
