"""`python -m benchmarks.models.embeddings`: the vectors of /v1/embeddings where the matcher was not trained, on posts.

The label of a newsgroup post, without header, quotes and signature: a vote of the training posts whose vectors are most
like its own, or logistic regression of the vector. The vectors of a matcher are compared with those of TF-IDF (words
and pairs of words) and of its singular vectors (scikit-learn), as many as the matcher's vectors have numbers, fitted on
the training posts or on the papers from which the matcher learned. The validation posts choose the number of neighbours
and C.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer
from tqdm import tqdm

from artifact.arrays import Floats
from artifact.exports import version_folder
from artifact.loading import LoadedModel, load_export
from artifact.tasks.base import Answer, RunModel, advance
from artifact.tasks.matching import LocatedText, Matching, normalized
from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table
from benchmarks.models.long_documents import correct, digits, points
from model.config.data import DocumentsConfig, PairsConfig
from model.data.documents import load_documents
from model.data.pairs import load_pairs
from model.errors import UserError
from model.tasks.regression import without_warnings

POSTS: Literal["20newsgroups-stripped"] = "20newsgroups-stripped"
PAPER_BYTES = 4_000
"""First bytes of a paper that the matcher has read in training."""
MATCHER, BASELINE = "matcher", "TF-IDF of posts, SVD"
NEAREST, REGRESSION = "nearest posts", "logistic regression"
NEIGHBOURS = (1, 3, 5, 10, 20, 50)
STRENGTHS = (1.0, 10.0, 100.0, 1_000.0)
"""Candidate inverse regularisation C."""

Vectors = Any
"""(texts, numbers), each of length 1 or 0: an array, or a sparse matrix."""
Labels = NDArray[np.int64]
Choices = Iterator[tuple[int | float, Labels, Labels]]
"""Candidate, and the labels that it gives to validation and to test."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    add_data_dir(parser)
    parser.add_argument("--export", default="exports/aan", type=Path, help="a matcher (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Classify the test posts with each kind of vectors."""
    loaded = load_export(version_folder(args.export), device="cpu")
    if not isinstance(loaded.task, Matching):
        raise UserError(f"{args.export} is no matcher")
    data = load_documents(DocumentsConfig(name=POSTS), args.data_dir)
    splits = (data.train, data.validation, data.test)
    papers = load_pairs(PairsConfig(name="aan"), args.data_dir)
    learned = [papers.texts[i][:PAPER_BYTES] for i in np.unique(papers.table["train"][:, :2]).tolist()]
    dim, rows = loaded.task.manifest.dim, list[Data]()
    kinds: dict[str, Callable[[], list[Vectors]]] = {
        MATCHER: lambda: [embedded(loaded, part.texts) for part in splits],
        BASELINE: lambda: transformed(projection(dim).fit(data.train.texts), splits),
        "TF-IDF of papers, SVD": lambda: transformed(projection(dim).fit(learned), splits),
        "TF-IDF of posts": lambda: transformed(tfidf().fit(data.train.texts), splits),
    }
    for kind, vectors_of in tqdm(kinds.items(), unit="kind of vectors"):
        vectors = vectors_of()
        for reader, choices in ((NEAREST, nearest), (REGRESSION, regression)):
            found = chosen(
                choices(vectors, np.array(data.train.labels)), *(np.array(part.labels) for part in splits[1:])
            )
            rows.append({"vectors": kind, "numbers": vectors[0].shape[1], "label": reader, **found})
            yield {"model": f"{loaded.manifest.name}/{loaded.manifest.version}", "rows": rows}


def embedded(loaded: LoadedModel, texts: Sequence[bytes]) -> Floats:
    """Vectors of texts of any length, as /v1/embeddings returns them."""
    assert isinstance(loaded.task, Matching)
    computation = loaded.task.encode([LocatedText(f"input.{i}", text) for i, text in enumerate(texts)], "windows")
    step = advance(computation)
    while not isinstance(step, Answer):
        assert isinstance(step, RunModel)
        step = advance(computation, [loaded.run([row], loaded.row_lengths[-1])[0] for row in step.rows])
    return normalized(step.value.vectors)


def tfidf() -> TfidfVectorizer:
    """TF-IDF of words and pairs of words."""
    return TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, decode_error="replace", dtype=np.float32)


def projection(dim: int) -> Pipeline:
    """TF-IDF, projected to its first `dim` singular vectors."""
    return make_pipeline(tfidf(), TruncatedSVD(dim, random_state=0), Normalizer(copy=False))


