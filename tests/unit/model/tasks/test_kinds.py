"""Words or bytes."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from artifact import load
from artifact.exports import read_manifest
from artifact.tasks.classification import ClassifierManifest
from model.data.documents import LabelledDocuments
from model.tasks import bytes as byte_task
from model.tasks import kinds, words
from model.tasks.bytes import ByteTask
from model.tasks.kinds import shared_words
from model.tasks.words import WordTask
from model.training import checkpoint
from tests.support.commands import call, export

MOTIFS = ("GATTACAGT", "CCGGAATTC")
RUN = "runs/strands-seed0"


def strand(generator: random.Random, label: int) -> str:
    """One word; the motif of its label is at a random place."""
    letters = generator.choices("ACGT", k=60)
    place = generator.randrange(50)
    return "".join([*letters[:place], MOTIFS[label], *letters[place:]])


def strands(count: int = 60) -> list[tuple[str, int]]:
    generator = random.Random(5)
    return [(strand(generator, i % 2), i % 2) for i in range(count)]


def sentences(count: int = 60) -> list[tuple[str, int]]:
    """Documents share most words."""
    generator = random.Random(5)
    common = [f"w{i}" for i in range(30)]
    return [(" ".join([*generator.choices(common, k=20), ("tea", "rail")[i % 2]]), i % 2) for i in range(count)]


def rare_names(count: int = 60) -> list[tuple[str, int]]:
    """Documents share few words, but one of these tells the label."""
    generator = random.Random(5)
    return [
        (" ".join([*("".join(generator.choices("aeioknrst", k=7)) for _ in range(12)), ("it", "on")[i % 2]]), i % 2)
        for i in range(count)
    ]


def documents(rows: Sequence[tuple[str, int]], groups: tuple[str, ...] = ()) -> LabelledDocuments:
    return LabelledDocuments([text.encode() for text, _ in rows], [label for _, label in rows], groups)


def write(folder: Path, rows: Sequence[tuple[str, int]]) -> Path:
    path = folder / "strands.jsonl"
    path.write_text("".join(json.dumps({"text": text, "label": f"l{label}"}) + "\n" for text, label in rows))
    return path


def train(path: Path, *arguments: object) -> int:
    fixed = ("--runs", path.parent / "runs", "--device", "cpu", "--set", "model.ngram_vectors.epochs=0")
    return call("train", "--task", "text-classification", "--data", path, *fixed, *arguments)


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def no_comparison(patch: pytest.MonkeyPatch) -> None:
    """Fail in a comparison, and interrupt training after the place of it."""
    patch.setattr(kinds, "best_held_out", lambda *_: pytest.fail("compared"))
    patch.setattr(words, "choose", interrupt)
    patch.setattr(byte_task, "choose", interrupt)


@pytest.mark.usefixtures("without_report")
def test_bytes_are_read_and_served_where_each_document_is_one_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(write(tmp_path, strands())) == 0
    out = capsys.readouterr().out
    assert (
        "0% of the different words are in more than one training document; held-out cross-entropy (accuracy) of 48"
        in out
    )
    assert ": n-grams of bytes are read; --set model.kind=words chooses otherwise" in out
    assert "n-gram view, chosen by cross-validation: n-grams of 3, 5, 7 bytes" in out
    assert out.count("bytes are read at once") == 1
    config, _, facts, _ = checkpoint.load(tmp_path / RUN / "best.pt")
    recipe = config.to_dict()
    assert (recipe["model"]["kind"], recipe["data"]["encoding"]) == ("bytes", "bytes")
    assert recipe["model"]["ngram_view"]["tried"] == ("sublinear",)
    assert facts["kind"]["kind"] == "bytes"
    assert facts["kind"]["reason"] in out
    assert "words" not in facts
    folder = export(tmp_path / RUN, tmp_path / "exports")
    manifest = read_manifest(folder)
    assert isinstance(manifest, ClassifierManifest)
    assert manifest.training.recipe["model"]["kind"] == "bytes"
    assert not manifest.reads_text
    generator = random.Random(9)
    answers = load(folder).classify([strand(generator, label) for label in (0, 1, 1, 0)])
    assert [answer["label"] for answer in answers] == ["l0", "l1", "l1", "l0"]


@pytest.mark.usefixtures("without_report")
def test_choice_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, strands())
    with monkeypatch.context() as patch:
        patch.setattr(byte_task, "choose", interrupt)
        assert train(path) == 130
    monkeypatch.setattr(kinds, "best_held_out", lambda *_: pytest.fail("compared twice"))
    capsys.readouterr()
    assert train(path, "--resume") == 0
    assert "n-grams of 3, 5, 7 bytes" in capsys.readouterr().out
    assert checkpoint.load(tmp_path / RUN / "best.pt").facts["kind"]["kind"] == "bytes"
    assert train(path, "--resume", "--set", "model.kind=words") == 2
    assert "was trained with another recipe" in capsys.readouterr().err


def test_run_killed_in_the_comparison_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, strands())
    with monkeypatch.context() as patch:
        patch.setattr(kinds, "best_held_out", interrupt)
        assert train(path) == 130
    monkeypatch.setattr(byte_task, "choose", interrupt)
    assert train(path, "--resume") == 130
    assert checkpoint.load(tmp_path / RUN / "last.pt").facts["kind"]["kind"] == "bytes"


def test_words_stay_where_they_tell_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, rare_names())
    with monkeypatch.context() as patch:
        patch.setattr(words, "choose", interrupt)
        assert train(path) == 130
    assert ": n-grams of words are read; --set model.kind=bytes chooses otherwise" in capsys.readouterr().out
    last = checkpoint.load(tmp_path / RUN / "last.pt")
    assert (last.config.to_dict()["model"]["kind"], last.facts["kind"]["kind"]) == ("words", "words")
    no_comparison(monkeypatch)
    assert train(path, "--resume") == 130


def test_documents_that_share_words_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_comparison(monkeypatch)
    assert train(write(tmp_path, sentences())) == 130
    assert "kind" not in checkpoint.load(tmp_path / RUN / "last.pt").facts


@pytest.mark.parametrize(
    "option",
    [
        ("--set", "model.kind=words"),
        ("--set", "model.kind=bytes"),
        ("--set", "model.ngram_view.longest=3"),
        ("--set", "model.ngram_view.tried=['prefixes']"),
        ("--encoding", "ascii"),
    ],
)
def test_what_the_user_chose_is_not_compared(
    option: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_comparison(monkeypatch)
    assert train(write(tmp_path, strands()), *option) == 130


def test_kind_of_a_recipe_of_the_user_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_comparison(monkeypatch)
    recipe = tmp_path / "own.toml"
    recipe.write_text('base = "documents"\n[data]\nname = "own"\n[model]\nkind = "words"\n')
    command = ("train", recipe, "--task", "text-classification", "--data", write(tmp_path, strands()))
    assert call(*command, "--runs", tmp_path / "runs", "--device", "cpu") == 130


def test_unlabelled_documents_are_read_by_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_comparison(monkeypatch)
    more = tmp_path / "more.jsonl"
    more.write_text(json.dumps({"text": "ACGTACGTTTGACA"}) + "\n")
    path = write(tmp_path, strands())
    command = ("train", "--task", "text-classification", "--data", path, "--runs", tmp_path, "--device", "cpu")
    assert call(*command, "--unlabelled", more, "--set", "model.ngram_vectors.epochs=1") == 130


@pytest.mark.parametrize(("encoding", "is_compared"), [("utf-8", True), ("utf-8-sig", False), ("utf-16", False)])
def test_files_that_hold_other_bytes_are_read_by_words(
    encoding: str, is_compared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = list[type]()

    def held_out(task: WordTask | ByteTask, _: object) -> None:
        compared.append(type(task))

    monkeypatch.setattr(kinds, "_held_out", held_out)
    monkeypatch.setattr(words, "choose", interrupt)
    for i, (text, label) in enumerate(strands()):
        file = tmp_path / "strands" / f"l{label}" / f"{i}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding)
    assert train(tmp_path / "strands") == 130
    assert compared == ([WordTask, ByteTask] if is_compared else [])


@pytest.mark.usefixtures("without_report")
def test_documents_without_words_are_read_by_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generator = random.Random(2)
    codes = ["\x01\x02", "\x03\x04"]
    rows = [
        ("".join([*generator.choices("\x05\x06\x07\x0e", k=20), codes[i % 2] * 3, "\x0f"]), i % 2) for i in range(60)
    ]
    assert train(write(tmp_path, rows)) == 0
    assert "no training document contains a word: n-grams of bytes are read\n" in capsys.readouterr().out
    assert checkpoint.load(tmp_path / RUN / "best.pt").config.to_dict()["model"]["kind"] == "bytes"


@pytest.mark.usefixtures("without_report")
def test_folds_are_trained_with_the_kind_that_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compared, original = list[type](), kinds._held_out

    def held_out(task: WordTask | ByteTask, chosen: LabelledDocuments) -> object:
        compared.append(type(task))
        return original(task, chosen)

    monkeypatch.setattr(kinds, "_held_out", held_out)
    assert train(write(tmp_path, strands()), "--folds", 2) == 0
    assert compared == [WordTask, ByteTask]
    assert checkpoint.load(tmp_path / RUN / "fold-2" / "best.pt").config.to_dict()["model"]["kind"] == "bytes"
    assert "2 folds, 54 documents: accuracy" in capsys.readouterr().out


def test_comparison_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kinds, "COMPARED_DOCUMENTS", 20)
    monkeypatch.setattr(byte_task, "choose", interrupt)
    monkeypatch.setattr(words, "choose", interrupt)
    assert train(write(tmp_path, strands())) == 130
    assert "held-out cross-entropy (accuracy) of 20 documents" in capsys.readouterr().out


def test_documents_larger_than_the_bound_are_compared_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kinds, "COMPARED_BYTES", 6_000)
    monkeypatch.setattr(kinds, "LENGTHS", (128,))
    monkeypatch.setattr(byte_task, "choose", interrupt)
    generator = random.Random(7)
    rows = [(text + "".join(generator.choices("ACGT", k=9_000)), label) for text, label in strands(40)]
    assert train(write(tmp_path, rows)) == 130
    out = capsys.readouterr().out
    assert "held-out cross-entropy (accuracy) of 32 documents: bytes" in out
    assert "n-grams of bytes are read" in out


def test_keys_that_do_not_fit_bytes_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    no_comparison(monkeypatch)
    assert train(write(tmp_path, strands()), "--set", "model.ngram_view.max_length=300") == 130
    out = capsys.readouterr().out
    assert "n-grams of bytes are not compared: " in out
    assert "seq_len must be even, not 37" in out


def test_shared_words_are_in_several_documents() -> None:
    texts = [("tea tea rail", 0), ("rail Pot", 1), ("pot, far", 0)]
    assert shared_words(documents(texts)) == pytest.approx(2 / 5)  # rail and pot, of tea, rail, pot, the comma and far
    assert shared_words(documents(texts, ("a", "b", "b"))) == pytest.approx(1 / 5)
    assert shared_words(documents(texts, ("a", "a", "a"))) == pytest.approx(2 / 5)
    assert shared_words(documents([("\x01", 0), ("\x02", 1)])) == 0


def test_message_tells_groups_and_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "strands.jsonl"
    lines = [
        {"text": text, "label": f"l{label}", "by": f"g{label}{i // 10}"} for i, (text, label) in enumerate(strands())
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_task, "choose", interrupt)
        assert train(path, "--group-column", "by", "--class-weights", "balanced") == 130
    out = capsys.readouterr().out
    assert (
        "0% of the different words are in training documents of several groups; held-out cross-entropy, weighted" in out
    )
    assert "by class (accuracy) of" in out
