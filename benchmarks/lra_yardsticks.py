"""`python -m benchmarks.lra_yardsticks`: what needs no attention, on the same documents as `benchmarks.lra`.

The most frequent label, the label that goes with the first byte most often, and logistic regression on how often each
byte occurs (scikit-learn, extra `bench`, as it comes), from all training documents. Writes `lra_yardsticks.md` into
`benchmarks/results/`.
"""

import argparse
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tqdm import tqdm

from benchmarks.lra import STUDY
from benchmarks.served import RESULTS, table
from benchmarks.study import heads_of
from model.config.recipes import RECIPES, load_recipe
from model.config.run import ClassificationRun
from model.data.documents import load_test, load_training
from model.training.provenance import git_revision

COLUMNS = ("text", "listops", "image")


def main() -> None:
    """Fit, measure; print and write the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lra_yardsticks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), type=Path)
    args = parser.parse_args()
    found: dict[str, list[str]] = {"most frequent label": [], "first byte": [], "counts of bytes": []}
    for column in tqdm(COLUMNS, unit="task"):
        recipe = load_recipe(RECIPES / f"{STUDY.columns[column]}.toml")
        assert isinstance(recipe, ClassificationRun)
        data = load_training(recipe.data, args.data_dir)
        length = recipe.model.max_length
        train = [text[:length] for text in data.train.texts]
        heads = heads_of(load_test(recipe.data, args.data_dir, data.labels), length)
        truth = np.array(heads.labels)
        answers = {
            "most frequent label": np.full(len(truth), Counter(data.train.labels).most_common(1)[0][0]),
            "first byte": by_first_byte(train, data.train.labels, heads.texts),
            "counts of bytes": by_counts(train, data.train.labels, heads.texts),
        }
        for name, answer in answers.items():
            found[name].append(f"{100 * float(np.mean(answer == truth)):.1f}")
    text = (
        "# Long Range Arena without attention\n\n"
        "Test accuracy in %, on the documents and with the lengths of `lra.md` at scale cpu; from all training "
        "documents.\n\n"
        f"{table(['', *COLUMNS], [[name, *cells] for name, cells in found.items()])}\n"
        f"- revision {git_revision()}\n"
        "- command: `python -m benchmarks.lra_yardsticks`\n"
    )
    print(text)
    (RESULTS / "lra_yardsticks.md").write_text(text)


def by_first_byte(train: Sequence[bytes], labels: Sequence[int], texts: Sequence[bytes]) -> NDArray[np.int64]:
    """The most frequent label of the training documents that begin with the same byte."""
    counts: dict[bytes, Counter[int]] = {}
    for text, label in zip(train, labels, strict=True):
        counts.setdefault(text[:1], Counter())[label] += 1
    overall = Counter(labels)
    return np.array([counts.get(text[:1], overall).most_common(1)[0][0] for text in texts])


def by_counts(train: Sequence[bytes], labels: Sequence[int], texts: Sequence[bytes]) -> NDArray[np.int64]:
    """Logistic regression on the counts of the 256 bytes."""
    fitted = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(_counts(train), labels)
    answers: NDArray[np.int64] = fitted.predict(_counts(texts))
    return answers


def _counts(texts: Sequence[bytes]) -> NDArray[np.int64]:
    return np.stack([np.bincount(np.frombuffer(text, np.uint8), minlength=256) for text in texts])


if __name__ == "__main__":
    main()