def transformed(fitted: Any, splits: Sequence[Any]) -> list[Vectors]:
    """Vectors of the documents of each split."""
    return [fitted.transform(part.texts) for part in splits]


def nearest(vectors: Sequence[Vectors], labels: Labels) -> Choices:
    """Votes of the training posts of the largest cosine, for each number of them.

    Args:
        vectors: of training, validation and test.
        labels: of the training posts.

    """
    index = NearestNeighbors(n_neighbors=min(max(NEIGHBOURS), len(labels)), metric="cosine", algorithm="brute").fit(
        vectors[0]
    )
    found = [index.kneighbors(part) for part in vectors[1:]]
    for count in NEIGHBOURS:
        validation, test = (
            voted(1 - distances[:, :count], labels[neighbours[:, :count]]) for distances, neighbours in found
        )
        yield count, validation, test


def voted(cosines: NDArray[np.floating[Any]], labels: Labels) -> Labels:
    """Label with the largest sum of cosines, from the cosines and labels (texts, neighbours) of the nearest posts."""
    sums = np.zeros((len(labels), labels.max() + 1))
    np.add.at(sums, (np.arange(len(labels))[:, None], labels), cosines)
    winners: Labels = sums.argmax(1)
    return winners


def regression(vectors: Sequence[Vectors], labels: Labels) -> Choices:
    """Answers of logistic regression, for each C; arguments as in `nearest`."""
    fitted = LogisticRegression(max_iter=300, warm_start=True)  # each C starts from the weights of the last one
    for strength in STRENGTHS:
        with without_warnings():
            fitted.set_params(C=strength).fit(vectors[0], labels)
        yield strength, fitted.predict(vectors[1]), fitted.predict(vectors[2])


def chosen(choices: Choices, validation: Labels, test: Labels) -> Data:
    """The candidate that is best on validation, the first of equal ones, and its answers on test."""
    found = [(float((held_out == validation).mean()), choice, tested) for choice, held_out, tested in choices]
    accuracy, choice, tested = max(found, key=lambda one: one[0])
    return {"choice": choice, "validation": accuracy, "correct": digits(tested == test)}


def report(record: Record) -> str:
    """Report with one row for each kind of vectors and each way to the label."""
    found = record.data["rows"]
    rivals = {row["label"]: correct(row) for row in found if row["vectors"] == BASELINE}
    rows = []
    for row in found:
        right = correct(row)
        is_baseline = row["vectors"] == BASELINE or row["label"] not in rivals
        rows.append(
            [
                row["vectors"],
                row["label"],
                f"{row['numbers']:,}",
                f"{'k' if row['label'] == NEAREST else 'C'} = {row['choice']:g}",
                f"{100 * row['validation']:.1f}",
                accuracy(right),
                "" if is_baseline else points(right - rivals[row["label"]]),
            ]
        )
    columns = ["vectors", "label by", "numbers", "choice", "validation", "test", "less SVD of posts"]
    return (
        f"Accuracy in % on {len(found[0]['correct']):,} test posts of `{POSTS}`, 20 labels, ± standard error. No post "
        f"is in the training data of the matcher, `{record.data['model']}`. Differences are to `{BASELINE}` on the "
        f"same posts, in points. Validation posts choose k and C.\n\n{table(columns, rows, left=2)}"
    )


def accuracy(right: NDArray[np.float64]) -> str:
    """Mean in % ± its standard error."""
    return f"{100 * right.mean():.1f} ± {100 * right.std(ddof=1) / math.sqrt(len(right)):.1f}"


def draw(record: Record, path: Path) -> None:
    """Chart with one panel for each way to the label: test accuracy of each kind of vectors."""
    figure, panels = chart.figure((9, 2.6), 2, share_y=True)
    for axes, reader in zip(panels, (NEAREST, REGRESSION), strict=True):
        rows = [row for row in record.data["rows"] if row["label"] == reader]
        colours = ["C1" if row["vectors"] == MATCHER else "C0" for row in rows]
        axes.barh([row["vectors"] for row in rows], [100 * correct(row).mean() for row in rows], color=colours)
        axes.set(title=reader, xlabel="test accuracy, %", xlim=(0, 100))
    panels[0].invert_yaxis()
    chart.save(figure, path)


BENCHMARK = Benchmark.of("Embeddings", measure, report, draw, options, ("onnxruntime", "scikit-learn", "numpy"))

if __name__ == "__main__":
    BENCHMARK.main()
