"""`python -m benchmarks.aan_tfidf`: what somebody would use instead to match papers, on the same pairs.

Cosine of TF-IDF vectors of words (scikit-learn, extra `bench`), fitted on the documents that are in no test or
validation fold; the threshold is chosen on validation. All test pairs, and those that share no paper with training.
Writes `aan_tfidf.md` into `benchmarks/results/`.
"""

import argparse
import os
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

from model.config.data import PairsConfig
from model.data.pairs import load_pairs
from model.tasks.matching import area_under_roc
from model.training.provenance import git_revision

MAX_BYTES = 4000


def main() -> None:
    """Fit, choose the threshold, measure; print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), type=Path)
    parser.add_argument("--out", default=Path(__file__).parent / "results", type=Path)
    args = parser.parse_args()
    pairs = load_pairs(PairsConfig(name="aan"), args.data_dir)
    texts = [text[:MAX_BYTES].decode(errors="ignore") for text in pairs.texts]
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, max_df=0.5)
    vectorizer.fit([text for text, fold in zip(texts, pairs.folds, strict=True) if fold > 1])
    vectors = vectorizer.transform(texts)

    def cosine(table: NDArray[np.int64]) -> NDArray[np.float64]:
        """Cosine of each pair; the vectors have length 1."""
        products = vectors[table[:, 0]].multiply(vectors[table[:, 1]]).sum(axis=1)
        return np.asarray(products, np.float64).ravel()

    lines = []
    for name, validation, test in (
        ("all", pairs.table["val"], pairs.table["test"]),
        ("paper-disjoint", pairs.disjoint("val"), pairs.disjoint("test")),
    ):
        scores = cosine(validation)
        threshold = max(np.unique(scores), key=lambda t: float(((scores >= t) == validation[:, 2]).mean()))
        found = cosine(test)
        accuracy = float(((found >= threshold) == test[:, 2]).mean())
        auc = area_under_roc(found, test[:, 2])
        lines.append(f"| {name:<14} | {len(test):>5} | {threshold:>9.4f} | {accuracy:>8.4f} | {auc:>6.4f} |")
    table = "\n".join(lines)
    text = (
        f"# TF-IDF cosine on pairs of ACL Anthology papers\n\nFirst {MAX_BYTES} bytes of each paper, words, sublinear "
        f"counts; no pair is trained on.\n\n"
        f"| test pairs     |     n | threshold | accuracy |    AUC |\n"
        f"| -------------- | ----: | --------: | -------: | -----: |\n{table}\n\n"
        f"- scikit-learn {version('scikit-learn')}, revision {git_revision()}, {datetime.now(UTC):%Y-%m-%d}\n"
        "- command: `python -m benchmarks.aan_tfidf`\n"
    )
    print(text)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "aan_tfidf.md").write_text(text)


if __name__ == "__main__":
    main()
