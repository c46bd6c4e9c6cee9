"""`python -m benchmarks.models.long_documents`: classifiers of long documents that read the head, windows or the whole.

TF-IDF of words and bigrams with logistic regression (scikit-learn, extra `train`), and the recipes `scotus` and
`un-debate`, on documents of up to 65,536 bytes. All are fitted on the training split only; C of TF-IDF is chosen on
validation, that of the recipes by cross-validation on the training split. No fit has a random part. Each result is
recorded as soon as it is measured; a restarted benchmark continues.
"""

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer
from tqdm import tqdm

from artifact.documents import cut, take
from artifact.provenance import git_revision
from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import table
from benchmarks.models.runs import fingerprint, options_of, train
from model.config.data import DocumentsConfig
from model.data.documents import LabelledDocuments, load_documents
from model.data.own import DataFiles
from model.runs.load import Trained, load_trained
from model.tasks.classification import ClassificationTask
from model.tasks.graphs import module_functions
from model.tasks.regression import regressions
from model.tasks.two_views import NGRAMS as CHOICE

NAME = "long_documents"
RECIPES = {"scotus": "scotus", "un-debate": "un-debate", "un-debate-country": "un-debate"}
"""Recipe of each data set."""
OPTIONS = {"un-debate-country": ('model.ngram_view.tried=["prefixes"]',)}
"""Changes of the recipe for a data set. On countries that it does not know, cross-validation tries prefixes, too."""
LENGTHS = {"head": 4_096, "windows": 4_096, "whole": 65_536}
"""Bytes read at once: the first ones alone, or all windows, whose logits are averaged."""
STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0)
"""Candidate inverse regularisation C of TF-IDF."""
TFIDF, NGRAMS = "TF-IDF", "n-gram view"
METHODS = (*((TFIDF, part) for part in LENGTHS), (NGRAMS, "windows"), (NGRAMS, "whole"))
"""(Model, what it reads of a document)."""
BASELINE = (TFIDF, "whole")
"""Method to which the others are compared."""

Labels = NDArray[np.int64]


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Measure the methods that the record lacks."""
    results: list[Data] = earlier(NAME, args.out).get("results", [])
    for name in args.sets:
        for model, part in METHODS:
            recipe = fingerprint(RECIPES[name], overrides(name, part)) if model == NGRAMS else ""
            key = {"documents": name, "model": model, "part": part, "recipe": recipe}
            if any(key.items() <= found.items() for found in results):
                continue
            results = [found for found in results if (found["documents"], method_of(found)) != (name, (model, part))]
            measured = tfidf(name, part, args.data_dir) if model == TFIDF else ngrams(name, part, args)
            results.append({**key, "revision": git_revision(), **measured})
            yield {"results": results}


def tfidf(name: str, part: str, data_dir: Path) -> Data:
    """Fit TF-IDF and logistic regression on a part of each document; choose C on validation, evaluate on test."""
    config = DocumentsConfig.model_validate({"name": name})
    data = load_documents(config, data_dir)
    splits = [data.train, data.validation, data.test]
    started = time.perf_counter()
    rows = [[parts_of(text, part) for text in tqdm(split.texts, leave=False)] for split in splits]
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
    vectorizer.fit(window for windows in rows[0] for window in windows)
    train_x, validation_x, test_x = (features(vectorizer, windows) for windows in rows)
    train_labels, validation_labels, test_labels = (np.array(split.labels) for split in splits)
    fitted = regressions(train_x, train_labels, STRENGTHS)
    accuracies = [float((predicted(validation_x, *found) == validation_labels).mean()) for found in fitted]
    best = int(np.argmax(accuracies))
    return {
        "strength": STRENGTHS[best],
        "validation": accuracies[best],
        "fit_s": time.perf_counter() - started,
        "correct": digits(predicted(test_x, *fitted[best]) == test_labels),
    }


def parts_of(text: bytes, part: str) -> list[str]:
    """What is read of a document: its head, or all of it in as few windows as possible, as a service cuts it."""
    windows = cut(len(text), LENGTHS[part], 0, "head" if part == "head" else "windows")
    return [take(text, spans).decode(errors="replace") for spans in windows]


def features(vectorizer: TfidfVectorizer, documents: Sequence[Sequence[str]]) -> csr_matrix:
    """Mean TF-IDF vector of each document's windows: its logits are the mean of those of its windows."""
    sizes = np.array([len(windows) for windows in documents])
    of_document = np.repeat(np.arange(len(documents)), sizes)
    means = csr_matrix((1 / sizes[of_document], (of_document, np.arange(len(of_document)))))
    return means @ vectorizer.transform(window for windows in documents for window in windows)


def predicted(x: csr_matrix, weights: NDArray[np.float64], bias: NDArray[np.float64]) -> Labels:
    """Class of each document."""
    found: Labels = (x @ weights + bias).argmax(1)
    return found


