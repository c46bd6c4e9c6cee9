"""`python -m benchmarks.imdb_tfidf`: what somebody would use instead on IMDb, on the same split.

TF-IDF of words and bigrams with logistic regression (scikit-learn, extra `bench`). The regularisation is chosen on the
validation documents; then the model is fitted on both and measured on the test split once. Writes `imdb_tfidf.md` into
`benchmarks/results/`.
"""

import argparse
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from tqdm import tqdm

from model.config import DocumentsConfig
from model.data.documents import load_test, load_training
from model.train import git_revision

STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Inverse regularisation strengths tried on validation."""


def main() -> None:
    """Choose, fit, measure; print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), type=Path)
    parser.add_argument("--out", default=Path(__file__).parent / "results", type=Path)
    args = parser.parse_args()
    data = load_training(DocumentsConfig(name="imdb"), args.data_dir)
    scores = {
        strength: fit(strength, data.train.texts, data.train.labels)(data.validation.texts, data.validation.labels)
        for strength in tqdm(STRENGTHS, unit="fit")
    }
    chosen = max(scores, key=lambda strength: scores[strength])
    test = load_test(DocumentsConfig(name="imdb"), args.data_dir)
    started = time.perf_counter()
    measure = fit(chosen, data.train.texts + data.validation.texts, data.train.labels + data.validation.labels)
    seconds = time.perf_counter() - started
    rows = "\n".join(f"| {strength:>4g} | {100 * score:>12.2f} |" for strength, score in scores.items())
    text = (
        "# TF-IDF and logistic regression on IMDb\n\n"
        f"Words and bigrams, sublinear counts; training texts that are also in test dropped. C = {chosen:g} was chosen "
        f"on {len(data.validation)} validation reviews.\n\n"
        f"**{100 * measure(test.texts, test.labels):.2f} %** of {len(test)} test reviews; {seconds:.0f} s to fit.\n\n"
        f"|    C | validation % |\n| ---: | -----------: |\n{rows}\n\n"
        f"- scikit-learn {version('scikit-learn')}, revision {git_revision()}, {datetime.now(UTC):%Y-%m-%d}\n"
        "- command: `python -m benchmarks.imdb_tfidf`\n"
    )
    print(text)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "imdb_tfidf.md").write_text(text)


def fit(strength: float, texts: list[bytes], labels: list[int]) -> Callable[[list[bytes], list[int]], float]:
    """Fit on texts; returns the accuracy on others, in [0, 1]."""
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
    classifier = LogisticRegression(C=strength, max_iter=1000).fit(vectorizer.fit_transform(texts), labels)

    def accuracy(others: list[bytes], truth: list[int]) -> float:
        return float(classifier.score(vectorizer.transform(others), truth))

    return accuracy


if __name__ == "__main__":
    main()
