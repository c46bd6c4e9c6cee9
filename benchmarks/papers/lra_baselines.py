"""`python -m benchmarks.papers.lra_baselines`: baselines without attention, on the data of `benchmarks.papers.lra`.

The most frequent label, the most frequent label given the first byte, and logistic regression on byte counts
(scikit-learn defaults, extra `train`), fitted to all training documents.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tqdm import tqdm

from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table
from benchmarks.papers.lra import STUDY
from benchmarks.papers.study import sample_of
from model.config.recipes import find_recipe, load_recipe
from model.config.run import ClassificationRun
from model.data.documents import load_test, load_training

COLUMNS = ("text", "listops", "image")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Accuracy by task and baseline."""
    tasks: dict[str, Data] = {}
    for column in tqdm(COLUMNS, unit="task"):
        recipe = load_recipe(find_recipe(STUDY.columns[column]))
        assert isinstance(recipe, ClassificationRun)
        data = load_training(recipe.data, args.data_dir)
        length = recipe.model.max_length
        train = [text[:length] for text in data.train.texts]
        sample = sample_of(load_test(recipe.data, args.data_dir, data.labels), length)
        truth = np.array(sample.labels)
        answers = {
            "most frequent label": np.full(len(truth), Counter(data.train.labels).most_common(1)[0][0]),
            "first byte": by_first_byte(train, data.train.labels, sample.texts),
            "counts of bytes": by_counts(train, data.train.labels, sample.texts),
        }
        tasks[column] = {
            "examples": len(truth),
            "accuracy": {name: float(np.mean(answer == truth)) for name, answer in answers.items()},
        }
    yield {"tasks": tasks}


def by_first_byte(train: Sequence[bytes], labels: Sequence[int], texts: Sequence[bytes]) -> NDArray[np.int64]:
    """Most frequent label of the training documents with the same first byte."""
    counts: dict[bytes, Counter[int]] = {}
    for text, label in zip(train, labels, strict=True):
        counts.setdefault(text[:1], Counter())[label] += 1
    overall = Counter(labels)
    return np.array([counts.get(text[:1], overall).most_common(1)[0][0] for text in texts])


def by_counts(train: Sequence[bytes], labels: Sequence[int], texts: Sequence[bytes]) -> NDArray[np.int64]:
    """Logistic regression on the counts of the 256 byte values."""
    fitted = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(_counts(train), labels)
    answers: NDArray[np.int64] = fitted.predict(_counts(texts))
    return answers


def _counts(texts: Sequence[bytes]) -> NDArray[np.int64]:
    return np.stack([np.bincount(np.frombuffer(text, np.uint8), minlength=256) for text in texts])


def report(record: Record) -> str:
    """Report with one row per baseline."""
    tasks = record.data["tasks"]
    names = next(iter(tasks.values()))["accuracy"]
    rows = [[name, *(f"{100 * task['accuracy'][name]:.1f}" for task in tasks.values())] for name in names]
    return (
        "Test accuracy in %, on the test documents and at the lengths of `lra`, scale cpu; fitted to all training "
        f"documents.\n\n{table(['', *tasks], rows)}"
    )


BENCHMARK = Benchmark(
    program="benchmarks.papers.lra_baselines",
    title="Long Range Arena without attention",
    description=__doc__,
    options=add_data_dir,
    measure=measure,
    report=report,
    packages=("scikit-learn", "numpy"),
)

if __name__ == "__main__":
    BENCHMARK.main()