def overrides(name: str, part: str) -> tuple[str, ...]:
    """Changes of the recipe for a data set and what is read at once."""
    length = () if part == "whole" else (f"model.ngram_view.max_length={LENGTHS[part]}",)
    return (f"data.name={name}", *length, *OPTIONS.get(name, ()))


def ngrams(name: str, part: str, args: argparse.Namespace) -> Data:
    """Train the recipe, or find its run, and evaluate it."""
    folder = train(RECIPES[name], (*overrides(name, part), "seed=0"), args.runs / f"{name}-{part}", args.data_dir)
    best = load_trained(folder, DataFiles(args.data_dir))
    return {
        "strength": best.task.facts[CHOICE]["strength"],
        "validation": float(right_answers(best, best.data.validation).mean()),
        "fit_s": best.progress.seconds,
        "correct": digits(right_answers(best, best.data.test)),
    }


def right_answers(best: Trained, documents: LabelledDocuments) -> NDArray[np.bool_]:
    """Whether a trained classifier is right, for each document."""
    assert isinstance(best.task, ClassificationTask)
    function = module_functions(best.finished.graphs, torch.device("cpu"))[0]
    answers = best.task.document_logits(function, documents.texts).argmax(1)
    return np.array(answers == np.array(documents.labels))


def digits(values: NDArray[np.bool_]) -> str:
    """1 for each test document that is classified correctly and 0 for each other one, in their order."""
    return "".join("01"[int(value)] for value in values)


def method_of(found: Data) -> tuple[str, str]:
    """Model, and what it reads."""
    return found["model"], found["part"]


def correct(found: Data) -> NDArray[np.float64]:
    """1.0 for each test document that is classified correctly, 0.0 for each other one."""
    return np.array([float(digit) for digit in found["correct"]])


def report(record: Record) -> str:
    """Report with one row per data set and method."""
    rows = []
    for name, found in by_set(record):
        for model, part in METHODS:
            if (result := found.get((model, part))) is not None:
                rows.append(
                    [
                        name,
                        model,
                        f"{part}, {LENGTHS[part]:,} bytes",
                        f"{result['strength']:g}",
                        f"{100 * result['validation']:.1f}",
                        f"{100 * correct(result).mean():.1f}",
                        difference(result, found.get(BASELINE)),
                        difference(result, found.get((model, "windows"))) if part == "whole" else "",
                        f"{result['fit_s']:.0f}",
                    ]
                )
    columns = ["documents", "model", "reads", "C", "validation", "test", "less TF-IDF, whole", "less windows", "fit, s"]
    sizes = ", ".join(f"{name} {len(next(iter(found.values()))['correct']):,}" for name, found in by_set(record))
    return (
        "Accuracy in %; all models are fitted on the training split. Differences are those of the same test documents, "
        f"in points, ± their standard error. Times include the choice of C. Test documents: {sizes}.\n\n"
        f"{table(columns, rows)}\n"
        f"Revisions: {', '.join(sorted({found['revision'] for found in record.data['results']}))}.\n"
    )


def difference(result: Data, other: Data | None) -> str:
    """Difference of the accuracies of the same documents ± its standard error, in points."""
    if other is None or method_of(other) == method_of(result):
        return ""
    return points(correct(result) - correct(other))


def points(differences: NDArray[np.float64]) -> str:
    """Mean difference ± its standard error, in points."""
    return f"{100 * differences.mean():+.1f} ± {100 * differences.std(ddof=1) / math.sqrt(len(differences)):.1f}"


def by_set(record: Record) -> Iterator[tuple[str, dict[tuple[str, str], Data]]]:
    """Data set and its results by method."""
    for name in RECIPES:
        found = {method_of(row): row for row in record.data["results"] if row["documents"] == name}
        if found:
            yield name, found


def draw(record: Record, path: Path) -> None:
    """Chart with one panel per data set: accuracy of each method."""
    figure, panels = chart.figure((12, 3.5), len(RECIPES))
    found = dict(by_set(record))
    for axes, name in zip(panels, RECIPES, strict=True):
        results = [found.get(name, {}).get(method) for method in METHODS]
        bars = [(place, result) for place, result in enumerate(results) if result is not None]
        values = [100 * correct(result).mean() for _, result in bars]
        axes.barh([place for place, _ in bars], values, color=["C1" if r["model"] == NGRAMS else "C0" for _, r in bars])
        axes.set(title=name, xlabel="test accuracy, %")
        axes.set_yticks(range(len(METHODS)), [f"{model}, {part}" for model, part in METHODS])
        axes.set_xlim(max(0, min(values, default=10) - 10), max(values, default=90) + 2)
        axes.invert_yaxis()
    chart.save(figure, path)


BENCHMARK = Benchmark.of(
    "Long documents", measure, report, draw, options_of(NAME, RECIPES), ("scikit-learn", "torch", "numpy")
)

if __name__ == "__main__":
    BENCHMARK.main()
