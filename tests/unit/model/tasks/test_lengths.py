"""Whole documents or windows."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from model.config.models import NgramViewConfig
from model.data.documents import LabelledDocuments
from model.tasks import lengths, words
from model.tasks.lengths import choose_length
from model.tasks.ngrams import HeldOut, held_out
from model.training import checkpoint
from tests.support.commands import call

CONFIG = NgramViewConfig(longest=1, max_length=4096)
WHOLE = {"max_length": 16_384, "sublinear": True, "max_strength": 3_000.0}


def filler(generator: random.Random, count: int) -> str:
    return " ".join(f"w{generator.randrange(3_000)}" for _ in range(count))


def by_frequency(generator: random.Random, label: int) -> str:
    """Both labels have the same words; one of them is more frequent, which windows cannot tell."""
    times = 24 if label else 8
    parts = [f"{'tea ' * 1}{filler(generator, 70)}" for _ in range(times)] + [filler(generator, 70)] * (32 - times)
    return " ".join(parts)


def by_place(generator: random.Random, label: int) -> str:
    """One window says it all."""
    return f"{filler(generator, 1_000)} {'tea rail' if label else 'pot track'} {filler(generator, 1_000)}"


def documents(make: Callable[[random.Random, int], str], count: int = 60) -> LabelledDocuments:
    generator, labels = random.Random(3), [i % 2 for i in range(count)]
    return LabelledDocuments([make(generator, label).encode() for label in labels], labels)


def test_whole_documents_are_read_if_they_are_told_apart_better() -> None:
    found = choose_length(documents(by_frequency), 2, CONFIG, {})
    assert found is not None
    assert found["keys"] == WHOLE
    assert "100% of the training documents are longer than 4,096 bytes" in found["reason"]
    assert "16,384 bytes are read at once; --max-bytes chooses otherwise" in found["reason"]


def test_windows_are_read_if_they_are_told_apart_better(monkeypatch: pytest.MonkeyPatch) -> None:
    original = held_out

    def worse_whole(*arguments: object) -> HeldOut:
        found = original(*arguments)  # type: ignore[arg-type]
        return found._replace(losses=found.losses + 1) if arguments[-1] != CONFIG else found

    monkeypatch.setattr(lengths, "held_out", worse_whole)
    found = choose_length(documents(by_place), 2, CONFIG, {})
    assert found is not None
    assert found["keys"] == {}
    assert "windows are read" in found["reason"]


def test_keys_of_the_user_stay() -> None:
    found = choose_length(documents(by_frequency), 2, CONFIG, {"model.ngram_view.sublinear"})
    assert found is not None
    assert "sublinear" not in found["keys"]


def test_short_documents_have_no_choice() -> None:
    few = documents(by_place, 6)
    short = LabelledDocuments([*few.texts, *[b"tea", b"rail"] * 27], [*few.labels, *[0, 1] * 27])
    assert choose_length(short, 2, CONFIG, {}) is None
    assert choose_length(LabelledDocuments([b" " * 9_000, b"\n" * 9_000], [0, 1]), 2, CONFIG, {}) is None


def test_comparison_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths, "SAMPLE_DOCUMENTS", 20)
    found = choose_length(documents(by_frequency), 2, CONFIG, {})
    assert found is not None
    assert " of 20 of them" in found["reason"]


@pytest.fixture
def long_file(tmp_path: Path) -> Path:
    path = tmp_path / "plays.jsonl"
    found = documents(by_frequency, 40)
    rows = zip(found.texts, found.labels, strict=True)
    path.write_text("".join(json.dumps({"text": text.decode(), "label": f"l{label}"}) + "\n" for text, label in rows))
    return path


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def train(path: Path, *arguments: object) -> int:
    fixed = ("--runs", path.parent / "runs", "--device", "cpu", "--set", "model.ngram_vectors.epochs=0")
    return call("train", "--task", "text-classification", "--data", path, *fixed, *arguments)


def test_choice_is_printed_recorded_and_resumed(
    long_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(words, "choose", interrupt)
        assert train(long_file) == 130
    out = capsys.readouterr().out
    assert "or whole documents, as cross-validation chooses" in out
    assert "of the training documents are longer" in out
    monkeypatch.setattr(words, "choose_length", lambda *_: pytest.fail("chosen twice"))
    assert train(long_file, "--resume") == 0
    config, _, facts, _ = checkpoint.load(long_file.parent / "runs" / "plays-seed0" / "best.pt")
    view = config.to_dict()["model"]["ngram_view"]
    assert {key: view[key] for key in WHOLE} == WHOLE
    assert facts["length"]["keys"] == WHOLE


@pytest.mark.parametrize("search", ["with_length", "baseline"])
def test_run_killed_in_the_search_before_training_is_listed_and_resumed(
    search: str, long_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def killed(*_: object) -> None:
        raise SystemExit

    runs = long_file.parent / "runs"
    with monkeypatch.context() as patch:
        patch.setattr(words.WordTask, search, killed)
        with pytest.raises(SystemExit):
            train(long_file)
    capsys.readouterr()
    assert call("runs", runs) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("plays-seed0")]
    assert line.split()[1:] == ["plays.jsonl", "unfinished"]
    assert train(long_file) == 2
    assert "exists; resume it with --resume" in capsys.readouterr().err
    monkeypatch.setattr(words, "choose", interrupt)  # which comes after both searches
    assert train(long_file, "--resume") == 130
    config, _, facts, _ = checkpoint.load(runs / "plays-seed0" / "last.pt")
    assert facts["length"]["keys"] == WHOLE
    assert config.to_dict()["model"]["ngram_view"]["max_length"] == WHOLE["max_length"]
    assert facts["baseline"]["value"] > 0


def test_interrupted_search_is_resumed(
    long_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(words.WordTask, "with_length", interrupt)
    assert train(long_file) == 130
    assert capsys.readouterr().err == "interrupted; resume with --resume\n"


@pytest.mark.parametrize("option", [("--max-bytes", 4096), ("--set", "model.ngram_view.max_length=4096")])
def test_length_of_the_user_is_not_compared(
    option: tuple[object, ...], long_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "choose_length", lambda *_: pytest.fail("compared"))
    monkeypatch.setattr(words, "choose", interrupt)  # which comes after the comparison
    assert train(long_file, *option) == 130
