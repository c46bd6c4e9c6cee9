"""`python -m benchmarks.text_tfidf`: what somebody would use instead, on the same documents and splits.

TF-IDF of words and bigrams with logistic regression (scikit-learn, extra `bench`). The regularisation is chosen on the
validation documents; then the model is fitted on both and measured on the test split once. Writes `text_tfidf.md` into
`benchmarks/results/`.
"""

import argparse
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from tqdm import tqdm

from model.config.data import DocumentsConfig
from model.data.documents import load_test, load_training
from model.training.provenance import git_revision

SETS: tuple[Literal["imdb", "20newsgroups", "20newsgroups-stripped"], ...] = (
    "imdb",
    "20newsgroups",
    "20newsgroups-stripped",
)
STRENGTHS = (3.0, 10.0, 30.0, 100.0, 300.0)
"""Inverse regularisation strengths tried on validation."""


def main() -> None:
    """Choose, fit, measure; print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), type=Path)
    parser.add_argument("--out", default=Path(__file__).parent / "results", type=Path)
    args = parser.parse_args()
    rows = []
    for name in SETS:
        config = DocumentsConfig(name=name)
        data = load_training(config, args.data_dir)
        scores = {
            strength: fit(strength, data.train.texts, data.train.labels)(data.validation.texts, data.validation.labels)
            for strength in tqdm(STRENGTHS, desc=name, unit="fit")
        }
        chosen = max(scores, key=lambda strength: scores[strength])
        test = load_test(config, args.data_dir, data.labels)
        started = time.perf_counter()
        measure = fit(chosen, data.train.texts + data.validation.texts, data.train.labels + data.validation.labels)
        seconds = time.perf_counter() - started
        accuracy = 100 * measure(test.texts, test.labels)
        rows.append(
            f"| {name:<21} | {chosen:>3g} | {100 * scores[chosen]:>12.2f} | {len(test):>14} | {accuracy:>15.2f} | "
            f"{seconds:>8.0f} |"
        )
    text = (
        "# TF-IDF and logistic regression\n\n"
        "Words and bigrams in two documents or more, sublinear counts; training texts that are also in test dropped; C "
        "chosen on validation, then fitted on both.\n\n"
        "| documents             |   C | validation % | test documents | test accuracy % | fit, s   |\n"
        "| --------------------- | --: | -----------: | -------------: | --------------: | -------: |\n"
        + "\n".join(rows)
        + f"\n\n- scikit-learn {version('scikit-learn')}, revision {git_revision()}, {datetime.now(UTC):%Y-%m-%d}\n"
        "- command: `python -m benchmarks.text_tfidf`\n"
    )
    print(text)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "text_tfidf.md").write_text(text)


def fit(strength: float, texts: list[bytes], labels: list[int]) -> Callable[[list[bytes], list[int]], float]:
    """Fit on texts; returns the accuracy on others, in [0, 1]."""
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
    classifier = LogisticRegression(C=strength, max_iter=1000).fit(vectorizer.fit_transform(texts), labels)

    def accuracy(others: list[bytes], truth: list[int]) -> float:
        return float(classifier.score(vectorizer.transform(others), truth))

    return accuracy


if __name__ == "__main__":
    main()
