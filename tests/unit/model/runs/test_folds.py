"""Cross-validation of a whole training."""

import json
import random
from pathlib import Path

import pytest

from model.data.documents import DocumentSet, LabelledDocuments
from model.runs import folds
from model.training import stages
from model.training.checkpoint import RunFolder
from tests.support.commands import call

TOPICS = {"tea": "kettle cup leaf pot", "rail": "track sleeper signal train"}
NO_VECTORS = ("--set", "model.ngram_vectors.epochs=0")


def documents(count: int, groups: int = 0) -> LabelledDocuments:
    generator, topics = random.Random(1), list(TOPICS.values())
    texts = [f"{' '.join(generator.choices(topics[i % 2].split(), k=3))} {i}".encode() for i in range(count)]
    return LabelledDocuments(
        texts, [i % 2 for i in range(count)], tuple(str(i // 4 % groups) for i in range(count)) if groups else ()
    )


def data(count: int, groups: int = 0) -> DocumentSet:
    found = documents(count, groups)
    return DocumentSet(found.of(range(6, count)), found.of(range(3)), found.of(range(3, 6)), list(TOPICS))


def test_every_document_but_those_of_the_test_split_is_held_out_once() -> None:
    whole = data(60)
    found = list(whole.folds(4))
    held_out = [text for fold in found for text in fold.test.texts]
    assert sorted(held_out) == sorted([*whole.train.texts, *whole.validation.texts])
    for fold in found:
        parts = [set(part.texts) for part in (fold.train, fold.validation, fold.test)]
        assert sum(map(len, parts)) == len(set.union(*parts)) == 57
        assert not parts[0] & set(whole.test.texts)
        assert sorted({*fold.test.labels}) == [0, 1]
        assert 4 <= len(fold.validation) <= 5


def test_groups_and_copies_are_in_one_part() -> None:
    for fold in data(80, groups=10).folds(5):
        groups = [set(part.groups) for part in (fold.train, fold.validation, fold.test)]
        assert sum(map(len, groups)) == len(set.union(*groups))
    twice = LabelledDocuments([b"one", b"two", b"one", b"three"] * 3, [0, 1, 0, 1] * 3)
    parts = [set(part.texts) for part in twice.partition(3)]
    assert sorted(text for part in parts for text in part) == [b"one", b"three", b"two"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "topics.jsonl"
    found, names = documents(80), list(TOPICS)
    rows = zip(found.texts, found.labels, strict=True)
    path.write_text("".join(json.dumps({"text": t.decode(), "label": names[i]}) + "\n" for t, i in rows))
    return path


def train(path: Path, *arguments: object) -> int:
    fixed = ("--runs", path.parent / "runs", "--device", "cpu", *NO_VECTORS)
    return call("train", "--task", "text-classification", "--data", path, *fixed, *arguments)


def test_folds_are_measured_and_then_the_model_is_trained(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = file.parent / "runs" / "topics-seed0"
    assert train(file, "--folds", 3, "--set", "data.final_fit=true") == 0
    out = capsys.readouterr().out
    record = json.loads((run / "folds.json").read_text())
    assert len(record["folds"]) == 3
    assert record["all"]["documents"] == sum(fold["documents"] for fold in record["folds"]) == 72
    assert record["all"]["accuracy"] >= 0.9
    assert (
        f"3 folds, 72 documents: accuracy {record['all']['accuracy']:.4f}, macro F1 {record['all']['macro_f1']:.4f}; "
        f"tuned TF-IDF {record['all']['baseline_accuracy']:.4f}, "
    ) in out
    assert "; difference in accuracy " in out
    assert (run / "best.pt").is_file()
    assert (run / "final.pt").is_file()
    assert not (run / "fold-1" / "final.pt").exists()


def test_interrupted_folds_are_resumed(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, original = file.parent / "runs" / "topics-seed0", stages.run_stages

    def interrupt_second(steps: object, folder: RunFolder, metric: str) -> object:
        if folder.path.name == "fold-2":
            raise KeyboardInterrupt("resume with --resume")
        return original(steps, folder, metric)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(folds, "run_stages", interrupt_second)
        assert train(file, "--folds", 2) == 130
    capsys.readouterr()
    assert call("evaluate", run, "--device", "cpu") == 2
    assert "has not finished training; repeat its `train` command with --resume" in capsys.readouterr().err
    assert train(file, "--folds", 2, "--resume") == 0
    assert (run / "folds.json").is_file()


def test_groups_of_which_a_fold_leaves_one_label_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.csv"
    rows = [f"{'kettle' if i % 2 else 'track'} {i},{'xy'[i % 2]},g{i % 6}" for i in range(60)]
    path.write_text("text,label,author\n" + "\n".join(rows) + "\n")
    assert train(path, "--folds", 2, "--group-column", "author") == 2
    assert "--folds 2: fold 1 has only one label to learn from; choose another number" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [("--task", "text-matching", "--data", "a.csv"), ("--task", "text-classification")]
)
def test_folds_are_for_own_documents(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("train", *arguments, "--folds", 3, "--device", "cpu") == 2
    assert capsys.readouterr().err == "error: --folds needs --task text-classification and --data\n"
