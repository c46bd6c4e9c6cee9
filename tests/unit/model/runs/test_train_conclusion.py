"""What training prints at its end."""

import random
import re
from pathlib import Path
from typing import Any

import pytest

from model.data.own import DataFiles
from model.runs.load import load_trained
from model.tasks import tfidf
from model.tasks.words import WordTask
from model.training import checkpoint
from tests.support.commands import call

WORDS = {"common": "kettle cup leaf pot water", "rare": "track sleeper water leaf"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Documents of two classes that differ little, 110 of one and 10 of the other."""
    generator, path = random.Random(2), tmp_path / "notes.csv"
    rows = [
        f"{' '.join(generator.choices(WORDS[label].split(), k=3))} {i},{label}"
        for i, label in enumerate(["common"] * 110 + ["rare"] * 10)
    ]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def train(path: Path, *arguments: object) -> int:
    fixed = ("--runs", path.parent / "runs", "--device", "cpu")
    return call("train", "--task", "text-classification", "--data", path, *fixed, *arguments)


NO_VECTORS = ("--set", "model.ngram_vectors.epochs=0")


def test_training_says_what_was_trained_and_how_it_compares(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(file, *NO_VECTORS, "--class-weights", "balanced", "--set", "model.kind=words") == 0
    out = capsys.readouterr().out
    assert re.search(
        r"\nthe model is the n-gram view \(n-grams of up to \d words.*, scales \S+, C = \S+, without vectors; 512 "
        r"bytes at once\) alone; the vector view with S3Attention was not trained: it needs --unlabelled documents\n",
        out,
    )
    assert re.search(r"\nvalidation: accuracy \d\.\d{4}, macro F1 \d\.\d{4}; recall by class: ", out)
    assert re.search(
        r"\nvalidation macro_f1 \S+, TF-IDF and logistic regression \(.*, balanced\) \S+: \S+ ± \S+ points\n", out
    )
    config, *_ = checkpoint.load(file.parent / "runs" / "notes-seed0" / "best.pt")
    assert config.to_dict()["model"]["ngram_view"]["class_weights"] == "balanced"
    assert train(file, *NO_VECTORS, "--class-weights", "balanced", "--resume") == 0
    assert [line for line in capsys.readouterr().out.splitlines() if " points" in line] == [
        line for line in out.splitlines() if " points" in line
    ]


def test_baseline_is_fitted_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, original = list[object](), tfidf.fit_classifier

    def fit_classifier(*arguments: Any, **options: Any) -> tfidf.Baseline | None:
        fitted.append(original(*arguments, **options))
        return fitted[-1]  # type: ignore[return-value]

    monkeypatch.setattr(tfidf, "fit_classifier", fit_classifier)
    assert train(file, *NO_VECTORS) == 0
    assert len(fitted) == 1
    assert train(file, *NO_VECTORS, "--resume") == 0
    assert len(fitted) == 2


@pytest.mark.usefixtures("without_files_for_cuda")
def test_evaluation_says_which_class_is_never_predicted(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file.with_name("other.csv")
    path.write_text("text,label\n" + "kettle cup,common\n" * 20 + "kettle pot,rare\n" * 3)
    assert train(file, *NO_VECTORS) == 0
    run, exports = file.parent / "runs" / "notes-seed0", file.parent / "exports"
    monkeypatch.chdir(file.parent)
    assert call("export", run, "--out", exports, "--device", "cpu") == 0
    for folder in (run, exports / "notes"):
        capsys.readouterr()
        assert call("evaluate", folder, "--data", path, "--device", "cpu") == 0
        out = capsys.readouterr().out
        assert "recall by class: rare 0.00 of 3, common 1.00 of 20\n" in out
        assert "never predicted, with their number of documents: rare (3); with --class-weights balanced" in out
    capsys.readouterr()
    assert call("evaluate", run, "--device", "cpu") == 0
    assert re.search(r"macro_f1 \(windows\) less that of the baseline: \S+ ± \S+ points\n", capsys.readouterr().out)


def test_vector_view_is_named_with_its_gain(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = file.with_name("more.jsonl")
    more.write_text("".join(f'{{"text": "kettle cup {i} track"}}\n' for i in range(30)))
    small = ("model.ngram_vectors.epochs=1", "training.epochs=1")
    assert train(file, "--unlabelled", more, *(part for one in small for part in ("--set", one))) == 0
    best = load_trained(file.parent / "runs" / "notes-seed0", DataFiles())
    assert isinstance(best.task, WordTask)
    gain = r"validation cross-entropy \d\.\d{4} with it, \d\.\d{4} without$"
    for is_kept, found in (
        (True, r"\) and the vector view with S3Attention: "),
        (False, r"\) alone; the vector view with S3Attention was left out: "),
    ):
        (line,) = best.task.knowing(has_vector_view=is_kept).trained(best.progress)
        assert re.search(found + gain, line)
    assert re.search(gain, capsys.readouterr().out, re.MULTILINE)
